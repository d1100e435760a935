package rules

import (
	"go.yaml.in/yaml/v3"

	"weir/limiter"
)

// smallestLease is the least that saves anything over asking for each hit.
const smallestLease = 2

// accuracy reads how exactly a rule counts: in leases of so many hits.
func (r *reader) accuracy(d *ruleDraft, f field) {
	d.accuracyAt = placeOf(f.value)
	fs := r.mapping(f.value, "accuracy", []string{"lease"})
	lease, ok := fs.get("lease")
	switch {
	case ok:
		d.accuracyAt = placeOf(lease.value)
		d.lease, ok = r.wholeFrom(lease, smallestLease, limiter.MaxRequests)
		if ok && d.lease < smallestLease {
			r.fault(lease.value, "lease is %d at least, the number of hits that an instance takes at once; to have Redis asked for each hit leave accuracy out", smallestLease)
		}
	case f.value.Kind == yaml.MappingNode:
		r.missing(fs, "accuracy needs lease, such as {lease: 100}")
	}
}

// checkLease finds rules whose hits cannot be taken in advance, or never are. A
// faulty rule is not blamed for what it lacks.
func (r *reader) checkLease(d *ruleDraft, faulty bool) {
	if d.lease < smallestLease {
		return
	}
	for _, l := range d.limits {
		switch {
		case l.Algorithm != limiter.FixedWindow:
			r.faultAt(d.accuracyAt, "lease belongs to fixed_window, not to %v, which has no window at whose end a lease could end; leave accuracy out, or put the %[1]v limit into a rule of its own", l.Algorithm)
		case l.Requests == 0:
			r.faultAt(d.accuracyAt, "lease beside a limit of 0, of which there is nothing to take; leave accuracy out")
		case l.Requests < limiter.SmallestLeased:
			r.warnAt(d.accuracyAt, "lease does nothing for a limit of %d: of less than %d that are left, nothing is taken in advance", l.Requests, limiter.SmallestLeased)
		case d.lease > l.Requests:
			r.warnAt(d.accuracyAt, "lease %d is more than the limit, %d; an eighth of what is left is taken at most", d.lease, l.Requests)
		}
	}
	switch {
	case d.unlimited || d.exempt:
		r.faultAt(d.accuracyAt, "lease beside %s: nothing is counted; leave accuracy out", freedom(d))
	case !d.acts() && !faulty:
		r.faultAt(d.accuracyAt, "lease needs a limit beside it; it does not hold for the descriptors below")
	}
}
