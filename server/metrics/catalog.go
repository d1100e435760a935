package metrics

// Description is what there is to know of a metric.
type Description struct {
	Name   string
	Type   string // counter, gauge or histogram
	Labels []string
	Help   string
}

// A metric's place in the catalog.
const (
	decisions = iota
	descriptorHits
	requests
	decisionDuration
	storeDuration
	heldDuration
	heldRequests
	inFlight
	shed
	storeUp
	breakerOpen
	storeFailures
	healedKeys
	droppedCounters
	counters
	countersMax
	turnedAway
	countersBegun
	sweepLock
	denyCached
	leases
	leaseHits
	leaseTakes
	rulesInfo
	rulesCount
	domainsCount
	rulesLoaded
	sourceAsOf
	reloads
	reloadSuccessful
	queueWaiting
	queueCapacity
	queueFailed
	queueIngested
	certificateNotAfter
	buildInfo
	catalogSize
)

// catalog is all metrics but those of the Go runtime and of the process.
var catalog = [catalogSize]Description{
	decisions: {"weir_decisions_total", "counter", []string{"domain", "rule", "outcome"},
		"Decisions, one for each limit that a request meets: looks and refunds too, unlimited and exempt rules not. The rule is its name, or its path; (override) is a limit that came with the request. " +
			"Outcomes: ok; near_limit: it passed, and more than --near-limit-ratio of the limit is used; over_limit; shadow_over_limit: it would have been refused; deny_cache: refused, as this instance remembers the store to have said; " +
			"failed_open, failed_closed, failed_local: the store was away or had no room, and the failure policy let it pass, refused it, or had this instance decide alone, either way."},
	descriptorHits: {"weir_descriptor_hits_total", "counter", []string{"domain", "rule", "descriptor", "outcome"},
		"The same for each value, of rules with detailed_metric or value_to_metric: the descriptor is the rule's path with the request's values in it. Beyond --metrics-max-values descriptors it is (other)."},
	requests: {"weir_requests_total", "counter", []string{"domain", "code"},
		"Requests by what was answered: ok, over_limit, or the gRPC code of the error, such as invalid_argument, deadline_exceeded or unavailable. A domain without rules is (none)."},
	decisionDuration: {"weir_decision_duration_seconds", "histogram", nil,
		"Time from a request's arrival in the handler until it is decided, without the time for which a leaky bucket holds it. Native and classic buckets."},
	storeDuration: {"weir_store_duration_seconds", "histogram", nil,
		"Time that the store took for a request that it was asked about, failures too, and what leases cover. Native and classic buckets."},
	heldDuration: {"weir_held_duration_seconds", "histogram", nil,
		"Time for which leaky buckets held requests, those whose callers left too. Native and classic buckets."},
	heldRequests: {"weir_held_requests", "gauge", nil, "Requests that wait for their turn now."},
	inFlight:     {"weir_in_flight_requests", "gauge", nil, "Requests that are being decided or held now."},
	shed: {"weir_shed_total", "counter", []string{"reason"},
		"Requests that were refused undecided, since there was no time or no room for them."},
	storeUp:     {"weir_store_up", "gauge", nil, "1: the store decides. 0: it is away, and failure policies decide."},
	breakerOpen: {"weir_store_breaker_open", "gauge", nil, "1: the store failed several times in a row, and is only probed. Always 0 for counters in memory."},
	storeFailures: {"weir_store_failures_total", "counter", []string{"reason"},
		"Requests that the store was asked about and did not decide. Those that are not asked while the breaker is open are not in it."},
	healedKeys:      {"weir_store_healed_keys_total", "counter", nil, "Keys in Redis that held something else or had no time to live, and began anew."},
	droppedCounters: {"weir_counters_dropped_total", "counter", nil, "Counters that were farther ahead of the clock than a window, and began anew."},
	counters:        {"weir_counters", "gauge", nil, "Counters held in this process: all of them with --store memory, else those that stand by for Redis."},
	countersMax:     {"weir_counters_max", "gauge", nil, "How many of them there may be (--memory-max-counters)."},
	turnedAway:      {"weir_counters_turned_away_total", "counter", nil, "Requests for which a new counter found no room in this process."},
	countersBegun: {"weir_counters_begun_total", "counter", []string{"domain", "rule"},
		"Hits that found nothing used of their counter: it began, in memory or in Redis, and takes room there until it says nothing any more. Each client that comes begins one a window; far more mean that somebody makes values up."},
	sweepLock: {"weir_sweep_lock_seconds", "gauge", nil,
		"Longest time for which a sweep of the counters in this process has kept requests for some of them waiting, in the last one or two minutes. Waits for a processor are in it."},
	denyCached: {"weir_deny_cache_refusals", "gauge", nil, "Refusals that are remembered, some of which may have ended."},
	leases:     {"weir_leases", "gauge", nil, "Counters of which this instance has hits in hand, by accuracy: {lease: N}."},
	leaseHits: {"weir_lease_hits_total", "counter", []string{"fate"},
		"Hits of rules with a lease: taken from Redis in advance; of those, spent (decided without asking Redis), returned unused, or lost: unused when their window ended, or perhaps charged by a Redis that did not answer. What is taken and nothing else is in hand."},
	leaseTakes: {"weir_lease_takes_total", "counter", []string{"result"},
		"Tries to take hits in advance, each a call of Redis that no request waits for: taken, refused (too little was left) or failed (Redis did not answer)."},
	rulesInfo:    {"weir_rules_info", "gauge", []string{"version"}, "1, with the version of the rules in force."},
	rulesCount:   {"weir_rules", "gauge", nil, "Rules in force."},
	domainsCount: {"weir_domains", "gauge", nil, "Domains that have rules."},
	rulesLoaded:  {"weir_rules_loaded_timestamp_seconds", "gauge", nil, "When rules came into force last, in seconds since 1970."},
	sourceAsOf: {"weir_rules_source_as_of_timestamp_seconds", "gauge", []string{"source"},
		"When the source last held the rules in force, as far as is known, in seconds since 1970."},
	reloads: {"weir_rules_reloads_total", "counter", []string{"source", "result"},
		"Tries to load other rules from a source: success or failure."},
	reloadSuccessful: {"weir_rules_last_reload_successful", "gauge", []string{"source"},
		"1: the last try to load rules from the source went well. 0: it did not, and those before stay in force."},
	queueWaiting:  {"weir_queue_waiting", "gauge", []string{"domain", "rule"}, "Requests in the queue of a rule with over_limit: queue, a few seconds ago at most; none while Redis is away."},
	queueCapacity: {"weir_queue_capacity", "gauge", []string{"domain", "rule"}, "How many may wait in that queue."},
	queueFailed:   {"weir_queue_failed", "gauge", []string{"domain", "rule"}, "Requests that were given up, and are kept for an operator to retry or drop."},
	queueIngested: {"weir_queue_ingested_total", "counter", []string{"domain", "rule", "code"},
		"Requests that came to --queue-addr for a queue, by the HTTP status: 202 was stored."},
	certificateNotAfter: {"weir_tls_certificate_not_after_timestamp_seconds", "gauge", nil,
		"When the certificate that TLS shows ends, in seconds since 1970; left out without TLS."},
	buildInfo: {"weir_build_info", "gauge", []string{"version", "goversion"}, "1, with the versions of Weir and of Go."},
}

