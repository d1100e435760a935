package faults_test

var clockFaults = []fault{
	{
		topic: clocks, reports: "golang/go#56287 tikv/pd#10744",
		wrong: "asks whose times go back and forth make tokens out of nothing",
		weir:  "a time before the counter's own refills nothing, and sets nothing back",
		rules: `
  - {match: {b: "*"}, limit: 10, window: 10s, algorithm: token_bucket, burst: 10}
  - {match: {c: "*"}, limit: 10, window: 10s, algorithm: sliding_window_counter}
  - {match: {l: "*"}, limit: 10, window: 10s, algorithm: sliding_window_log, count_denied: false}
  - {match: {f: "*"}, limit: 10, window: 10s}`,
		steps: []step{
			{at: "5s", ask: "b=1, c=1, l=1, f=1 *8", want: "A, left 2 2 2 2"},
			{at: "4s", ask: "b=1, c=1, l=1, f=1", want: "A, left 1 1 1 1"},
			{at: "5s", ask: "b=1, c=1, l=1, f=1", want: "AD, left 0 0 0 0"},
			{at: "4s", ask: "b=1, c=1, l=1, f=1", want: "D, left 0 0 0 0"},
			{at: "5s", ask: "b=1", want: "D, left 0"},
			{at: "6s", ask: "b=1", want: "AD, left 0"},
			{at: "5s", ask: "b=1", want: "D, left 0"},
			{at: "6s", ask: "b=1", want: "D, left 0"},
			{at: "9s", ask: "c=1, l=1, f=1", want: "D, left 0 0 0"},
			{at: "25s", ask: "b=2 *8", want: "A, left 2"},
			{at: "24s", ask: "b=2", want: "A, left 1"},
			{at: "25s", ask: "b=2", want: "AD, left 0"},
			{at: "24s", ask: "b=2", want: "D, left 0"},
			{at: "26s", ask: "b=2", want: "AD, left 0"},
		},
	},
	{
		topic: clocks, reports: "juju/ratelimit#26 SandeepVashishtha/Eventra#6488",
		wrong: "a clock that is set back by hours locks clients out for as long",
		weir:  "a counter more than a window ahead of the clock is dropped, and told in a metric; nobody waits longer than the rule says",
		rules: `
  - {match: {b: "*"}, limit: 10, window: 1s, algorithm: token_bucket, burst: 1}
  - {match: {f: "*"}, limit: 1, window: 1m}
  - {match: {l: "*"}, limit: 1, window: 1m, algorithm: sliding_window_log}
  - {match: {c: "*"}, limit: 1, window: 1m, algorithm: sliding_window_counter}`,
		steps: []step{
			{at: "8h", ask: "b=1, f=1, l=1, c=1", want: "AD"},
			{at: "0s", ask: "b=1, f=1, l=1, c=1", want: "AD, left 0 0 0 0"},
			{at: "100ms", ask: "b=1", want: "AD"},
			{at: "1m", ask: "f=1, l=1", want: "AD"},
		},
	},
	{
		topic: clocks, reports: "spring-cloud/spring-cloud-gateway#2412",
		wrong: "instances whose clocks differ by a second fill one bucket again and again",
		weir:  "Redis's clock decides for all instances",
		test:  "limiter/redis TestAWrongIdeaOfTheClockCountsNothingWrong",
	},
}

