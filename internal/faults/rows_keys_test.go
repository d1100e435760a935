package faults_test

var keyFaults = []fault{
	{
		topic: keys, reports: "envoyproxy/ratelimit#1202",
		wrong: "a request that brings a limit without a unit ends the whole process",
		weir:  "it is an invalid request; a limit that is sound takes the place of the rules'",
		rules: `
  - {match: {tier: "*"}, limit: 2, window: 1h}`,
		steps: []step{
			{ask: "tier=a !2/UNKNOWN", want: "EE, error InvalidArgument"},
			{ask: "tier=a !50/MINUTE", want: "A, left 49, limit 50"},
			{ask: "other=1 !2/HOUR", want: "AAD, limit 2"},
			{ask: "tier=a", want: "AAD, limit 2"},
			{ask: "ov=1 !1/HOUR", want: "AD"},
			{ask: "ov=1 !100/HOUR", want: "A, limit 100"},
		},
	},
	{
		topic: keys, reports: "kgateway-dev/kgateway#3801 fluojs/fluo#385 better-auth/better-auth#7300",
		wrong: "keys are texts joined by a separator, or by none: `a_b` and `a`=`b` share a counter",
		weir:  "lengths are part of the key: no two lists of entries are one",
		rules: `
  - {match: {a_b: "*"}, limit: 10, window: 1h}
  - {match: {a: "*"}, limit: 10, window: 1h}
  - {match: [{a: "*"}, {b: "*"}], limit: 10, window: 1h}
  - {match: {k: "*"}, limit: 10, window: 1h}`,
		steps: []step{
			{ask: "a_b=c", want: "AAA, left 7"},
			{ask: "a=b_c", want: "A, left 9"},
			{ask: "a=b:c b=d", want: "A, left 9"},
			{ask: "a=b b=c:d", want: "A, left 9"},
			{ask: "a=b b=", want: "A, left 9"},
			{ask: "a=b", want: "A, left 9"},
			{ask: "a=x%00y b=z", want: "A, left 9"},
			{ask: "a=x b=y%00z", want: "A, left 9"},
			{ask: "a=x%02y b=z", want: "A, left 9"},
			{ask: "a=x b=y%02z", want: "A, left 9"},
			{ask: "a=x%7Cy b=z", want: "A, left 9"},
			{ask: "a=x b=y%7Cz", want: "A, left 9"},
			{ask: "k=::1", want: "A, left 9"},
			{ask: "k=::1_", want: "A, left 9"},
			{ask: "k={x}", want: "A, left 9"},
			{ask: "k=%7C", want: "A, left 9"},
			{ask: "k=%00", want: "A, left 9"},
			{ask: "k=%C3%A9", want: "A, left 9"},
			{ask: "k=e%CC%81", want: "A, left 9"},
		},
	},
	{
		topic: keys, reports: "gmcquillan/django-brake#19",
		wrong: "two limits of one period share a counter, so that the looser one spends the stricter one's",
		weir:  "each limit has its own, equal ones too",
		rules: `
  - {match: {valid: "*"}, limit: 200, window: 1m}
  - {match: {invalid: "*"}, limit: 2, window: 1m}
  - {match: {both: "*"}, limits: [{limit: 5, window: 1m}, {limit: 3, window: 1m, algorithm: token_bucket}, {limit: 4, window: 1m}]}`,
		steps: []step{
			{ask: "valid=1", want: "AAAAA, left 195"},
			{ask: "invalid=1", want: "AAD, left 0"},
			{ask: "both=1", want: "AAAD, left 0, limit 3"},
		},
	},
	{
		topic: keys, reports: "rails/rails#52961",
		wrong: "limiters of the same name in two controllers share a counter",
		weir:  "each domain has its own counters, whatever its rules are called",
		rules: `
domain: foo
rules:
  - {name: long-term, match: {user: "*"}, limit: 2, window: 1h}
---
domain: bar
rules:
  - {name: long-term, match: {user: "*"}, limit: 2, window: 1h}`,
		steps: []step{
			{ask: "@foo user=1", want: "AAD"},
			{ask: "@bar user=1", want: "AAD"},
		},
	},
	{
		topic: keys, reports: "express-rate-limit/express-rate-limit#502 sozu-proxy/sozu#1270",
		wrong: "a client with IPv6 has a new counter for each of the 2^64 addresses that it owns",
		weir:  "`remote_address: \"*\"` counts by /64, and `mask` says otherwise",
		rules: `
  - {match: {remote_address: "*"}, limit: 2, window: 1h}
  - {match: {net: "*"}, limit: 2, window: 1h, mask: {ipv4: 24, ipv6: 48}}`,
		steps: []step{
			{ask: "remote_address=2001:db8:1:2::1", want: "A"},
			{ask: "remote_address=2001:db8:1:2:ffff::9", want: "AD"},
			{ask: "remote_address=2001:db8:1:3::1", want: "A"},
			{ask: "net=2001:db8:1:2::1", want: "A"},
			{ask: "net=2001:DB8:1:ffff::1", want: "AD"},
			{ask: "net=not-an-address", want: "AAD"},
		},
	},
	{
		topic: keys, reports: "Yeraze/meshmonitor#2001",
		wrong: "the mask for IPv6 cuts all of an IPv4 address in IPv6 off, and all such clients share one counter",
		weir:  "an IPv4-mapped address is the IPv4 address",
		rules: `
  - {match: {remote_address: "*"}, limit: 2, window: 1h}`,
		steps: []step{
			{ask: "remote_address=::ffff:192.0.2.7", want: "AAD"},
			{ask: "remote_address=::ffff:192.0.2.8", want: "AA"},
			{ask: "remote_address=192.0.2.7", want: "D"},
			{ask: "remote_address=::ffff:c000:208", want: "D"},
		},
	},
	{
		topic: keys, reports: "traefik/traefik#8052 cyanheads/mcp-ts-core#405",
		wrong: "an empty key is taken for none: all clients share it, or it is never evicted",
		weir:  "an empty value is a value like others; an empty key is an invalid request",
		rules: `
  - {match: {user: "*"}, limit: 2, window: 1h}`,
		steps: []step{
			{ask: "user=", want: "AAD"},
			{ask: "user=alice", want: "AAD"},
			{ask: "=alice", want: "E, error InvalidArgument"},
		},
	},
	{
		topic: keys, reports: "envoyproxy/ratelimit#122 envoyproxy/ratelimit#235 envoyproxy/ratelimit#304 envoyproxy/envoy#20433",
		wrong: "ranges of addresses and patterns cannot be limited, or are taken for texts",
		weir:  "`cidr:` and regular expressions match values, the longest prefix first",
		rules: `
  - {match: {remote_address: "cidr:10.0.0.0/8"}, limit: 2, window: 1h}
  - {match: {remote_address: "cidr:10.1.0.0/16"}, exempt: true}
  - {match: {remote_address: "cidr:2001:db8::/32"}, limit: 1, window: 1h}
  - {match: {remote_address: "*"}, limit: 3, window: 1h}
  - {match: {path: "~/v[0-9]+/users/[^/]+"}, limit: 1, window: 1h}`,
		steps: []step{
			{ask: "remote_address=10.2.0.1", want: "AAD"},
			{ask: "remote_address=10.1.0.1", want: "AAAAA"},
			{ask: "remote_address=2001:db8::7", want: "AD"},
			{ask: "remote_address=192.0.2.1", want: "AAAD"},
			{ask: "path=/v2/users/7", want: "AD"},
			{ask: "path=/v2/users/7/x", want: "AA, left 0, limit 0"},
		},
	},
	{
		topic: keys, reports: "envoyproxy/envoy#5141",
		wrong: "a client's header that is not UTF-8 makes a message that gRPC in Go refuses, and a proxy that fails open lets the request pass",
		weir:  "it is limited like any other",
		test:  "server TestAValueThatIsNotUTF8IsLimitedLikeAnyOther",
	},
	{
		topic: keys, reports: "boinkor-net/governor#171 librefang/librefang#3668",
		wrong: "each client leaves a counter in memory for ever",
		weir:  "counters go when they say nothing any more",
		test:  "TestCountersAreNotKeptForEver",
	},
}

