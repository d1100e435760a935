package server

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	weirv1 "weir/api/weir/v1"
	"weir/limiter"
)

func TestCheckHasTheHeadersAndTheBodyThatEnvoyGets(t *testing.T) {
	s := start(t, setup{
		rules:   `rules: [{name: "né", match: {a: "*"}, limit: 1, window: 1h}]`,
		service: Options{UpstreamHeaders: true, Denied: DeniedOptions{Body: FixedBody([]byte("slow down\n"), "text/plain")}},
	})
	for _, want := range []string{"OK", "OVER_LIMIT"} {
		envoys := s.call(t, request("default", "a=envoy "))
		own := must(s.api().Check(t.Context(), &weirv1.CheckRequest{Domain: "default", Descriptors: described("a=own")}))(t)
		var headers, upstream []string
		for _, h := range own.Headers {
			headers = append(headers, h.Name+": "+string(h.Value))
		}
		for _, h := range own.UpstreamHeaders {
			upstream = append(upstream, h.Name+": "+string(h.Value))
		}
		var theirs []string
		for _, h := range envoys.RequestHeadersToAdd {
			theirs = append(theirs, h.Key+": "+h.Value)
		}
		if got := strings.Join(headers, "; "); got != headersText(envoys) || got == "" || envoys.OverallCode.String() != want {
			t.Errorf("%s: headers %q, Envoy's %q", want, got, headersText(envoys))
		}
		if strings.Join(upstream, "; ") != strings.Join(theirs, "; ") || (len(upstream) > 0) != own.Allowed {
			t.Errorf("%s: upstream headers %q, Envoy's %q", want, upstream, theirs)
		}
		if string(own.Body) != string(envoys.RawBody) || (len(own.Body) > 0) == own.Allowed {
			t.Errorf("%s: body %q, Envoy's %q", want, own.Body, envoys.RawBody)
		}
	}
}

func TestABatchDecidesEachForItself(t *testing.T) {
	s := start(t, setup{rules: `rules: [{match: {a: "*"}, limit: 1, window: 1h}]`})
	req := &weirv1.CheckBatchRequest{}
	for _, d := range []string{"a=1", "a=2", "=", "b=1", "a=3"} {
		req.Requests = append(req.Requests, &weirv1.CheckRequest{Domain: "default", Descriptors: described(d)})
	}
	req.Requests[4].Hits = 2
	req.Requests = append(req.Requests, nil)
	resp := must(s.api().CheckBatch(t.Context(), req))(t)
	var got []string
	for _, r := range resp.Results {
		got = append(got, fmt.Sprintf("%v %v", codes.Code(r.Code), r.Response.GetAllowed()))
	}
	if text := strings.Join(got, ", "); text != "OK true, OK true, InvalidArgument false, OK true, OK false, InvalidArgument false" {
		t.Errorf("got %s", text)
	}
	if m := resp.Results[2].Message; !strings.Contains(m, "empty key") || resp.Results[0].Message != "" {
		t.Errorf("messages: %v", resp.Results)
	}
}

