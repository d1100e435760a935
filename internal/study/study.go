// Package study measures how accurate the limiter's algorithms are, on simulated time
// and from fixed seeds: docs/accuracy.md is what it finds, and `make study` renews it.
package study

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"weir/limiter"
)

// Results are all that the pages tell, in whole numbers, so that each run on each
// machine writes the same. Beside the blocks there is a small one, which tests play anew.
type Results struct {
	Blocks    int       `json:"blocks"`
	Sample    Simulated `json:"sample"`
	AllBlocks Simulated `json:"all_blocks"`
	Worst     Worst     `json:"worst"`
	Memory    Memory    `json:"memory"`
}

// Simulated is what random traffic shows.
type Simulated struct {
	Shapes []ShapeResult `json:"shapes"`
	Room   []RoomResult  `json:"room"`
}

// Blocks is how many blocks the study plays: parts of the traffic with seeds of their own.
const Blocks = 40

// Run is the study without what is measured on real stores. It calls done after each of
// the blocks, of which there is one at least.
func Run(blocks int, done func(block int)) Results {
	r := Results{Blocks: blocks, Sample: sample(), AllBlocks: simulate(0, whole), Worst: worstCases()}
	done(0)
	for b := 1; b < blocks; b++ {
		r.AllBlocks.add(simulate(b, whole))
		done(b)
	}
	return r
}

// sample is a small block.
func sample() Simulated { return simulate(Blocks, size{part: 8, requests: 1500}) }

// size is how much of a block is played: 1/part of its clients, with so many requests
// each at most.
type size struct{ part, requests int }

var whole = size{part: 1, requests: math.MaxInt}

func (z size) clients(n int) int { return (n + z.part - 1) / z.part }

func (z size) cut(times []int64) []int64 { return times[:min(len(times), z.requests)] }

func simulate(block int, z size) Simulated {
	var s Simulated
	for i := range shapes {
		s.Shapes = append(s.Shapes, shapes[i].play(random(uint64(i), block), z))
	}
	for i := range roomTraffics {
		s.Room = append(s.Room, roomTraffics[i].play(random(uint64(100+i), block), z)...)
	}
	return s
}

func random(what uint64, block int) *rand.Rand {
	return rand.New(rand.NewPCG(2026, what<<32|uint64(block)))
}

func (s *Simulated) add(o Simulated) {
	for i := range s.Shapes {
		s.Shapes[i].add(&o.Shapes[i])
	}
	for i := range s.Room {
		s.Room[i].add(&o.Room[i])
	}
}

// find returns the result of a shape, which there is.
func (s *Simulated) find(name string) *ShapeResult {
	return &s.Shapes[slices.IndexFunc(s.Shapes, func(r ShapeResult) bool { return r.Name == name })]
}

func (s *Simulated) findRoom(traffic string, limit uint64) *RoomResult {
	return &s.Room[slices.IndexFunc(s.Room, func(r RoomResult) bool { return r.Traffic == traffic && r.Limit == limit })]
}

// The times of the study are µs since this Monday's midnight, at which windows start.
var start = time.Date(2026, time.January, 5, 0, 0, 0, 0, time.UTC).UnixMicro()

const (
	second = int64(1_000_000)
	minute = 60 * second
	hour   = 60 * minute
	day    = 24 * hour
)

// The order of the algorithms in tables and in results.
const (
	exactLog = iota
	slidingCounter
	fixedWindow
	tokenBucket
	leakyBucket
	algorithms
)

var algorithmNames = [algorithms]string{"sliding_window_log", "sliding_window_counter", "fixed_window", "token_bucket", "leaky_bucket"}

// limits are the five with one limit: the bucket and the queue as rules have them by
// default, and the log without what it refused, so that all count the same.
func limits(requests uint64, window int64) [algorithms]limiter.Limit {
	l := limiter.Limit{Requests: requests, Window: limiter.Window{Length: time.Duration(window) * time.Microsecond}}
	with := func(a limiter.Algorithm, burst, queue uint64) limiter.Limit {
		l := l
		l.Algorithm, l.Burst, l.Queue = a, burst, queue
		return l
	}
	return [algorithms]limiter.Limit{
		exactLog:       with(limiter.SlidingWindowLog, 0, 0),
		slidingCounter: with(limiter.SlidingWindowCounter, 0, 0),
		fixedWindow:    l,
		tokenBucket:    with(limiter.TokenBucket, requests, 0),
		leakyBucket:    with(limiter.LeakyBucket, 0, requests),
	}
}

// counter is one of the limiter's counters, on simulated time.
type counter struct {
	hit   [1]limiter.Hit
	slot  [1]limiter.Slot
	state limiter.State
}

func newCounter(l limiter.Limit) *counter {
	return &counter{hit: [1]limiter.Hit{{Key: limiter.Key("k"), Limit: l, Cost: 1, MaxDelay: limiter.NoDeadline}}}
}

var onlyOne = []int{0}

// ask brings a hit of 1.
func (c *counter) ask(at int64) limiter.Decision {
	c.slot[0] = limiter.Slot{State: c.state}
	d := limiter.Evaluate(c.hit[:], onlyOne, c.slot[:], time.UnixMicro(start+at), limiter.Options{})[0]
	if c.slot[0].Changed {
		c.state = c.slot[0].State
	}
	return d
}

// recent has the hits of the last window's time, and shares no code with the limiter:
// the truth that its decisions are held against. A hit exactly one window old has left.
type recent struct {
	window int64
	times  []int64
}

func (r *recent) count(at int64) int64 {
	for len(r.times) > 0 && r.times[0] <= at-r.window {
		r.times = r.times[1:]
	}
	return int64(len(r.times))
}

func (r *recent) add(at int64) { r.times = append(r.times, at) }
