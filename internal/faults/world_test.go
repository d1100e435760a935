package faults_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weir/internal/testenv"
	"weir/limiter"
	"weir/limiter/limitertest"
	"weir/limiter/redis"
	"weir/rules"
	"weir/server"
)

// world is what a row is played in: rules, a clock, and where counters are.
type world struct {
	rules string
	start time.Time      // zero: monday
	redis *testenv.Redis // nil: counters are in memory
	away  bool           // Redis may be away
	real  bool           // counters go by the real clock, and refusals are remembered

	clock  *limitertest.Clock
	live   *rules.Live
	prefix string          // of keys in Redis
	memory *limiter.Memory // of all instances; nil: counters are in Redis
}

var prefixes atomic.Int64

func newWorld(t *testing.T, w world) *world {
	t.Helper()
	if w.start.IsZero() {
		w.start = monday
	}
	w.clock = limitertest.NewClock(w.start)
	w.live = rules.NewLive(rules.LiveOptions{})
	w.prefix = fmt.Sprintf("fault%d:", prefixes.Add(1))
	w.load(t, w.rules)
	return &w
}

// load puts rules into force.
func (w *world) load(t *testing.T, text string) {
	t.Helper()
	if !strings.Contains(text, "rules:") && !strings.Contains(text, "descriptors:") {
		text = "rules:\n" + text
	}
	if err := w.live.Apply("test", rules.ParseSnapshot(map[string][]byte{"rules.yaml": []byte(text)})); err != nil {
		t.Fatalf("%v, of:\n%s", err, text)
	}
}

// patience is for busy machines: how fast Redis is, is not what is tested.
const patience = 10 * time.Second

func (w *world) store(t *testing.T) limiter.Store {
	t.Helper()
	now := w.clock.Now
	if w.real {
		now = nil
	}
	if w.redis == nil {
		if w.memory == nil {
			w.memory = limiter.NewMemory(limiter.MemoryOptions{Now: now})
		}
		return w.memory
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	opts := redis.Options{
		URL: "redis://" + w.redis.Addr, KeyPrefix: w.prefix, Timeout: patience, Now: now,
		Local: limiter.NewStandby(limiter.MemoryOptions{Now: now}),
	}
	if !w.away { // what is decided without Redis would prove nothing of it
		opts.Events.Failed = func(err error) { t.Errorf("Redis did not decide: %v", err) }
	}
	if w.real {
		opts.DenyCache = redis.DefaultDenyCache
	}
	s, err := redis.Open(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// instance is one Weir, over gRPC.
type instance struct{ rls.RateLimitServiceClient }

// serve starts an instance. Those of one world share its rules and counters.
func (w *world) serve(t *testing.T) *instance {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	g := server.NewGRPC(server.NewService(server.Options{Rules: w.live, Store: w.store(t), Logger: log}), server.GRPCOptions{})
	return &instance{rls.NewRateLimitServiceClient(testenv.InMemory(t, g))}
}

// ask asks once. The facts are
//
//	left N M     what each descriptor's limit has left
//	limit N      of the first
//	reset N M    seconds until each is as at first, or passes
//	retry N      of the header Retry-After, or never
//	error CODE
func (s *instance) ask(t *testing.T, ask string) (code string, facts []string) {
	t.Helper()
	resp, err := s.ShouldRateLimit(t.Context(), request(t, ask))
	if err != nil {
		return "E", []string{"error " + grpcstatus.Code(err).String()}
	}
	code = map[rls.RateLimitResponse_Code]string{rls.RateLimitResponse_OK: "A", rls.RateLimitResponse_OVER_LIMIT: "D"}[resp.OverallCode]
	left, reset := "left", "reset"
	for _, st := range resp.Statuses {
		left += fmt.Sprintf(" %d", st.LimitRemaining)
		reset += fmt.Sprintf(" %d", st.DurationUntilReset.GetSeconds())
	}
	retry := "never"
	for _, h := range resp.ResponseHeadersToAdd {
		if h.Key == "Retry-After" {
			retry = h.Value
		}
	}
	return code, []string{left, reset, "retry " + retry, fmt.Sprintf("limit %d", resp.Statuses[0].GetCurrentLimit().GetRequestsPerUnit())}
}

// request reads an ask: descriptors with commas between, of words key=value, whose
// values are percent-encoded, and
//
//	@DOMAIN   instead of default
//	*N        hits_addend of the request
//	+N        hits_addend of the descriptor
//	-         is_negative_hits
//	!N/UNIT   a limit of the descriptor's own
func request(t *testing.T, ask string) *rls.RateLimitRequest {
	t.Helper()
	req := &rls.RateLimitRequest{Domain: rules.DefaultDomain}
	number := func(text string) uint64 {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", ask, err)
		}
		return n
	}
	for part := range strings.SplitSeq(ask, ",") {
		d := &rlcommon.RateLimitDescriptor{}
		for _, word := range strings.Fields(part) {
			key, value, isEntry := strings.Cut(word, "=")
			switch {
			case isEntry:
				text, err := url.PathUnescape(value)
				if err != nil {
					t.Fatalf("%s: %v", ask, err)
				}
				d.Entries = append(d.Entries, &rlcommon.RateLimitDescriptor_Entry{Key: key, Value: text})
			case word[0] == '@':
				req.Domain = word[1:]
			case word[0] == '*':
				req.HitsAddend = uint32(number(word[1:]))
			case word[0] == '+':
				d.HitsAddend = wrapperspb.UInt64(number(word[1:]))
			case word == "-":
				d.IsNegativeHits = true
			case word[0] == '!':
				n, unit, _ := strings.Cut(word[1:], "/")
				d.Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{
					RequestsPerUnit: uint32(number(n)), Unit: typev3.RateLimitUnit(typev3.RateLimitUnit_value[unit]),
				}
			default:
				t.Fatalf("%s: what is %q?", ask, word)
			}
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	return req
}

// keys are the names of what the world has in Redis.
func (w *world) keys(t *testing.T) []string {
	t.Helper()
	keys := strings.Fields(w.redis.MustDo(t, "KEYS", w.prefix+"*"))
	slices.Sort(keys)
	return slices.DeleteFunc(keys, func(k string) bool { return k == w.prefix+"probe" }) // of the store's first look, for 1 ms
}
