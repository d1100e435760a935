package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"weir/internal/accesslog"
	"weir/internal/simulate"
	"weir/rules"
)

// rehearsedRules are of all algorithms, and modes in which limits depend on each other.
const rehearsedRules = `
rules:
  - {match: {kind: fixed, user: "*"}, limit: 3, window: 2s}
  - {match: {kind: counter, user: "*"}, limit: 3, window: 2s, algorithm: sliding_window_counter}
  - {match: {kind: log, user: "*"}, limit: 3, window: 2s, algorithm: sliding_window_log}
  - {match: {kind: log-of-passed, user: "*"}, limit: 3, window: 2s, algorithm: sliding_window_log, count_denied: false}
  - {match: {kind: token, user: "*"}, limit: 2, window: 2s, algorithm: token_bucket, burst: 3}
  - {match: {kind: leaky, user: "*"}, limit: 2, window: 2s, algorithm: leaky_bucket, queue: 1}
  - {match: {kind: shadow, user: "*"}, limit: 1, window: 2s, shadow_mode: true}
  - match: {kind: both, user: "*"}
    limits:
      - {limit: 2, window: 2s}
      - {limit: 5, window: 10s, algorithm: token_bucket}
`

var rehearsedKinds = []string{"fixed", "counter", "log", "log-of-passed", "token", "leaky", "shadow", "both"}

// burst is some requests that come at once, of each kind.
type burst struct {
	at    time.Duration // from the start of a window of two seconds
	times int
}

var rehearsed = []burst{{626 * time.Millisecond, 2}, {2252 * time.Millisecond, 4}, {3325 * time.Millisecond, 2}, {4981 * time.Millisecond, 3}}

const rehearsedMargin = 200 * time.Millisecond

// verdicts are how many of each burst pass, by kind.
type verdicts map[string][]int

func newVerdicts() verdicts {
	v := verdicts{}
	for _, kind := range rehearsedKinds {
		v[kind] = make([]int, len(rehearsed))
	}
	return v
}

// rehearse simulates the bursts, from start on.
func rehearse(t *testing.T, start time.Time, bursts []burst) verdicts {
	t.Helper()
	var lines strings.Builder
	var of []struct {
		kind  string
		burst int
	}
	for i, b := range bursts {
		for range b.times {
			for _, kind := range rehearsedKinds {
				fmt.Fprintf(&lines, `{"time": %q, "kind": %q, "user": "alice"}`+"\n", start.Add(b.at).UTC().Format(time.RFC3339Nano), kind)
				of = append(of, struct {
					kind  string
					burst int
				}{kind, i})
			}
		}
	}
	set, err := compile(map[string][]byte{"rules.yaml": []byte(rehearsedRules)})
	if err != nil {
		t.Fatal(err)
	}
	sets := []simulate.NamedSet{{Name: "rules", Set: set}}
	log, err := accesslog.Open(accesslog.Options{
		Files: []string{"-"}, Stdin: strings.NewReader(lines.String()),
		Mapping: accesslog.ImpliedMapping(rules.DefaultDomain, keysOf(sets, rules.DefaultDomain)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	v, n := newVerdicts(), 0
	s := simulate.New(simulate.Options{Sets: sets, Decided: func(_ int, _ time.Time, passes bool) {
		if passes {
			v[of[n].kind][of[n].burst]++
		}
		n++
	}})
	defer s.Close()
	if err := replayLog(t.Context(), log, s, &progress{}); err != nil {
		t.Fatal(err)
	}
	if n != len(of) {
		t.Fatalf("%d decisions of %d", n, len(of))
	}
	return v
}

// play asks a server at the bursts' own times. It is false if the machine was too slow
// for them, so that the times were others.
func play(t *testing.T, server *running, start time.Time) (verdicts, bool) {
	t.Helper()
	v, inTime := newVerdicts(), true
	asked := client(t, server.grpcAddr)
	var mu sync.Mutex
	var all sync.WaitGroup
	for i, b := range rehearsed {
		time.Sleep(time.Until(start.Add(b.at))) // real time is what the test is about
		for range b.times {
			for _, kind := range rehearsedKinds {
				all.Go(func() {
					held := kind == "leaky"
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					defer cancel()
					resp, err := asked.ShouldRateLimit(ctx, requestOf(rules.DefaultDomain, [][]rules.Entry{{{Key: "kind", Value: kind}, {Key: "user", Value: "alice"}}}, 0))
					late := time.Since(start.Add(b.at)) > rehearsedMargin
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						t.Errorf("%s: %v", kind, err)
						return
					}
					inTime = inTime && (held || !late)
					if resp.OverallCode == rls.RateLimitResponse_OK {
						v[kind][i]++
					}
				})
			}
		}
	}
	all.Wait()
	return v, inTime
}

// TestSimulateDecidesAsServeDoes replays a log against weir serve at its own speed. The
// windows of both begin at the same phase: the log's times are those of the replay.
func TestSimulateDecidesAsServeDoes(t *testing.T) {
	t.Parallel()
	const window = 2 * time.Second
	for try := 1; ; try++ {
		s := serving(t, "--rules", rulesFile(t, rehearsedRules))
		start := time.Now().Add(window + 100*time.Millisecond).Truncate(window)
		want := rehearse(t, start, rehearsed)
		got, inTime := play(t, s, start)
		if !inTime && try < 10 {
			t.Logf("the machine was too slow, try %d", try)
			continue
		}
		for _, kind := range rehearsedKinds {
			if fmt.Sprint(got[kind]) != fmt.Sprint(want[kind]) {
				t.Errorf("%s: serve let %v pass, simulate %v", kind, got[kind], want[kind])
			}
		}
		if fmt.Sprint(want["fixed"]) != "[2 3 0 3]" {
			t.Errorf("fixed: simulate let %v pass", want["fixed"])
		}
		return
	}
}

// TestTheRehearsalStandsApartFromAnyBoundary holds that the decisions that serve is asked
// for do not depend on when exactly its clock says that they came.
func TestTheRehearsalStandsApartFromAnyBoundary(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_800_000_000, 0)
	want := fmt.Sprint(rehearse(t, start, rehearsed))
	for i := range rehearsed {
		for _, by := range []time.Duration{-rehearsedMargin, rehearsedMargin} {
			moved := append([]burst(nil), rehearsed...)
			moved[i].at += by
			if got := fmt.Sprint(rehearse(t, start, moved)); got != want {
				t.Errorf("burst %d by %v later:\n%s\nwant\n%s", i, by, got, want)
			}
		}
	}
}
