package limiter_test

import (
	"strings"
	"testing"
	"time"

	"weir/limiter"
	"weir/limiter/limitertest"
)

// request is a row of a table of requests with several hits.
type request struct {
	at     string // as in step
	hits   []limiter.Hit
	want   string // for each hit, words of limitertest.Match, apart by |
	passes bool   // the request does
	remark string
}

// on is a hit on the counter of that name.
func on(key string, l limiter.Limit, cost uint64) limiter.Hit {
	return limiter.Hit{Key: limiter.Key(key), Limit: l, Cost: cost, MaxDelay: limiter.NoDeadline}
}

func shadowed(h limiter.Hit) limiter.Hit { h.Shadow = true; return h }
func quota(h limiter.Hit) limiter.Hit    { h.Quota = true; return h }
func back(h limiter.Hit) limiter.Hit     { h.Refund = true; return h }

func hurried(h limiter.Hit, d time.Duration) limiter.Hit { h.MaxDelay = d; return h }

func hits(h ...limiter.Hit) []limiter.Hit { return h }

// playRequests plays the rows through Evaluate and the memory store.
func playRequests(t *testing.T, opts limiter.Options, rows []request) {
	t.Helper()
	clock := limitertest.NewClock(monday)
	stores := map[string]limiter.Store{
		"evaluate": limitertest.NewReference(opts, clock.Now),
		"memory":   limiter.NewMemory(limiter.MemoryOptions{Options: opts, Now: clock.Now}),
	}
	for i, row := range rows {
		clock.Set(parseAt(t, row.at))
		for name, store := range stores {
			decisions, err := store.Decide(t.Context(), row.hits)
			if err != nil {
				t.Fatal(err)
			}
			wants := strings.Split(row.want, "|")
			if len(wants) != len(row.hits) {
				t.Fatalf("row %d: %d hits, %d wanted", i, len(row.hits), len(wants))
			}
			for j, want := range wants {
				if err := limitertest.Match(want, decisions[j]); err != nil {
					t.Errorf("row %d at %s, %s (%s), hit %d: %v", i, row.at, row.remark, name, j, err)
				}
			}
			if got := limiter.Passes(row.hits, decisions); got != row.passes {
				t.Errorf("row %d at %s, %s (%s): passes %t", i, row.at, row.remark, name, got)
			}
		}
	}
}

var allOrNothing limiter.Options

func TestARequestThatOneLimitRefusesConsumesFromNone(t *testing.T) {
	minute, second := fixed(4, time.Minute), fixed(1, 10*time.Second)
	playRequests(t, allOrNothing, []request{
		{"0s", hits(on("m", minute, 1), on("s", second, 1)), "pass left=3|pass left=0", true, "both pass: both are charged"},
		{"1s", hits(on("m", minute, 1), on("s", second, 1)), "pass left=3|refuse left=0 retry=9s", false, "one refuses: neither is"},
		{"2s", hits(on("s", second, 1), on("m", minute, 1)), "refuse left=0 retry=8s|pass left=3", false, "whatever the order"},
		{"10s", hits(on("m", minute, 4), on("s", second, 1)), "refuse left=3 retry=50s|pass left=1", false, "whichever it is"},
		{"10s", hits(on("m", minute, 4), on("s", second, 2)), "refuse left=3 retry=50s|refuse left=1 retry=0s", false, "both: statuses of each"},
		{"10s", hits(on("m", minute, 3), on("s", second, 1)), "pass left=0|pass left=0", true, "nothing was lost"},
		{"11s", hits(on("m", minute, 1), on("s", second, 1)), "refuse retry=49s|refuse retry=9s", false, "waiting the longest of both is enough"},
		{"60s", hits(on("m", minute, 1), on("s", second, 1)), "pass|pass", true, "as it said"},
	})
}

func TestAllOrNothingHoldsForEachAlgorithm(t *testing.T) {
	forEach(t, time.Minute, func(t *testing.T, l limiter.Limit) {
		none := on("none", fixed(0, time.Minute), 1)
		playRequests(t, allOrNothing, []request{
			{"0s", hits(on("k", l, 2), none), "pass left=4 reset=0s|refuse", false, "refused: nothing is charged, nothing delayed"},
			{"0s", hits(on("k", l, 4), on("k", l, 0)), "pass left=0|pass left=0", true, "so all of it passes"},
		})
	})
}

