package chaos

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
)

// told is an answer of instance 0 about one counter of a rule.
func told(rule string, at time.Duration, remaining uint64, by string) answer {
	a := answer{start: at, end: at + time.Millisecond, life: 1, rules: []string{rule}, hits: 1, allowed: true}
	for _, p := range policies {
		if p.rule == rule {
			a.verdicts = []verdict{{policy: p, counter: rule, limit: p.limit, allowed: true, remaining: remaining, by: by}}
			return a
		}
	}
	panic("no rule " + rule)
}

// many is n of them, one each 10 ms.
func several(rule string, n int, from time.Duration, by string) (all []answer) {
	for i := range n {
		all = append(all, told(rule, from+time.Duration(i)*10*time.Millisecond, uint64(100-i), by))
	}
	return all
}

func join(lists ...[]answer) (all []answer) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

func TestTheOracleSeesWhatNoPolicyAllows(t *testing.T) {
	t.Parallel()
	wall := time.Unix(1_800_000_000, 0) // far from the ends of windows
	of := func(rule string) int {
		for _, p := range policies {
			if p.rule == rule {
				return int(p.limit)
			}
		}
		return 0
	}
	small, log := of("small"), of("log")
	other := func(all []answer, change func(*answer)) []answer {
		for i := range all {
			change(&all[i])
		}
		return all
	}
	for _, c := range []struct {
		remark string
		h      *history
		want   string // empty: nothing is found
	}{
		{"a limit that is used up", &history{answers: several("small", small, 0, "store")}, ""},
		{"one more", &history{answers: several("small", small+1, 0, "store")}, "with Redis"},
		{"twice, as Redis lost all between", &history{answers: join(several("small", small, 0, "store"), several("small", small, 2*time.Second, "store")),
			losses: []span{{from: time.Second, to: time.Second}}}, ""},
		{"one more than twice", &history{answers: join(several("small", small, 0, "store"), several("small", small+1, 2*time.Second, "store")),
			losses: []span{{from: time.Second, to: time.Second}}}, "after 1 losses"},
		{"a cost of more", &history{answers: other(several("cost", 1, 0, "store"), func(a *answer) { a.hits = 1000 })}, "with Redis"},
		{"what was left, without Redis", &history{answers: join([]answer{told("small", 0, 3, "store")}, several("small", 3, time.Second, "local"))}, ""},
		{"more than was left", &history{answers: join([]answer{told("small", 0, 3, "store")}, several("small", 4, time.Second, "local"))}, "by itself"},
		{"once more in each outage", &history{answers: join([]answer{told("small", 0, 3, "store")}, several("small", 3, time.Second, "local"),
			[]answer{told("small", 2*time.Second, 2, "store")}, several("small", 2, 3*time.Second, "local"))}, ""},
		{"more in the second one", &history{answers: join([]answer{told("small", 0, 3, "store")}, several("small", 3, time.Second, "local"),
			[]answer{told("small", 2*time.Second, 2, "store")}, several("small", 3, 3*time.Second, "local"))}, "by itself"},
		{"more hits than a log remembers", &history{answers: several("log", log+1, 0, "store")}, "with Redis"},
		{"more than a bucket gives", &history{answers: several("token", 15, 0, "store")}, "with Redis"},
		{"more than depart", &history{answers: several("leaky", 10, 0, "store")}, "with Redis"},
		{"more in a short window", &history{answers: several("short", 12, 100*time.Millisecond, "store")}, "with Redis"},
		{"in two windows", &history{answers: several("short", 12, 940*time.Millisecond, "store")}, ""},
		{"more than the window before left", &history{answers: join(several("sliding", 16, 1700*time.Millisecond, "store"), several("sliding", 10, 2100*time.Millisecond, "store"))}, "with Redis"},
		{"a refusal of a shadow", &history{answers: other(several("shadow", 1, 0, "store"), func(a *answer) { a.allowed = false })}, "does not reach"},
		{"a policy that the rule does not have", &history{answers: several("denies", 1, 0, "local")}, "decided by local"},
		{"a refusal by allow", &history{answers: other(several("allows", 1, 0, "allow"), func(a *answer) { a.verdicts[0].allowed = false })}, "on_store_failure"},
		{"the error of a policy", &history{answers: []answer{{rules: []string{"errs"}, code: codes.Unavailable, text: textOfPolicy}}}, ""},
		{"the same of another rule", &history{answers: []answer{{rules: []string{"small"}, code: codes.Unavailable, text: textOfPolicy}}}, "no policy names"},
		{"an error of the server", &history{answers: []answer{{rules: []string{"small"}, code: codes.Internal}}}, "no policy names"},
		{"no answer of one that is killed", &history{answers: []answer{{rules: []string{"small"}, code: codes.Unavailable}}, downs: []span{{to: time.Second}}}, ""},
		{"no answer of another", &history{answers: []answer{{rules: []string{"small"}, code: codes.Unavailable}}, downs: []span{{to: time.Second, instance: 1}}}, "no policy names"},
		{"no rule", &history{answers: []answer{{rules: []string{"small"}, allowed: true}}}, "had no rule"},
	} {
		t.Run(c.remark, func(t *testing.T) {
			t.Parallel()
			_, found := judge(c.h, wall)
			text := strings.Join(found, "\n")
			if (c.want == "") != (text == "") || !strings.Contains(text, c.want) {
				t.Errorf("found %q, want %q", text, c.want)
			}
		})
	}
}

func TestASeedMakesOnePlan(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		p := newPlan(seed, 20*time.Second, true)
		if p.String() != newPlan(seed, 20*time.Second, true).String() {
			t.Fatalf("seed %d makes two plans", seed)
		}
		ends := map[string]time.Duration{}
		for _, f := range p.faults {
			if f.at < ends[f.lane] || f.at+f.lasts > p.length {
				t.Errorf("seed %d: %v, after the end at %v of the one before, or too late", seed, f, ends[f.lane])
			}
			ends[f.lane] = f.at + f.lasts
		}
		if len(p.faults) < 8 {
			t.Errorf("seed %d makes %d faults", seed, len(p.faults))
		}
	}
	if fmt.Sprint(newPlan(1, 20*time.Second, true)) == fmt.Sprint(newPlan(2, 20*time.Second, true)) {
		t.Error("two seeds make one plan")
	}
}
