// Package limiter decides whether a hit passes a limit.
//
// It knows five algorithms, each a pure function of (state, limit, cost, now),
// and the Store that keeps the states. It knows neither rules nor protos.
package limiter

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Algorithm says how a limit counts. The zero value is FixedWindow.
type Algorithm uint8

// The algorithms. Each is defined where it is built: window.go, counter.go,
// log.go, bucket.go.
const (
	FixedWindow Algorithm = iota
	TokenBucket
	LeakyBucket
	SlidingWindowLog
	SlidingWindowCounter
)

var algorithmNames = [...]string{"fixed_window", "token_bucket", "leaky_bucket", "sliding_window_log", "sliding_window_counter"}

// AlgorithmNames lists the names of the algorithms as rules spell them.
func AlgorithmNames() []string { return algorithmNames[:] }

func (a Algorithm) String() string {
	if int(a) < len(algorithmNames) {
		return algorithmNames[a]
	}
	return fmt.Sprintf("algorithm(%d)", uint8(a))
}

// ParseAlgorithm returns the algorithm of that name.
func ParseAlgorithm(name string) (Algorithm, error) {
	for i, n := range algorithmNames {
		if n == name {
			return Algorithm(i), nil
		}
	}
	return 0, fmt.Errorf("unknown algorithm %q", name)
}

// FailurePolicy says what to answer for a counter that the store cannot reach
// or has no room for. The zero value is FailLocal.
type FailurePolicy uint8

// The failure policies.
const (
	FailLocal FailurePolicy = iota // decide on this instance alone; a full memory store allows
	FailAllow                      // pass, with the full limit remaining
	FailDeny                       // refuse, with nothing remaining and no retry-after
	FailError                      // answer ErrUnavailable
)

var policyNames = [...]string{"local", "allow", "deny", "error"}

// FailurePolicyNames lists the policies' names as rules and flags spell them.
func FailurePolicyNames() []string { return policyNames[:] }

func (p FailurePolicy) String() string {
	if int(p) < len(policyNames) {
		return policyNames[p]
	}
	return fmt.Sprintf("policy(%d)", uint8(p))
}

// ParseFailurePolicy returns the policy of that name.
func ParseFailurePolicy(name string) (FailurePolicy, error) {
	for i, n := range policyNames {
		if n == name {
			return FailurePolicy(i), nil
		}
	}
	return 0, fmt.Errorf("unknown failure policy %q", name)
}

// ErrUnavailable is what Decide wraps when a counter cannot be reached or has
// no room and its policy is FailError.
var ErrUnavailable = errors.New("rate limit store unavailable")

// Limit is an algorithm and its parameters, such as 5 per 60 s.
type Limit struct {
	Requests    uint64 // 0 to 2^32-1 a Window; 0 refuses every cost, and looks too
	Window      Window
	Algorithm   Algorithm
	Burst       uint64 // TokenBucket: the bucket's size
	Queue       uint64 // LeakyBucket: how many may wait
	CountDenied bool   // a request that this limit refuses counts in it too
	Lease       uint64 // FixedWindow: hits that an instance may take from a shared store at once; 0: none
}

// Of what is left of a limit an instance leases a LeaseShare at most, and two hits
// at least: so what is left when a window nears its end of it is shared exactly, and
// a limit under SmallestLeased is never leased.
const (
	LeaseShare     = 8
	SmallestLeased = 2 * LeaseShare
)

// Key is a counter's identity: any bytes, equal for the same counter and
// different for any other. Stores keep a hash of it.
type Key []byte

// Hit is the cost that a request brings to one counter. All hits of one Key in
// a request have the same algorithm and window.
type Hit struct {
	Key       Key
	Limit     Limit
	Cost      uint64        // 0 looks without counting; saturates at MaxCost
	Refund    bool          // give Cost back instead of charging it
	Shadow    bool          // counted and reported, never refuses the request
	Quota     bool          // refuses the request only if every quota hit refuses
	MaxDelay  time.Duration // LeakyBucket: the longest delay that the caller can wait; 0: none
	Overflow  Key           // LeakyBucket: the queue that takes what cannot depart at once, in place of a delay; nil: none
	OnFailure FailurePolicy
}

// MaxCost is the largest cost that is told apart: more counts as this. Only a
// burst or a queue above MaxRequests lets it pass.
const MaxCost = 1 << 32

// NoDeadline is the MaxDelay of a caller that waits for ever.
const NoDeadline = time.Duration(1<<63 - 1)

// Decision is the answer for one hit, with the counter's state after the whole
// request.
type Decision struct {
	Allowed    bool          // this limit alone lets the hit pass
	Remaining  uint64        // the largest cost that would pass now
	ResetAfter time.Duration // until the counter is as new
	RetryAfter time.Duration // of a refusal: the hit passes after this time; 0: waiting cannot help
	Delay      time.Duration // of a LeakyBucket pass: hold the request so long; if Queued: about the time until it departs
	Queued     bool          // the request passes, into the hit's Overflow queue
	Origin     Origin        // who decided
}

// Origin says who decided a hit. The zero value is OriginStore.
type Origin uint8

// The origins. All but the first two mean that the store was away, or had no room.
const (
	OriginStore     Origin = iota
	OriginDenyCache        // a refusal of the store's, remembered by this instance
	OriginOpen             // a failure policy, which lets the hit pass
	OriginClosed           // a failure policy, which refuses it
	OriginLocal            // this instance alone (FailLocal)
)

var originNames = [...]string{"store", "deny_cache", "allow", "deny", "local"}

// String is the origin's name: a failure policy's is that of the policy.
func (o Origin) String() string {
	if int(o) < len(originNames) {
		return originNames[o]
	}
	return fmt.Sprintf("origin(%d)", uint8(o))
}

// Store keeps counters.
type Store interface {
	// Decide charges all hits of one request, or, if any enforced limit refuses
	// (see Passes), none of them, and returns one decision for each hit, in
	// order. It is safe for concurrent use, holds nothing of hits after it
	// returns, and fails only with ErrUnavailable or the context's error.
	Decide(ctx context.Context, hits []Hit) ([]Decision, error)
}

// Passes tells whether a request with these hits and decisions passes: no
// enforced hit refuses, and not every quota hit does.
func Passes(hits []Hit, decisions []Decision) bool {
	quotas, refusing := 0, 0
	for i := range hits {
		switch h := &hits[i]; {
		case h.Shadow || h.Refund:
		case h.Quota:
			quotas++
			if !decisions[i].Allowed {
				refusing++
			}
		case !decisions[i].Allowed:
			return false
		}
	}
	return quotas == 0 || refusing < quotas
}