var changeFaults = []fault{
	{
		topic: changes, reports: "NatLabRockies/api-umbrella#3 resilience4j/resilience4j#2489 Kuadrant/limitador#522 Kuadrant/limitador#524",
		wrong: "a limit that is changed is not heeded until a restart, or ends the refill, or the process",
		weir:  "it holds for the next request; what was used stays used, and nothing underflows",
		rules: `
  - {match: {f: "*"}, limit: 5, window: 1h}
  - {match: {b: "*"}, limit: 5, window: 5s, algorithm: token_bucket}`,
		steps: []step{
			{ask: "f=1", want: "AAAAADDD"},
			{load: `
  - {match: {f: "*"}, limit: 10, window: 1h}
  - {match: {b: "*"}, limit: 2, window: 2s, algorithm: token_bucket}`, ask: "f=1", want: "AAA, left 2"},
			{load: `
  - {match: {f: "*"}, limit: 3, window: 1h}
  - {match: {b: "*"}, limit: 5, window: 5s, algorithm: token_bucket}`, ask: "f=1 +0", want: "D, left 0, limit 3"},
			{ask: "b=1", want: "AAAAAD"},
			{load: `
  - {match: {f: "*"}, limit: 100, window: 1h}
  - {match: {b: "*"}, limit: 2, window: 5s, algorithm: token_bucket}`, ask: "f=1", want: "A, left 91"},
			{at: "5s", ask: "b=1", want: "D, left 0, retry 5"}, // 5 were used, and 2 have drained
			{at: "10s", ask: "b=1", want: "AD"},
			{at: "60s", ask: "b=1", want: "AAD"},
		},
	},
	{
		topic: changes, reports: "milvus-io/milvus#35699 nuetzliches/hookaido#239",
		wrong: "each load of the rules fills all buckets",
		weir:  "a load changes no counter",
		rules: `
  - {endpoint: /x, limit: 5, window: 1m, algorithm: token_bucket}
  - {endpoint: /y, limit: 5, window: 1m}`,
		steps: []step{
			{ask: "endpoint=/x, endpoint=/y", want: "AAAAAD"},
			{load: `
  - {endpoint: /y, limit: 5, window: 1m}
  - {endpoint: /x, limit: 5, window: 1m, algorithm: token_bucket}
  - {endpoint: /z, limit: 1, window: 1m}`, ask: "endpoint=/x, endpoint=/y", want: "D, left 0 0"},
			{at: "12s", load: `
  - {name: renamed, endpoint: /x, limit: 5, window: 1m, algorithm: token_bucket}
  - {endpoint: /y, limit: 5, window: 1m}`, ask: "endpoint=/x", want: "AD"},
		},
	},
	{
		topic: changes, reports: "3scale/APIcast#667",
		wrong: "a window that is changed keeps the TTL, and the meaning, of the old one",
		weir:  "another window is another counter, from nothing",
		rules: `
  - {endpoint: /x, limit: 2, window: 1h}`,
		steps: []step{
			{ask: "endpoint=/x", want: "AAD, retry 3600"},
			{load: `
  - {endpoint: /x, limit: 2, window: 1m}`, ask: "endpoint=/x", want: "AAD, retry 60"},
			{at: "1m", ask: "endpoint=/x", want: "AAD, retry 60"},
		},
	},
}

