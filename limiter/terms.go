package limiter

import "time"

// DeadlineMargin is what must be left of the caller's deadline when a held request is
// answered.
const DeadlineMargin = 5 * time.Millisecond

// Terms are what whoever asks the store grants the hits of a request, beside what its
// rules say of them.
type Terms struct {
	Shadow   bool                 // nothing refuses: verdicts are only told
	CanQueue bool                 // queues take what overflows; else it is refused
	Patience func() time.Duration // how long the caller can wait for its turn; asked once, and only if it may have to
}

// Apply sets what the hits leave to the caller: MaxDelay, and what becomes of their
// Overflow and OnFailure.
func (t *Terms) Apply(hits []Hit) {
	var patience time.Duration
	asked := false
	for i := range hits {
		h := &hits[i]
		if t.Shadow && h.OnFailure == FailError {
			h.OnFailure = FailAllow // nothing refuses, also by failing
		}
		if h.Overflow != nil && !t.CanQueue {
			h.Overflow = nil
			continue // refused, not held: its rule does not say so
		}
		if h.Limit.Algorithm != LeakyBucket || h.Overflow != nil {
			continue
		}
		if h.Shadow || t.Shadow {
			h.MaxDelay = NoDeadline // nobody will wait
			continue
		}
		if !asked {
			asked, patience = true, t.Patience()
		}
		h.MaxDelay = patience
	}
}