func TestALookRefusesARequestWhenItsCounterIsPastTheLimit(t *testing.T) {
	budget := denied(fixed(10, time.Hour))
	playRequests(t, allOrNothing, []request{
		{"0s", hits(on("b", budget, 0), on("k", fixed(9, time.Hour), 1)), "pass left=10|pass left=8", true, "a look beside a hit"},
		{"0s", hits(on("b", budget, 50)), "refuse left=0", false, "a charge after the fact, past the limit"},
		{"0s", hits(on("b", budget, 0), on("k", fixed(9, time.Hour), 1)), "refuse left=0 retry=1h|pass left=8", false, "the look refuses, and the hit is not charged"},
	})
}

func TestShadowLimitIsChargedWhenItWouldPassAndTheRequestPasses(t *testing.T) {
	s, k := fixed(2, time.Minute), fixed(3, time.Minute)
	playRequests(t, allOrNothing, []request{
		{"0s", hits(shadowed(on("s", s, 1)), on("k", k, 1)), "pass left=1|pass left=2", true, "both charged"},
		{"0s", hits(shadowed(on("s", s, 2)), on("k", k, 1)), "refuse left=1 retry=60s|pass left=1", true, "a shadow never refuses; what it would refuse is not charged"},
		{"0s", hits(shadowed(on("s", s, 1)), on("k", k, 2)), "pass left=1|refuse left=1", false, "a request that is refused charges no shadow"},
		{"0s", hits(shadowed(on("s", s, 1)), on("k", k, 1)), "pass left=0|pass left=0", true, ""},
		{"0s", hits(shadowed(on("s", s, 1))), "refuse left=0 retry=60s", true, "alone it passes too"},
		{"0s", hits(shadowed(on("z", fixed(0, time.Minute), 1))), "refuse left=0 retry=0s", true, "and with limit 0"},
	})
}

func TestShadowLimitNeverDelays(t *testing.T) {
	l := leaky(1, time.Second, 3)
	playRequests(t, allOrNothing, []request{
		{"0s", hits(shadowed(on("k", l, 1))), "pass left=3", true, ""},
		{"0s", hits(shadowed(on("k", l, 1))), "pass left=2 delay=0s", true, "a plain one would wait a second"},
		{"0s", hits(on("k", l, 1)), "pass left=1 delay=2s", true, "as here: it was charged"},
	})
}

func TestDelayIsNoneWhenAnotherLimitRefuses(t *testing.T) {
	l := leaky(1, time.Second, 3)
	playRequests(t, allOrNothing, []request{
		{"0s", hits(on("k", l, 1), on("j", fixed(1, time.Minute), 1)), "pass|pass", true, ""},
		{"0s", hits(on("k", l, 1), on("j", fixed(1, time.Minute), 1)), "pass left=3 delay=0s|refuse", false, "nobody holds a refused request"},
		{"0s", hits(on("k", l, 1), on("j2", leaky(1, time.Minute, 3), 2), on("j2", leaky(1, time.Minute, 3), 1)), "pass delay=1s|pass delay=0s|pass delay=2m", true, "several delays: each hit has its own"},
	})
}

func TestQuotaRefusesWhenAllQuotasDoOrAPlainLimit(t *testing.T) {
	a, b, plain := fixed(1, time.Minute), fixed(2, time.Minute), fixed(2, time.Hour)
	playRequests(t, allOrNothing, []request{
		{"0s", hits(quota(on("a", a, 1)), quota(on("b", b, 1))), "pass left=0|pass left=1", true, "all have room: all are charged"},
		{"0s", hits(quota(on("a", a, 1)), quota(on("b", b, 1))), "refuse left=0 retry=60s|pass left=0", true, "one refuses: it is not charged, the other is"},
		{"0s", hits(quota(on("a", a, 1)), quota(on("b", b, 1))), "refuse left=0|refuse left=0", false, "all refuse"},
		{"0s", hits(quota(on("a", a, 1)), quota(on("b", b, 1)), on("p", plain, 1)), "refuse|refuse|pass left=2", false, "and a plain limit that passes is not charged"},
		{"1m", hits(quota(on("a", a, 1)), on("p", plain, 3)), "pass left=1|refuse left=2", false, "a plain limit refuses: no quota is charged"},
		{"1m", hits(quota(on("a", a, 1)), on("p", plain, 1)), "pass left=0|pass left=1", true, "both"},
		{"1m", hits(quota(on("a", a, 1)), on("p", plain, 1)), "refuse left=0|pass left=1", false, "the only quota refuses: it is all of them"},
		{"1m", hits(quota(on("a", a, 1)), shadowed(on("b", b, 1))), "refuse left=0|pass left=2", false, "a shadow is no quota"},
	})
}