// Held requests of a batch wait at the same time, and one that panics is alone in it.
func TestNoOneOfABatchHoldsUpOrBreaksAnother(t *testing.T) {
	inside, all := make(chan bool, 100), make(chan struct{})
	s := start(t, setup{rules: `rules: [{match: {a: "*"}, limit: 1, window: 1h}]`, service: Options{
		Store: storeFunc(func(ctx context.Context, hits []limiter.Hit) ([]limiter.Decision, error) {
			inside <- true
			if len(inside) == cap(inside) {
				close(all)
			}
			select {
			case <-all: // all are in here at once
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			if hits[0].Cost == 7 {
				panic("a store out of order")
			}
			return []limiter.Decision{{Allowed: true}}, nil
		}),
	}})
	req := &weirv1.CheckBatchRequest{}
	for i := range cap(inside) {
		req.Requests = append(req.Requests, &weirv1.CheckRequest{Domain: "default", Descriptors: described("a=1"), Hits: uint64(i + 1)})
	}
	for i, r := range must(s.api().CheckBatch(t.Context(), req))(t).Results {
		if want := codes.Internal; (codes.Code(r.Code) == want) != (i == 6) {
			t.Errorf("request %d: %v", i, r)
		}
	}
	all = make(chan struct{}) // nobody comes out
	inside = make(chan bool, 1000)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.api().CheckBatch(ctx, req)
	wantCode(t, "a caller that leaves", err, codes.DeadlineExceeded, "")
}

func TestBoundsOfABatch(t *testing.T) {
	s := start(t, setup{})
	batch := func(n, descriptors int) *weirv1.CheckBatchRequest {
		req := &weirv1.CheckBatchRequest{}
		for range n {
			one := &weirv1.CheckRequest{Domain: "d"}
			for range descriptors {
				one.Descriptors = append(one.Descriptors, &weirv1.Descriptor{})
			}
			req.Requests = append(req.Requests, one)
		}
		return req
	}
	for _, x := range []struct {
		n, descriptors int
		want           string
	}{{0, 0, "no requests"}, {1000, 1, ""}, {1001, 1, "more than 1000"}, {10, 1000, ""}, {11, 1000, "more than 10000"}} {
		_, err := s.api().CheckBatch(t.Context(), batch(x.n, x.descriptors))
		if x.want == "" {
			if err != nil {
				t.Errorf("%d of %d: %v", x.n, x.descriptors, err)
			}
			continue
		}
		wantCode(t, fmt.Sprintf("%d of %d", x.n, x.descriptors), err, codes.InvalidArgument, x.want)
	}
}

func TestBoundsOfARequest(t *testing.T) {
	s := start(t, setup{})
	for _, x := range []struct {
		remark               string
		descriptors, entries int
		want                 string
	}{
		{"as many as may be", 1000, 10, ""},
		{"too many descriptors", 1001, 1, "more than 1000"},
		{"too many entries", 1000, 11, "more than 10000 entries"},
	} {
		req, own := request("d", ""), &weirv1.CheckRequest{Domain: "d"}
		req.Descriptors = nil
		for range x.descriptors {
			words := strings.Repeat("k=v ", x.entries)
			req.Descriptors = append(req.Descriptors, request("d", words).Descriptors...)
			own.Descriptors = append(own.Descriptors, described(words)...)
		}
		_, theirs := s.client.ShouldRateLimit(t.Context(), req)
		_, ours := s.api().Check(t.Context(), own)
		_, peek := s.api().Peek(t.Context(), &weirv1.PeekRequest{Domain: "d", Descriptors: own.Descriptors})
		for _, err := range []error{theirs, ours, peek} {
			if x.want == "" && err != nil || x.want != "" && (grpcstatus.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), x.want)) {
				t.Errorf("%s: %v, want %q", x.remark, err, x.want)
			}
		}
	}
}

func TestPeekTellsWhatIsLeftAndChargesNothing(t *testing.T) {
	s := start(t, setup{rules: `
rules:
  - {match: {a: "*"}, limit: 2, window: 1h, count_denied: true}
  - {match: {leaky: "*"}, limit: 1, window: 1h, algorithm: leaky_bucket, queue: 1}
  - {match: {in: "*"}, exempt: true}
  - {match: {shadow: "*"}, limit: 0, window: 1h, shadow_mode: true}
`})
	peek := func(text string) *weirv1.PeekResponse {
		t.Helper()
		return must(s.api().Peek(t.Context(), &weirv1.PeekRequest{Domain: "default", Descriptors: described(text)}))(t)
	}
	for i, want := range []bool{true, true, false, false} {
		for range 3 {
			got := peek("a=1")
			if got.Allowed != want || got.Decisions[0].Remaining != uint64(max(0, 2-i)) || (got.Decisions[0].RetryAfter != nil) == want {
				t.Errorf("after %d hits: %v", i, got)
			}
		}
		if i < 2 {
			s.call(t, request("default", "a=1"))
		}
	}
	s.clock.advance(15 * time.Minute)
	if got := peek("a=1").Decisions[0]; got.RetryAfter.AsDuration() != 45*time.Minute || got.ResetAfter.AsDuration() != 45*time.Minute {
		t.Errorf("a quarter of an hour later: %v", got)
	}
	refund := described("a=1")
	refund[0].Refund, refund[0].Hits = true, new(uint64)
	if got := must(s.api().Peek(t.Context(), &weirv1.PeekRequest{Domain: "default", Descriptors: refund}))(t); got.Allowed {
		t.Errorf("a refund is of no account: %v", got)
	}
	s.call(t, request("default", "leaky=1"))
	if got := peek("leaky=1"); !got.Allowed || got.Decisions[0].Remaining != 1 {
		t.Errorf("what would pass after a wait passes: %v", got)
	}
	if got := peek("a=1 , in=1"); !got.Allowed || len(got.Decisions) > 0 {
		t.Errorf("exempt: %v", got)
	}
	if got := peek("shadow=1"); !got.Allowed || got.Decisions[0].Allowed || !got.Decisions[0].Shadow {
		t.Errorf("in shadow: %v", got)
	}
}
