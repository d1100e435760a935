package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "weir/api/weir/v1"
	"weir/limiter"
	"weir/rules"
	"weir/server/top"
)

func (s *served) api() weirv1.WeirServiceClient { return weirv1.NewWeirServiceClient(s.conn) }

// must is the answer of a call that does not fail.
func must[T any](resp T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
}

func wantCode(t *testing.T, what string, err error, code codes.Code, text string) {
	t.Helper()
	if grpcstatus.Code(err) != code || !strings.Contains(fmt.Sprint(err), text) {
		t.Errorf("%s: %v, want %v with %q", what, err, code, text)
	}
}

func TestRulesAreListedPageByPage(t *testing.T) {
	text := "domain: a\nrules:\n"
	for i := range 250 {
		text += fmt.Sprintf("  - {match: {k: \"%d\"}, limit: %d, window: 1h}\n", i, i)
	}
	text += "---\ndomain: b\nrules: [{name: n, match: {x: \"*\"}, limits: [{limit: 1, window: day, timezone: Asia/Tokyo}, {limit: 2, window: 1s, algorithm: token_bucket}], on_store_failure: deny, shadow_mode: true}]\n"
	s := start(t, setup{rules: text})
	s.opts.Status.Rules = s.live.Status
	list := func(domain string, size uint32) (all []*weirv1.Rule, pages int) {
		req := &weirv1.ListRulesRequest{Domain: domain, PageSize: size}
		for {
			resp := must(s.api().ListRules(t.Context(), req))(t)
			all, pages = append(all, resp.Rules...), pages+1
			if resp.Version != s.live.Current().Version() || len(resp.Sources) != 1 || resp.Sources[0].Name != "test" {
				t.Errorf("version %s, sources %v", resp.Version, resp.Sources)
			}
			if req.PageToken = resp.NextPageToken; req.PageToken == "" {
				if resp.Total != uint64(len(all)) {
					t.Errorf("%d of %d rules", len(all), resp.Total)
				}
				return all, pages
			}
		}
	}
	for _, x := range []struct {
		domain          string
		size            uint32
		rules, pages    int
		first, lastPath string
	}{
		{"", 0, 251, 3, "k=0", "x=*"}, {"a", 125, 250, 2, "k=0", "k=249"}, {"", 1000, 251, 1, "k=0", "x=*"}, {"b", 1, 1, 1, "x=*", "x=*"},
	} {
		all, pages := list(x.domain, x.size)
		if len(all) != x.rules || pages != x.pages || all[0].Path != x.first || all[len(all)-1].Path != x.lastPath {
			t.Errorf("domain %q, pages of %d: %d rules on %d pages, from %s", x.domain, x.size, len(all), pages, all[0].Path)
		}
		for i := range min(len(all), 250) {
			if x.domain != "b" && all[i].Limits[0].Requests != uint64(i) {
				t.Fatalf("rule %d is out of order: %v", i, all[i])
			}
		}
	}
	all, _ := list("b", 0)
	if r := all[0]; r.Name != "n" || r.OnStoreFailure != "deny" || !r.Shadow || len(r.Limits) != 2 || r.Limits[0].Timezone != "Asia/Tokyo" || r.Limits[1].Burst != 2 || r.Place == "" {
		t.Errorf("a rule: %v", r)
	}
	if resp := must(s.api().ListRules(t.Context(), &weirv1.ListRulesRequest{Domain: "none"}))(t); resp.Total != 0 || len(resp.Rules) > 0 {
		t.Errorf("a domain that is not there: %v", resp)
	}
	first := must(s.api().ListRules(t.Context(), &weirv1.ListRulesRequest{}))(t)
	for remark, x := range map[string]struct {
		req  *weirv1.ListRulesRequest
		want string
	}{
		"no token of ours":  {&weirv1.ListRulesRequest{PageToken: "!"}, "not one of ours"},
		"nor this":          {&weirv1.ListRulesRequest{PageToken: "YQ"}, "not one of ours"},
		"of another domain": {&weirv1.ListRulesRequest{PageToken: first.NextPageToken, Domain: "a"}, "another domain"},
		"too large":         {&weirv1.ListRulesRequest{PageSize: 1001}, "1000 at most"},
		"far beyond":        {&weirv1.ListRulesRequest{PageToken: pageToken("x", "", -1)}, "not one of ours"},
	} {
		_, err := s.api().ListRules(t.Context(), x.req)
		wantCode(t, remark, err, codes.InvalidArgument, x.want)
	}
	s.load(t, text+"# other\n")
	_, err := s.api().ListRules(t.Context(), &weirv1.ListRulesRequest{PageToken: first.NextPageToken})
	wantCode(t, "after a reload", err, codes.InvalidArgument, "begin with the first page")
}

