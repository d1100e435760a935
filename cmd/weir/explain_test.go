package main

import (
	"fmt"
	"strings"
	"testing"

	"weir/internal/testenv"
)

const heldRules = `
rules:
  - name: both
    match: {user: "*"}
    limits: [{limit: 2, window: 1h, algorithm: token_bucket}, {limit: 9, window: 1h, algorithm: token_bucket}]
  - {name: watched, match: {watched: "*"}, limit: 1, window: 1h, algorithm: token_bucket, shadow_mode: true}
  - {name: inside, match: {key: internal}, exempt: true}
`

func TestExplainTellsWhatTheCountersHoldNow(t *testing.T) {
	path := rulesFile(t, heldRules)
	s := serving(t, "--rules", path)
	explain := func(entry string) result { return weir(t, "explain", "default", entry, "--addr", s.grpcAddr) }
	const now = "  now (this was not charged):\n"
	for range 2 { // the first charges nothing
		explain("user=ann").want(t, exitDone, now+"    2 per 1h0m0s token_bucket: 2 left, all of it\n    9 per 1h0m0s token_bucket: 9 left, all of it\n")
	}
	s.codes(t, 2, "default", "user=ann")
	explain("user=ann").want(t, exitDone, now+"    2 per 1h0m0s token_bucket: 0 left, the next request is refused; full again in ",
		"\n    9 per 1h0m0s token_bucket: 7 left; full again in ")
	s.codes(t, 1, "default", "watched=1")
	explain("watched=1").want(t, exitDone, "0 left, the next request is refused; full again in ", "(in shadow: it refuses nothing)")
	for _, uncounted := range []string{"key=internal", "nothing=1"} {
		if r := explain(uncounted); r.code != exitDone || strings.Contains(r.stdout, "now (") {
			t.Errorf("%s: %d\n%s", uncounted, r.code, r.stdout)
		}
	}
	if r := weir(t, "explain", "default", "user=ann", "--rules", path); strings.Contains(r.stdout, "now (") {
		t.Errorf("files have no counters\n%s", r.stdout)
	}
}

func TestExplainTellsThatTheStoreIsAway(t *testing.T) {
	path := rulesFile(t, heldRules)
	nobody := fmt.Sprintf("redis://127.0.0.1:%d", testenv.FreePort(t))
	for _, c := range []struct{ policy, want string }{
		{"error", "what the counters hold now is not known: "},
		{"deny", "not known, for the store is away (on_store_failure: deny)"},
		{"local", "2 left, all of it (the store is away: this is what the server itself has counted)"},
	} {
		s := serving(t, "--rules", path, "--store", nobody, "--on-store-failure", c.policy)
		weir(t, "explain", "default", "user=ann", "--addr", s.grpcAddr).want(t, exitDone, "rule both matches", c.want)
	}
}
