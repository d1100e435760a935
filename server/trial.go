package server

import (
	"cmp"
	"context"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	weirv1 "weir/api/weir/v1"
	"weir/rules"
)

// Trial is the answer to a request that was tried, and what it does not tell by
// itself.
type Trial struct {
	Response  *rls.RateLimitResponse
	Decisions []*weirv1.Decision // of all limits, in the order of the descriptors
	Deciding  int                // which of them the headers describe; -1: none
	Rule      string             // its rule, or the one that exempts the request or sets no limit; "": none matches
	Place     string             // of that rule; "": the limit came with the request
	Delay     time.Duration      // for how long the request is held
}

// Try answers a RateLimitRequest as it comes from the wire by all that
// ShouldRateLimit does, at the time of Options.Clock, without which it must not be
// called. The caller would wait for so long, and nobody waits in truth. Errors are
// gRPC statuses.
func (s *Service) Try(ctx context.Context, request []byte, patience time.Duration) (_ *Trial, err error) {
	defer func() { s.recovered(recover(), rls.RateLimitService_ShouldRateLimit_FullMethodName, &err) }()
	c := s.calls.get()
	defer s.calls.put(c)
	c.decode(mem.BufferSlice{mem.SliceBuffer(request)})
	decisions, passes, err := s.decide(simulated{ctx, s.opts.Clock().Add(patience)}, c)
	if err != nil {
		return nil, err
	}
	s.respond(c, decisions, passes)
	t := &Trial{Response: new(rls.RateLimitResponse), Decisions: decisionsOf(&c.plan, decisions)}
	if err := proto.Unmarshal(c.answer.appendTo(nil), t.Response); err != nil {
		return nil, toStatus(err)
	}
	t.Deciding = telling(c.plan.Hits, decisions)
	if r := decidingRule(&c.plan, t.Deciding); r != nil {
		t.Rule, t.Place = toValid(r.Label()), toValid(r.Place())
	} else if t.Deciding >= 0 {
		t.Rule = labelOf(nil)
	}
	if !c.answer.over && !s.opts.Shadow {
		t.Delay = delayOf(decisions)
	}
	return t, nil
}

// decidingRule is that of the hit that the headers describe; without a hit, the
// rule that exempts the request, else the first that sets no limit; nil: none.
func decidingRule(p *rules.Plan, told int) (deciding *rules.Rule) {
	if told >= 0 {
		return p.Rules[told]
	}
	for i := range p.Matches {
		switch r := p.Matches[i].Rule; {
		case r == nil:
		case r.Exempt:
			return r
		default:
			deciding = cmp.Or(deciding, r)
		}
	}
	return deciding
}

// simulated is a context whose deadline is in simulated time, and never ends it.
type simulated struct {
	context.Context
	deadline time.Time
}

// Deadline implements context.Context.
func (s simulated) Deadline() (time.Time, bool) { return s.deadline, true }
