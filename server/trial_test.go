package server

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const tried = `
rules:
  - {name: slow, match: {a: "*"}, limit: 1, window: 1s, algorithm: leaky_bucket, queue: 3}
  - {name: two, match: {b: "*"}, limit: 2, window: 1h}
  - {name: inside, match: {key: internal}, exempt: true}
  - {name: free, match: {key: free}, unlimited: true}
`

// A trial answers what the service answers, tells what the answer does not, and
// takes no time, whatever it is held.
func TestATrialIsAnAnswerInSimulatedTime(t *testing.T) {
	f := newFixture(t, setup{rules: tried})
	f.opts.Clock = f.clock.now
	try := func(text string, patience time.Duration) (*Trial, error) {
		request, err := proto.Marshal(request("default", text))
		if err != nil {
			t.Fatal(err)
		}
		return f.Try(context.Background(), request, patience)
	}
	for _, c := range []struct {
		remark, send string
		patience     time.Duration
		answer, rule string
		delay        time.Duration
	}{
		{"the first departs at once", "a=1", time.Minute, "OK", "slow", 0},
		{"the second is held", "a=1", time.Minute, "OK", "slow", time.Second},
		{"who waits less than its turn is refused", "a=1", 2*time.Second + 4*time.Millisecond, "OVER_LIMIT", "slow", 0},
		{"who waits as long is held", "a=1", 2*time.Second + 5*time.Millisecond, "OK", "slow", 2 * time.Second},
		{"a rule that exempts", "key=internal", time.Minute, "OK", "inside", 0},
		{"a rule without a limit", "key=free", time.Minute, "OK", "free", 0},
		{"no rule", "c=1", time.Minute, "OK", "", 0},
	} {
		begin := time.Now()
		got, err := try(c.send, c.patience)
		if err != nil {
			t.Fatalf("%s: %v", c.remark, err)
		}
		if got.Response.OverallCode.String() != c.answer || got.Rule != c.rule || got.Delay != c.delay {
			t.Errorf("%s: %v by %q, held for %v, want %s by %q, held for %v", c.remark, got.Response.OverallCode, got.Rule, got.Delay, c.answer, c.rule, c.delay)
		}
		if took := time.Since(begin); took > 900*time.Millisecond {
			t.Errorf("%s: it took %v", c.remark, took)
		}
	}
	f.clock.advance(4 * time.Second)
	if got, err := try("a=1", time.Minute); err != nil || got.Delay != 0 || len(got.Decisions) != 1 || got.Deciding != 0 {
		t.Errorf("when the bucket has drained: %+v, %v", got, err)
	}
	if _, err := f.Try(context.Background(), nil, time.Minute); grpcstatus.Code(err) != codes.InvalidArgument {
		t.Errorf("an empty request: %v", err)
	}
}