var answerFaults = []fault{
	{
		topic: answers, reports: "brandur/redis-cell#56 alisaifee/flask-limiter#62 hashicorp/boundary#4094",
		wrong: "Retry-After is rounded down, so that who waits as long as it says is refused again, with 0 or a negative number",
		weir:  "rounded up, 1 at least; who waits it passes",
		rules: `
  - {endpoint: /x, limit: 6, window: 9s, algorithm: token_bucket, burst: 1}`,
		steps: []step{
			{ask: "endpoint=/x", want: "A"},
			{at: "200ms", ask: "endpoint=/x", want: "D, retry 2, reset 2"},
			{at: "1200ms", ask: "endpoint=/x", want: "D, retry 1"},
			{at: "1499ms", ask: "endpoint=/x", want: "D, retry 1"},
			{at: "2200ms", ask: "endpoint=/x", want: "A"},
		},
	},
	{
		topic: answers, reports: "dragonflydb/dragonfly#8288",
		wrong: "a wait of whole seconds is told as one more",
		weir:  "whole seconds stay what they are",
		rules: `
  - {match: {b: "*"}, limit: 1, window: 2s, algorithm: token_bucket, burst: 1}
  - {match: {f: "*"}, limit: 1, window: 7s}`,
		steps: []step{
			{ask: "b=1", want: "AD, retry 2, reset 2"},
			{at: "1s", ask: "b=1", want: "D, retry 1"},
			{at: "1001ms", ask: "b=1", want: "D, retry 1"},
		},
	},
	{
		topic: answers, reports: "bucket4j/bucket4j#88 antifuchs/ratelimit_meter#36",
		wrong: "the wait leaves out the part of a token that is there, or all of the burst, and is too long",
		weir:  "the wait is the shortest after which the request passes, to the microsecond before it is rounded",
		rules: `
  - {endpoint: /x, limit: 1, window: 10s, algorithm: token_bucket, burst: 5}`,
		steps: []step{
			{ask: "endpoint=/x *5", want: "A, left 0"},
			{ask: "endpoint=/x", want: "D, retry 10"},
			{at: "2s", ask: "endpoint=/x", want: "D, retry 8"},
			{at: "2s", ask: "endpoint=/x *5", want: "D, retry 48"},
			{at: "9s", ask: "endpoint=/x", want: "D, retry 1"},
			{at: "10s", ask: "endpoint=/x", want: "A"},
		},
	},
	{
		topic: answers, reports: "fastify/fastify-rate-limit#324",
		wrong: "Retry-After is the whole window, however little of it is left",
		weir:  "it is what is left of the window",
		rules: `
  - {endpoint: /x, limit: 1, window: 15s}`,
		steps: []step{
			{ask: "endpoint=/x", want: "AD, retry 15"},
			{at: "10s", ask: "endpoint=/x", want: "D, retry 5"},
		},
	},
	{
		topic: answers, reports: "bucket4j/bucket4j#220",
		wrong: "a request that can never pass is told a wait, after which it does not",
		weir:  "no Retry-After where waiting cannot help",
		rules: `
  - {match: {b: "*"}, limit: 3, window: 2s, algorithm: token_bucket}
  - {match: {c: "*"}, limit: 3, window: 2s, algorithm: sliding_window_counter}
  - {match: {l: "*"}, limit: 3, window: 2s, algorithm: sliding_window_log, count_denied: false}`,
		steps: []step{
			{ask: "b=1 *4", want: "D, left 3, retry never"},
			{ask: "c=1 *4", want: "D, left 3, retry never"},
			{ask: "l=1 *4", want: "D, left 3, retry never"},
		},
	},
	{
		topic: answers, reports: "3scale/apisonator#54",
		wrong: "of a limit by the minute and one by the year, a refusal by the first tells the end of the second",
		weir:  "tells of the limit that refuses",
		rules: `
  - {match: {x: "*"}, limits: [{limit: 5, window: 1m}, {limit: 100000, window: year}]}
  - {match: {m: "*"}, limit: 5, window: 1m}
  - {match: {y: "*"}, limit: 100000, window: year}`,
		steps: []step{
			{ask: "x=1", want: "AAAAAD, left 0, retry 60, limit 5"},
			{ask: "y=1, m=1", want: "AAAAAD, left 99995 0, retry 60"},
		},
	},
	{
		topic: answers, reports: "redis/redis#14826",
		wrong: "a cost of exactly the bucket's size is told never to pass, though it does once the bucket is full",
		weir:  "it is told the time until the bucket is full, and passes then",
		rules: `
  - {match: {b: "*"}, limit: 5, window: 60s, algorithm: token_bucket, burst: 5}
  - {match: {f: "*"}, limit: 5, window: 60s}`,
		steps: []step{
			{ask: "b=1, f=1", want: "A, left 4 4"},
			{ask: "b=1 *5", want: "D, left 4, retry 12"},
			{ask: "f=1 *5", want: "D, left 4, retry 60"},
			{at: "11999ms", ask: "b=1 *5", want: "D, retry 1"},
			{at: "12s", ask: "b=1 *5", want: "A, left 0"},
		},
	},
	{
		topic: answers, reports: "animir/node-rate-limiter-flexible#172 upstash/ratelimit-js#62",
		wrong: "what remains is a negative number after refused requests",
		weir:  "0 remains, and after a limit was lowered too",
		rules: `
  - {match: {f: "*"}, limit: 4, window: 1h, count_denied: true}
  - {match: {c: "*"}, limit: 4, window: 1h, algorithm: sliding_window_counter, count_denied: true}
  - {match: {b: "*"}, limit: 4, window: 1h, algorithm: token_bucket, count_denied: true}`,
		steps: []step{
			{ask: "f=1, c=1, b=1", want: "AAAADDD, left 0 0 0"},
			{load: `
  - {match: {f: "*"}, limit: 1, window: 1h, count_denied: true}
  - {match: {c: "*"}, limit: 1, window: 1h, algorithm: sliding_window_counter, count_denied: true}
  - {match: {b: "*"}, limit: 1, window: 1h, algorithm: token_bucket, count_denied: true}`, ask: "f=1, c=1, b=1", want: "DD, left 0 0 0, limit 1"},
		},
	},
}
