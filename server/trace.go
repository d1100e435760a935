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
	Outcome string // ok, over_limit, shadow_over_limit
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
	v := Verdict{Domain: c.request.Domain, Outcome: "ok"}
	for i := range decisions {
		if !decisions[i].Allowed && c.plan.Hits[i].Shadow {
			v.Outcome = "shadow_over_limit"
		}
	}
	if !passes {
		v.Outcome = "over_limit"
		if s.opts.Shadow {
			v.Outcome = "shadow_over_limit"
		}
	}
	if told := telling(c.plan.Hits, decisions); told >= 0 && c.plan.Rules[told] != nil {
		v.Rule = c.plan.Rules[told].Label()
	}
	t.Decided(ctx, v)
}