func TestAPageOfLongRulesFitsIntoAMessage(t *testing.T) {
	text := "rules:\n"
	for i := range 60 {
		text += fmt.Sprintf("  - {match: {k: %q}, limit: 1, window: 1h}\n", fmt.Sprint(i, strings.Repeat("x", 100_000)))
	}
	s := start(t, setup{rules: text})
	seen := 0
	for token, pages := "", 0; ; pages++ {
		resp := must(s.api().ListRules(t.Context(), &weirv1.ListRulesRequest{PageSize: 1000, PageToken: token}))(t)
		seen += len(resp.Rules)
		if token = resp.NextPageToken; token == "" {
			break
		}
		if pages > 60 || len(resp.Rules) == 0 {
			t.Fatalf("page %d has %d rules", pages, len(resp.Rules))
		}
	}
	if seen != 60 {
		t.Errorf("%d rules of 60", seen)
	}
}

func TestResetHasCountersBeginAnew(t *testing.T) {
	var reset []*rules.Rule
	var fails error
	s := start(t, setup{rules: `
rules:
  - {name: two, match: {a: "*"}, limits: [{limit: 1, window: 1h}, {limit: 9, window: 1m}]}
  - {name: two, match: {b: "*"}, limit: 1, window: 1h}
  - {match: {free: ""}, unlimited: true}
`, service: Options{ResetRules: func(_ context.Context, r []*rules.Rule) error { reset = r; return fails }}})
	ask := func(text string) string { return s.call(t, request("default", text)).OverallCode.String() }
	one := func(text string) *weirv1.ResetRequest {
		return &weirv1.ResetRequest{Domain: "default", What: &weirv1.ResetRequest_Descriptor_{Descriptor_: described(text)[0]}}
	}
	ask("a=1")
	ask("a=2")
	if got := ask("a=1"); got != "OVER_LIMIT" {
		t.Fatalf("before: %s", got)
	}
	resp := must(s.api().Reset(t.Context(), one("a=1")))(t)
	if resp.Counters != 2 || len(resp.Rules) != 1 || resp.Rules[0] != "two" {
		t.Errorf("got %v", resp)
	}
	if ask("a=1") != "OK" || ask("a=2") != "OVER_LIMIT" {
		t.Error("the one is to begin anew, and the other is not")
	}
	if resp := must(s.api().Reset(t.Context(), one("free=")))(t); resp.Counters != 0 || resp.Rules[0] != "free=*" {
		t.Errorf("without limits: %v", resp)
	}
	for name, want := range map[string]int{"two": 2, "b=*": 1} {
		resp := must(s.api().Reset(t.Context(), &weirv1.ResetRequest{Domain: "default", What: &weirv1.ResetRequest_Rule{Rule: name}}))(t)
		if len(reset) != want || len(resp.Rules) != want || resp.Counters != 0 {
			t.Errorf("rule %s: %v, %d rules", name, resp, len(reset))
		}
	}
	for remark, x := range map[string]struct {
		req  *weirv1.ResetRequest
		code codes.Code
		want string
	}{
		"nothing":            {&weirv1.ResetRequest{Domain: "default"}, codes.InvalidArgument, "a descriptor, or"},
		"no domain":          {&weirv1.ResetRequest{What: &weirv1.ResetRequest_Rule{Rule: "two"}}, codes.InvalidArgument, "domain is empty"},
		"no name":            {&weirv1.ResetRequest{Domain: "default", What: &weirv1.ResetRequest_Rule{}}, codes.InvalidArgument, "rule is empty"},
		"no entries":         {&weirv1.ResetRequest{Domain: "default", What: &weirv1.ResetRequest_Descriptor_{}}, codes.InvalidArgument, "no entries"},
		"an empty key":       {one("="), codes.InvalidArgument, "empty key"},
		"no rule matches":    {one("z=1"), codes.NotFound, "no rule matches"},
		"no such rule":       {&weirv1.ResetRequest{Domain: "default", What: &weirv1.ResetRequest_Rule{Rule: "three"}}, codes.NotFound, "no rule"},
		"of no such domain":  {&weirv1.ResetRequest{Domain: "none", What: &weirv1.ResetRequest_Rule{Rule: "two"}}, codes.NotFound, "no rule"},
		"the store is away":  {&weirv1.ResetRequest{Domain: "default", What: &weirv1.ResetRequest_Rule{Rule: "two"}}, codes.Unavailable, "away"},
		"a descriptor, then": {one("z=1"), codes.NotFound, ""},
	} {
		fails = nil
		if x.code == codes.Unavailable {
			fails = fmt.Errorf("%w: it is away", limiter.ErrUnavailable)
		}
		_, err := s.api().Reset(t.Context(), x.req)
		wantCode(t, remark, err, x.code, x.want)
	}
	bare := start(t, setup{service: Options{Store: storeFunc(func(context.Context, []limiter.Hit) ([]limiter.Decision, error) { return nil, errors.New("not asked") })}})
	_, err := bare.api().Reset(t.Context(), one("a=1"))
	wantCode(t, "a store that cannot", err, codes.Unimplemented, "store")
}

