package server

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"weir/limiter"
)

// DefaultMaxInFlight is how many requests wait for the store at once at most.
const DefaultMaxInFlight = 10_000

// Reasons for which a request is shed, see Options.OnShed.
const (
	ShedInFlight = "in_flight" // too many wait for the store already
	ShedDeadline = "deadline"  // the caller would have left before the store answers
)

// shedding refuses by an error what could only be answered too late, or would only
// make all others late. What is shed is not charged.
type shedding struct {
	most     int64 // in flight; below 0: any number
	inFlight atomic.Int64
	store    latency
	full     error // what is answered; made once, for there may be many
	late     error
}

func newShedding(most int) *shedding {
	return &shedding{
		most: int64(most),
		full: grpcstatus.Errorf(codes.ResourceExhausted, "shed: %d requests wait for the store already (--max-in-flight)", most),
		late: grpcstatus.Error(codes.ResourceExhausted, "shed: the store takes longer than the caller's deadline lets it"),
	}
}

// isShed tells whether the error is of a request that was shed.
func isShed(err error) bool {
	st := grpcstatus.Convert(err)
	return st.Code() == codes.ResourceExhausted && strings.HasPrefix(st.Message(), "shed: ")
}

// decideOrShed asks the store, or sheds the request.
func (s *Service) decideOrShed(ctx context.Context, hits []limiter.Hit) ([]limiter.Decision, error) {
	l := s.shedding
	n := l.inFlight.Add(1)
	defer l.inFlight.Add(-1)
	if l.most >= 0 && n > l.most {
		s.shed(ShedInFlight)
		return nil, l.full
	}
	deadline, ok := ctx.Deadline()
	if !ok || s.opts.Clock != nil { // in simulated time the store takes none
		return s.ask(ctx, hits)
	}
	begin := time.Since(s.started) // costs half of what time.Now does
	if !s.opts.Shadow && l.store.longerThan(time.Until(deadline), begin) {
		s.shed(ShedDeadline)
		return nil, l.late
	}
	decisions, err := s.ask(ctx, hits)
	end := time.Since(s.started)
	l.store.saw(end-begin, end)
	return decisions, err
}

func (s *Service) shed(reason string) {
	if s.opts.OnShed != nil {
		s.opts.OnShed(reason)
	}
}

// latency is how long the store took of late: a mean in which each answer has a
// weight of an eighth. Two that meet may lose one of both answers, which does not
// matter to a mean.
type latency struct {
	mean atomic.Int64 // ns; 0: nothing is known
	at   atomic.Int64 // of the last answer, or of who was let through to get one: ns since the service began
}

// trust is how long the mean holds without an answer. Then one request is let
// through, lest a store that was slow for a while be taken for slow for ever.
const trust = 100 * time.Millisecond

func (l *latency) saw(d, now time.Duration) {
	if mean := l.mean.Load(); mean > 0 {
		d = time.Duration(mean) + (d-time.Duration(mean))/8
	}
	l.mean.Store(max(1, int64(d)))
	l.at.Store(int64(now))
}

// longerThan tells whether the store is likely to take longer.
func (l *latency) longerThan(d, now time.Duration) bool {
	if int64(d) >= l.mean.Load() {
		return false
	}
	at := l.at.Load()
	return int64(now)-at < int64(trust) || !l.at.CompareAndSwap(at, int64(now))
}
