package rules

import (
	"slices"

	"go.yaml.in/yaml/v3"

	"weir/limiter"
)

// ruleDraft is what a file says a rule does, before the server's defaults.
type ruleDraft struct {
	at                            place
	name                          string
	limits                        []limitDraft
	unlimited, exempt             bool
	shadow, quota                 bool
	share                         bool
	detailedMetric, valueToMetric bool
	disabled                      bool
	queue                         bool // over_limit: queue
	overLimitAt                   place
	lease                         uint64 // accuracy: {lease: N}; 0: none
	accuracyAt                    place
	onFailure                     *limiter.FailurePolicy
	mask                          mask
	replaces                      []string
	replacesAt                    place
	metadata                      map[string]any
}

// acts tells whether the rule does anything at all.
func (d *ruleDraft) acts() bool { return len(d.limits) > 0 || d.unlimited || d.exempt }

// Names of fields by where they may stand.
var (
	rootFields    = []string{"domain", "rules", "descriptors"}
	limitFields   = []string{"limit", "requests_per_unit", "window", "unit", "unit_multiplier", "timezone", "algorithm", "burst", "queue", "count_denied"}
	rateFields    = append([]string{"unlimited", "name", "replaces"}, limitFields...)
	commonFields  = append([]string{"limits", "rate_limit", "exempt", "shadow_mode", "quota_mode", "enabled", "on_store_failure", "mask", "over_limit", "accuracy", "share_threshold", "detailed_metric", "value_to_metric", "metadata"}, rateFields...)
	flatFields    = append([]string{"endpoint", "match"}, commonFields...)
	nestedFields  = append([]string{"key", "value", "descriptors"}, commonFields...)
	overLimitWays = []string{"drop", "queue"}
)

// document reads one YAML document.
func (r *reader) document(root *yaml.Node) []draft {
	if len(root.Content) == 0 || isNull(root.Content[0]) {
		return nil
	}
	fs := r.mapping(deref(root.Content[0]), "a rule file", rootFields)
	domain := DefaultDomain
	if f, ok := fs.get("domain"); ok {
		if text, ok := r.text(f); ok && text == "" {
			r.fault(f.value, "domain is empty; leave it out for %q", DefaultDomain)
		} else if ok {
			domain = text
		}
	}
	var drafts []draft
	if f, ok := fs.get("rules"); ok && !isNull(f.value) {
		drafts = append(drafts, r.flatRules(f, domain)...)
	}
	if f, ok := fs.get("descriptors"); ok && !isNull(f.value) {
		drafts = append(drafts, r.descriptors(f, domain, nil)...)
	}
	return drafts
}

// rule reads what a flat rule or a nested descriptor does, if anything.
func (r *reader) rule(fs *fields) *ruleDraft {
	fs, hasRate := r.withRateLimit(fs)
	d := &ruleDraft{at: placeOf(fs.at)}
	for _, f := range fs.list {
		r.ruleField(d, f)
	}
	if d.name != "" && slices.Contains(d.replaces, d.name) {
		r.faultAt(d.replacesAt, "the rule replaces itself, by the name %q", d.name)
	}
	if d.unlimited || d.exempt {
		r.noLimits(d, fs, hasRate)
		return d
	}
	one, hasOne := fs.firstOf(limitFields)
	many, hasMany := fs.get("limits")
	switch {
	case hasOne && hasMany:
		r.fault(one.key, "%s beside limits: put it into an item of limits", one.name)
	case hasOne || hasRate && !hasMany:
		d.limits = r.appendLimit(d.limits, fs)
	case hasMany:
		d.limits = r.limits(many)
	}
	return d
}

// noLimits finds limits where there are to be none.
func (r *reader) noLimits(d *ruleDraft, fs *fields, hasRate bool) {
	f, has := fs.firstOf(append([]string{"limits"}, limitFields...))
	switch {
	case d.unlimited && d.exempt:
		r.faultAt(d.at, "unlimited and exempt cannot both be true; exempt frees the whole request, unlimited only this descriptor")
	case has && d.unlimited && hasRate && onlyRequests(fs):
		r.warn(f.key, "%s means nothing beside unlimited", f.name)
	case has:
		r.fault(f.key, "%s beside %s: a rule has limits or is %[2]s", f.name, freedom(d))
	}
}

