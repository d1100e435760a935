package server

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "weir/api/weir/v1"
	"weir/limiter"
	"weir/rules"
)

// api is weir.v1: decisions with all that a limit knows, for callers that are
// not Envoy, and what operators need.
type api struct {
	weirv1.UnimplementedWeirServiceServer
	service *Service
}

// Check decides a request as ShouldRateLimit does.
func (a *api) Check(ctx context.Context, req *weirv1.CheckRequest) (*weirv1.CheckResponse, error) {
	s := a.service
	c := s.calls.get()
	defer s.calls.put(c)
	c.request.Domain, c.request.Hits = req.GetDomain(), req.GetHits()
	c.fault = c.describe(req.GetDescriptors())
	decisions, passes, err := s.decide(ctx, c)
	if err != nil {
		return nil, err
	}
	c.answer.over = !passes && !s.opts.Shadow
	s.hint(c, decisions)
	resp := &weirv1.CheckResponse{
		Allowed:         !c.answer.over,
		Decisions:       decisionsOf(&c.plan, decisions),
		Headers:         headersOf(c.answer.headers),
		Body:            c.answer.body,
		UpstreamHeaders: headersOf(c.answer.upstream),
	}
	if r, _ := overflow(&c.plan, decisions); r != nil && passes && !s.opts.Shadow {
		resp.Queue = toValid(r.Label())
	}
	return resp, nil
}

// Bounds of a batch.
const (
	maxBatch            = 1000
	maxBatchDescriptors = 10_000
)

// CheckBatch decides several requests at once. As many go on at the same time as
// there are, since one that is held must not hold up another.
func (a *api) CheckBatch(ctx context.Context, req *weirv1.CheckBatchRequest) (*weirv1.CheckBatchResponse, error) {
	descriptors := 0
	for _, r := range req.Requests {
		descriptors += len(r.GetDescriptors())
	}
	switch n := len(req.Requests); {
	case n == 0:
		return nil, grpcstatus.Error(codes.InvalidArgument, "there are no requests: send one at least")
	case n > maxBatch:
		return nil, grpcstatus.Errorf(codes.InvalidArgument, "%d requests are more than %d, the most that a batch may have", n, maxBatch)
	case descriptors > maxBatchDescriptors:
		return nil, grpcstatus.Errorf(codes.InvalidArgument, "%d descriptors in all requests are more than %d, the most that a batch may have", descriptors, maxBatchDescriptors)
	}
	results := make([]*weirv1.CheckResult, len(req.Requests))
	var wg sync.WaitGroup
	for i, r := range req.Requests {
		wg.Go(func() { results[i] = a.checkOne(ctx, r) })
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return nil, toStatus(err) // nobody is there for the results
	}
	return &weirv1.CheckBatchResponse{Results: results}, nil
}

// checkOne is one of a batch: a panic is its own error.
func (a *api) checkOne(ctx context.Context, req *weirv1.CheckRequest) *weirv1.CheckResult {
	resp, err := func() (resp *weirv1.CheckResponse, err error) {
		defer func() { a.service.recovered(recover(), weirv1.WeirService_CheckBatch_FullMethodName, &err) }()
		return a.Check(ctx, req)
	}()
	if err != nil {
		st := grpcstatus.Convert(err)
		return &weirv1.CheckResult{Code: int32(st.Code()), Message: toValid(st.Message())}
	}
	return &weirv1.CheckResult{Response: resp}
}

// Peek tells what a request would be told, and charges nothing.
func (a *api) Peek(ctx context.Context, req *weirv1.PeekRequest) (*weirv1.PeekResponse, error) {
	s := a.service
	c := s.calls.get()
	defer s.calls.put(c)
	c.request.Domain = req.GetDomain()
	if err := c.describe(req.GetDescriptors()); err != nil {
		return nil, grpcstatus.Error(codes.InvalidArgument, err.Error())
	}
	for i := range c.request.Descriptors {
		d := &c.request.Descriptors[i]
		d.Hits, d.HasHits, d.Refund = 0, false, false
	}
	store, ok := s.opts.Store.(limiter.Peeker)
	if !ok {
		return nil, grpcstatus.Error(codes.Unimplemented, "this server's store cannot be looked into")
	}
	s.opts.Rules.Current().Plan(&c.request, &c.plan)
	hits := c.plan.Hits
	if len(hits) == 0 {
		return &weirv1.PeekResponse{Allowed: true}, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, toStatus(err)
	}
	for i := range hits {
		if hits[i].Overflow != nil && !s.canQueue() {
			hits[i].Overflow = nil
		} else if hits[i].Overflow == nil {
			hits[i].MaxDelay = limiter.NoDeadline // also after a wait
		}
	}
	decisions, err := store.Peek(ctx, hits)
	if err != nil {
		return nil, toStatus(err)
	}
	return &weirv1.PeekResponse{
		Allowed:   limiter.Passes(hits, decisions) || s.opts.Shadow,
		Decisions: decisionsOf(&c.plan, decisions),
	}, nil
}

// describe reads descriptors into the call and validates its request.
func (c *call) describe(descriptors []*weirv1.Descriptor) error {
	for _, d := range descriptors {
		first := len(c.entries)
		c.entries = appendEntries(c.entries, d.GetEntries())
		own := rules.Descriptor{Hits: d.GetHits(), HasHits: d != nil && d.Hits != nil, Refund: d.GetRefund()}
		own.Entries = c.entries[first:len(c.entries):len(c.entries)]
		c.request.Descriptors = append(c.request.Descriptors, own)
	}
	return validate(&c.request)
}

func appendEntries(to []rules.Entry, entries []*weirv1.Entry) []rules.Entry {
	for _, e := range entries {
		to = append(to, rules.Entry{Key: e.GetKey(), Value: e.Text()})
	}
	return to
}

// oneDescriptor is what a method takes that is about one descriptor. There must be
// entries.
func oneDescriptor(domain string, entries []*weirv1.Entry) (*rules.Request, error) {
	req := &rules.Request{Domain: domain, Descriptors: []rules.Descriptor{{Entries: appendEntries(nil, entries)}}}
	if err := validate(req); err != nil {
		return nil, grpcstatus.Error(codes.InvalidArgument, err.Error())
	}
	if len(entries) == 0 {
		return nil, grpcstatus.Error(codes.InvalidArgument, "there are no entries: send one at least")
	}
	return req, nil
}

func headersOf(headers []header) (out []*weirv1.HttpHeader) {
	for i := range headers {
		h := &headers[i]
		out = append(out, &weirv1.HttpHeader{Name: toValid(h.key), Value: h.appendValue(nil)})
	}
	return out
}

func decisionsOf(p *rules.Plan, decisions []limiter.Decision) (out []*weirv1.Decision) {
	for i := range p.Matches {
		m := &p.Matches[i]
		for h := m.First; h < m.First+m.Hits; h++ {
			out = append(out, decisionOf(uint32(i), p.Rules[h], &p.Hits[h], &decisions[h]))
		}
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
		DecidedBy:       d.Origin.String(),
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
