package conformance_test

// The groups of settings.
var (
	plain    = group{name: "plain"}
	headers  = group{name: "headers", env: []string{"LIMIT_RESPONSE_HEADERS_ENABLED=true"}}
	shadowed = group{name: "shadow", env: []string{"SHADOW_MODE=true"}, args: []string{"--shadow"}}
	quota    = group{name: "quota", env: []string{"QUOTA_MODE=true"}, args: []string{"--shadow"}}
	stopping = group{name: "stopping", env: []string{"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true"}}
	cached   = group{name: "cached", env: []string{"LOCAL_CACHE_SIZE_IN_BYTES=1000000"}}
)

const noLimit = "OK: ok left 0"

// rows is the table of docs/conformance.md.
var rows = []row{
	// Matching
	{
		topic: "Matching", what: "Exact value, any value (bare key)", in: plain,
		theirs: "the exact value first, then the key without a value; a counter for each value",
		rules: `
  - {key: user, value: alice, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: user, rate_limit: {unit: day, requests_per_unit: 1}}
`,
		steps: []step{
			{"the exact value", "user=alice", "OK: ok 2/DAY left 1 end", "", ""},
			{"any other", "user=bob", "OK: ok 1/DAY left 0 end", "", ""},
			{"each with a counter of its own", "user=carol", "OK: ok 1/DAY left 0 end", "", ""},
			{"used up", "user=bob", "OVER_LIMIT: over 1/DAY left 0 end", "", ""},
			{"an entry without a value", "user=", "OK: ok 1/DAY left 0 end", "", ""},
			{"another key", "group=bob", noLimit, "", ""},
		},
	},
	{
		topic: "Matching", what: "Value that ends with *", in: plain,
		theirs: "any value with this beginning, a counter for each; after the exact value, before the bare key",
		rules: `
  - {key: path, value: /img/*, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: path, value: /img/logo, rate_limit: {unit: day, requests_per_unit: 9}}
  - {key: path, rate_limit: {unit: day, requests_per_unit: 5}}
`,
		steps: []step{
			{"the beginning", "path=/img/a", "OK: ok 1/DAY left 0 end", "", ""},
			{"another value", "path=/img/b", "OK: ok 1/DAY left 0 end", "", ""},
			{"the same again", "path=/img/a", "OVER_LIMIT: over 1/DAY left 0 end", "", ""},
			{"the beginning alone", "path=/img/", "OK: ok 1/DAY left 0 end", "", ""},
			{"the exact value wins", "path=/img/logo", "OK: ok 9/DAY left 8 end", "", ""},
			{"another beginning", "path=/im", "OK: ok 5/DAY left 4 end", "", ""},
		},
	},
	{
		topic: "Matching", what: "Two wildcards that both fit", in: plain,
		theirs: "the first in the file",
		ours:   "the one with the most literal characters", compat: "the one with the most literal characters",
		why: "the order of a file should not decide; none: put the longer one first, and both agree",
		rules: `
  - {key: path, value: /a*, rate_limit: {name: short, unit: day, requests_per_unit: 9}}
  - {key: path, value: /a/b*, rate_limit: {name: long, unit: day, requests_per_unit: 9}}
`,
		steps: []step{{"both fit", "path=/a/b/c", "OK: ok short:9/DAY left 8 end", "OK: ok long:9/DAY left 8 end", "OK: ok long:9/DAY left 8 end"}},
	},
	{
		topic: "Matching", what: "A * elsewhere in a value", in: plain,
		theirs: "the character itself", ours: "any text", compat: "any text",
		why: "`*` stands for any text wherever it is; none: such a value is a pattern in Weir, as are those that begin with `~` or `cidr:`",
		rules: `
  - {key: path, value: /a*z, rate_limit: {unit: day, requests_per_unit: 9}}
`,
		steps: []step{
			{"the text itself", "path=/a*z", "OK: ok 9/DAY left 8 end", "", ""},
			{"another text between", "path=/a-z", noLimit, "OK: ok 9/DAY left 8 end", "OK: ok 9/DAY left 8 end"},
		},
	},
	{
		topic: "Matching", what: "A key that ends with *", in: plain,
		theirs: "any key with this beginning, whatever its value", ours: "the character itself", compat: "the character itself",
		why: "there by the way in which key and value are joined, and not in its documentation; none: write a rule for each key",
		rules: `
  - {key: tenant*, rate_limit: {unit: day, requests_per_unit: 9}}
`,
		steps: []step{{"another key", "tenant_a=1", "OK: ok 9/DAY left 8 end", noLimit, noLimit}},
	},
	{
		topic: "Matching", what: "Keys and values with _", in: plain,
		theirs: "joined by `_`: key `a`, value `b_c` is key `a_b`, value `c`, in rules and counters", ours: "apart", compat: "apart",
		why: "one client could use another's budget; none",
		rules: `
  - {key: a, value: b_c, rate_limit: {unit: day, requests_per_unit: 2}}
`,
		steps: []step{
			{"as written", "a=b_c", "OK: ok 2/DAY left 1 end", "", ""},
			{"cut elsewhere", "a_b=c", "OK: ok 2/DAY left 0 end", noLimit, noLimit},
		},
	},
	{
		topic: "Matching", what: "Depth of a descriptor", in: plain,
		theirs: "must be the rule's; a limit on a parent does not hold for what is below",
		rules: `
  - key: a
    rate_limit: {unit: day, requests_per_unit: 3}
    descriptors:
      - {key: b, rate_limit: {unit: day, requests_per_unit: 5}}
  - key: c
    descriptors:
      - {key: d, rate_limit: {unit: day, requests_per_unit: 5}}
`,
		steps: []step{
			{"the parent", "a=1", "OK: ok 3/DAY left 2 end", "", ""},
			{"the child", "a=1 b=1", "OK: ok 5/DAY left 4 end", "", ""},
			{"too deep", "a=1 b=1 c=1", noLimit, "", ""},
			{"a parent without a limit", "c=1", noLimit, "", ""},
			{"the order counts", "b=1 a=1", noLimit, "", ""},
		},
	},
	{
		topic: "Matching", what: "No way back", in: plain,
		theirs: "a node that is taken is not left for a more general one (`weir check` warns of it)",
		rules: `
  - key: path
    value: /login
    descriptors:
      - {key: remote_address, rate_limit: {unit: day, requests_per_unit: 3}}
  - key: path
    descriptors:
      - {key: user, rate_limit: {unit: day, requests_per_unit: 3}}
`,
		steps: []step{
			{"nothing below fits", "path=/login user=1", noLimit, "", ""},
			{"the general one", "path=/other user=1", "OK: ok 3/DAY left 2 end", "", ""},
		},
	},
	{
		topic: "Matching", what: "Unknown domain", in: plain, theirs: "no limit",
		steps: []step{{"", "@elsewhere a=1", noLimit, "", ""}},
		rules: "  - {key: a, rate_limit: {unit: day, requests_per_unit: 1}}\n",
	},
	{
		topic: "Matching", what: "Descriptor without entries", in: plain, theirs: "no limit",
		steps: []step{{"", "empty", noLimit, "", ""}},
		rules: "  - {key: a, rate_limit: {unit: day, requests_per_unit: 1}}\n",
	},
	{
		topic: "Matching", what: "Empty domain", in: plain, theirs: "error UNKNOWN", ours: "error INVALID_ARGUMENT", compat: "error INVALID_ARGUMENT",
		why: "a code that says whose fault it is; Envoy reads all codes alike; none",
		steps: []step{{"", "@ a=1", "error Unknown: rate limit domain must not be empty",
			"error InvalidArgument: the domain is empty: name the domain of the rules, as in the rate limit filter's domain field",
			"error InvalidArgument: the domain is empty: name the domain of the rules, as in the rate limit filter's domain field"}},
		rules: "  - {key: a, rate_limit: {unit: day, requests_per_unit: 1}}\n",
	},
	{
		topic: "Matching", what: "No descriptors", in: plain, theirs: "error UNKNOWN", ours: "error INVALID_ARGUMENT", compat: "error INVALID_ARGUMENT",
		why: "the same; Envoy never sends such a request",
		steps: []step{{"", "none", "error Unknown: rate limit descriptor list must not be empty",
			"error InvalidArgument: there are no descriptors: send one at least", "error InvalidArgument: there are no descriptors: send one at least"}},
		rules: "  - {key: a, rate_limit: {unit: day, requests_per_unit: 1}}\n",
	},
	{
		topic: "Matching", what: "Entry with an empty key", in: plain, theirs: "no limit", ours: "error INVALID_ARGUMENT", compat: "error INVALID_ARGUMENT",
		why:   "it can match no rule, and says that something is wrong; Envoy never sends one; none",
		steps: []step{{"", "=1", noLimit, "error InvalidArgument: descriptor 1: entry 1 has an empty key", "error InvalidArgument: descriptor 1: entry 1 has an empty key"}},
		rules: "  - {key: a, rate_limit: {unit: day, requests_per_unit: 1}}\n",
	},
	{
		topic: "Matching", what: "Value that is not UTF-8", proof: "TestAValueThatIsNotUTF8",
		theirs: "error INTERNAL, before any limit: where Envoy fails open, the request passes", ours: "limited like any other", compat: "limited like any other",
		why: "whoever sends a byte 0xff would be free of limits; none",
	},

	// Rules
	{
		topic: "Rules", what: "replaces", in: plain,
		theirs: "a rule that matches takes those that it names away from the request: status OK, no limit",
		rules: `
  - {key: user, rate_limit: {name: all, unit: day, requests_per_unit: 1}}
  - {key: plan, value: gold, rate_limit: {unit: day, requests_per_unit: 9, replaces: [{name: all}]}}
`,
		steps: []step{
			{"the first is used up", "user=1", "OK: ok all:1/DAY left 0 end", "", ""},
			{"replaced", "user=1, plan=gold", "OK: ok left 0, ok 9/DAY left 8 end", "", ""},
			{"the order does not count", "plan=gold, user=1", "OK: ok 9/DAY left 7 end, ok left 0", "", ""},
			{"not replaced", "user=1, plan=tin", "OVER_LIMIT: over all:1/DAY left 0 end, ok left 0", "", ""},
		},
	},
	{
		topic: "Rules", what: "unlimited", in: plain, theirs: "OK without a limit, 4294967295 remaining",
		rules: `
  - {key: probe, rate_limit: {unlimited: true}}
  - {key: user, rate_limit: {unit: day, requests_per_unit: 1}}
`,
		steps: []step{
			{"", "probe=1", "OK: ok left 4294967295", "", ""},
			{"others are limited as ever", "probe=1, user=1", "OK: ok left 4294967295, ok 1/DAY left 0 end", "", ""},
			{"", "probe=1, user=1", "OVER_LIMIT: ok left 4294967295, over 1/DAY left 0 end", "", ""},
		},
	},
	{
		topic: "Rules", what: "Limit of 0", in: plain, theirs: "refuses everything, with the end of the window", ours: "refuses everything, without a time", compat: "refuses everything, without a time",
		why:   "waiting does not help; none",
		rules: "  - {key: a, rate_limit: {unit: day, requests_per_unit: 0}}\n",
		steps: []step{{"", "a=1", "OVER_LIMIT: over 0/DAY left 0 end", "OVER_LIMIT: over 0/DAY left 0", "OVER_LIMIT: over 0/DAY left 0"}},
	},
	{
		topic: "Rules", what: "shadow_mode", in: plain, theirs: "counted; status OK with what remains, and never a refusal",
		rules: `
  - {key: a, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: b, rate_limit: {unit: day, requests_per_unit: 1}}
`,
		steps: []step{
			{"", "a=1", "OK: ok 1/DAY left 0 end", "", ""},
			{"over", "a=1", "OK: ok 1/DAY left 0 end", "", ""},
			{"", "b=1", "OK: ok 1/DAY left 0 end", "", ""},
			{"another limit refuses all the same", "a=1, b=1", "OVER_LIMIT: ok 1/DAY left 0 end, over 1/DAY left 0 end", "", ""},
		},
	},
	{
		topic: "Rules", what: "quota_mode", in: plain,
		theirs: "never refuses: the status is OK, and metadata says so", ours: "refuses when all quota limits of the request do; a refused one's status is OVER_LIMIT", compat: "refuses when all quota limits of the request do; a refused one's status is OVER_LIMIT",
		why: "quota limits stand in for each other; `shadow_mode: true` on these rules never refuses",
		rules: `
  - {key: q, value: a, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: q, value: b, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 2}}
`,
		steps: []step{
			{"", "q=a, q=b", "OK: ok 1/DAY left 0 end, ok 2/DAY left 1 end", "", ""},
			{"one is used up", "q=a, q=b", "OK: ok 1/DAY left 0, ok 2/DAY left 0 end", "OK: over 1/DAY left 0 end, ok 2/DAY left 0 end", "OK: over 1/DAY left 0 end, ok 2/DAY left 0 end"},
			{"both are", "q=a, q=b", "OK: ok 1/DAY left 0, ok 2/DAY left 0", "OVER_LIMIT: over 1/DAY left 0 end, over 2/DAY left 0 end", "OVER_LIMIT: over 1/DAY left 0 end, over 2/DAY left 0 end"},
		},
	},
	{
		topic: "Rules", what: "share_threshold", in: plain, theirs: "one counter for all values that a wildcard matches",
		rules: `
  - {key: path, value: /img/*, share_threshold: true, rate_limit: {unit: day, requests_per_unit: 2}}
`,
		steps: []step{
			{"", "path=/img/a", "OK: ok 2/DAY left 1 end", "", ""},
			{"", "path=/img/b", "OK: ok 2/DAY left 0 end", "", ""},
			{"", "path=/img/c", "OVER_LIMIT: over 2/DAY left 0 end", "", ""},
		},
	},
	{
		topic: "Rules", what: "detailed_metric and value_to_metric", in: plain,
		theirs: "other names of metrics; decisions are the same", ours: "the same values in a metric of their own, `weir_descriptor_hits_total`, of which there are only so many", compat: "as without",
		why: "[what clients send is to make no series without end](metrics.md#how-many-series-there-are)",
		rules: `
  - {key: a, detailed_metric: true, rate_limit: {name: n, unit: day, requests_per_unit: 2}}
  - key: b
    value_to_metric: true
    descriptors:
      - {key: c, rate_limit: {name: n, unit: day, requests_per_unit: 2}}
`,
		steps: []step{
			{"", "a=1", "OK: ok n:2/DAY left 1 end", "", ""},
			{"", "b=1 c=1", "OK: ok n:2/DAY left 1 end", "", ""},
			{"", "b=2 c=1", "OK: ok n:2/DAY left 1 end", "", ""},
		},
	},

	// Windows
	{
		topic: "Windows", what: "second, minute, hour, day", in: plain, theirs: "begin at multiples of their length since 1970 UTC",
		rules: `
  - {key: h, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: d, rate_limit: {unit: DAY, requests_per_unit: 9}}
`,
		steps: []step{{"", "h=1, d=1", "OK: ok 9/HOUR left 8 end, ok 9/DAY left 8 end", "", ""}},
	},
	{
		topic: "Windows", what: "week", in: plain, theirs: "7 days, from Thursday", ours: "from Monday", compat: "from Monday",
		why:   "what people mean by a week; `window: 168h` has the one of fixed length",
		rules: "  - {key: w, rate_limit: {unit: week, requests_per_unit: 9}}\n",
		steps: []step{{"", "w=1", "OK: ok 9/WEEK left 8 end", "OK: ok 9/WEEK left 8 calendar", "OK: ok 9/WEEK left 8 calendar"}},
	},
	{
		topic: "Windows", what: "month", in: plain, theirs: "30 days", ours: "from the 1st of the calendar's month", compat: "from the 1st of the calendar's month",
		why:   "bills go by the calendar; `window: 720h`",
		rules: "  - {key: m, rate_limit: {unit: month, requests_per_unit: 9}}\n",
		steps: []step{{"", "m=1", "OK: ok 9/MONTH left 8 end", "OK: ok 9/MONTH left 8 calendar", "OK: ok 9/MONTH left 8 calendar"}},
	},
	{
		topic: "Windows", what: "year", in: plain, theirs: "365 days", ours: "from the 1st of January", compat: "from the 1st of January",
		why:   "the same; `window: 8760h`",
		rules: "  - {key: y, rate_limit: {unit: year, requests_per_unit: 9}}\n",
		steps: []step{{"", "y=1", "OK: ok 9/YEAR left 8 end", "OK: ok 9/YEAR left 8 calendar", "OK: ok 9/YEAR left 8 calendar"}},
	},

	// Cost
	{
		topic: "Cost", what: "hits_addend of the request", in: plain, theirs: "costs so much; 0 is unset, and costs 1",
		rules: "  - {key: a, rate_limit: {unit: day, requests_per_unit: 10}}\n",
		steps: []step{
			{"", "a=1 *3", "OK: ok 10/DAY left 7 end", "", ""},
			{"", "a=1", "OK: ok 10/DAY left 6 end", "", ""},
		},
	},
	{
		topic: "Cost", what: "hits_addend of a descriptor", in: plain, theirs: "comes before the request's; 0 looks without counting",
		rules: "  - {key: a, rate_limit: {unit: day, requests_per_unit: 10}}\n",
		steps: []step{
			{"", "a=1 +4 *3, a=2", "OK: ok 10/DAY left 6 end, ok 10/DAY left 7 end", "", ""},
			{"a look", "a=1 +0", "OK: ok 10/DAY left 6 end", "", ""},
			{"used up", "a=1 +6", "OK: ok 10/DAY left 0 end", "", ""},
			{"a look still passes", "a=1 +0", "OK: ok 10/DAY left 0 end", "", ""},
		},
	},
	{
		topic: "Cost", what: "Look at a counter that is not used yet", in: plain, theirs: "OK, with the end of the window", ours: "OK, with 0 seconds until it is full again", compat: "OK, with 0 seconds until it is full again",
		why:   "it is full; none",
		rules: "  - {key: a, rate_limit: {unit: day, requests_per_unit: 10}}\n",
		steps: []step{{"", "a=1 +0", "OK: ok 10/DAY left 10 end", "OK: ok 10/DAY left 10 0s", "OK: ok 10/DAY left 10 0s"}},
	},
	{
		topic: "Cost", what: "Cost above what is left", in: plain,
		theirs: "refused and counted: what was left is gone", ours: "refused, and nothing is charged: `limit_remaining` is what is left", compat: "",
		why:   "a big request does not use up what small ones could have; `--count-denied`, or `count_denied: true` on a rule",
		rules: "  - {key: a, rate_limit: {unit: day, requests_per_unit: 10}}\n",
		steps: []step{
			{"", "a=1 +8", "OK: ok 10/DAY left 2 end", "", ""},
			{"refused", "a=1 +3", "OVER_LIMIT: over 10/DAY left 0 end", "OVER_LIMIT: over 10/DAY left 2 end", ""},
			{"afterwards", "a=1 +2", "OVER_LIMIT: over 10/DAY left 0 end", "OK: ok 10/DAY left 0 end", ""},
		},
	},
	{
		topic: "Cost", what: "Cost above the whole limit", in: plain,
		theirs: "refused, with the end of the window", ours: "refused, without a time", compat: "as theirs, once the counter is used up; the first answer has no time",
		why:   "waiting does not help; none",
		rules: "  - {key: a, rate_limit: {unit: day, requests_per_unit: 10}}\n",
		steps: []step{{"", "a=1 +11", "OVER_LIMIT: over 10/DAY left 0 end", "OVER_LIMIT: over 10/DAY left 10", "OVER_LIMIT: over 10/DAY left 0"}},
	},
	{
		topic: "Cost", what: "is_negative_hits", in: plain, theirs: "not known: charges like any other", ours: "gives back", compat: "gives back",
		why:   "Envoy's API has it; none",
		rules: "  - {key: a, rate_limit: {unit: day, requests_per_unit: 10}}\n",
		steps: []step{
			{"", "a=1 +4", "OK: ok 10/DAY left 6 end", "", ""},
			{"", "a=1 +3 -", "OK: ok 10/DAY left 3 end", "OK: ok 10/DAY left 9 end", "OK: ok 10/DAY left 9 end"},
		},
	},
	{
		topic: "Cost", what: "Several descriptors, one refuses", in: plain,
		theirs: "each limit is charged on its own, whatever the others say, and refused requests count", ours: "charged nowhere", compat: "",
		why: "a client whose day is over does not use up its second by asking; `--charge each --count-denied`",
		rules: `
  - {key: a, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: b, rate_limit: {unit: day, requests_per_unit: 9}}
`,
		steps: []step{
			{"", "a=1, b=1", "OK: ok 1/DAY left 0 end, ok 9/DAY left 8 end", "", ""},
			{"a refuses", "a=1, b=1", "OVER_LIMIT: over 1/DAY left 0 end, ok 9/DAY left 7 end", "OVER_LIMIT: over 1/DAY left 0 end, ok 9/DAY left 8 end", ""},
			{"", "b=1", "OK: ok 9/DAY left 6 end", "OK: ok 9/DAY left 7 end", ""},
		},
	},
	{
		topic: "Cost", what: "The same descriptor twice in a request", in: plain,
		theirs: "charged twice; each status shows the counter as of its turn", ours: "charged twice, checked together: both statuses show it after the request", compat: "charged as theirs; both statuses show the counter after the request",
		why:   "statuses show the state after the whole request; none",
		rules: "  - {key: a, rate_limit: {unit: day, requests_per_unit: 3}}\n",
		steps: []step{
			{"", "a=1, a=1", "OK: ok 3/DAY left 2 end, ok 3/DAY left 1 end", "OK: ok 3/DAY left 1 end, ok 3/DAY left 1 end", "OK: ok 3/DAY left 1 end, ok 3/DAY left 1 end"},
			{"half of it fits", "a=1, a=1", "OVER_LIMIT: ok 3/DAY left 0 end, over 3/DAY left 0 end", "OVER_LIMIT: ok 3/DAY left 1 end, over 3/DAY left 1 end", "OVER_LIMIT: ok 3/DAY left 0 end, over 3/DAY left 0 end"},
		},
	},
	{
		topic: "Cost", what: "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", in: stopping,
		theirs: "a refused request charges the limits that refuse it, and no others", ours: "charged nowhere", compat: "",
		why: "`--charge all-or-nothing --count-denied`, which `--compat` sets for this name",
		rules: `
  - {key: a, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: b, rate_limit: {unit: day, requests_per_unit: 9}}
`,
		steps: []step{
			{"", "a=1, b=1", "OK: ok 2/DAY left 1 end, ok 9/DAY left 8 end", "", ""},
			{"a refuses", "a=1 +2, b=1", "OVER_LIMIT: over 2/DAY left 0 end, ok 9/DAY left 8 end", "OVER_LIMIT: over 2/DAY left 1 end, ok 9/DAY left 8 end", ""},
			{"what refused is charged", "a=1, b=1", "OVER_LIMIT: over 2/DAY left 0 end, ok 9/DAY left 8 end", "OK: ok 2/DAY left 0 end, ok 9/DAY left 7 end", ""},
		},
	},

	// Limits in the request
	{
		topic: "Limits in the request", what: "Limit of the descriptor's own", in: plain,
		theirs: "replaces the rule's limit, modes and name, also where none matches, in a domain that has rules",
		rules:  "  - {key: a, shadow_mode: true, rate_limit: {name: n, unit: day, requests_per_unit: 9}}\n",
		steps: []step{
			{"instead of the rule's", "a=1 !1/HOUR", "OK: ok 1/HOUR left 0 end", "", ""},
			{"not in shadow", "a=1 !1/HOUR", "OVER_LIMIT: over 1/HOUR left 0 end", "", ""},
			{"no rule matches", "z=1 !2/HOUR", "OK: ok 2/HOUR left 1 end", "", ""},
			{"an unknown domain", "@elsewhere z=1 !2/HOUR", noLimit, "", ""},
		},
	},
	{
		topic: "Limits in the request", what: "unit_multiplier of such a limit", in: plain,
		theirs: "not known: as if it were 1", ours: "the window is so many units", compat: "the window is so many units",
		why:   "Envoy's API has it; none",
		rules: "  - {key: a, rate_limit: {unit: day, requests_per_unit: 9}}\n",
		steps: []step{{"", "a=1 !5/HOURx2", "OK: ok 5/HOUR left 4 end", "OK: ok 5/HOURx2 left 4 end", "OK: ok 5/HOURx2 left 4 end"}},
	},
	{
		topic: "Limits in the request", what: "Such a limit without a unit", proof: "TestALimitWithoutAUnit",
		theirs: "the process ends", ours: "error INVALID_ARGUMENT", compat: "error INVALID_ARGUMENT", why: "no request may end a server",
	},

	// Answers
	{
		topic: "Answers", what: "Headers", in: headers,
		theirs: "off; LIMIT_RESPONSE_HEADERS_ENABLED=true: RateLimit-Limit, -Remaining, -Reset of the limit with least left, or of the last that refuses",
		ours:   "X-Ratelimit-Limit, -Remaining, and when refused -Retry-After and Retry-After, of the limit that refuses longest, else of that with least left",
		compat: "off, and on by the same name; a refusal has Retry-After too",
		why:    "clients look for Retry-After; `--headers`, `--header-names`",
		rules: `
  - {key: a, rate_limit: {unit: day, requests_per_unit: 2}}
`,
		steps: []step{
			{"", "a=1", "OK: ok 2/DAY left 1 end; ratelimit-limit: 2; ratelimit-remaining: 1; ratelimit-reset: end",
				"OK: ok 2/DAY left 1 end; x-ratelimit-limit: 2; x-ratelimit-remaining: 1", ""},
			{"", "a=1", "OK: ok 2/DAY left 0 end; ratelimit-limit: 2; ratelimit-remaining: 0; ratelimit-reset: end",
				"OK: ok 2/DAY left 0 end; x-ratelimit-limit: 2; x-ratelimit-remaining: 0", ""},
			{"refused", "a=1", "OVER_LIMIT: over 2/DAY left 0 end; ratelimit-limit: 2; ratelimit-remaining: 0; ratelimit-reset: end",
				"OVER_LIMIT: over 2/DAY left 0 end; x-ratelimit-limit: 2; x-ratelimit-remaining: 0; x-ratelimit-retry-after: end; retry-after: end",
				"OVER_LIMIT: over 2/DAY left 0 end; ratelimit-limit: 2; ratelimit-remaining: 0; ratelimit-reset: end; retry-after: end"},
			{"no limit, no headers", "b=1", noLimit, "", ""},
		},
	},
	{
		topic: "Answers", what: "Status of a limit", in: plain,
		theirs: "code, name, requests and unit of the limit, what remains, whole seconds until the window ends",
		rules:  "  - {key: a, rate_limit: {name: posts, unit: hour, requests_per_unit: 1}}\n",
		steps: []step{
			{"", "a=1", "OK: ok posts:1/HOUR left 0 end", "", ""},
			{"", "a=1", "OVER_LIMIT: over posts:1/HOUR left 0 end", "", ""},
		},
	},
	{
		topic: "Answers", what: "SHADOW_MODE", in: shadowed, theirs: "the whole server refuses nothing; statuses tell OVER_LIMIT",
		rules: "  - {key: a, rate_limit: {unit: hour, requests_per_unit: 1}}\n",
		ours:  "the same, by `--shadow`", compat: "",
		steps: []step{
			{"", "a=1", "OK: ok 1/HOUR left 0 end", "OK: ok 1/HOUR left 0 end", ""},
			{"", "a=1", "OK: over 1/HOUR left 0 end", "OK: over 1/HOUR left 0 end", ""},
		},
	},
	{
		topic: "Answers", what: "QUOTA_MODE", in: quota, theirs: "the whole server refuses nothing, and statuses are OK",
		rules: "  - {key: a, rate_limit: {unit: hour, requests_per_unit: 1}}\n",
		ours:  "`--shadow`: statuses say OVER_LIMIT", compat: "the same as `--shadow`",
		why: "so one sees what would have been refused; Envoy goes by the overall code; none",
		steps: []step{
			{"", "a=1", "OK: ok 1/HOUR left 0 end", "OK: ok 1/HOUR left 0 end", ""},
			{"", "a=1", "OK: ok 1/HOUR left 0", "OK: over 1/HOUR left 0 end", "OK: over 1/HOUR left 0 end"},
		},
	},
	{
		topic: "Answers", what: "Dynamic metadata", proof: "TestDynamicMetadata",
		theirs: "off; RESPONSE_DYNAMIC_METADATA=true: the request, and which quota limits refuse", ours: "off, but for the verdicts of shadow rules; `--dynamic-metadata envoyproxy`: the request", compat: "on by the same name; no `quotaModeEnabled`, `quotaModeViolations`",
		why: "quota limits refuse here; `weir` in `--dynamic-metadata` has the verdict",
	},
	{
		topic: "Answers", what: "Local cache of refusals", in: cached,
		theirs: "off; LOCAL_CACHE_SIZE_IN_BYTES: a refused counter is not asked again in its window", ours: "at most a second (`--deny-cache`), for limits that do not count refused requests", compat: "not for limits that count refused requests, as all do then",
		why:   "budget given back or raised is seen within a second; answers are the same",
		rules: "  - {key: a, rate_limit: {unit: hour, requests_per_unit: 1}}\n",
		steps: []step{
			{"", "a=1", "OK: ok 1/HOUR left 0 end", "", ""},
			{"", "a=1", "OVER_LIMIT: over 1/HOUR left 0 end", "", ""},
			{"remembered", "a=1", "OVER_LIMIT: over 1/HOUR left 0 end", "", ""},
		},
	},

	// Operation
	{
		topic: "Operation", what: "Redis away", proof: "TestRedisAway",
		theirs: "error UNKNOWN; at the start, the process ends", ours: "each rule's `on_store_failure`: by default the instance counts by itself; at the start too", compat: "as without",
		why: "limits hold while Redis is away; `--on-store-failure error` leaves it to Envoy's `failure_mode_deny`",
	},
	{
		topic: "Operation", what: "Redis for limits by the second", proof: "TestEverySettingOfTheirsIsKnown",
		theirs: "REDIS_PERSECOND: a second Redis", ours: "one store", compat: "one store; the log says so", why: "one script decides all limits of a request, which needs them in one place",
	},
	{
		topic: "Operation", what: "Faulty file when rules change", proof: "TestAFaultyFileKeepsTheOldRules",
		theirs: "the old rules stay in force; the log has the first fault", ours: "the same; the log has all faults with file, line and column, and /rules and /readyz tell too",
	},
	{
		topic: "Operation", what: "Faulty file at the start", proof: "TestAFaultyFileAtTheStart",
		theirs: "serves, healthy, and answers error UNKNOWN", ours: "ends with the faults", compat: "ends with the faults", why: "a rollout stops there, and Envoy keeps the old instances; none",
	},
	{
		topic: "Operation", what: "Two files of the same domain", proof: "TestTwoFilesOfADomain",
		theirs: "a fault, unless MERGE_DOMAIN_CONFIG=true", ours: "merge", compat: "merge", why: "teams have files of their own; none",
	},
	{
		topic: "Operation", what: "The same rule twice", proof: "TestTwoFilesOfADomain",
		theirs: "a fault", ours: "a fault that names both places",
	},
	{
		topic: "Operation", what: "Files that are read", proof: "TestFilesThatAreRead",
		theirs: "all in the folder, whatever their names; those with a dot too, unless RUNTIME_IGNOREDOTFILES=true", ours: "`*.yaml` and `*.yml`, none that begins with a dot", compat: "as without; the log names files that are not read",
		why: "an editor's leftovers are no rules; rename the files",
	},
	{
		topic: "Operation", what: "POST /json", proof: "TestJSON",
		theirs: "200 or 429 with the answer as JSON; 400 for whatever is wrong", ours: "the same, with the header hints as headers; 503 or 504 where the store fails", compat: "as without", why: "who calls should not mend a request that is sound; none",
	},
	{
		topic: "Operation", what: "GET /healthcheck", proof: "TestHealthcheck",
		theirs: "200 OK, 500 while it stops", ours: "the same; 500 also while rules are missing (/readyz says what for)",
	},
	{
		topic: "Operation", what: "/rlconfig, /stats, pprof", proof: "TestHealthcheck",
		theirs: "on a port of their own (6070): rules as text, counters, profiles", ours: "at the HTTP address: /rules and /v1/rules, /v1/stats and /metrics, /debug/pprof, and [a page](console.md) for people", compat: "as without", why: "what is for operators asks for the `--admin-token`, or answers its own machine only",
	},
	{
		topic: "Operation", what: "Ports", proof: "TestPorts",
		theirs: "gRPC 0.0.0.0:8081, HTTP 0.0.0.0:8080, debugging 0.0.0.0:6070", ours: "gRPC 127.0.0.1:8081, HTTP 127.0.0.1:8080", compat: "gRPC 0.0.0.0:8081, HTTP 0.0.0.0:8080",
		why: "nobody serves the network unasked; `--grpc-addr`, `--http-addr`",
	},
	{
		topic: "Operation", what: "Near limit (NEAR_LIMIT_RATIO), statsd, Prometheus", proof: "TestEverySettingOfTheirsIsKnown",
		theirs: "metrics to statsd, or for Prometheus at an address of their own", ours: "metrics for Prometheus at /metrics of the HTTP address ([the list](metrics.md)); no statsd",
		compat: "as without; for Prometheus also where PROMETHEUS_ADDR says; the log says that there is no statsd", why: "names and labels that are bounded by the rules, and histograms; `--metrics-addr`, `--near-limit-ratio`",
	},
}