var storeFaults = []fault{
	{
		topic: stores, reports: "marcosbarbero/spring-cloud-zuul-ratelimit#131 marcosbarbero/spring-cloud-zuul-ratelimit#162 marcosbarbero/spring-cloud-zuul-ratelimit#200 redis/redis#4548 jazzband/django-redis#181",
		wrong: "a counter whose first hit was not the expected one, or that ended at the wrong moment, has no TTL, and blocks for ever",
		weir:  "every write leaves a TTL, whatever the costs; a key found without one heals",
		test:  "TestACounterLivesAsLongAsItCounts",
	},
	{
		topic: stores, reports: "Tabcorp/redis-rate-limiter#1 sidekiq/sidekiq#2704",
		wrong: "a key that expires within the transaction begins anew without a TTL",
		weir:  "a counter that vanishes at any moment leaves nothing that stays",
		test:  "limiter/redis TestCountersThatVanishUnderLoadLeaveNothingBehind",
	},
	{
		topic: stores, reports: "upstash/ratelimit-js#122 vutran1710/PyrateLimiter#182 express-rate-limit/rate-limit-redis#71 express-rate-limit/rate-limit-redis#144",
		wrong: "a Redis that forgot its scripts is an error for each request from then on",
		weir:  "scripts are loaded again, without an error or a lost count",
		test:  "TestScriptsThatRedisForgotAreNoError",
	},
	{
		topic: stores, reports: "spring-cloud/spring-cloud-gateway#248 vutran1710/PyrateLimiter#151",
		wrong: "on a cluster the script's keys lie in several slots: an error, after which all passes",
		weir:  "all keys are told to Redis, and a request's limits may lie in any slots",
		test:  "limiter/redis TestAClusterKeepsTheContract",
	},
	{
		topic: stores, reports: "envoyproxy/ratelimit#1191",
		wrong: "after a failover connections to the old master stay, and each write on them is refused until a restart",
		weir:  "a READONLY answer is left for the master that is",
		test:  "limiter/redis TestAReplicaInTheMastersPlaceIsLeftWhenTheMasterIsBack",
	},
	{
		topic: stores, reports: "envoyproxy/ratelimit#978 traefik/traefik#12091 istio/istio#12115",
		wrong: "while Redis is away all requests are errors, or all are refused, or all pass",
		weir:  "each rule says what holds then; without a word each instance counts by itself",
		test:  "TestWithoutRedisEachRuleDoesAsItSays",
	},
	{
		topic: stores, reports: "Kuadrant/limitador#288",
		wrong: "what an instance counted while it was cut off is added to Redis later, to a window that it was not of",
		weir:  "what is counted without Redis is never written back",
		test:  "limiter/redis TestFailurePoliciesDecideWhileRedisIsAway",
	},
	{
		topic: stores, reports: "envoyproxy/ratelimit#462",
		wrong: "while Redis does not answer, each request waits as long as the client's timeout",
		weir:  "a request waits for `--store-timeout`, and after five such failures for nothing",
		test:  "limiter/redis TestAPausedRedisHoldsNobodyLongerThanTheTimeout",
	},
	{
		topic: stores, reports: "envoyproxy/ratelimit#1077 upstash/ratelimit-js#157",
		wrong: "what an instance remembers of a refusal refuses another limit or cost too, or the last request that is free",
		weir:  "a refusal is remembered for its counter, limit and cost alone, and answers as Redis would",
		test:  "TestWhatIsRememberedRefusesNothingElse",
	},
	{
		topic: stores, reports: "NVIDIA/nvcf#975",
		wrong: "counters end with the instances, so that a rolling upgrade gives each client a new budget",
		weir:  "counters in Redis do not know of instances",
		test:  "TestANewInstanceGoesOnWhereTheOldOneEnded",
	},
}
