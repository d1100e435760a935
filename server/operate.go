package server

import (
	"context"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "weir/api/weir/v1"
	"weir/limiter"
	"weir/rules"
)

// Pages of ListRules. One ends early when its text would not fit into a message.
const (
	defaultPage = 100
	maxPage     = 1000
	maxPageText = 1 << 20
)

// ListRules lists the rules in force, page by page. The token of a page has the
// version of its rule set, so that a reload between two pages is told, not read as
// rules that are missing.
func (a *api) ListRules(_ context.Context, req *weirv1.ListRulesRequest) (*weirv1.ListRulesResponse, error) {
	if req.PageSize > maxPage {
		return nil, grpcstatus.Errorf(codes.InvalidArgument, "page_size %d: it is %d at most", req.PageSize, maxPage)
	}
	set := a.service.opts.Rules.Current()
	from, err := fromPageToken(req.PageToken, set.Version(), req.Domain)
	if err != nil {
		return nil, err
	}
	resp := &weirv1.ListRulesResponse{Version: set.Version(), Sources: a.service.sources()}
	size, text := int(req.PageSize), 0
	if size == 0 {
		size = defaultPage
	}
	next := from
	for r := range set.Rules(req.Domain) {
		at := int(resp.Total)
		resp.Total++
		if at < from || at > next || len(resp.Rules) == size || text > maxPageText {
			continue // only counted
		}
		rule := ruleOf(r)
		a.service.countsOf(r, rule)
		text += len(rule.Path) + len(rule.Name) + len(rule.Place) + 100*len(rule.Limits)
		resp.Rules = append(resp.Rules, rule)
		next++
	}
	if uint64(next) < resp.Total {
		resp.NextPageToken = pageToken(set.Version(), req.Domain, next)
	}
	return resp, nil
}

func pageToken(version, domain string, at int) string {
	return base64.RawURLEncoding.EncodeToString([]byte(version + " " + strconv.Itoa(at) + " " + domain))
}

