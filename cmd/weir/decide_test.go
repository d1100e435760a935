package main

import (
	"path/filepath"
	"regexp"
	"testing"
)

const decideRules = `
domain: shop
rules:
  - {name: posts, match: {endpoint: /posts, user: "*"}, limit: 2, window: 5m, algorithm: token_bucket}
  - {endpoint: /free, unlimited: true}
  - {endpoint: /shut, limit: 0, window: 1h}
  - {endpoint: /fine, limit: 7, window: 100ms, algorithm: token_bucket}
  - {endpoint: /slow, limit: 1, window: 1h, algorithm: leaky_bucket}
  - {match: {agent: "curl*"}, limit: 3, window: 1h}
`

func TestDecidePrintsTheDecision(t *testing.T) {
	s := serving(t, "--rules", rulesFile(t, decideRules))
	for i, x := range []struct {
		remark string
		args   []string
		want   string // a pattern of the whole output
	}{
		{"three times", []string{"endpoint=/posts", "user=alice", "--times", "3"}, `OK
  endpoint=/posts user=alice: OK, limit 2 in 5 minutes, 1 left, full again in \S+ \(posts\)
  X-Ratelimit-Limit: 2
  X-Ratelimit-Remaining: 1
OK
  endpoint=/posts user=alice: OK, limit 2 in 5 minutes, 0 left, full again in \S+ \(posts\)
  X-Ratelimit-Limit: 2
  X-Ratelimit-Remaining: 0
OVER_LIMIT
  endpoint=/posts user=alice: OVER_LIMIT, limit 2 in 5 minutes, 0 left, retry after \S+ \(posts\)
  X-Ratelimit-Limit: 2
  X-Ratelimit-Remaining: 0
  X-Ratelimit-Retry-After: \d+
  Retry-After: \d+
`},
		{"a cost that never passes", []string{"endpoint=/posts", "user=bob", "--hits", "3"}, `OVER_LIMIT
  endpoint=/posts user=bob: OVER_LIMIT, limit 2 in 5 minutes, 2 left, waiting cannot help \(posts\)
  X-Ratelimit-Limit: 2
  X-Ratelimit-Remaining: 2
`},
		{"a cost that does", []string{"endpoint=/posts", "user=bob", "--hits", "2"}, `OK
  endpoint=/posts user=bob: OK, limit 2 in 5 minutes, 0 left, full again in \S+ \(posts\)
(?s:.*)`},
		{"a comma between descriptors", []string{"endpoint=/free", ",", "nothing=a=b", "x=", ",", "endpoint=/shut"}, `OVER_LIMIT
  endpoint=/free: OK, unlimited
  nothing=a=b x=: OK, no limit \(.weir explain. says why\)
  endpoint=/shut: OVER_LIMIT, limit 0 an hour, 0 left, waiting cannot help
  X-Ratelimit-Limit: 0
  X-Ratelimit-Remaining: 0
`},
		{"a window that has no unit", []string{"endpoint=/fine"}, `OK
  endpoint=/fine: OK, limit 7 a window, 6 left, full again in 1s
(?s:.*)`},
	} {
		r := s.decide(t, append([]string{"shop"}, x.args...)...)
		if r.code != exitDone || r.stderr != "" || !regexp.MustCompile(`\A`+x.want+`\z`).MatchString(r.stdout) {
			t.Errorf("step %d, %s: %d\n%s%s\nwant\n%s", i+1, x.remark, r.code, r.stdout, r.stderr, x.want)
		}
	}
}

func TestDecideSaysWhatToDoWhenItFails(t *testing.T) {
	gone := taken(t) // listens, and never answers
	r := weir(t, "decide", "--addr", "127.0.0.1:1", "shop", "a=1")
	r.want(t, exitFailed, "asking 127.0.0.1:1: ", "connection refused", "start `weir serve`, or say where it runs with --addr")
	weir(t, "explain", "--addr", "127.0.0.1:1", "shop", "a=1").want(t, exitFailed, "connection refused", "start `weir serve`")
	weir(t, "decide", "--addr", "unix:/nowhere/weir.sock", "shop", "a=1").want(t, exitFailed, "no such file", "start `weir serve`")
	weir(t, "decide", "--addr", gone, "--timeout", "50ms", "shop", "a=1").want(t, exitFailed, "start `weir serve`")

	// A server that is there says itself what is wrong.
	s := serving(t, "--rules", rulesFile(t, decideRules))
	r = s.decide(t, "", "a=1")
	r.want(t, exitFailed, "InvalidArgument: the domain is empty")
	if regexp.MustCompile("start `weir serve`").MatchString(r.stderr) {
		t.Errorf("it says to start a server that runs: %s", r.stderr)
	}
	s.decide(t, "shop", "endpoint=/slow").want(t, exitDone, "OK")
	s.decide(t, "shop", "endpoint=/slow").want(t, exitDone, "OVER_LIMIT") // its turn is in an hour
}

func TestExplainByAServerOrByFiles(t *testing.T) {
	path := rulesFile(t, decideRules)
	s := serving(t, "--rules", path)
	for _, from := range [][]string{{"--addr", s.grpcAddr}, {"--rules", path}, {"--rules", filepath.Dir(path)}} {
		weir(t, append([]string{"explain", "shop", "endpoint=/posts", "user=alice"}, from...)...).want(t, exitDone,
			"rule posts matches", "limit 2 per 5m, token_bucket", path+":4:5")
		weir(t, append([]string{"explain", "shop", "agent=curl/8"}, from...)...).want(t, exitDone, "agent=curl*", "wildcard")
		weir(t, append([]string{"explain", "shop", "endpoint=/post", "user=alice"}, from...)...).want(t, exitDone,
			"no limit", "nearly: endpoint=/posts, user=*")
		weir(t, append([]string{"explain", "shoop", "endpoint=/posts"}, from...)...).want(t, exitDone, `did you mean "shop"?`)
	}
	// Nothing of it was charged.
	if got := s.codes(t, 3, "shop", "endpoint=/posts", "user=alice"); got != "AAD" {
		t.Errorf("after explaining: %s, want AAD", got)
	}
	weir(t, "explain", "--rules", rulesFile(t, fiveFaults), "shop", "a=1").want(t, exitFailed, ":3:", ":7:")
	weir(t, "explain", "--rules", "/nowhere.yaml", "shop", "a=1").want(t, exitFailed, "/nowhere.yaml: no such file")
}