// Catalog lists all metrics but those of the Go runtime (go_…) and of the process
// (process_…).
func Catalog() []Description { return catalog[:] }

// outcome is how a limit's decision came out: exactly one of these.
type outcome uint8

const (
	outcomeOK outcome = iota
	outcomeNearLimit
	outcomeOverLimit
	outcomeShadowOverLimit
	outcomeDenyCache
	outcomeFailedOpen
	outcomeFailedClosed
	outcomeFailedLocal
	outcomeCount
)

var outcomeNames = [outcomeCount]string{"ok", "near_limit", "over_limit", "shadow_over_limit", "deny_cache", "failed_open", "failed_closed", "failed_local"}

// Outcomes lists the values of the label outcome.
func Outcomes() []string { return outcomeNames[:] }

// Label values that are no name of a domain, rule or descriptor.
const (
	noDomain   = "(none)"
	override   = "(override)"
	otherValue = "(other)"
)

// codeNames are the values of the label code, by gRPC code, and one more.
var codeNames = [codeCount]string{
	"ok", "canceled", "unknown", "invalid_argument", "deadline_exceeded", "not_found", "already_exists", "permission_denied",
	"resource_exhausted", "failed_precondition", "aborted", "out_of_range", "unimplemented", "internal", "unavailable", "data_loss", "unauthenticated",
	codeOverLimit: "over_limit",
}

const (
	codeUnknown   = 2
	codeOverLimit = 17 // after the last gRPC code
	codeCount     = 18
)