func TestTopTellsWhoIsRefused(t *testing.T) {
	s := start(t, setup{rules: `
rules:
  - {name: many, match: {a: "*", b: "*"}, limits: [{limit: 2, window: 1h}, {limit: 1, window: 1m}]}
  - {match: {shadow: "*"}, limit: 0, window: 1h, shadow_mode: true}
`, service: Options{Top: top.New(top.Options{})}})
	for i, times := range []int{4, 6} { // of which two pass, and one limit refuses, then the other
		for n := range times {
			if n == 2 {
				s.clock.advance(time.Minute)
			}
			s.call(t, request("default", fmt.Sprintf("shadow=1 , a=%d b=x", i)))
		}
	}
	req := &weirv1.CheckRequest{Domain: "default", Descriptors: []*weirv1.Descriptor{{Entries: []*weirv1.Entry{weirv1.NewEntry("a", "\xff"), weirv1.NewEntry("b", "")}}}, Hits: 2}
	must(s.api().Check(t.Context(), req))(t)
	resp := must(s.api().Top(t.Context(), &weirv1.TopRequest{}))(t)
	var got []string
	for _, c := range resp.Counters {
		var words []string
		for _, e := range c.Entries {
			words = append(words, e.Key+"="+e.Text())
		}
		got = append(got, fmt.Sprintf("%s/%s %s %d+%d", c.Domain, c.Rule, strings.Join(words, " "), c.Refused, c.Error))
	}
	if text := strings.Join(got, "; "); text != "default/many a=1 b=x 4+0; default/many a=0 b=x 2+0; default/many a=\xff b= 1+0" || resp.Since == nil {
		t.Errorf("got %q", text)
	}
	if resp := must(s.api().Top(t.Context(), &weirv1.TopRequest{Limit: 1, Domain: "default"}))(t); len(resp.Counters) != 1 {
		t.Errorf("one: %v", resp)
	}
	_, err := s.api().Top(t.Context(), &weirv1.TopRequest{Limit: 101})
	wantCode(t, "too many", err, codes.InvalidArgument, "100 at most")
	_, err = start(t, setup{}).api().Top(t.Context(), &weirv1.TopRequest{})
	wantCode(t, "nobody counts", err, codes.FailedPrecondition, "--metrics on")
}

func TestNobodyIsInTopWhereNobodyIsRefused(t *testing.T) {
	s := start(t, setup{rules: `rules: [{match: {a: "*"}, limit: 0, window: 1h}]`, service: Options{Shadow: true, Top: top.New(top.Options{})}})
	s.call(t, request("default", "a=1"))
	if resp := must(s.api().Top(t.Context(), &weirv1.TopRequest{}))(t); len(resp.Counters) > 0 {
		t.Errorf("the whole server is in shadow: %v", resp)
	}
}