func fromPageToken(token, version, domain string) (at int, err error) {
	if token == "" {
		return 0, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	parts := strings.SplitN(string(text), " ", 3)
	if err == nil && len(parts) == 3 {
		at, err = strconv.Atoi(parts[1])
	}
	switch {
	case err != nil || len(parts) < 3 || at < 0:
		return 0, grpcstatus.Error(codes.InvalidArgument, "page_token: it is not one of ours; take next_page_token as it is, or leave it out for the first page")
	case parts[2] != domain:
		return 0, grpcstatus.Error(codes.InvalidArgument, "page_token: it belongs to a list of another domain; leave it out for the first page")
	case parts[0] != version:
		return 0, grpcstatus.Errorf(codes.InvalidArgument, "page_token: it belongs to the rules %.12s, and %s are in force now; begin with the first page", toValid(parts[0]), version)
	}
	return at, nil
}

func ruleOf(r *rules.Rule) *weirv1.Rule {
	out := &weirv1.Rule{
		Domain: toValid(r.Domain), Name: toValid(r.Name), Path: toValid(r.Path), Place: toValid(r.Place()),
		Unlimited: r.Unlimited, Exempt: r.Exempt, Shadow: r.Shadow, Quota: r.Quota, Queues: r.Overflow != nil,
	}
	if r.OnFailure != nil {
		out.OnStoreFailure = r.OnFailure.String()
	}
	for i := range r.Limits {
		out.Limits = append(out.Limits, limitOf(&r.Limits[i], r.Shadow, r.Quota))
	}
	return out
}

// countsOf tells how the rule's decisions came out.
func (s *Service) countsOf(r *rules.Rule, out *weirv1.Rule) {
	counts, since := s.opts.Metrics.OfRule(r)
	for _, t := range counts {
		out.Outcomes = append(out.Outcomes, &weirv1.OutcomeCount{Outcome: t.Outcome, Count: t.Count})
	}
	out.CountedSince = timeOf(since)
}

func limitOf(l *limiter.Limit, shadow, quota bool) *weirv1.Limit {
	out := &weirv1.Limit{
		Algorithm:   l.Algorithm.String(),
		Requests:    l.Requests,
		Window:      durationpb.New(l.Window.Length),
		Calendar:    l.Window.Calendar.String(),
		Burst:       l.Burst,
		Queue:       l.Queue,
		CountDenied: l.CountDenied,
		Lease:       l.Lease,
		Shadow:      shadow,
		Quota:       quota,
	}
	if l.Window.Calendar != limiter.NoCalendar {
		out.Timezone = l.Window.ZoneName()
	}
	return out
}

// Reset has counters begin anew.
func (a *api) Reset(ctx context.Context, req *weirv1.ResetRequest) (*weirv1.ResetResponse, error) {
	switch what := req.What.(type) {
	case *weirv1.ResetRequest_Descriptor_:
		return a.resetDescriptor(ctx, req.Domain, what.Descriptor_)
	case *weirv1.ResetRequest_Rule:
		return a.resetRule(ctx, req.Domain, what.Rule)
	}
	return nil, grpcstatus.Error(codes.InvalidArgument, "nothing is named to be reset: send a descriptor, or the name or path of a rule")
}

func (a *api) resetDescriptor(ctx context.Context, domain string, d *weirv1.Descriptor) (*weirv1.ResetResponse, error) {
	request, err := oneDescriptor(domain, d.GetEntries())
	if err != nil {
		return nil, err
	}
	store, ok := a.service.opts.Store.(limiter.Resetter)
	if !ok {
		return nil, grpcstatus.Error(codes.Unimplemented, "this server's store cannot reset counters")
	}
	var plan rules.Plan
	a.service.opts.Rules.Current().Plan(request, &plan)
	rule := plan.Matches[0].Rule
	if rule == nil {
		return nil, grpcstatus.Error(codes.NotFound, "no rule matches the descriptor, and what no rule limits has no counters (`weir explain` says why)")
	}
	var counters []limiter.Counter
	for i := range plan.Hits {
		h := &plan.Hits[i]
		counters = append(counters, limiter.Counter{Key: h.Key, Overflow: h.Overflow})
		if h.Overflow != nil {
			counters = append(counters, limiter.Counter{Key: h.Key}) // where it is while there is no queue
		}
	}
	held, err := store.Reset(ctx, counters)
	if err != nil {
		return nil, toStatus(err)
	}
	a.service.opts.Logger.Info("counters were reset", "domain", domain, "rule", rule.Label(), "held", held)
	return &weirv1.ResetResponse{Rules: []string{toValid(rule.Label())}, Counters: uint64(held)}, nil
}

func (a *api) resetRule(ctx context.Context, domain, name string) (*weirv1.ResetResponse, error) {
	switch {
	case domain == "":
		return nil, grpcstatus.Error(codes.InvalidArgument, "the domain is empty: name the domain of the rule")
	case name == "":
		return nil, grpcstatus.Error(codes.InvalidArgument, "the rule is empty: send its name, or its path as ListRules has it")
	case a.service.opts.ResetRules == nil:
		return nil, grpcstatus.Error(codes.Unimplemented, "this server cannot reset whole rules")
	}
	var reset []*rules.Rule
	for r := range a.service.opts.Rules.Current().Rules(domain) {
		if toValid(r.Name) == name || toValid(r.Path) == name {
			reset = append(reset, r)
		}
	}
	if len(reset) == 0 {
		return nil, grpcstatus.Errorf(codes.NotFound, "no rule of domain %q has this name or path; ListRules (GET /v1/rules) lists them", domain)
	}
	if err := a.service.opts.ResetRules(ctx, reset); err != nil {
		return nil, toStatus(err)
	}
	resp := &weirv1.ResetResponse{}
	for _, r := range reset {
		resp.Rules = append(resp.Rules, toValid(r.Label()))
	}
	a.service.opts.Logger.Info("rules were reset", "domain", domain, "rules", resp.Rules)
	return resp, nil
}

// Sizes of Top.
const (
	defaultTop = 10
	maxTop     = 100
)

// Top lists who is refused most.
func (a *api) Top(_ context.Context, req *weirv1.TopRequest) (*weirv1.TopResponse, error) {
	if req.Limit > maxTop {
		return nil, grpcstatus.Errorf(codes.InvalidArgument, "limit %d: it is %d at most", req.Limit, maxTop)
	}
	from := a.service.opts.Top
	if req.Shadow {
		from = a.service.opts.ShadowTop
	}
	if from == nil {
		return nil, grpcstatus.Error(codes.FailedPrecondition, "this server does not count who is refused: start it with --metrics on")
	}
	n := int(req.Limit)
	if n == 0 {
		n = defaultTop
	}
	counters, since := from.Top(req.Domain, n)
	resp := &weirv1.TopResponse{Since: timestamppb.New(since)}
	for _, c := range counters {
		out := &weirv1.TopCounter{
			Domain: toValid(c.Domain), Rule: toValid(c.Rule), Refused: c.Refused, Error: c.Error, LastRefusedAt: timestamppb.New(c.Last),
		}
		for _, e := range c.Entries {
			out.Entries = append(out.Entries, weirv1.NewEntry(toValid(e.Key), e.Value))
		}
		resp.Counters = append(resp.Counters, out)
	}
	return resp, nil
}

// sources are the places that rules come from, by their names.
func (s *Service) sources() (out []*weirv1.RuleSource) {
	if s.opts.Status.Rules == nil {
		return nil
	}
	status := s.opts.Status.Rules()
	for name, src := range status.Sources {
		out = append(out, &weirv1.RuleSource{
			Name: toValid(name), Version: toValid(src.Version), Documents: uint32(src.Documents),
			LoadedAt: timeOf(src.LoadedAt), AsOf: timeOf(src.AsOf), Cached: src.Cached,
			Failures: src.Failures, FailedAt: timeOf(src.FailedAt), LastError: toValid(src.LastError),
		})
	}
	slices.SortFunc(out, func(a, b *weirv1.RuleSource) int { return strings.Compare(a.Name, b.Name) })
	return out
}
