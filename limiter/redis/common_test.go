package redis

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/limiter"
)

// tlsFiles are the certificates of all tests.
var tlsFiles *testenv.TLSFiles

// TestMain makes the certificates' authority one that this process trusts. It
// must be known before anything asks for the system's.
func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "weir-tls-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		if tlsFiles, err = testenv.MakeTLSFiles(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if err := os.Setenv("SSL_CERT_FILE", tlsFiles.CA); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

var prefixes atomic.Int64 // each store has keys of its own

// open returns a store on the Redis, with a clock of the test's if now is given.
func open(t testing.TB, addr string, opts Options, now func() time.Time) *Store {
	t.Helper()
	opts.URL, opts.Now = "redis://"+addr, now
	return openURL(t, opts)
}

// openURL returns a store on a Redis that answers, whose every failure is an
// error unless opts say what to do of it.
func openURL(t testing.TB, opts Options) *Store {
	t.Helper()
	if opts.Events.Failed == nil {
		opts.Events.Failed = func(err error) { t.Errorf("Redis did not decide: %v", err) }
	}
	s := openAny(t, opts, 10*time.Second)
	if !s.Healthy() {
		t.Fatal("Redis is not reached")
	}
	return s
}

// openAny returns a store, whether Redis answers in time or not.
func openAny(t testing.TB, opts Options, wait time.Duration) *Store {
	t.Helper()
	if opts.KeyPrefix == "" {
		opts.KeyPrefix = fmt.Sprintf("test%d:", prefixes.Add(1))
	}
	if opts.Timeout == 0 {
		opts.Timeout = 5 * time.Second // a shared machine may pause
	}
	if opts.Local == nil {
		opts.Local = limiter.NewStandby(limiter.MemoryOptions{Now: opts.Now})
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.NewTextHandler(testLog{t}, nil))
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	s, err := Open(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // a test may have closed it
	return s
}

type testLog struct{ t testing.TB }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// logBook keeps what is logged.
type logBook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logBook) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// ignored is for tests in which Redis is meant to fail.
func ignored(error) {}

// await polls until what is true.
func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so after 20 s: %s", what)
		}
	}
}

// perYear is a limit whose window hardly ever ends while a test runs.
func perYear(n uint64) limiter.Limit {
	return limiter.Limit{Requests: n, Window: limiter.Window{Length: limiter.MaxWindow}}
}

// perAlgorithm are the five, each with a capacity of n a window.
func perAlgorithm(n uint64, window time.Duration) []limiter.Limit {
	w := limiter.Window{Length: window}
	return []limiter.Limit{
		{Requests: n, Window: w},
		{Requests: n, Window: w, Algorithm: limiter.TokenBucket, Burst: n},
		{Requests: n, Window: w, Algorithm: limiter.LeakyBucket, Queue: n - 1},
		{Requests: n, Window: w, Algorithm: limiter.SlidingWindowLog},
		{Requests: n, Window: w, Algorithm: limiter.SlidingWindowCounter},
	}
}

func hit(key string, l limiter.Limit, cost uint64) limiter.Hit {
	return limiter.Hit{Key: limiter.Key(key), Limit: l, Cost: cost, MaxDelay: limiter.NoDeadline}
}

func refund(h limiter.Hit) limiter.Hit { h.Refund = true; return h }

func onFailure(p limiter.FailurePolicy, h limiter.Hit) limiter.Hit { h.OnFailure = p; return h }

func decide(t testing.TB, s limiter.Store, hits ...limiter.Hit) []limiter.Decision {
	t.Helper()
	decisions, err := s.Decide(context.Background(), hits)
	if err != nil {
		t.Fatal(err)
	}
	return decisions
}

// calls is how often Redis ran a command.
func calls(t testing.TB, r *testenv.Redis, command string) int {
	t.Helper()
	for line := range strings.Lines(r.MustDo(t, "INFO", "commandstats")) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_"+command+":calls="); ok {
			var n int
			if _, err := fmt.Sscan(strings.SplitN(rest, ",", 2)[0], &n); err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	return 0
}
