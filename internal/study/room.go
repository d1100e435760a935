package study

import (
	"math/rand/v2"

	"weir/limiter"
)

// How much room a limit needs above what clients do on average, so that those who do
// nothing wrong are hardly ever refused.

// roomTraffic is clients of 100 requests a minute on average.
type roomTraffic struct {
	name   string
	client func(r *rand.Rand) []int64
}

const roomClients = 2 // of a block

var roomTraffics = []roomTraffic{
	{"steady", func(r *rand.Rand) []int64 { return poisson(r, hour, float64(minute)/100) }},
	{"bursty", func(r *rand.Rand) []int64 { return bursts(r, hour, 100) }},
}

// roomLimits are the limits tried, a minute: also the percentage of the average.
var roomLimits = []uint64{80, 90, 100, 110, 125, 150, 175, 200, 250, 300, 400}

// The order of those compared here. A leaky bucket refuses as a token bucket does.
const (
	roomFixed = iota
	roomCounter
	roomLog
	roomTries // the log as rules have it by default: who is refused counts too
	roomToken
	roomCompared
)

var roomAlgorithms = [roomCompared]string{"fixed_window", "sliding_window_counter", "sliding_window_log", "sliding_window_log, refused tries counted", "token_bucket"}

// RoomResult is how many of the requests each algorithm refuses at a limit.
type RoomResult struct {
	Traffic  string              `json:"traffic"`
	Limit    uint64              `json:"limit"`
	Requests int64               `json:"requests"`
	Refused  [roomCompared]int64 `json:"refused"` // in the order of roomAlgorithms
	Wrong    int64               `json:"wrong"`   // the sliding counter decided otherwise than the exact log
}

func (x *RoomResult) add(o *RoomResult) {
	x.Requests += o.Requests
	x.Wrong += o.Wrong
	for i := range x.Refused {
		x.Refused[i] += o.Refused[i]
	}
}

func roomCounters(limit uint64) (cs [roomCompared]*counter) {
	all := limits(limit, minute)
	tries := all[exactLog]
	tries.CountDenied = true
	for i, l := range [roomCompared]limiter.Limit{all[fixedWindow], all[slidingCounter], all[exactLog], tries, all[tokenBucket]} {
		cs[i] = newCounter(l)
	}
	return cs
}

func (x *roomTraffic) play(r *rand.Rand, z size) []RoomResult {
	clients := make([][]int64, z.clients(roomClients))
	for i := range clients {
		clients[i] = z.cut(x.client(r))
	}
	var results []RoomResult
	for _, limit := range roomLimits {
		result := RoomResult{Traffic: x.name, Limit: limit}
		for _, times := range clients {
			result.decide(roomCounters(limit), times)
		}
		results = append(results, result)
	}
	return results
}

func (x *RoomResult) decide(counters [roomCompared]*counter, times []int64) {
	for _, at := range times {
		var passes [roomCompared]bool
		for i, c := range counters {
			if passes[i] = c.ask(at).Allowed; !passes[i] {
				x.Refused[i]++
			}
		}
		if passes[roomCounter] != passes[roomLog] {
			x.Wrong++
		}
		x.Requests++
	}
}
