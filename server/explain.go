package server

import (
	"cmp"
	"context"

	weirv1 "weir/api/weir/v1"
)

// Explain tells which rule matches a descriptor and why.
func (a *api) Explain(_ context.Context, req *weirv1.ExplainRequest) (*weirv1.ExplainResponse, error) {
	request, err := oneDescriptor(req.Domain, req.Entries)
	if err != nil {
		return nil, err
	}
	entries := request.Descriptors[0].Entries
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
			limit := limitOf(&r.Limits[i].Values, r.Shadow, r.Quota)
			limit.Counter = r.Limits[i].Counter
			resp.Limits = append(resp.Limits, limit)
		}
	}
	return resp, nil
}
