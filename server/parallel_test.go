package server

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// kindOfDescriptor is one of which the answer is known whatever else is asked, as
// no counter of theirs changes.
type kindOfDescriptor struct {
	text, status string
	headers      string // what they must have; "": none of its own
	shadow       string
}

func kindsOfDescriptors() (rules string, kinds []kindOfDescriptor) {
	var text strings.Builder
	fmt.Fprintln(&text, "rules:")
	for i := range 20 {
		fmt.Fprintf(&text, "  - {name: shut-%d, match: {shut: \"%[1]d\"}, limit: 0, window: %[2]ds}\n", i, i+2)
		kinds = append(kinds, kindOfDescriptor{text: fmt.Sprintf("shut=%d", i), status: fmt.Sprintf("over shut-%d 0/", i), headers: "X-Ratelimit-Limit: 0"})
		fmt.Fprintf(&text, "  - {name: shade-%d, match: {shade: \"%[1]d\"}, limit: 0, window: 1s, shadow_mode: true}\n", i)
		kinds = append(kinds, kindOfDescriptor{text: fmt.Sprintf("shade=%d", i), status: fmt.Sprintf("ok shade-%d 0/SECOND left 0", i), shadow: fmt.Sprintf("shade-%d", i)})
		fmt.Fprintf(&text, "  - {match: {free: \"%d\"}, unlimited: true}\n", i)
		kinds = append(kinds, kindOfDescriptor{text: fmt.Sprintf("free=%d", i), status: "ok none left 4294967295"})
		kinds = append(kinds, kindOfDescriptor{text: fmt.Sprintf("nothing=%d", i), status: "ok none left 0"})
	}
	fmt.Fprintln(&text, `  - {match: {in: "*"}, exempt: true}`)
	return text.String(), kinds
}

// Calls are kept and used again, with all their memory: nothing of one may show
// in another.
func TestNoRequestSeesAnythingOfAnother(t *testing.T) {
	rules, kinds := kindsOfDescriptors()
	s := start(t, setup{rules: rules})
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(worker), 1))
			for range 150 {
				if problem := s.askAtRandom(t, r, kinds); problem != "" {
					t.Error(problem)
					return
				}
			}
		})
	}
	all.Wait()
}

func TestACallThatIsKeptForUseAgainHoldsNoText(t *testing.T) {
	c := decoded(t, sampleRequest())
	var p calls
	p.put(c)
	for _, e := range c.entries[:cap(c.entries)] {
		if e.Key != "" || e.Value != "" {
			t.Errorf("it holds %+v", e)
		}
	}
	for _, d := range c.request.Descriptors[:cap(c.request.Descriptors)] {
		if d.Entries != nil || d.Override != nil {
			t.Errorf("it holds %+v", d)
		}
	}
	if c.request.Domain != "" {
		t.Errorf("it holds the domain %q", c.request.Domain)
	}
}

func (s *served) askAtRandom(t *testing.T, r *rand.Rand, kinds []kindOfDescriptor) (problem string) {
	n := 1 + r.IntN(6)
	if r.IntN(20) == 0 {
		n = 300 // more than calls are kept with
	}
	picked := make([]kindOfDescriptor, n)
	texts := make([]string, n)
	for i := range picked {
		picked[i] = kinds[r.IntN(len(kinds))]
		texts[i] = picked[i].text
	}
	req := request("default", strings.Join(texts, " , "))
	switch r.IntN(10) {
	case 0: // a fault, after which the call is used again
		req.Descriptors[n-1].Entries[0].Key = ""
		if _, err := s.client.ShouldRateLimit(t.Context(), req); grpcstatus.Code(err) != codes.InvalidArgument {
			return fmt.Sprintf("an empty key: %v", err)
		}
		return ""
	case 1: // cut bytes
		if _, err := s.rawCall(t.Context(), rawRequest("default", "a", "b")[:12]); grpcstatus.Code(err) != codes.InvalidArgument {
			return fmt.Sprintf("cut bytes: %v", err)
		}
		return ""
	case 2:
		req.Descriptors = append(req.Descriptors, request("", "in=1").Descriptors[0])
		resp, err := s.client.ShouldRateLimit(t.Context(), req)
		if err != nil || resp.OverallCode != rls.RateLimitResponse_OK || len(resp.ResponseHeadersToAdd) > 0 || resp.DynamicMetadata != nil {
			return fmt.Sprintf("exempt: %v, %v", resp, err)
		}
		return ""
	case 3:
		req.Domain = "other"
		for i := range picked {
			picked[i] = kindOfDescriptor{status: "ok none left 0"}
		}
	case 4:
		own := limited("own=1", 0, typev3.RateLimitUnit_HOUR, 0).Descriptors[0]
		req.Descriptors = append(req.Descriptors, own)
		picked = append(picked, kindOfDescriptor{status: "over 0/HOUR left 0", headers: "X-Ratelimit-Limit: 0"})
	}
	resp, err := s.client.ShouldRateLimit(t.Context(), req)
	if err != nil {
		return err.Error()
	}
	return compare(resp, picked)
}

func compare(resp *rls.RateLimitResponse, picked []kindOfDescriptor) (problem string) {
	if len(resp.Statuses) != len(picked) {
		return fmt.Sprintf("%d statuses for %d descriptors", len(resp.Statuses), len(picked))
	}
	var shadow []string
	over, limited := false, false
	for i, p := range picked {
		if got := statusText(resp.Statuses[i]); !strings.HasPrefix(got, p.status) {
			return fmt.Sprintf("status %d: %s, want %s", i, got, p.status)
		}
		over = over || strings.HasPrefix(p.status, "over")
		limited = limited || p.headers != "" || p.shadow != ""
		if p.shadow != "" && (len(shadow) == 0 || shadow[len(shadow)-1] != p.shadow) {
			shadow = append(shadow, p.shadow)
		}
	}
	if got := resp.OverallCode == rls.RateLimitResponse_OVER_LIMIT; got != over {
		return fmt.Sprintf("overall %v, want over: %v", resp.OverallCode, over)
	}
	if got := len(resp.ResponseHeadersToAdd) > 0; got != limited {
		return fmt.Sprintf("headers %s, want some: %v", headersText(resp), limited)
	}
	if got := shadowNames(resp); !slices.Equal(slices.Compact(got), shadow) && !sameNames(got, shadow) {
		return fmt.Sprintf("shadow %q, want %q", got, shadow)
	}
	return ""
}

// sameNames compares without repetitions.
func sameNames(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}
