package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

// admission is a cost that a counter let pass, at some instant from start to end.
type admission struct {
	start, end time.Duration
	cost       uint64
}

// verdictsOn is all that a counter said, in the order in which the answers came.
type verdictsOn struct {
	policy policy
	all    []onCounter
}

type onCounter struct {
	*answer
	verdict
}

// admitted tells whether it let the cost pass, and counted it.
func (o *onCounter) admitted() bool { return o.answer.allowed && o.verdict.allowed }

func (o *onCounter) admission() admission {
	return admission{o.start, max(o.start, o.end-o.delay), o.hits}
}

// figures is what the oracle has seen.
type figures struct {
	answers, admitted, byStore, byLocal, refused, errors int
	over, bound                                          uint64 // of the counter whose limit was exceeded most, against what its outages allow
}

// judge compares a history with what the policies allow. wall is the wall clock's
// time at which the world began.
func judge(h *history, wall time.Time) (f figures, found []string) {
	counters := map[string]*verdictsOn{}
	for i := range h.answers {
		a := &h.answers[i]
		f.answers++
		if text := judgeCode(h, a); text != "" {
			found = append(found, text)
		}
		switch {
		case a.code != codes.OK:
			f.errors++
		case a.allowed:
			f.admitted++
		default:
			f.refused++
		}
		for _, v := range a.verdicts {
			c := counters[v.counter]
			if c == nil {
				c = &verdictsOn{policy: v.policy}
				counters[v.counter] = c
			}
			c.all = append(c.all, onCounter{a, v})
			switch v.by {
			case "store", "deny_cache":
				f.byStore++
			default:
				f.byLocal++
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		c := counters[name]
		slices.SortFunc(c.all, func(a, b onCounter) int { return cmp.Compare(a.end, b.end) })
		for _, text := range slices.Concat(judgeStore(h, c, wall), judgeAlone(h, c, wall), judgeRefusals(c)) {
			found = append(found, name+": "+text)
		}
		over, bound := overBy(h, c)
		if over > bound {
			found = append(found, fmt.Sprintf("%s: %d more than the limit passed; losses and outages allow %d", name, over, bound))
		}
		if over > f.over {
			f.over, f.bound = over, bound
		}
	}
	return f, found
}

// judgeCode tells of an error that no policy names.
func judgeCode(h *history, a *answer) string {
	errs := slices.Contains(a.rules, "errs")
	switch {
	case a.code == codes.OK && a.verdicts == nil && !slices.Contains(a.rules, "large"):
		return fmt.Sprintf("%.2fs: instance %d had no rule for %v", a.end.Seconds(), a.instance, a.rules)
	case a.code == codes.OK:
		return ""
	case a.code == codes.Unavailable && errs && strings.Contains(a.text, textOfPolicy):
		return ""
	case a.code == codes.DeadlineExceeded && h.busy(a.start, a.end):
		return ""
	case a.code == codes.Unavailable || a.code == codes.DeadlineExceeded:
		for _, d := range h.downs {
			if d.instance == a.instance && d.meets(a.start, a.end) {
				return ""
			}
		}
	}
	return fmt.Sprintf("%.2fs to %.2fs: instance %d answered %v with an error that no policy names: %v: %s", a.start.Seconds(), a.end.Seconds(), a.instance, a.rules, a.code, a.text)
}

// busy tells whether the machine was, for so long that a call may have taken a
// client's patience: this process was not run, or several instances, which share
// nothing that they wait for, were slow at once.
func (h *history) busy(from, to time.Duration) bool {
	const slow = patience / 3 // longer than anything that is held
	late := map[int]bool{}
	for _, a := range h.answers {
		if a.end-a.start > slow && a.start <= to && from <= a.end && !anyMeets(of(h.downs, a.instance), a.start, a.end) {
			late[a.instance] = true
		}
	}
	return h.stalled(from, to) > patience/4 || len(late) > 1
}

// judgeStore looks at what Redis let pass, leases too: by the definition of the
// algorithm, from each loss of its data on.
func judgeStore(h *history, c *verdictsOn, wall time.Time) (found []string) {
	long := c.policy.window == month
	var breaks []span
	breaks = append(breaks, h.losses...)
	if !long { // a clock that is set gives back what ends by time
		breaks = append(breaks, h.steps...)
	}
	slices.SortFunc(breaks, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	epochs := make([][]admission, len(breaks)+1)
	for _, o := range c.all {
		if o.admitted() && o.by == "store" && !anyMeets(h.tails, o.start, o.end) {
			if n, sure := epochOf(breaks, o.start, o.end); sure {
				epochs[n] = append(epochs[n], o.admission())
			}
		}
	}
	for n, admissions := range epochs {
		p := c.policy
		if n > 0 || len(h.tails) > 0 { // leases that were in hand when Redis lost what it counted
			p.limit += p.lease * instancesMost
		}
		if text := exceeds(p, admissions, wall); text != "" {
			found = append(found, fmt.Sprintf("with Redis (after %d losses): %s", n, text))
		}
	}
	return found
}

const instancesMost = 3

// epochOf is how many of the breaks were before, if that is sure.
func epochOf(breaks []span, start, end time.Duration) (n int, sure bool) {
	for _, b := range breaks {
		if b.meets(start, end) {
			return 0, false
		}
		if b.to < start {
			n++
		}
	}
	return n, true
}

// judgeAlone looks at what each instance let pass by itself: in each outage by the
// definition of the algorithm, and no more than it knew to be left.
func judgeAlone(h *history, c *verdictsOn, wall time.Time) (found []string) {
	for _, r := range c.alone(h) {
		p := c.policy
		p.limit = min(p.limit, r.left)
		if text := exceeds(p, r.admissions, wall); text != "" {
			found = append(found, fmt.Sprintf("instance %d by itself, from %.2fs on, when %d were left: %s", r.instance, r.admissions[0].start.Seconds(), r.left, text))
		}
	}
	return found
}

// outage is what an instance let pass by itself until it heard of Redis again.
type outage struct {
	instance   int
	left       uint64 // of a fixed window: what it knew to be left, at most
	admissions []admission
}

// alone is the outages of a counter.
func (c *verdictsOn) alone(h *history) (outages []outage) {
	byInstance := map[[2]int][]onCounter{}
	for _, o := range c.all {
		at := [2]int{o.instance, o.life}
		byInstance[at] = append(byInstance[at], o)
	}
	for at, all := range byInstance {
		var run *outage
		var last onCounter
		for i, o := range all {
			if o.by != "local" || !o.admitted() {
				continue
			}
			if run == nil || heardBetween(all, last.start, o.end) {
				outages = append(outages, outage{instance: at[0], left: c.left(h, all[:i], o)})
				run = &outages[len(outages)-1]
			}
			run.admissions = append(run.admissions, o.admission())
			last = o
		}
	}
	return outages
}

// heardBetween tells whether Redis may have said something of the counter.
func heardBetween(all []onCounter, from, to time.Duration) bool {
	return slices.ContainsFunc(all, func(o onCounter) bool { return o.by == "store" && o.start <= to && from <= o.end })
}

// left is what the instance knew to be left before an answer, at most: the most
// that Redis told it in what may have been the last answer.
func (c *verdictsOn) left(h *history, all []onCounter, before onCounter) uint64 {
	if c.policy.window != month {
		return c.policy.limit
	}
	// The last answer that had surely come, and those that may have come since.
	var last *onCounter
	for i := range all {
		if o := &all[i]; o.by == "store" && o.end <= before.start && (last == nil || o.start > last.start) {
			last = o
		}
	}
	if last == nil || anyMeets(slices.Concat(h.losses, h.tails), last.start, before.end) {
		return c.policy.limit
	}
	left := last.known()
	for i := range all {
		if o := &all[i]; o.by == "store" && o.end >= last.start && o.start <= before.end {
			left = max(left, o.known())
		}
	}
	return min(c.policy.limit, left+c.policy.lease) // what a lease says is a little old
}

// known is what is left by an answer, whatever limit was in force then.
func (o *onCounter) known() uint64 { return o.remaining + o.policy.limit - o.limit }

// judgeRefusals looks for refusals that nothing explains.
func judgeRefusals(c *verdictsOn) (found []string) {
	for _, o := range c.all {
		switch {
		case c.policy.never && !o.answer.allowed && o.code == codes.OK:
			return []string{fmt.Sprintf("at %.2fs instance %d refused (by %s), which the load does not reach", o.end.Seconds(), o.instance, o.by)}
		case o.by == "allow" && !o.verdict.allowed, o.by == "deny" && o.verdict.allowed:
			return []string{fmt.Sprintf("at %.2fs instance %d answered %v by on_store_failure: %s", o.end.Seconds(), o.instance, o.verdict.allowed, o.by)}
		case o.by != "store" && o.by != "deny_cache" && o.by != cmp.Or(c.policy.failure, "local"):
			return []string{fmt.Sprintf("at %.2fs instance %d decided by %s", o.end.Seconds(), o.instance, o.by)}
		}
	}
	return nil
}

// overBy is by how much a counter of a long window let pass more than its limit,
// and by how much docs/redis.md ("While Redis is away") lets it.
func overBy(h *history, c *verdictsOn) (over, bound uint64) {
	if c.policy.window != month || c.policy.never || c.policy.failure == "allow" || len(c.all) == 0 {
		return 0, 0
	}
	var sum uint64
	first, last := c.all[0].start, c.all[len(c.all)-1].end
	for _, o := range c.all {
		if o.admitted() {
			sum += o.hits
		}
	}
	for _, l := range slices.Concat(h.losses, h.tails) {
		if l.meets(first, last) {
			bound += c.policy.limit + c.policy.lease*instancesMost
		}
	}
	for _, r := range c.alone(h) {
		bound += r.left
	}
	return sum - min(sum, c.policy.limit), bound
}
