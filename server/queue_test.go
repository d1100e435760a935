package server

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	weirv1 "weir/api/weir/v1"
	"weir/limiter"
	"weir/limiter/limitertest"
	"weir/rules"
)

const queueing = `
rules:
  - {name: "orders\r\nx: é", endpoint: /orders, limit: 1, window: 1m, algorithm: leaky_bucket, queue: 2, over_limit: queue}
  - {name: mails, endpoint: /mails, limit: 1, window: 1h, algorithm: leaky_bucket, queue: 2, over_limit: queue}
  - {name: shade, endpoint: /shade, limit: 1, window: 1m, algorithm: leaky_bucket, queue: 2, over_limit: queue, shadow_mode: true}
  - {match: {user: "*"}, limit: 3, window: 1h}
`

// ticketOffice signs nothing: its tickets say which queue was meant.
type ticketOffice struct{ closed bool }

func (o *ticketOffice) Ready() bool { return !o.closed }

func (o *ticketOffice) Ticket(r *rules.Rule, cost uint64) string {
	return fmt.Sprintf("%s for %d", r.Path, cost)
}

func (o *ticketOffice) Enqueue(_ context.Context, r *rules.Rule, _ *weirv1.EnqueueRequest) (*weirv1.EnqueueResponse, error) {
	return &weirv1.EnqueueResponse{Id: r.Path}, nil
}

// newQueueFixture has a store that knows how many wait in the queues.
func newQueueFixture(t *testing.T, opts Options) (*fixture, *limitertest.Reference) {
	t.Helper()
	store := limitertest.NewReference(limiter.Options{}, limitertest.NewClock(monday).Now)
	opts.Store = store
	return newFixture(t, setup{rules: queueing, service: opts}), store
}

// upstreamOf is what the request to the upstream is given, in lines.
func upstreamOf(t *testing.T, f *fixture, text string) (lines string, over bool) {
	t.Helper()
	resp, err := f.ask(t.Context(), request("default", text))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range resp.RequestHeadersToAdd {
		lines += h.Key + ": " + h.Value + "\n"
	}
	return lines, resp.OverallCode == 2
}

func TestOverTheLimitEnvoyIsToldToQueue(t *testing.T) {
	f, store := newQueueFixture(t, Options{Queue: &ticketOffice{}})
	for _, step := range []struct {
		text, want, remark string
		over               bool
	}{
		{"endpoint=/orders", "", "a departure is due", false},
		{"endpoint=/orders", "x-weir-overflow: orders%0D%0Ax: %C3%A9\nx-weir-overflow-ticket: endpoint=/orders for 1\n", "the name breaks no header", false},
		{"endpoint=/orders , user=u", "x-weir-overflow: orders%0D%0Ax: %C3%A9\nx-weir-overflow-ticket: endpoint=/orders for 1\n", "it is charged its other limit", false},
		{"endpoint=/orders , endpoint=/orders", "x-weir-overflow: orders%0D%0Ax: %C3%A9\nx-weir-overflow-ticket: endpoint=/orders for 2\n", "twice the same: once, at twice the cost", false},
		{"endpoint=/mails", "", "another rule", false},
		{"endpoint=/orders , endpoint=/mails", "x-weir-overflow: mails\nx-weir-overflow-ticket: endpoint=/mails for 1\n", "of two, the one whose turn comes last", false},
		{"user=u", "", "its third", false}, // the second was charged with the order above
		{"user=u", "", "its limit of three", false},
		{"endpoint=/orders , user=u", "", "a limit that drops refuses it", true},
		{"endpoint=/shade", "", "a shadow rule", false},
		{"endpoint=/shade", "", "queues nothing", false},
	} {
		lines, over := upstreamOf(t, f, step.text)
		if lines != step.want || over != step.over {
			t.Errorf("%s, %s: over %t, upstream\n%swant\n%s", step.text, step.remark, over, lines, step.want)
		}
	}
	store.SetWaiting(f.live.Current().Queues()[0].Overflow, 2)
	if lines, over := upstreamOf(t, f, "endpoint=/orders"); lines != "" || !over {
		t.Errorf("a full queue: over %t, upstream\n%s", over, lines)
	}
}

func TestWithoutAQueueWhatIsOverTheLimitIsRefused(t *testing.T) {
	for _, c := range []struct {
		opts   Options
		over   bool
		remark string
	}{
		{Options{}, true, "no queue"},
		{Options{Queue: &ticketOffice{closed: true}}, true, "one that is not ready"},
		{Options{Queue: &ticketOffice{}, Shadow: true}, false, "a server in shadow refuses nothing and queues nothing"},
	} {
		f, _ := newQueueFixture(t, c.opts)
		upstreamOf(t, f, "endpoint=/orders")
		if lines, over := upstreamOf(t, f, "endpoint=/orders"); lines != "" || over != c.over {
			t.Errorf("%s: over %t, upstream\n%s", c.remark, over, lines)
		}
	}
}

func TestCheckAndEnqueue(t *testing.T) {
	store := limitertest.NewReference(limiter.Options{}, limitertest.NewClock(monday).Now)
	s := start(t, setup{rules: queueing, service: Options{Store: store, Queue: &ticketOffice{}}})
	client := weirv1.NewWeirServiceClient(s.conn)
	entries := []*weirv1.Entry{{Key: "endpoint", Value: "/mails"}}
	for i, want := range []string{"", "mails"} {
		resp, err := client.Check(t.Context(), &weirv1.CheckRequest{Domain: "default", Descriptors: []*weirv1.Descriptor{{Entries: entries}}})
		if err != nil || !resp.Allowed || resp.Queue != want {
			t.Errorf("check %d: %v, %v; want queue %q", i, resp, err, want)
		}
	}
	if resp, err := client.Enqueue(t.Context(), &weirv1.EnqueueRequest{Domain: "default", Entries: entries}); err != nil || resp.Id != "endpoint=/mails" {
		t.Errorf("%v, %v", resp, err)
	}
	for _, c := range []struct {
		req  *weirv1.EnqueueRequest
		code codes.Code
		why  string
	}{
		{&weirv1.EnqueueRequest{Entries: entries}, codes.InvalidArgument, "domain"},
		{&weirv1.EnqueueRequest{Domain: "default"}, codes.InvalidArgument, "no entries"},
		{&weirv1.EnqueueRequest{Domain: "other", Entries: entries}, codes.FailedPrecondition, "over_limit: queue"},
		{&weirv1.EnqueueRequest{Domain: "default", Entries: []*weirv1.Entry{{Key: "user", Value: "u"}}}, codes.FailedPrecondition, "over_limit: queue"},
	} {
		_, err := client.Enqueue(t.Context(), c.req)
		if grpcstatus.Code(err) != c.code || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%v: %v, want %v and %q", c.req, err, c.code, c.why)
		}
	}
}
