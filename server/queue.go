package server

import (
	"context"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	weirv1 "weir/api/weir/v1"
	"weir/limiter"
	"weir/rules"
)

// Request headers that send a request into a queue. Envoy routes by the first; the
// ingest believes only the second, for clients can send both.
const (
	overflowHeader = "x-weir-overflow"
	ticketHeader   = "x-weir-overflow-ticket"
)

// addOverflow tells Envoy to send the request into a queue, if a limit says so.
func (s *Service) addOverflow(c *call, decisions []limiter.Decision) {
	if s.opts.Queue == nil {
		return
	}
	r, cost := overflow(&c.plan, decisions)
	if r == nil {
		return
	}
	c.answer.upstream = append(c.answer.upstream,
		textHeader(overflowHeader, briefLabel(r)), textHeader(ticketHeader, s.opts.Queue.Ticket(r, cost)))
}

// overflow is the rule into whose queue the request goes, and what it costs there;
// nil: none. Of several it is the one whose turn comes last.
func overflow(p *rules.Plan, decisions []limiter.Decision) (rule *rules.Rule, cost uint64) {
	last := -1
	for i := range decisions {
		if decisions[i].Queued && (last < 0 || decisions[i].Delay > decisions[last].Delay) {
			last = i
		}
	}
	if last < 0 {
		return nil, 0
	}
	rule = p.Rules[last]
	for i := range decisions {
		if p.Rules[i] == rule && decisions[i].Queued {
			cost += min(p.Hits[i].Cost, limiter.MaxCost)
		}
	}
	return rule, cost
}

// Enqueue puts a request into the queue of the rule that a descriptor matches.
func (a *api) Enqueue(ctx context.Context, req *weirv1.EnqueueRequest) (*weirv1.EnqueueResponse, error) {
	request, err := oneDescriptor(req.Domain, req.Entries)
	if err != nil {
		return nil, err
	}
	var plan rules.Plan
	a.service.opts.Rules.Current().Plan(request, &plan)
	rule := plan.Matches[0].Rule
	switch {
	case a.service.opts.Queue == nil:
		return nil, grpcstatus.Error(codes.FailedPrecondition, "this server keeps no queues; start it with --queue-addr and a Redis as --store")
	case rule == nil || rule.Overflow == nil:
		return nil, grpcstatus.Error(codes.FailedPrecondition, "the descriptor matches no rule with over_limit: queue")
	}
	return a.service.opts.Queue.Enqueue(ctx, rule, req)
}
