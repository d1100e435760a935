package faults_test

// Topics of the page, in its order.
const (
	counting = "Counting"
	windows  = "Windows and calendars"
	buckets  = "Buckets"
	clocks   = "Clocks"
	answers  = "What the client is told"
	keys     = "Whose counter it is"
	changes  = "Rules that change"
	stores   = "Redis"
)

var faults = slicesOf(countingFaults, windowFaults, bucketFaults, clockFaults, answerFaults, keyFaults, changeFaults, storeFaults)

func slicesOf(parts ...[]fault) (all []fault) {
	for _, part := range parts {
		all = append(all, part...)
	}
	return all
}

var countingFaults = []fault{
	{
		topic: counting, reports: "Kong/kong#5311 encode/django-rest-framework#5181 kubernetes/ingress-nginx#5959",
		wrong: "looks first and counts later, or counts in each instance, so that requests at the same time all pass",
		weir:  "checks and counts in one step; of any number at once exactly the limit passes, with Redis on any number of instances",
		test:  "TestOfManyAtOnceTheLimitPasses",
	},
	{
		topic: counting, reports: "envoyproxy/ratelimit#185 envoyproxy/ratelimit#348 envoyproxy/ratelimit#427 envoyproxy/ratelimit#440 envoyproxy/ratelimit#1060",
		wrong: "a refused request is charged, to its other limits too",
		weir:  "what one limit refuses is charged nowhere",
		rules: `
  - {match: {grp: "*"}, limit: 10, window: 1h}
  - {match: {sp: "*"}, limit: 3, window: 1h}`,
		steps: []step{
			{ask: "grp=1, sp=1", want: "AAADD, left 7 0"},
			{ask: "grp=1", want: "A, left 6"},
		},
	},
	{
		topic: counting, reports: "envoyproxy/ratelimit#62 envoyproxy/ratelimit#730 envoyproxy/ratelimit#1140",
		wrong: "a cost of 0 counts as 1, so that nobody can look, or a descriptor has no cost of its own",
		weir:  "each descriptor's own cost comes before the request's; 0 looks and counts nothing",
		rules: `
  - {match: {g: "*"}, limit: 10, window: 1h}
  - {match: {s: "*"}, limit: 3, window: 1h}`,
		steps: []step{
			{ask: "g=1 *3", want: "A, left 7"},
			{ask: "g=1 *8", want: "D, left 7"},
			{ask: "g=1 +0", want: "AAA, left 7"},
			{ask: "g=1 +4, s=1 *2", want: "A, left 3 1"},
		},
	},
	{
		topic: counting, reports: "bucket4j/bucket4j#20",
		wrong: "a cost greater than the bucket passes each time",
		weir:  "it is refused, and charges nothing",
		rules: `
  - {endpoint: /x, limit: 1, window: 1s, algorithm: token_bucket, burst: 1}
  - {endpoint: /w, limit: 1, window: 1h}`,
		steps: []step{
			{ask: "endpoint=/x *5", want: "DDDDD, left 1, retry never"},
			{ask: "endpoint=/w *5", want: "DDDDD, left 1, retry never"},
			{ask: "endpoint=/x, endpoint=/w", want: "AD, left 0 0"},
		},
	},
	{
		topic: counting, reports: "mailgun/gubernator#87",
		wrong: "what leaks is added after the cap, so that more remains than the limit",
		weir:  "no more remains than a fresh counter has, after any time and any refund",
		rules: `
  - {match: {b: "*"}, limit: 10, window: 1m, algorithm: token_bucket}
  - {match: {l: "*"}, limit: 10, window: 1m, algorithm: leaky_bucket, queue: 9}
  - {match: {f: "*"}, limit: 10, window: 1h}`,
		steps: []step{
			{ask: "b=1, f=1 *9", want: "A, left 1 1"},
			{ask: "b=1 - +100, f=1 - +100", want: "A, left 10 10"},
			{at: "1s", ask: "b=1, l=1", want: "A, left 9 9"},
			{at: "3h", ask: "b=1 +0, l=1 +0, f=1 +0", want: "A, left 10 10 10"},
		},
	},
	{
		topic: counting, reports: "bucket4j/bucket4j#417",
		wrong: "taking what is there from an overdrawn bucket takes a negative number, which fills it",
		weir:  "an overdrawn counter refuses until it is paid back, and no ask makes it fuller",
		rules: `
  - {match: {b: "*"}, limit: 50, window: 50s, algorithm: token_bucket, count_denied: true}
  - {match: {f: "*"}, limit: 50, window: 1h, count_denied: true}`,
		steps: []step{
			{ask: "b=1, f=1 *50", want: "A, left 0 0"},
			{ask: "b=1, f=1 *20", want: "D, left 0 0"},
			{ask: "b=1 +0, f=1 +0", want: "DDDD, left 0 0"},
			{at: "19s", ask: "b=1 +0", want: "D, left 0"},
			{at: "21s", ask: "b=1 +0", want: "A, left 1"},
			{ask: "f=1 +0", want: "D"},
		},
	},
	{
		topic: counting, reports: "alisaifee/limits#112",
		wrong: "in a moving window a large cost after which small ones come is forgotten",
		weir:  "the log adds up costs, however they come",
		rules: `
  - {endpoint: /x, limit: 10, window: 1m, algorithm: sliding_window_log, count_denied: false}`,
		steps: []step{
			{ask: "endpoint=/x *8", want: "A, left 2"},
			{at: "1s", ask: "endpoint=/x", want: "AAD, left 0"},
			{at: "2s", ask: "endpoint=/x *3", want: "D, left 0, retry 58"},
			{at: "60s", ask: "endpoint=/x *8", want: "A, left 0"},
		},
	},
	{
		topic: counting, reports: "upstash/ratelimit-js#39",
		wrong: "a sliding window with a limit of 1 refuses always, by rounding",
		weir:  "the first passes, and then one in each window",
		rules: `
  - {match: {c: "*"}, limit: 1, window: 10s, algorithm: sliding_window_counter}
  - {match: {l: "*"}, limit: 1, window: 10s, algorithm: sliding_window_log}
  - {match: {b: "*"}, limit: 1, window: 10s, algorithm: token_bucket}`,
		steps: []step{
			{ask: "c=1, l=1, b=1", want: "AD, left 0 0 0"},
			{at: "20s", ask: "c=1, l=1, b=1", want: "AD"},
		},
	},
	{
		topic: counting, reports: "alibaba/Sentinel#462 traefik/traefik#13512 go-redis/redis_rate#110",
		wrong: "a limit of 0 overflows, is an error of Redis, or means something else there than in memory",
		weir:  "0 refuses all, looks too, for ever, with any algorithm and either store",
		rules: `
  - {match: {f: "*"}, limit: 0, window: 1h}
  - {match: {b: "*"}, limit: 0, window: 1h, algorithm: token_bucket, burst: 1}
  - {match: {l: "*"}, limit: 0, window: 1h, algorithm: sliding_window_log}
  - {match: {c: "*"}, limit: 0, window: 1h, algorithm: sliding_window_counter}
  - {match: {q: "*"}, limit: 0, window: 1h, algorithm: leaky_bucket}`,
		steps: []step{
			{ask: "f=1", want: "DD, left 0, retry never"},
			{ask: "f=1 +0", want: "DD, left 0, retry never"},
			{ask: "b=1", want: "DD, left 0, retry never"},
			{ask: "l=1", want: "DD, left 0, retry never"},
			{ask: "c=1", want: "DD, left 0, retry never"},
			{ask: "q=1", want: "DD, left 0, retry never"},
			{at: "200h", ask: "f=1, b=1, l=1, c=1, q=1", want: "DD, left 0 0 0 0 0"},
		},
	},
	{
		topic: counting, reports: "0dotxyz/marginfi-v2#584 envoyproxy/ratelimit#802",
		wrong: "a cost beyond the numbers that are reckoned with wraps, and passes",
		weir:  "costs up to 2^64 - 1 and limits up to 2^32 - 1 are what they say",
		rules: `
  - {match: {big: "*"}, limit: 4294967295, window: 1m}
  - {match: {ten: "*"}, limit: 10, window: 1m}
  - {match: {tb: "*"}, limit: 4294967295, window: 1s, algorithm: token_bucket}`,
		steps: []step{
			{ask: "big=1 +4294967295", want: "AD, left 0"},
			{ask: "ten=1 +2147483648", want: "D, left 10"},
			{ask: "ten=1 +4294967296", want: "D, left 10"},
			{ask: "ten=1 +9223372036854775808", want: "D, left 10"},
			{ask: "ten=1 +18446744073709551615", want: "D, left 10"},
			{ask: "ten=1 *4294967295", want: "D, left 10"},
			{ask: "ten=1", want: "A, left 9"},
			{ask: "tb=1", want: "AAA, left 4294967292"},
			{ask: "ten=1 - +18446744073709551615", want: "A, left 10"},
		},
	},
	{
		topic: counting, reports: "go-redis/redis_rate#33",
		wrong: "a limit of a million an hour does not count down: floating point loses single hits",
		weir:  "counts in whole numbers; each hit is seen at any limit",
		rules: `
  - {match: {b: "*"}, limit: 1000000, window: 1h, algorithm: token_bucket}
  - {match: {d: "*"}, limit: 50000000, window: 24h, algorithm: token_bucket}
  - {match: {c: "*"}, limit: 1000000, window: 1h, algorithm: sliding_window_counter}`,
		steps: []step{
			{ask: "b=1, d=1, c=1", want: "A, left 999999 49999999 999999"},
			{ask: "b=1, d=1, c=1", want: "AAA, left 999996 49999996 999996"},
		},
	},
	{
		topic: counting, reports: "envoyproxy/envoy#41219 envoyproxy/ai-gateway#2460",
		wrong: "a cost that is told after the response and goes beyond the budget is not taken off it",
		weir:  "with `count_denied: true` it is, to twice the limit, and looks are refused until the window ends",
		rules: `
  - {endpoint: /llm, limit: 10, window: 1h, count_denied: true}
  - {endpoint: /tb, limit: 10, window: 1h, count_denied: true, algorithm: token_bucket}`,
		steps: []step{
			{ask: "endpoint=/llm +0", want: "A, left 10"},
			{ask: "endpoint=/llm +50", want: "D"},
			{ask: "endpoint=/llm +0", want: "D, left 0"},
			{ask: "endpoint=/tb +50", want: "D"},
			{ask: "endpoint=/tb +0", want: "D, left 0"},
			{at: "1h", ask: "endpoint=/llm +0", want: "A, left 10"},
			{at: "61m", ask: "endpoint=/tb +0", want: "A, left 0"},
		},
	},
	{
		topic: counting, reports: "envoyproxy/envoy#46390",
		wrong: "a limit in shadow mode that is used up keeps the others from being asked, so that they refuse nothing",
		weir:  "a shadow refuses nothing and hides nothing",
		rules: `
  - {match: {shadow: "*"}, limit: 1, window: 1h, shadow_mode: true}
  - {match: {real: "*"}, limit: 3, window: 1h}`,
		steps: []step{
			{ask: "shadow=1, real=1", want: "AAADD, left 0 0"},
			{ask: "real=2, shadow=1", want: "AAAD"},
			{ask: "shadow=1", want: "AAA, left 0"},
		},
	},
	{
		topic: counting, reports: "envoyproxy/ratelimit#365",
		wrong: "who is meant to be exempt is refused by another descriptor's limit",
		weir:  "an exempt match lets the whole request pass, and charges nothing",
		rules: `
  - {match: {key: internal}, exempt: true}
  - {match: {path: /a}, limit: 1, window: 1h}`,
		steps: []step{
			{ask: "key=internal, path=/a", want: "AAA"},
			{ask: "path=/a", want: "AD"},
		},
	},
}
