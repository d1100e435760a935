package study

import (
	"math"
	"math/rand/v2"
)

// shape is a kind of traffic: clients with a counter each, all with one limit.
type shape struct {
	name, what string
	limit      uint64
	window     int64
	clients    int                                  // of a block
	client     func(r *rand.Rand, rank int) []int64 // when its requests come, in order
}

// shapes are the kinds of traffic of which the page tells, the tame ones first. None is
// a recording: each puts one trait of real traffic to the test, near its limit, where
// decisions are hard; but for the first. (Far below its limit every algorithm lets everything pass.)
var shapes = []shape{
	{"apart", "clients with a tenth of the limit on average, in page views of 4.5 requests, and one in 500 with 10 × the limit; 60 a minute", 60, minute, 500, apartClient},
	{"zipf", "10,000 clients, the busiest with 2 × the limit on average, the next with half of that, a third, …; in page views of 4.5 requests; 60 a minute", 60, minute, 10_000, zipfClient},
	{"diurnal", "day and night: from 0.2 × the limit at night to 1.2 × at the peak; 1,000 an hour", 1000, hour, 6, diurnalClient},
	{"steady", "independent requests; clients with 0.5 to 1.5 × the limit on average", 100, minute, 20, func(r *rand.Rand, _ int) []int64 {
		return poisson(r, hour, float64(minute)/(100*(0.5+r.Float64())))
	}},
	{"bursty", "bursts of 40 requests on average, 50 ms apart; 0.6 × the limit on average", 100, minute, 20, func(r *rand.Rand, _ int) []int64 {
		return bursts(r, hour, 60)
	}},
	{"paced", "clients that keep to the limit by themselves: one request each 0.6 s, up to 50 ms late", 100, minute, 20, pacedClient},
	{"batch", "clients that send a whole limit at once each minute, up to a second late, as a cron job does", 100, minute, 20, batchClient},
	{"hammer", "10 × the limit, all the time: a loop that retries, or an attack", 100, minute, 5, func(r *rand.Rand, _ int) []int64 {
		return poisson(r, hour/2, float64(minute)/1000)
	}},
	{"edge", "an attack by the clock: the limit just before a window's end and again just after, at every other end by chance", 100, minute, 20, edgeClient},
}

// gap is a random time of that mean, as between requests that know nothing of each other.
func gap(r *rand.Rand, mean float64) int64 { return int64(r.ExpFloat64()*mean) + 1 }

func poisson(r *rand.Rand, length int64, mean float64) (times []int64) {
	for at := gap(r, mean); at < length; at += gap(r, mean) {
		times = append(times, at)
	}
	return times
}

// crowd is so many requests one after another, from at on, and when it is over.
func crowd(r *rand.Rand, times []int64, at int64, mean, apart float64) ([]int64, int64) {
	for range 1 + int(r.ExpFloat64()*mean) {
		times = append(times, at)
		at += gap(r, apart)
	}
	return times, at
}

// bursts come in crowds of about 40 within two seconds, perMinute requests on average.
func bursts(r *rand.Rand, length int64, perMinute float64) (times []int64) {
	const size, apart = 40, 50_000
	idle := float64(minute)*size/perMinute - size*apart
	for at := gap(r, idle); at < length; at += gap(r, idle) {
		times, at = crowd(r, times, at, size, apart)
	}
	return inTime(times, length)
}

func apartClient(r *rand.Rand, rank int) []int64 {
	if rank == 0 {
		return poisson(r, hour, float64(minute)/600)
	}
	return pageViews(r, 6)
}

func zipfClient(r *rand.Rand, rank int) []int64 { return pageViews(r, 120/float64(rank+1)) }

// pageViews are an hour of them, so many requests a minute on average.
func pageViews(r *rand.Rand, perMinute float64) (times []int64) {
	const size, apart = 4.5, 400_000
	idle := float64(minute)*size/perMinute - (size-1)*apart
	for at := gap(r, idle); at < hour; at += gap(r, idle) {
		times, at = crowd(r, times, at, size-0.5, apart)
	}
	return inTime(times, hour)
}

// inTime leaves out what comes after the end.
func inTime(times []int64, length int64) []int64 {
	for len(times) > 0 && times[len(times)-1] >= length {
		times = times[:len(times)-1]
	}
	return times
}

func diurnalClient(r *rand.Rand, _ int) (times []int64) {
	const peak = 1200 // an hour
	noon := r.Float64() * 2 * math.Pi
	for _, at := range poisson(r, day, float64(hour)/peak) {
		wave := math.Sin(2*math.Pi*float64(at)/float64(day) - noon)
		if r.Float64()*peak < 700+500*wave {
			times = append(times, at)
		}
	}
	return times
}

func pacedClient(r *rand.Rand, _ int) (times []int64) {
	const apart = minute / 100
	for at := r.Int64N(apart); at < hour; at += apart {
		times = append(times, at+r.Int64N(50_000))
	}
	return times
}

func batchClient(r *rand.Rand, _ int) (times []int64) {
	for at := r.Int64N(minute); at < hour; at += minute {
		late := r.Int64N(second)
		for i := range int64(100) {
			times = append(times, at+late+i*1000)
		}
	}
	return times
}

func edgeClient(r *rand.Rand, _ int) (times []int64) {
	for end := minute; end < hour; end += minute {
		if r.IntN(2) == 0 {
			continue
		}
		for i := range int64(200) { // 20 ms around the end
			times = append(times, end+(i-100)*100)
		}
	}
	return times
}
