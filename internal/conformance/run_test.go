// Package conformance_test runs envoyproxy/ratelimit and Weir side by side, and
// holds what docs/conformance.md says of them against both.
package conformance_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/testenv"
)

// row is a line of docs/conformance.md, and the requests that prove it.
type row struct {
	topic  string
	what   string
	theirs string // what envoyproxy/ratelimit does
	ours   string // what Weir does; empty: the same
	compat string // what it does with --compat envoyproxy; empty: as theirs
	why    string // there is a difference, and the switch
	in     group
	rules  string // below `descriptors:`, each row in a domain of its own
	steps  []step
	proof  string // the test that proves it, where it is not done by steps
}

// step is a request and the answers to it, in the same order as in row; an empty
// one is the same too.
type step struct{ remark, ask, theirs, ours, compat string }

// group is rows that are run on services with the same settings.
type group struct {
	name string
	env  []string // of envoyproxy/ratelimit and of Weir with --compat
	args []string // of Weir without
}

func (r *row) domain() string {
	return r.in.name + "-" + strings.Trim(strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			return c
		}
		return '-'
	}, strings.ToLower(r.what)), "-")
}

func TestBothDoAsThePageSays(t *testing.T) {
	t.Parallel()
	groups := map[string][]*row{}
	for i := range rows {
		if len(rows[i].steps) > 0 {
			groups[rows[i].in.name] = append(groups[rows[i].in.name], &rows[i])
		}
	}
	for name, of := range groups {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			playGroup(t, of)
		})
	}
}

// playGroup starts the services with the rules of all rows, and plays each.
func playGroup(t *testing.T, of []*row) {
	folder := newFolder(t)
	for _, r := range of {
		folder.write(t, r.domain()+".yaml", fmt.Sprintf("domain: %s\ndescriptors:\n%s", r.domain(), r.rules))
	}
	s := startAll(t, folder, of[0].in)
	for _, r := range of {
		for _, p := range s.all() {
			t.Run(r.what+"/"+p.name, func(t *testing.T) {
				for i, x := range r.steps {
					want := x.wanted(p)
					fixed, calendar, _ := p.ask(t, r.domain(), x.ask)
					if fixed != want && calendar != want {
						t.Errorf("step %d, %s: %s:\n got %s\nwant %s", i+1, x.remark, x.ask, calendar, want)
					}
				}
			})
		}
	}
}

func (x *step) wanted(p *peer) string {
	switch {
	case strings.HasPrefix(p.name, "weir") && x.ours != "":
		return x.ours
	case strings.HasPrefix(p.name, "compat") && x.compat != "":
		return x.compat
	}
	return x.theirs
}

// awaitRoom waits where an hour is about to end: no row may straddle it.
func awaitRoom(t *testing.T) {
	t.Helper()
	left := time.Until(time.Now().Truncate(time.Hour).Add(time.Hour))
	if left > time.Minute {
		return
	}
	t.Logf("waiting %v for the hour to end", left)
	select {
	case <-time.After(left + time.Second):
	case <-t.Context().Done():
	}
}

// folder is a RUNTIME_ROOT.
type folder string

func newFolder(t *testing.T) folder {
	t.Helper()
	f := folder(t.TempDir())
	if err := os.MkdirAll(f.rules(), 0o755); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f folder) rules() string { return filepath.Join(string(f), "ratelimit", "config") }

// write puts a file there as a whole, as editors and Kubernetes do.
func (f folder) write(t *testing.T, name, text string) {
	t.Helper()
	temp := filepath.Join(string(f), name+".new")
	if err := os.WriteFile(temp, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temp, filepath.Join(f.rules(), name)); err != nil {
		t.Fatal(err)
	}
}

// services are those that a row is run on.
type services struct {
	redis        *testenv.Redis
	theirs       *peer
	ours, compat []*peer // with counters in memory, and in Redis
	ratelimit    *testenv.Ratelimit
	weir         *testenv.Weir // the one with --compat and Redis
}

func (s *services) all() []*peer {
	return append(append([]*peer{s.theirs}, s.ours...), s.compat...)
}

// patient is for busy machines: the failure policy is not what is tested.
const patient = "10s"

func startAll(t *testing.T, f folder, g group) *services {
	t.Helper()
	awaitRoom(t)
	s := &services{redis: testenv.StartRedis(t, testenv.RedisOptions{})}
	s.ratelimit = testenv.StartRatelimit(t, testenv.RatelimitOptions{Runtime: string(f), Redis: s.redis.Addr, Env: append([]string{"RUNTIME_SUBDIRECTORY=ratelimit"}, g.env...)})
	s.theirs = connect(t, "theirs", s.ratelimit.GRPCAddr)
	for _, store := range []string{"memory", "redis://" + s.redis.Addr} {
		kind, _, _ := strings.Cut(store, ":")
		args := append([]string{"--store", store, "--store-timeout", patient, "--key-prefix", "ours:"}, g.args...)
		if g.name != headers.name {
			args = append(args, "--headers", "none")
		}
		w := testenv.StartWeir(t, testenv.WeirOptions{Rules: []string{f.rules()}, Args: args})
		s.ours = append(s.ours, connect(t, "weir, "+kind, w.GRPCAddr))

		env := append([]string{"RUNTIME_ROOT=" + string(f), "RUNTIME_SUBDIRECTORY=ratelimit", "REDIS_TIMEOUT=" + patient, "CACHE_KEY_PREFIX=compat:"}, g.env...)
		if kind == "redis" {
			env = append(env, "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+s.redis.Addr)
		}
		s.weir = testenv.StartWeir(t, testenv.WeirOptions{Args: []string{"--compat", "envoyproxy"}, Env: env})
		s.compat = append(s.compat, connect(t, "compat, "+kind, s.weir.GRPCAddr))
	}
	return s
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not after 20s: %s", what)
		}
		select {
		case <-time.After(20 * time.Millisecond): // foreign processes: there is nothing to be told by
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
}
