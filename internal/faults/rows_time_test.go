package faults_test

import "time"

var windowFaults = []fault{
	{
		topic: windows, reports: "apache/apisix#5588",
		wrong: "a counter that ends between the look at its TTL and the count is begun at -1, and refuses",
		weir:  "each window begins with all of the limit, at its very first instant",
		rules: `
  - {endpoint: /x, limit: 3, window: 1s}`,
		steps: []step{
			{at: "1ms", ask: "endpoint=/x", want: "AAAD"},
			{at: "999ms", ask: "endpoint=/x", want: "D, left 0"},
			{at: "1s", ask: "endpoint=/x", want: "AAAD"},
			{at: "1999ms", ask: "endpoint=/x", want: "D"},
			{at: "2s", ask: "endpoint=/x", want: "A, left 2"},
		},
	},
	{
		topic: windows, reports: "apache/shenyu#6649 haproxy/haproxy#615 jsocol/django-ratelimit#11",
		wrong: "each hit, or each refused one, puts the end of the window off, so that it never ends for who keeps asking",
		weir:  "a window ends when it ends, whatever is asked in it",
		rules: `
  - {endpoint: /x, limit: 5, window: 1m}`,
		steps: []step{
			{ask: "endpoint=/x", want: "AAA, left 2, reset 60"},
			{at: "40s", ask: "endpoint=/x", want: "AADD, retry 20"},
			{at: "59s", ask: "endpoint=/x", want: "D, retry 1"},
			{at: "60s", ask: "endpoint=/x", want: "AAA, left 2, reset 60"},
		},
	},
	{
		topic: windows, reports: "express-rate-limit/rate-limit-redis#209 Instawork/llm-proxy#55",
		wrong: "a counter's last hit before the window's end carries its count into the next one",
		weir:  "counters know which window they are of; Redis's TTL only tidies up",
		rules: `
  - {match: {f: "*"}, limit: 5, window: 1m}
  - {match: {d: "*"}, limit: 5, window: day, timezone: Europe/Berlin}`,
		start: time.Date(2026, time.March, 16, 22, 58, 0, 0, time.UTC), // two minutes before midnight in Berlin
		steps: []step{
			{at: "119999ms", ask: "f=1, d=1", want: "AAAAAD, left 0 0"},
			{at: "120s", ask: "f=1, d=1", want: "AAAAAD, left 0 0"},
		},
	},
	{
		topic: windows, reports: "upstash/ratelimit-js#61",
		wrong: "a sliding window that looks at the wrong window before is a fixed one",
		weir:  "the window before counts by the part of it that is still in sight, in what is left too",
		rules: `
  - {endpoint: /x, limit: 100, window: 1m, algorithm: sliding_window_counter}`,
		steps: []step{
			{at: "50s", ask: "endpoint=/x *50", want: "A, left 50"},
			{at: "66s", ask: "endpoint=/x *10", want: "A, left 45"}, // 90% of 50, and 10
			{at: "66s", ask: "endpoint=/x *46", want: "D, left 45"},
			{at: "66s", ask: "endpoint=/x *45", want: "A, left 0"},
		},
	},
	{
		topic: windows, reports: "PostHog/posthog#89726",
		wrong: "the counter of the window before expires while it is still needed, so that too much passes",
		weir:  "it counts until the very end of the next window",
		rules: `
  - {endpoint: /x, limit: 60, window: 1m, algorithm: sliding_window_counter}`,
		steps: []step{
			{ask: "endpoint=/x *60", want: "A, left 0"},
			{at: "90s", ask: "endpoint=/x +0", want: "A, left 30"},
			{at: "114s", ask: "endpoint=/x +0", want: "A, left 54"},
			{at: "119s", ask: "endpoint=/x *60", want: "D, left 59"},
			{at: "120s", ask: "endpoint=/x *60", want: "A, left 0"},
		},
	},
	{
		topic: windows, reports: "rack/rack-attack#230",
		wrong: "a month is a fixed number of seconds, so that a new one begins in the middle of August",
		weir:  "`month` is the calendar's, whatever its length",
		rules: `
  - {endpoint: /x, limit: 2, window: month}`,
		start: time.Date(2024, time.February, 1, 0, 0, 0, 0, time.UTC),
		steps: []step{
			{ask: "endpoint=/x", want: "AAD, retry 2505600"},           // 29 days
			{at: "695h59m59s", ask: "endpoint=/x", want: "D, retry 1"}, // the last second of 29 February
			{at: "696h", ask: "endpoint=/x", want: "AAD, retry 2678400"},
			{at: "1439h", ask: "endpoint=/x", want: "D, retry 3600"},
			{at: "1440h", ask: "endpoint=/x", want: "AAD, retry 2592000"},
		},
	},
	{
		topic: windows, reports: "apiman/apiman#1541",
		wrong: "when clocks go back for winter, an hour's limit refuses for two",
		weir:  "hours go by elapsed time; a day in a time zone has 23, 24 or 25 of them",
		rules: `
  - {match: {hour: "*"}, limit: 2, window: hour}
  - {match: {day: "*"}, limit: 2, window: day, timezone: Europe/Paris}`,
		start: time.Date(2021, time.October, 30, 22, 0, 0, 0, time.UTC), // midnight in Paris; at 3:00 it is 2:00 again
		steps: []step{
			{ask: "day=1", want: "AAD, retry 90000"},
			{at: "2h30m", ask: "hour=1", want: "AAD, retry 1800"},
			{at: "3h", ask: "hour=1", want: "AAD, retry 3600"}, // 3:00, which is 2:00
			{at: "4h", ask: "hour=1", want: "AAD"},
			{at: "24h59m59s", ask: "day=1", want: "D, retry 1"},
			{at: "25h", ask: "day=1", want: "AAD, retry 86400"},
		},
	},
	{
		topic: windows, reports: "vellum-ai/vellum-assistant#33088",
		wrong: "a day whose midnight is skipped by the change to summer time begins in the day before",
		weir:  "it begins at its first instant that there is",
		rules: `
  - {endpoint: /x, limit: 1, window: day, timezone: America/Santiago}`,
		start: time.Date(2026, time.September, 6, 3, 0, 0, 0, time.UTC), // 23:00 in Santiago; 24:00 is 1:00
		steps: []step{
			{ask: "endpoint=/x", want: "AD, retry 3600"},
			{at: "3599999ms", ask: "endpoint=/x", want: "D, retry 1"},
			{at: "1h", ask: "endpoint=/x", want: "AD, retry 82800"}, // 23 hours
			{at: "23h59m59s", ask: "endpoint=/x", want: "D, retry 1"},
			{at: "24h", ask: "endpoint=/x", want: "AD, retry 86400"},
		},
	},
	{
		topic: windows, reports: "envoyproxy/ratelimit#190 envoyproxy/ratelimit#439 envoyproxy/gateway#6486",
		wrong: "only windows of one second, minute, hour or day can be had",
		weir:  "any from a millisecond to 366 days, and months and years",
		rules: `
  - {match: {five: "*"}, limit: 3, window: minute, unit_multiplier: 5}
  - {match: {ms: "*"}, limit: 2, window: 500ms}
  - {match: {h: "*"}, limit: 2, window: 1h30m}
  - {match: {y: "*"}, limit: 1, window: year}`,
		steps: []step{
			{at: "100ms", ask: "ms=1", want: "AAD"},
			{at: "499ms", ask: "ms=1", want: "D"},
			{at: "500ms", ask: "ms=1", want: "AAD"},
			{at: "1m", ask: "five=1", want: "AAAD, retry 240"},
			{at: "5m", ask: "five=1", want: "AAAD, retry 300"},
			{at: "10m", ask: "h=1, y=1", want: "AD"},
			{at: "90m", ask: "h=1", want: "AAD, retry 5400"},
		},
	},
}

