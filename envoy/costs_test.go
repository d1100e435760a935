package envoy_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// asker is a client of Weir beside Envoy.
type asker struct{ client rls.RateLimitServiceClient }

func (r *recipe) asker(t *testing.T) *asker {
	t.Helper()
	conn, err := grpc.NewClient(r.weir.GRPCAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &asker{rls.NewRateLimitServiceClient(conn)}
}

func (a *asker) ask(t *testing.T, domain string, d *common.RateLimitDescriptor) *rls.RateLimitResponse {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	answer, err := a.client.ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: domain, Descriptors: []*common.RateLimitDescriptor{d}})
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// left looks at a counter, at no cost: what is left, and whether it refuses.
func (a *asker) left(t *testing.T, domain string, entries ...string) (uint32, bool) {
	t.Helper()
	answer := a.ask(t, domain, descriptor(wrapperspb.UInt64(0), entries...))
	return answer.Statuses[0].LimitRemaining, answer.OverallCode == rls.RateLimitResponse_OVER_LIMIT
}

// descriptor has entries KEY=VALUE, and a cost of its own unless it is nil.
func descriptor(hits *wrapperspb.UInt64Value, entries ...string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{HitsAddend: hits}
	for _, e := range entries {
		key, value, _ := strings.Cut(e, "=")
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d
}

// charged waits until a charge that comes after the response has arrived.
func (a *asker) charged(t *testing.T, want uint32, domain string, entries ...string) {
	t.Helper()
	var got uint32
	defer func() {
		if got != want {
			t.Logf("%v has %d left, want %d", entries, got, want)
		}
	}()
	eventually(t, "what the response cost is charged", func() bool {
		got, _ = a.left(t, domain, entries...)
		return got == want
	})
}

func TestARouteAndAResponseSayWhatARequestCosts(t *testing.T) {
	t.Parallel()
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			r := startRecipe(t, "costs", recipeOptions{upstream: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				for _, name := range []string{"X-Cost", "X-Refund"} {
					if value := req.Header.Get("Say-" + name); value != "" {
						w.Header().Set(name, value)
					}
				}
			})})
			a := r.asker(t)
			hidden := func(limit, remaining string) map[string]string {
				want := left(limit, remaining)
				want["X-Cost"], want["X-Refund"] = "", ""
				return want
			}
			cost := func(n string) []string { return []string{"Say-X-Cost", n} }
			refund := func(n string) []string { return []string{"Say-X-Refund", n} }

			r.play(t, protocol, []step{
				{remark: "an ordinary request costs 1 of 25", path: "/", code: 200, want: left("25", "24")},
				{remark: "a batch costs 10", path: "/batch", code: 200, want: left("25", "14")},
				{remark: "another batch", path: "/batch", code: 200, want: left("25", "4")},
				{remark: "no room for a third", path: "/batch", code: 429, want: map[string]string{"X-Ratelimit-Limit": "25", "X-Ratelimit-Remaining": "4"}},
				{remark: "room for an ordinary one", path: "/", code: 200, want: left("25", "3")},
			})
			reports := []string{"budget=reports", "remote_address=" + alice}
			r.play(t, protocol, []step{{remark: "a look, that costs nothing", path: "/report", header: cost("60"), code: 200, want: hidden("100", "100")}})
			a.charged(t, 40, "costs", reports...)
			for _, say := range []string{"", "-5", "many", "1000000001", "0"} {
				r.play(t, protocol, []step{{remark: "a response that says " + say + " charges nothing", path: "/report", header: cost(say), code: 200, want: hidden("100", "40")}})
			}
			r.play(t, protocol, []step{{remark: "more than is left passes, for its cost is not known", path: "/report", header: cost("150"), code: 200, want: hidden("100", "40")}})
			a.charged(t, 0, "costs", reports...)
			seen := r.upstreamed.Load()
			r.play(t, protocol, []step{
				{remark: "over", path: "/report", header: cost("1"), code: 429, want: over("100")},
				{remark: "another client", client: bob, path: "/report", header: cost("1"), code: 200, want: left("100", "100")},
			})
			if got := r.upstreamed.Load(); got != seen+1 {
				t.Errorf("the upstream saw %d requests, one of two was refused", got-seen)
			}
			// Overdrawn, and not just used up: 60 and 150 were charged, of which 200
			// count.
			give := descriptor(wrapperspb.UInt64(101), reports...)
			give.IsNegativeHits = true
			a.ask(t, "costs", give)
			if n, _ := a.left(t, "costs", reports...); n != 1 {
				t.Errorf("%d left, want 1", n)
			}

			jobs := []string{"budget=jobs", "remote_address=" + alice}
			r.play(t, protocol, []step{{remark: "charged before", path: "/job", code: 200, want: hidden("2", "1")}})
			r.play(t, protocol, []step{{remark: "charged, and given back after", path: "/job", header: refund("1"), code: 200, want: hidden("2", "0")}})
			a.charged(t, 1, "costs", jobs...)
			r.play(t, protocol, []step{{remark: "never above what there was", path: "/job", header: refund("1000"), code: 200, want: hidden("2", "0")}})
			a.charged(t, 2, "costs", jobs...)
			r.play(t, protocol, []step{
				{remark: "one", path: "/job", code: 200, want: hidden("2", "1")},
				{remark: "two", path: "/job", code: 200, want: hidden("2", "0")},
				{remark: "over", path: "/job", code: 429, want: over("2")},
			})
			if n := strings.Count(r.envoy.Output(), "Invalid hits_addend"); n > 3 {
				t.Errorf("Envoy warns %d times, of three responses that make no sense", n)
			}
		})
	}
}