func TestStatsTellWhatIsKnown(t *testing.T) {
	s := start(t, setup{metrics: true, realTime: true, rules: `rules:
  - {match: {a: "*"}, limit: 10, window: 1h}
  - {match: {slow: "*"}, limit: 1, window: 1h, algorithm: leaky_bucket}`,
		service: Options{Status: Status{
			Version: "1.2.3", Store: func() *weirv1.StoreStats { return &weirv1.StoreStats{Name: "memory", Healthy: true} },
			Queues: func(context.Context) []*weirv1.QueueStats { return []*weirv1.QueueStats{{Rule: "q", Waiting: 3}} },
		}}})
	s.opts.Status.Rules = s.live.Status
	s.call(t, request("default", "a=1"))
	s.call(t, request("default", "slow=1"))
	_, err := s.client.ShouldRateLimit(t.Context(), request("", "a=1"))
	wantCode(t, "no domain", err, codes.InvalidArgument, "domain")
	holding, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := s.client.ShouldRateLimit(holding, request("default", "slow=1"))
		left <- err
	}()
	var got *weirv1.StatsResponse
	eventually(t, "a held request", func() bool {
		got = must(s.api().Stats(t.Context(), &weirv1.StatsRequest{}))(t)
		return got.Held == 1
	})
	var passed uint64
	for _, o := range got.Outcomes {
		if o.Domain == "default" && (o.Outcome == "ok" || o.Outcome == "near_limit") {
			passed += o.Count
		}
	}
	if got.Version != "1.2.3" || !got.Store.Healthy || got.Queues[0].Waiting != 3 || passed != 3 || got.InFlight != 1 || got.Errors != 1 ||
		got.Rules.Rules != 2 || got.Rules.Domains != 1 || got.Rules.Reloads != 1 || got.Rules.Version != s.live.Current().Version() || got.StartedAt == nil {
		t.Errorf("got %v", got)
	}
	leave()
	if err := <-left; err == nil {
		t.Error("it was not held")
	}
	eventually(t, "nobody is held", func() bool {
		now := must(s.api().Stats(t.Context(), &weirv1.StatsRequest{}))(t)
		return now.Held == 0 && now.InFlight == 0
	})
	if bare := must(start(t, setup{}).api().Stats(t.Context(), &weirv1.StatsRequest{}))(t); bare.At == nil || bare.Store != nil {
		t.Errorf("of a server that knows nothing: %v", bare)
	}
}

func TestAWatchGoesOnUntilTheServerStops(t *testing.T) {
	s := start(t, setup{rules: `rules: [{match: {a: "*"}, limit: 1, window: 1h}]`, service: Options{Top: top.New(top.Options{})}})
	s.call(t, request("default", "a=1"))
	s.call(t, request("default", "a=1"))
	stream := must(s.api().WatchStats(t.Context(), &weirv1.WatchStatsRequest{Interval: durationpb.New(100 * time.Millisecond), Top: 5}))(t)
	for range 3 {
		if m := must(stream.Recv())(t); m.Stats.Rules.Rules != 1 || len(m.Top) != 1 {
			t.Errorf("got %v", m)
		}
	}
	began := time.Now()
	if !s.Drain(0, 20*time.Second) {
		t.Error("a stop waits for who watches")
	}
	for {
		if _, err := stream.Recv(); err != nil {
			wantCode(t, "after the stop", err, codes.Unavailable, "stops")
			break
		}
	}
	t.Logf("stopped after %v", time.Since(began))
}

func TestAWatchHasBounds(t *testing.T) {
	s := start(t, setup{})
	for remark, req := range map[string]*weirv1.WatchStatsRequest{
		"too often":   {Interval: durationpb.New(99 * time.Millisecond)},
		"never":       {Interval: durationpb.New(0)},
		"backwards":   {Interval: durationpb.New(-time.Second)},
		"too seldom":  {Interval: durationpb.New(61 * time.Second)},
		"no duration": {Interval: &durationpb.Duration{Seconds: 1, Nanos: -5}},
		"too many":    {Top: 101},
	} {
		stream := must(s.api().WatchStats(t.Context(), req))(t)
		_, err := stream.Recv()
		wantCode(t, remark, err, codes.InvalidArgument, "")
	}
}
