package soak

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	steadyWindow = 5 * time.Second
	steadyLimit  = 40
	exactWindow  = 10 * time.Second
	exactLimit   = 300
	leaseLimit   = 1000
	exactRefill  = 6                // tokens a second
	longest      = 50 * time.Second // that a key may live: until the bucket of exact_token is full
)

// fixedRules stay as they are. All windows are short, so that counters come and go.
const fixedRules = `domain: soak
rules:
  - {match: {fixed: "*"}, limit: 20, window: 5s}
  - {match: {counter: "*"}, limit: 20, window: 5s, algorithm: sliding_window_counter}
  - {match: {log: "*"}, limit: 20, window: 5s, algorithm: sliding_window_log}
  - {match: {token: "*"}, limit: 20, window: 5s, algorithm: token_bucket, burst: 30}
  - {match: {leaky: "*"}, limit: 100, window: 5s, algorithm: leaky_bucket, queue: 0}
  - {match: {leased: "*"}, limit: 1000000, window: 10s, accuracy: {lease: 500}}
  - {match: {held: "*"}, limit: 50, window: 1s, algorithm: leaky_bucket, queue: 10}
  - {match: {tried: "*"}, limit: 2, window: 2s, shadow_mode: true}
  - {match: {told: "*"}, limit: 2, window: 2s, detailed_metric: true}
  - {match: {broken: "*"}, limits: [{limit: 50, window: 1s}, {limit: 100, window: 5s, algorithm: token_bucket}]}
  - {match: {steady: "*"}, limit: 40, window: 5s, on_store_failure: deny}
  - {match: {exact_fixed: "*"}, limit: 300, window: 10s, on_store_failure: deny}
  - {match: {exact_counter: "*"}, limit: 300, window: 10s, algorithm: sliding_window_counter, on_store_failure: deny}
  - {match: {exact_log: "*"}, limit: 300, window: 10s, algorithm: sliding_window_log, on_store_failure: deny}
  - {match: {exact_token: "*"}, limit: 60, window: 10s, algorithm: token_bucket, burst: 300, on_store_failure: deny}
  - {match: {exact_leaky: "*"}, limit: 1, window: 10s, algorithm: leaky_bucket, queue: 0, on_store_failure: deny}
  - {match: {exact_leased: "*"}, limit: 1000, window: 10s, accuracy: {lease: 50}, on_store_failure: deny}
`

// generation is how many rules each change brings, which the next one takes away.
const generation = 30

// movingRules are those of one change: a limit that tells which, and rules whose
// names were never there before.
func movingRules(n int64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "domain: soak\nrules:\n  - {name: moving, match: {moving: \"*\"}, limit: %d, window: 2s}\n", movingLimit(n))
	for i := range generation {
		fmt.Fprintf(&b, "  - {name: generation-%d-%d, match: {generation: \"%d-%d\"}, limit: 5, window: 1s}\n", n, i, n, i)
	}
	return b.String()
}

func movingLimit(n int64) int64 { return 1000 + n }

// folder is where the servers read their rules.
type folder struct{ path string }

func (f folder) write(name, text string) error {
	if err := os.WriteFile(filepath.Join(f.path, name), []byte(text), 0o600); err != nil {
		return fmt.Errorf("write rules: %w", err)
	}
	return nil
}

// change writes one change: mostly by renaming, as tools do, sometimes in place, as
// an editor may.
func (f folder) change(n int64) error {
	if n%3 == 0 {
		return f.write("moving.yaml", movingRules(n))
	}
	if err := f.write(".moving.new", movingRules(n)); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(f.path, ".moving.new"), filepath.Join(f.path, "moving.yaml")); err != nil {
		return fmt.Errorf("write rules: %w", err)
	}
	return nil
}

// changeRules changes rules every few seconds, and sees that all servers take them.
// Every fifth change comes beside a file with a fault, with which it must wait until
// the fault is gone.
func (s *soak) changeRules(ctx context.Context) error {
	for n := int64(1); ; n++ {
		if !pause(ctx, s.opts.RuleChanges) {
			return nil
		}
		if n%5 == 0 {
			if err := s.rules.write("faulty.yaml", "domain: soak\nrules:\n  - {endpoint: /a, limt: 5}\n"); err != nil {
				return err
			}
			if !pause(ctx, time.Second) {
				return nil
			}
		}
		if err := s.rules.change(n); err != nil {
			return err
		}
		if n%5 == 0 {
			if !pause(ctx, time.Second) {
				return nil
			}
			if err := os.Remove(filepath.Join(s.rules.path, "faulty.yaml")); err != nil {
				return fmt.Errorf("mend rules: %w", err)
			}
		}
		s.generation.Store(n)
		for _, w := range s.weirs {
			s.awaitRules(ctx, w, n)
		}
		s.changes.Add(1)
	}
}

// awaitRules waits until a server decides by the rules of a change, which takes a
// second where the machine is not busy.
func (s *soak) awaitRules(ctx context.Context, w *weir, n int64) {
	const patience = 30 * time.Second
	begin := time.Now()
	for pause(ctx, 50*time.Millisecond) {
		a, err := w.ask(ctx, request(descriptor("moving", "look")))
		if err == nil && len(a.Statuses) == 1 && int64(a.Statuses[0].GetCurrentLimit().GetRequestsPerUnit()) == movingLimit(n) {
			return
		}
		if time.Since(begin) > patience {
			s.faults.add(fmt.Sprintf("%s: change %d of the rules is not in force after %v: %v, %v", w.name, n, patience, a.GetStatuses(), err))
			return
		}
	}
}