func freedom(d *ruleDraft) string {
	if d.exempt {
		return "exempt"
	}
	return "unlimited"
}

// onlyRequests tells whether requests_per_unit is all that is said of a limit.
// envoyproxy/ratelimit accepts that beside unlimited.
func onlyRequests(fs *fields) bool {
	n := 0
	for _, f := range fs.list {
		if slices.Contains(limitFields, f.name) {
			n++
		}
	}
	return n == 1 && fs.has("requests_per_unit") && !fs.has("limits")
}

// withRateLimit joins the fields of a rule with those of its rate_limit.
func (r *reader) withRateLimit(fs *fields) (joined *fields, has bool) {
	f, ok := fs.get("rate_limit")
	if !ok || isNull(f.value) {
		return fs, false
	}
	rate := r.mapping(f.value, "rate_limit", rateFields)
	joined = &fields{list: slices.Clone(fs.list), at: fs.at, partial: fs.partial || rate.partial}
	for _, inner := range rate.list {
		if outer, twice := fs.get(inner.name); twice {
			r.fault(inner.key, "%q is said twice, first on line %d", inner.name, outer.key.Line)
			continue
		}
		joined.list = append(joined.list, inner)
	}
	return joined, true
}

// ruleField reads a field that concerns the rule as a whole.
func (r *reader) ruleField(d *ruleDraft, f field) {
	switch f.name {
	case "name":
		d.name, _ = r.text(f)
	case "replaces":
		d.replacesAt = placeOf(f.key)
		d.replaces = r.replaces(f)
	case "unlimited":
		d.unlimited = r.flag(f)
	case "exempt":
		d.exempt = r.flag(f)
	case "shadow_mode":
		d.shadow = r.flag(f)
	case "quota_mode":
		d.quota = r.flag(f)
	case "share_threshold":
		d.share = r.flag(f)
	case "detailed_metric":
		d.detailedMetric = r.flag(f)
	case "value_to_metric":
		d.valueToMetric = r.flag(f)
	case "enabled":
		d.disabled = !r.flag(f)
	case "on_store_failure":
		if i := r.choice(f, limiter.FailurePolicyNames()); i >= 0 {
			policy := limiter.FailurePolicy(i)
			d.onFailure = &policy
		}
	case "over_limit":
		if i := r.choice(f, overLimitWays); i >= 0 {
			d.queue, d.overLimitAt = overLimitWays[i] == "queue", placeOf(f.value)
		}
	case "accuracy":
		r.accuracy(d, f)
	case "mask":
		d.mask = r.mask(f)
	case "metadata":
		d.metadata = r.metadata(f)
	}
}

func (r *reader) mask(f field) mask {
	var m mask
	fs := r.mapping(f.value, "mask", []string{"ipv4", "ipv6"})
	if bits, ok := fs.get("ipv4"); ok {
		n, _ := r.whole(bits, 32)
		m.ipv4, m.hasIPv4 = uint8(n), true
	}
	if bits, ok := fs.get("ipv6"); ok {
		n, _ := r.whole(bits, 128)
		m.ipv6, m.hasIPv6 = uint8(n), true
	}
	if !m.set() && f.value.Kind == yaml.MappingNode {
		r.missing(fs, "mask needs ipv4, ipv6 or both, such as {ipv4: 24, ipv6: 64}")
	}
	return m
}

// replaces reads a list of {name: …}.
func (r *reader) replaces(f field) []string {
	var names []string
	for _, item := range r.list(f) {
		fs := r.mapping(item, "an item of replaces", []string{"name"})
		name, ok := fs.get("name")
		if !ok {
			if item.Kind == yaml.MappingNode {
				r.missing(fs, "an item of replaces needs a name")
			}
			continue
		}
		text, ok := r.text(name)
		if ok && text == "" {
			r.fault(name.value, "an item of replaces has an empty name")
		} else if ok {
			names = append(names, text)
		}
	}
	return names
}
