package server

import (
	"context"

	"weir/limiter"
)

// Tracer follows requests through the service, for traces. It is safe for
// concurrent use.
type Tracer interface {
	// Traced tells whether the request of the context is followed. The rest is called
	// only if it is.
	Traced(ctx context.Context) bool
	// Step begins a step of the request, such as "store". End is called once, when
	// the step is over, with what went wrong.
	Step(ctx context.Context, name string) (inner context.Context, end func(error))
	// Decided tells what became of the request.
	Decided(ctx context.Context, v Verdict)
}

// Verdict is what a trace tells of a decision. It has nothing of the values of
// entries.
type Verdict struct {
	Domain  string
	Rule    string // that the headers describe; "": none, or an override
	Outcome string // of that rule, as metrics.Outcomes has them; shadow_over_limit also if another, in shadow, would have refused what passes
	Refused bool   // so was the caller told
}

// traced is who follows the request of the context, or nil.
func (s *Service) traced(ctx context.Context) Tracer {
	if t := s.opts.Tracer; t != nil && t.Traced(ctx) {
		return t
	}
	return nil
}

// ask lets the store decide.
func (s *Service) ask(ctx context.Context, hits []limiter.Hit) ([]limiter.Decision, error) {
	t := s.traced(ctx)
	if t == nil {
		return s.opts.Store.Decide(ctx, hits)
	}
	ctx, end := t.Step(ctx, "store")
	decisions, err := s.opts.Store.Decide(ctx, hits)
	end(err)
	return decisions, err
}

// tellTrace tells the trace of the request, if there is one, what was decided.
func (s *Service) tellTrace(ctx context.Context, c *call, decisions []limiter.Decision, passes bool) {
	t := s.traced(ctx)
	if t == nil {
		return
	}
	hits, shadow := c.plan.Hits, s.opts.Shadow
	v := Verdict{Domain: c.request.Domain, Outcome: "ok", Refused: !passes && !shadow}
	if told := telling(hits, decisions); told >= 0 {
		v.Outcome = s.opts.Metrics.Outcome(&hits[told], &decisions[told], shadow)
		if r := c.plan.Rules[told]; r != nil {
			v.Rule = r.Label()
		}
	}
	for i := range decisions {
		if passes && hits[i].Shadow && !decisions[i].Allowed {
			v.Outcome = s.opts.Metrics.Outcome(&hits[i], &decisions[i], shadow)
		}
	}
	t.Decided(ctx, v)
}
