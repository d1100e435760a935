package server

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "weir/api/weir/v1"
	"weir/limiter"
	"weir/rules"
)

// api is weir.v1: decisions with all that a limit knows, for callers that are
// not Envoy.
type api struct {
	weirv1.UnimplementedWeirServiceServer
	service *Service
}

// Check decides a request as ShouldRateLimit does.
func (a *api) Check(ctx context.Context, req *weirv1.CheckRequest) (*weirv1.CheckResponse, error) {
	c := new(call)
	c.request = rules.Request{Domain: req.Domain, Hits: req.Hits}
	for _, d := range req.Descriptors {
		c.request.Descriptors = append(c.request.Descriptors, rules.Descriptor{
			Entries: entriesOf(d.GetEntries()), Hits: d.GetHits(), HasHits: d.Hits != nil, Refund: d.GetRefund(),
		})
	}
	c.fault = validate(&c.request)
	decisions, passes, err := a.service.decide(ctx, c)
	if err != nil {
		return nil, err
	}
	resp := &weirv1.CheckResponse{Allowed: passes || a.service.opts.Shadow}
	if r, _ := overflow(&c.plan, decisions); r != nil && passes && !a.service.opts.Shadow {
		resp.Queue = toValid(r.Label())
	}
	for i := range c.plan.Matches {
		m := &c.plan.Matches[i]
		for h := m.First; h < m.First+m.Hits; h++ {
			resp.Decisions = append(resp.Decisions, decisionOf(uint32(i), c.plan.Rules[h], &c.plan.Hits[h], &decisions[h]))
		}
	}
	return resp, nil
}

func entriesOf(entries []*weirv1.Entry) (out []rules.Entry) {
	for _, e := range entries {
		out = append(out, rules.Entry{Key: e.GetKey(), Value: e.Text()})
	}
	return out
}

func decisionOf(descriptor uint32, r *rules.Rule, h *limiter.Hit, d *limiter.Decision) *weirv1.Decision {
	out := &weirv1.Decision{
		DescriptorIndex: descriptor,
		Algorithm:       h.Limit.Algorithm.String(),
		Limit:           h.Limit.Requests,
		Window:          durationpb.New(h.Limit.Window.Length),
		Allowed:         d.Allowed,
		Shadow:          h.Shadow,
		Remaining:       d.Remaining,
		ResetAfter:      durationpb.New(d.ResetAfter),
	}
	if r != nil {
		out.Rule = toValid(r.Label())
	}
	if !d.Allowed && d.RetryAfter > 0 {
		out.RetryAfter = durationpb.New(d.RetryAfter)
	}
	if d.Delay > 0 && !d.Queued {
		out.Delay = durationpb.New(d.Delay)
	}
	return out
}
