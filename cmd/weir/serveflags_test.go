package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// twoLimits: /a lets one request pass, and a user three.
const twoLimits = `
rules:
  - {match: {endpoint: /a}, limit: 1, window: 1h, algorithm: token_bucket}
  - {match: {user: "*"}, limit: 3, window: 1h, algorithm: token_bucket}
`

func TestWhatARefusedRequestCharges(t *testing.T) {
	for _, x := range []struct {
		remark string
		flags  []string
		left   string // to the user, after one request that passes, one that /a refuses, and one of the user's alone
	}{
		{"nothing", nil, "1 left"},
		{"nothing, when told so", []string{"--charge", "all-or-nothing"}, "1 left"},
		{"each limit that lets it pass", []string{"--charge", "each"}, "0 left"},
		{"as envoyproxy/ratelimit does", []string{"--compat", "envoyproxy"}, "0 left"},
		{"as the flag says that --compat stands for", []string{"--compat", "envoyproxy", "--charge", "all-or-nothing"}, "1 left"},
	} {
		s := serving(t, append(x.flags, "--rules", rulesFile(t, twoLimits))...)
		if got := s.codes(t, 2, "default", "endpoint=/a", ",", "user=1"); got != "AD" {
			t.Errorf("%s: %s, want AD", x.remark, got)
		}
		s.decide(t, "default", "user=1").want(t, exitDone, "user=1: OK, limit 3 an hour, "+x.left)
		s.stop()
	}
}

func TestCountDeniedIsTheDefaultOfRulesThatDoNotSay(t *testing.T) {
	const text = `
rules:
  - {match: {bucket: "*"}, limit: 1, window: 1h, algorithm: token_bucket, burst: 2}
  - {match: {no: "*"}, limit: 1, window: 1h, algorithm: token_bucket, burst: 2, count_denied: false}
`
	for _, x := range []struct {
		remark     string
		flags      []string
		bucket, no string // whether 2 still pass after a refusal of 3
	}{
		{"off", nil, "AD", "AD"},
		{"on", []string{"--count-denied"}, "DD", "AD"},
		{"by --compat", []string{"--compat", "envoyproxy"}, "DD", "AD"},
	} {
		s := serving(t, append(x.flags, "--rules", rulesFile(t, text))...)
		for key, want := range map[string]string{"bucket": x.bucket, "no": x.no} {
			s.decide(t, "default", key+"=1", "--hits", "3").want(t, exitDone, "OVER_LIMIT")
			if got := s.codes(t, 2, "default", key+"=1", "--hits", "2"); got != want {
				t.Errorf("%s: %s: %s, want %s", x.remark, key, got, want)
			}
		}
		s.stop()
	}
}

func TestAServerInShadowLetsAllPass(t *testing.T) {
	s := serving(t, "--shadow", "--rules", rulesFile(t, twoLimits))
	r := s.decide(t, "default", "endpoint=/a", "--times", "3")
	r.want(t, exitDone, "OK\n  endpoint=/a: OVER_LIMIT", "in shadow, endpoint=/a would have refused it")
	if strings.Contains(r.stdout, "\nOVER_LIMIT\n") || strings.Contains(r.stdout, "Retry-After") {
		t.Errorf("refused:\n%s", r.stdout)
	}
}

func TestHeadersNoneAndMaxHeld0(t *testing.T) {
	s := serving(t, "--headers", "none", "--max-held", "0", "--rules", rulesFile(t, `
rules:
  - {endpoint: /a, limit: 0, window: 1h}
  - {endpoint: /slow, limit: 1000, window: 10s, algorithm: leaky_bucket, queue: 1000}
`))
	r := s.decide(t, "default", "endpoint=/a")
	r.want(t, exitDone, "OVER_LIMIT\n")
	if strings.Contains(r.stdout, "Limit:") {
		t.Errorf("there are headers:\n%s", r.stdout)
	}
	// A first cost of 200 need not wait; one behind it would, for 2 s.
	s.decide(t, "default", "endpoint=/slow", "--hits", "200").want(t, exitDone, "OK\n")
	if got := s.codes(t, 3, "default", "endpoint=/slow"); got != "DDD" {
		t.Errorf("behind 2 s of others: %s, want DDD at once", got)
	}
}

func TestAFullMemoryStoreAnswersByPolicy(t *testing.T) {
	const text = `
rules:
  - {match: {user: "*"}, limit: 5, window: 1h, algorithm: token_bucket}
  - {match: {vip: "*"}, limit: 5, window: 1h, algorithm: token_bucket, on_store_failure: deny}
`
	for policy, want := range map[string]string{
		"local": "OK\n", "allow": "OK\n", "deny": "OVER_LIMIT\n", "error": "Unavailable: rate limit store unavailable",
	} {
		s := serving(t, "--memory-max-counters", "1", "--on-store-failure", policy, "--rules", rulesFile(t, text))
		s.decide(t, "default", "user=1").want(t, exitDone, "OK\n")
		code := exitDone
		if policy == "error" {
			code = exitFailed
		}
		s.decide(t, "default", "user=2").want(t, code, want)
		s.decide(t, "default", "vip=1").want(t, exitDone, "OVER_LIMIT\n") // by its rule's own
		s.decide(t, "default", "user=1").want(t, exitDone, "OK, limit 5 an hour, 3 left")
		if !strings.Contains(s.stderr.String(), "the memory store is full") {
			t.Errorf("%s: the log does not tell:\n%s", policy, s.stderr)
		}
		s.stop()
	}
}

func TestLogsAreJSONOnDemand(t *testing.T) {
	s := serving(t, "--log-format", "json", "--log-level", "debug")
	s.stop()
	lines := 0
	for line := range strings.Lines(s.stderr.String()) {
		var record struct{ Level, Msg string }
		if err := json.Unmarshal([]byte(line), &record); err != nil || record.Msg == "" || record.Level == "" {
			t.Errorf("no JSON: %s", line)
		}
		lines++
	}
	if lines == 0 {
		t.Error("nothing was logged")
	}
	quiet := serving(t, "--log-level", "error")
	quiet.stop()
	if got := fmt.Sprint(quiet.stderr); got != "" {
		t.Errorf("--log-level error logs %s", got)
	}
}