func TestCountDeniedCountsOnlyItsOwnLimitsRefusals(t *testing.T) {
	a, b := denied(fixed(2, time.Minute)), fixed(5, time.Minute)
	playRequests(t, allOrNothing, []request{
		{"0s", hits(on("a", a, 3), on("b", b, 1)), "refuse left=0|pass left=5", false, "its own refusal is counted, b is not charged"},
		{"0s", hits(on("a", a, 0)), "refuse", false, "3 of 2"},
		{"1m", hits(on("a", a, 1), on("b", b, 6)), "pass left=2|refuse left=5", false, "the refusal of another is not"},
		{"1m", hits(on("a", a, 2), on("a2", a, 3), on("b", b, 1)), "pass left=2|refuse left=0|pass left=5", false, "nor that of another which counts its own"},
	})
}

func TestShadowAndQuotaLimitsWithCountDeniedChargeWhatTheyWouldRefuse(t *testing.T) {
	l := denied(fixed(2, time.Minute))
	playRequests(t, allOrNothing, []request{
		{"0s", hits(shadowed(on("s", l, 3))), "refuse left=0", true, "the request passes; 3 are counted"},
		{"0s", hits(shadowed(on("s", l, 0))), "refuse", true, ""},
		{"0s", hits(quota(on("q", l, 3)), quota(on("r", l, 1))), "refuse left=0|pass left=1", true, "a quota that refuses beside one that passes"},
		{"0s", hits(shadowed(on("s2", l, 3)), on("k", fixed(0, time.Minute), 1)), "refuse left=0|refuse", false, "also where the request is refused"},
	})
}

func TestRefundsAreAlwaysMadeAndMadeFirst(t *testing.T) {
	l := fixed(4, time.Minute)
	playRequests(t, allOrNothing, []request{
		{"0s", hits(on("k", l, 4)), "pass left=0", true, ""},
		{"0s", hits(on("k", l, 2), back(on("k", l, 2))), "pass left=0|pass left=0", true, "a hit has the room that a refund behind it makes"},
		{"0s", hits(back(on("k", l, 2)), on("k", l, 3)), "pass left=2|refuse left=2", false, "made though the request is refused"},
		{"0s", hits(back(on("k", l, 1)), on("none", fixed(0, time.Minute), 1)), "pass left=3|refuse", false, "by another limit too"},
		{"0s", hits(back(on("k", l, 1)), shadowed(back(on("k", l, 1)))), "pass left=4|pass left=4", true, "statuses show the state after all"},
		{"0s", hits(quota(back(on("k", l, 1)))), "pass left=4", true, "a refund is no question to a quota"},
	})
}

func TestStatusesShowTheStateAfterTheWholeRequest(t *testing.T) {
	l := fixed(9, time.Minute)
	playRequests(t, allOrNothing, []request{
		{"0s", hits(on("k", l, 1), on("k", l, 2), on("k", l, 0)), "pass left=6 reset=60s|pass left=6|pass left=6", true, "all three the same"},
	})
}

func TestChargeEachLetsEachHitStandOnItsOwn(t *testing.T) {
	l, one := fixed(3, time.Minute), fixed(1, time.Minute)
	each := limiter.Options{ChargeEach: true}
	playRequests(t, each, []request{
		{"0s", hits(on("k", l, 1), on("one", one, 1)), "pass left=2|pass left=0", true, ""},
		{"0s", hits(on("k", l, 1), on("one", one, 1)), "pass left=1|refuse left=0 retry=60s", false, "what one refuses, the other charges"},
		{"0s", hits(on("k", l, 1), on("k", l, 1)), "pass left=0|refuse left=0 retry=60s", false, "one key: as much as fits"},
		{"1m", hits(on("k", l, 2), on("k", l, 2), on("k", l, 1)), "pass left=0|refuse left=0 retry=60s|pass left=0", false, "a smaller one behind it still fits"},
		{"2m", hits(on("d", denied(l), 4), on("d", denied(l), 1)), "refuse left=0 retry=0s|refuse left=0 retry=60s", false, "with count_denied too: as envoyproxy/ratelimit"},
		{"3m", hits(on("k", l, 2), back(on("k", l, 2))), "pass left=1|pass left=1", true, "refunds first: there was nothing to give back"},
	})
}
