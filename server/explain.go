package server

import (
	"cmp"
	"context"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "weir/api/weir/v1"
	"weir/limiter"
	"weir/rules"
)

// Explain tells which rule matches a descriptor and why.
func (a *api) Explain(_ context.Context, req *weirv1.ExplainRequest) (*weirv1.ExplainResponse, error) {
	entries := entriesOf(req.Entries)
	if err := validate(&rules.Request{Domain: req.Domain, Descriptors: []rules.Descriptor{{Entries: entries}}}); err != nil {
		return nil, grpcstatus.Error(codes.InvalidArgument, err.Error())
	}
	if len(entries) == 0 {
		return nil, grpcstatus.Error(codes.InvalidArgument, "there are no entries: send one at least")
	}
	set := a.service.opts.Rules.Current()
	x := set.Explain(req.Domain, entries)
	if a.service.opts.CounterName != nil {
		x.NameCounters(a.service.opts.CounterName)
	}
	resp := &weirv1.ExplainResponse{Text: toValid(x.String()), Version: set.Version()}
	for i, c := range x.Entries {
		step := &weirv1.Step{Entry: req.Entries[i], How: "nothing fits"}
		if c.Taken != nil {
			step.How, step.Place = toValid(c.Taken.Kind+" "+c.Taken.Pattern), toValid(c.Taken.Place)
		}
		resp.Steps = append(resp.Steps, step)
	}
	for _, miss := range x.NearMisses {
		resp.NearMisses = append(resp.NearMisses, toValid(miss.Path+" ("+miss.Place+"): "+miss.Why))
	}
	if r := x.Rule; r != nil {
		resp.Rule, resp.Place = toValid(cmp.Or(r.Name, r.Path)), toValid(r.Place)
		resp.Unlimited, resp.Exempt = r.Unlimited, r.Exempt
		for i := range r.Limits {
			resp.Limits = append(resp.Limits, limitOf(r, &r.Limits[i]))
		}
	}
	return resp, nil
}

func limitOf(r *rules.RuleDetails, d *rules.LimitDetails) *weirv1.Limit {
	l := &d.Values
	out := &weirv1.Limit{
		Algorithm:   l.Algorithm.String(),
		Requests:    l.Requests,
		Window:      durationpb.New(l.Window.Length),
		Calendar:    l.Window.Calendar.String(),
		Burst:       l.Burst,
		Queue:       l.Queue,
		CountDenied: l.CountDenied,
		Shadow:      r.Shadow,
		Quota:       r.Quota,
		Counter:     d.Counter,
	}
	if l.Window.Calendar != limiter.NoCalendar {
		out.Timezone = l.Window.ZoneName()
	}
	return out
}
