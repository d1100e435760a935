// Package rules turns rule files into an immutable, compiled set, and matches
// the descriptors of a request against it.
//
//	Parse → Compile → Live.Apply        (rules change)
//	Live.Current().Plan → limiter.Hit   (a request)
//
// It knows limits but no store, and no protos.
package rules

import (
	"weir/limiter"
)

// Entry is one key=value of a descriptor. The value may be any bytes.
type Entry struct{ Key, Value string }

// Descriptor is an ordered list of entries (Envoy's term) that a request names.
type Descriptor struct {
	Entries  []Entry
	Override *Override // its own limit, which replaces the rules' limits for it
	Hits     uint64    // its own cost, if HasHits
	HasHits  bool      // a cost of its own, also 0, which looks without counting
	Refund   bool      // gives its cost back
}

// Request is what a caller asks: may a request with these descriptors pass?
type Request struct {
	Domain      string
	Descriptors []Descriptor
	Hits        uint64 // the cost of descriptors that have none of their own; 0: 1
}

// cost is what the descriptor brings to its counters: its own hits, else the
// request's, else 1; at most limiter.MaxCost. An own 0 is a look.
func (r *Request) cost(d *Descriptor) uint64 {
	c := max(r.Hits, 1)
	if d.HasHits {
		c = d.Hits
	}
	return min(c, limiter.MaxCost)
}

// Plan is what a Set makes of a request: the hits for the store, and for each
// descriptor which of them are its own. A Plan can be used again, which saves
// its memory; its Keys and Matches are valid until then.
type Plan struct {
	Exempt  bool          // a match is exempt: the request passes, nothing is charged, Hits is empty
	Matches []Match       // one for each descriptor, in order
	Hits    []limiter.Hit // MaxDelay is left to the caller
	Rules   []*Rule       // Rules[i] is the rule of Hits[i]; nil where the limit is an override

	keys      []byte  // backs the keys of Hits
	replacing []*Rule // the matched rules that replace others
}

// Match is what one descriptor of a request met.
type Match struct {
	Rule        *Rule // nil: no rule, a rule that another one replaces, or an override
	Unlimited   bool  // never refused, not counted
	First, Hits int   // its hits are Plan.Hits[First : First+Hits]
}