var bucketFaults = []fault{
	{
		topic: buckets, reports: "spring-cloud/spring-cloud-gateway#591 redis-developer/redis-ratelimiting-js#3 varnish/varnish-modules#237 envoyproxy/envoy#16407",
		wrong: "the part of a token that has come is lost at each ask, so that who asks often gets less than the rate, or nothing",
		weir:  "no fraction is lost, whether asks pass or not",
		rules: `
  - {endpoint: /x, limit: 1, window: 1s, algorithm: token_bucket, burst: 1}
  - {endpoint: /y, limit: 3, window: 1s, algorithm: token_bucket, burst: 1}`,
		steps: []step{
			{ask: "endpoint=/x", want: "AD, retry 1"},
			{at: "600ms", ask: "endpoint=/x", want: "D"},
			{at: "1200ms", ask: "endpoint=/x", want: "A"},
			{at: "1800ms", ask: "endpoint=/x", want: "D"},
			{at: "2s", ask: "endpoint=/x", want: "D"},
			{at: "2200ms", ask: "endpoint=/x", want: "A"},
			{at: "10s", ask: "endpoint=/y", want: "AD"}, // a third of a second is no whole number of µs
			{at: "10333333us", ask: "endpoint=/y", want: "D"},
			{at: "10333334us", ask: "endpoint=/y", want: "A"},
			{at: "10666668us", ask: "endpoint=/y", want: "A"},
			{at: "11000001us", ask: "endpoint=/y", want: "D"},
			{at: "11000002us", ask: "endpoint=/y", want: "A"},
		},
	},
	{
		topic: buckets, reports: "envoyproxy/envoy#24282",
		wrong: "a bucket that a timer fills is filled too little under load: 1,000 a second let 600 to 700 pass",
		weir:  "reckons by the time that has passed; no timer has a part in it",
		test:  "TestABucketUnderLoadLetsItsRatePass",
	},
	{
		topic: buckets, reports: "apache/apisix#12605",
		wrong: "a rate under one a second is rounded up to one",
		weir:  "a bucket drains as slowly as its rate says, and its counter lives as long",
		rules: `
  - {endpoint: /x, limit: 1, window: 10s, algorithm: token_bucket, burst: 1}
  - {endpoint: /y, limit: 1, window: 10s, algorithm: leaky_bucket, queue: 0}`,
		steps: []step{
			{ask: "endpoint=/x, endpoint=/y", want: "A"},
			{at: "2s", ask: "endpoint=/x", want: "D, retry 8"},
			{at: "2s", ask: "endpoint=/y", want: "D"},
			{at: "9999ms", ask: "endpoint=/x", want: "D, retry 1"},
			{at: "9999ms", ask: "endpoint=/y", want: "D"},
			{at: "10s", ask: "endpoint=/x, endpoint=/y", want: "A"},
		},
	},
	{
		topic: buckets, reports: "spring-cloud/spring-cloud-gateway#2453 brandur/redis-cell#50 cristipufu/aspnetcore-redis-rate-limiting#46 jsocol/django-ratelimit#205",
		wrong: "the TTL of a counter is rounded to 0, reckoned too short or left to the cache's default, and it is as at first again, or never stored",
		weir:  "the TTL is rounded up from the time until the counter is as at first",
		test:  "TestACounterLivesAsLongAsItCounts",
	},
	{
		topic: buckets, reports: "resilience4j/resilience4j#822",
		wrong: "requests that wait at the same time get turns in one cycle, more than it has",
		weir:  "those that wait get turns one after another, a window / limit apart",
		test:  "TestThoseWhoWaitGetTurnsOneAfterAnother",
	},
	{
		topic: buckets, reports: "brandur/redis-cell#54",
		wrong: "a rate that is raised live still refuses as long as the old one would",
		weir:  "what was used drains at the new rate from then on",
		rules: `
  - {endpoint: /x, limit: 10, window: 20s, algorithm: token_bucket, burst: 16}`,
		steps: []step{
			{ask: "endpoint=/x *16", want: "AD, retry 32"},
			{load: `
  - {endpoint: /x, limit: 1000, window: 20s, algorithm: token_bucket, burst: 16}`, ask: "endpoint=/x", want: "D"},
			{at: "1s", ask: "endpoint=/x", want: "A, left 15"},
		},
	},
	{
		topic: buckets, reports: "bucket4j/bucket4j#51",
		wrong: "after a long time without a request the refill overflows, and all is refused",
		weir:  "a counter that nobody asked for years is full",
		rules: `
  - {match: {b: "*"}, limit: 4294967295, window: 1s, algorithm: token_bucket}
  - {match: {h: "*"}, limit: 1000000, window: 1h, algorithm: token_bucket}
  - {match: {c: "*"}, limit: 10, window: 1h, algorithm: sliding_window_counter}`,
		steps: []step{
			{ask: "b=1, h=1, c=1 *10", want: "A"},
			{at: "12h", ask: "b=1 +0, h=1 +0, c=1 +0", want: "A, left 4294967295 1000000 10"},
			{at: "876000h", ask: "b=1, h=1, c=1", want: "A, left 4294967294 999999 9"}, // a hundred years
		},
	},
}
