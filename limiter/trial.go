package limiter

import "time"

// Trial decides hits on one limit, each alone, with states that the caller keeps: what
// a limit would make of a trace, without a store. It allocates nothing, so that many
// limits can be tried on many hits. It is not safe for concurrent use.
type Trial struct {
	evaluation evaluation
	hit        [1]Hit
	slot       [1]Slot
	decision   [1]Decision
	index      [1]int
}

// NewTrial returns a Trial of a limit that is valid. The delay is the longest that
// callers wait for a LeakyBucket.
func NewTrial(limit Limit, maxDelay time.Duration) *Trial {
	t := &Trial{hit: [1]Hit{{Limit: limit, MaxDelay: maxDelay}}}
	t.evaluation = evaluation{hits: t.hit[:], index: t.index[:], slots: t.slot[:], decisions: t.decision[:]}
	return t
}

// Decide decides a hit of that cost as Evaluate does, and returns the state after it.
// Only Allowed and Delay of the decision are told; the state's Log is owned by the
// state returned.
func (t *Trial) Decide(s State, cost uint64, now time.Time) (State, Decision) {
	t.hit[0].Cost = cost
	t.slot[0], t.decision[0] = Slot{State: s}, Decision{}
	t.evaluation.now = now
	t.evaluation.check(0)
	t.evaluation.charge(0, t.decision[0].Allowed)
	d := t.decision[0]
	if !d.Allowed {
		d.Delay = 0
	}
	return t.slot[0].State, d
}
