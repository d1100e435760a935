package metrics

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/limiter"
	"weir/rules"
)

func TestADecisionHasExactlyOneOutcome(t *testing.T) {
	m := newCounting(t, "", Options{})
	limit := limiter.Limit{Requests: 10, Window: limiter.Window{Length: time.Minute}}
	for _, x := range []struct {
		hit    limiter.Hit
		d      limiter.Decision
		shadow bool // the whole server
		want   string
		remark string
	}{
		{limiter.Hit{}, limiter.Decision{Allowed: true, Remaining: 2}, false, "ok", "8 of 10 are used, which is not more than 80 %"},
		{limiter.Hit{}, limiter.Decision{Allowed: true, Remaining: 1}, false, "near_limit", "9 of 10 are"},
		{limiter.Hit{Refund: true}, limiter.Decision{Allowed: true, Remaining: 10}, false, "ok", "a refund is counted"},
		{limiter.Hit{}, limiter.Decision{}, false, "over_limit", ""},
		{limiter.Hit{Quota: true}, limiter.Decision{}, false, "over_limit", "that of a limit, though another may make it good"},
		{limiter.Hit{Shadow: true}, limiter.Decision{}, false, "shadow_over_limit", "nothing is refused"},
		{limiter.Hit{}, limiter.Decision{}, true, "shadow_over_limit", "nothing is refused by a server in shadow"},
		{limiter.Hit{}, limiter.Decision{Origin: limiter.OriginDenyCache}, false, "deny_cache", ""},
		{limiter.Hit{}, limiter.Decision{Origin: limiter.OriginDenyCache}, true, "shadow_over_limit", "it refuses nothing"},
		{limiter.Hit{}, limiter.Decision{Allowed: true, Remaining: 10, Origin: limiter.OriginOpen}, false, "failed_open", ""},
		{limiter.Hit{}, limiter.Decision{Origin: limiter.OriginClosed}, false, "failed_closed", ""},
		{limiter.Hit{}, limiter.Decision{Allowed: true, Origin: limiter.OriginLocal}, false, "failed_local", "it passes"},
		{limiter.Hit{}, limiter.Decision{Origin: limiter.OriginLocal}, false, "failed_local", "it is refused"},
	} {
		x.hit.Limit = limit
		if got := outcomeNames[m.outcome(&x.hit, &x.d, x.shadow)]; got != x.want {
			t.Errorf("%s, %+v: %s, want %s (%s)", x.want, x.d, got, x.want, x.remark)
		}
	}
}

func TestNearIsAboveItsShareOfTheCapacity(t *testing.T) {
	for _, x := range []struct {
		ratio    float64
		capacity int64
		want     uint64 // what must remain
	}{
		{0, 5, 1}, // the fifth of five
		{0, 1, 1}, // the only one
		{0, 100, 20},
		{0.5, 5, 3}, // 3 of 5 used
		{1, 5, 0},   // never
		{0.8, 1 << 52, 1<<52 - 3602879701896397},
	} {
		m := newCounting(t, "", Options{NearRatio: x.ratio})
		if got := m.nearFrom(x.capacity); got != x.want {
			t.Errorf("ratio %v, capacity %d: %d must remain, want %d", x.ratio, x.capacity, got, x.want)
		}
	}
}

func TestRequestsAreCountedByDomainRuleAndCode(t *testing.T) {
	m := newCounting(t, `
domain: api
rules:
  - {name: posts, match: {endpoint: /posts}, limits: [{limit: 5, window: 1s}, {limit: 50, window: 1h}]}
  - {match: {address: "*"}, limit: 5, window: 1h}
`, Options{})
	m.ask("api", "endpoint=/posts", passed)
	m.ask("api", "address=1", limiter.Decision{})
	m.ask("api", "unknown=1", passed)
	m.ask("what a client says", "a=b", passed)
	override, err := rules.NewOverride(5, "SECOND", 1)
	if err != nil {
		t.Fatal(err)
	}
	m.count(m.live.Current(), &rules.Request{Domain: "api", Descriptors: []rules.Descriptor{{
		Entries: []rules.Entry{{Key: "own", Value: "1"}}, Override: override,
	}}}, passed)
	for _, code := range []uint32{3, 4, 14, 99} {
		r := m.Begin()
		r.End("api", code, false)
	}
	m.Unread(8)
	m.want("weir_decisions_total",
		`{domain="api",outcome="ok",rule="posts"} 2`, // one for each limit
		`{domain="api",outcome="over_limit",rule="address=*"} 1`,
		`{domain="api",outcome="ok",rule="(override)"} 1`)
	m.want("weir_requests_total",
		`{code="ok",domain="api"} 3`, `{code="over_limit",domain="api"} 1`, `{code="ok",domain="(none)"} 1`,
		`{code="invalid_argument",domain="api"} 1`, `{code="deadline_exceeded",domain="api"} 1`, `{code="unavailable",domain="api"} 1`,
		`{code="unknown",domain="api"} 1`, `{code="resource_exhausted",domain="(none)"} 1`)
	m.want("weir_decision_duration_seconds", " 9")
	m.want("weir_store_duration_seconds", " 3") // it was asked for no others
	m.want("weir_in_flight_requests")
	if got := m.Errors(); got != 5 {
		t.Errorf("%d errors, want 5", got)
	}
}

func TestSeriesGoWithTheirRule(t *testing.T) {
	m := newCounting(t, `
rules:
  - {name: stays, match: {a: "1"}, limit: 5, window: 1s}
  - {name: goes, match: {b: "*"}, limit: 5, window: 1s, value_to_metric: true}
`, Options{})
	before := m.live.Current()
	m.ask("default", "a=1", passed)
	m.ask("default", "b=1", passed)
	m.want("weir_descriptor_hits_total", `{descriptor="b=1",domain="default",outcome="ok",rule="goes"} 1`)
	m.load(`rules: [{name: stays, match: {a: "1"}, limit: 7, window: 1s}]`)
	m.ask("default", "a=1", passed) // before anything has noticed
	m.want("weir_decisions_total", `{domain="default",outcome="ok",rule="stays"} 2`)
	m.want("weir_descriptor_hits_total")
	m.askOf(before, "default", "b=1", passed) // a request that began before
	m.want("weir_decisions_total", `{domain="default",outcome="ok",rule="stays"} 2`)
	if n := m.values.Load(); n != 0 {
		t.Errorf("%d descriptors are still told apart", n)
	}

	m.load(`{domain: other, rules: [{name: stays, match: {a: "1"}, limit: 7, window: 1s}]}`)
	m.want("weir_decisions_total")
	if names := sortedKeys(m.series("weir_requests_total")); slices.ContainsFunc(names, func(s string) bool { return strings.Contains(s, "default") }) {
		t.Errorf("the domain is still there: %s", names)
	}
	want := []Total{{"(none)", "ok", 3}} // since the start, whatever has gone
	if got := m.Totals(); !slices.Equal(got, want) {
		t.Errorf("totals %v, want %v", got, want)
	}
}

func TestANewDomainCountsAtOnce(t *testing.T) {
	m := newCounting(t, "", Options{})
	m.load(`{domain: new, rules: [{name: r, match: {a: "1"}, limit: 5, window: 1s}]}`)
	m.ask("new", "a=1", passed) // before anything has noticed
	m.want("weir_decisions_total", `{domain="new",outcome="ok",rule="r"} 1`)
	m.want("weir_requests_total", `{code="ok",domain="new"} 1`)
}

// A table is made at the first look after a change; until then requests find their
// counters all the same.
func TestRequestsAreCountedWhileRulesChange(t *testing.T) {
	m := newCounting(t, `rules: [{name: r, match: {a: "*"}, limit: 5, window: 1s}]`, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var others sync.WaitGroup
	others.Go(func() { m.Metrics.Run(ctx) })
	others.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			m.load([]string{
				`rules: [{name: r, match: {a: "*"}, limit: 5, window: 1s}, {name: s, match: {b: "*"}, limit: 5, window: 1s}]`,
				`rules: [{name: r, match: {a: "*"}, limit: 6, window: 1s}]`,
			}[i%2])
			m.follow(m.live.Current())
		}
	})
	others.Go(func() {
		for ctx.Err() == nil {
			_, _ = m.registry.Gather()
			m.Totals()
		}
	})
	var askers sync.WaitGroup
	const each = 2000
	for range 4 {
		askers.Go(func() {
			for range each {
				m.ask("default", "a=1", passed)
				m.ask("default", "b=1", passed)
			}
		})
	}
	askers.Wait()
	cancel()
	others.Wait()
	m.load(`rules: [{name: r, match: {a: "*"}, limit: 5, window: 1s}]`)
	m.want("weir_decisions_total", `{domain="default",outcome="ok",rule="r"} 8000`)
	m.want("weir_requests_total", `{code="ok",domain="default"} 16000`)
}

func TestHeldRequestsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newCounting(t, "", Options{})
		r := m.Begin()
		done := r.Holding()
		time.Sleep(time.Second)
		m.want("weir_held_requests", " 1")
		if m.Held() != 1 || m.InFlight() != 1 {
			t.Errorf("%d held, %d in flight", m.Held(), m.InFlight())
		}
		done()
		r.End("default", 0, false)
		m.want("weir_held_requests")
		m.want("weir_held_duration_seconds", " 1")
	})
}

func TestQueuesAreAskedBesideTheScrape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newCounting(t, "", Options{})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { m.Metrics.Run(ctx) })
		defer running.Wait()
		defer cancel()
		var away, hangs atomic.Bool
		m.WatchQueues(func(ctx context.Context) ([]QueueState, error) {
			if hangs.Load() {
				<-ctx.Done()
			}
			if away.Load() || hangs.Load() {
				return nil, errors.New("away")
			}
			return []QueueState{{Domain: "d", Rule: "r", Waiting: 3, Capacity: 9, Failed: 1}}, nil
		})
		synctest.Wait()
		known := []string{`weir_queue_capacity{domain="d",rule="r"}`, `weir_queue_failed{domain="d",rule="r"}`, `weir_queue_waiting{domain="d",rule="r"}`}
		look := func(remark string, want []string) {
			t.Helper()
			if got := sortedKeys(m.series("weir_queue_")); !slices.Equal(got, want) {
				t.Errorf("%s: %s", remark, got)
			}
		}
		look("at once", known)
		away.Store(true)
		time.Sleep(queuesInterval + time.Second)
		look("nothing is told while Redis is away", nil)
		away.Store(false)
		time.Sleep(queuesInterval)
		look("it is back", known)
		hangs.Store(true)
		time.Sleep(queuesInterval) // it hangs now
		look("a scrape does not wait", known)
		time.Sleep(queuesInterval)
		look("who does not answer is away", nil)
	})
}

func TestTheStoreAndTheCertificateAreAskedByEachScrape(t *testing.T) {
	m := newCounting(t, "", Options{Version: "v1"})
	if got := m.series("weir_store_up", "weir_tls"); len(got) != 0 {
		t.Errorf("told while there is neither: %v", got)
	}
	state := StoreState{Up: true, Counters: 5, MaxCounters: 10, DenyCached: 2, SweepLock: 250 * time.Microsecond}
	m.WatchStore(func() StoreState { return state })
	m.WatchCertificate(func() time.Time { return time.Unix(1234, 5e8) })
	m.want("weir_store_up", " 1")
	state.Up, state.BreakerOpen = false, true
	m.want("weir_store_up")
	m.want("weir_store_breaker_open", " 1")
	m.want("weir_deny_cache_refusals", " 2")
	m.want("weir_sweep_lock_seconds", " 0.00025")
	state.Leases = LeaseState{Held: 3, Taken: 9, Spent: 4, Returned: 2, Lost: 1, Takes: 5, TakesRefused: 6, TakesFailed: 7}
	m.want("weir_leases", " 3")
	m.want("weir_lease_hits_total", `{fate="taken"} 9`, `{fate="spent"} 4`, `{fate="returned"} 2`, `{fate="lost"} 1`)
	m.want("weir_lease_takes_total", `{result="taken"} 5`, `{result="refused"} 6`, `{result="failed"} 7`)
	m.want("weir_tls_certificate_not_after_timestamp_seconds", " 1234.5")
	m.want("weir_build_info", `{goversion="`+goVersion()+`",version="v1"} 1`)
}

func TestRulesAreTold(t *testing.T) {
	m := newCounting(t, `rules: [{match: {a: "1"}, limit: 5, window: 1s}]`, Options{})
	_ = m.live.Apply("test", rules.ParseSnapshot(map[string][]byte{"rules.yaml": []byte("rules: [{}]")}))
	_ = m.live.Apply("consul://u:secret@h:1/p", rules.ParseSnapshot(map[string][]byte{"c.yaml": []byte(`{domain: d, rules: [{match: {a: "1"}, limit: 5, window: 1s}]}`)}))
	m.want("weir_rules_reloads_total", `{result="failure",source="test"} 1`, `{result="success",source="test"} 1`, `{result="success",source="consul://u:xxxxx@h:1/p"} 1`)
	m.want("weir_rules_last_reload_successful", `{source="consul://u:xxxxx@h:1/p"} 1`)
	m.want("weir_domains", " 2")
	m.want("weir_rules_info", `{version="`+m.live.Current().Version()+`"} 1`)
	for name, at := range m.series("weir_rules_loaded_timestamp_seconds", "weir_rules_source_as_of") {
		if age := float64(time.Now().Unix()) - at; age < -2 || age > 60 {
			t.Errorf("%s is %v s ago", name, age)
		}
	}
}

func TestNilCountsNothing(t *testing.T) {
	var m *Metrics
	r := m.Begin()
	r.Asking()
	r.Decided(nil, nil, nil, nil, false)
	r.Holding()()
	r.End("", 0, false)
	m.Unread(3)
	m.Run(t.Context())
	m.WatchStore(nil)
	m.WatchCertificate(nil)
	m.WatchQueues(nil)
	m.ExpectStoreFailures("timeout")
	m.StoreFailed("timeout")
	m.StoreWaited(1)
	m.StoreHealed(1)
	m.CountersDropped(1)
	m.CounterTurnedAway()
	m.Shed("deadline")
	m.Ingested(nil, 202)
	if m.InFlight()+m.Held()+int64(m.Errors()) != 0 || m.Totals() != nil || m.Queues() != nil {
		t.Error("it has counted")
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusNotFound {
		t.Errorf("status %d", w.Code)
	}
}

// The catalog is what the page and the tests of dashboards go by.
func TestTheCatalogIsWhatIsServed(t *testing.T) {
	m := newCounting(t, `rules: [{name: r, match: {a: "*"}, limit: 5, window: 1s, value_to_metric: true}]`, Options{})
	m.ask("default", "a=1", passed)
	m.Shed("deadline")
	m.StoreFailed("timeout")
	m.Ingested(slices.Collect(m.live.Current().Rules(""))[0], 202)
	m.WatchStore(func() StoreState { return StoreState{} })
	m.WatchCertificate(time.Now)
	m.queueStates.Store(&[]QueueState{{Domain: "d", Rule: "r"}})
	served := map[string]string{}
	for _, family := range m.families() {
		name := family.GetName()
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			continue
		}
		var labels []string
		for _, l := range family.Metric[0].Label {
			labels = append(labels, l.GetName())
		}
		served[name] = strings.ToLower(family.GetType().String()) + " " + strings.Join(labels, ",") + " " + family.GetHelp()
	}
	for _, d := range Catalog() {
		labels := slices.Sorted(slices.Values(d.Labels))
		if want := d.Type + " " + strings.Join(labels, ",") + " " + d.Help; served[d.Name] != want {
			t.Errorf("%s is served as\n%s\nwant\n%s", d.Name, served[d.Name], want)
		}
		delete(served, d.Name)
	}
	for name := range served {
		t.Errorf("%s is not in the catalog", name)
	}
}

// pipes is a listener whose connections keep nothing on the way: what is not read is
// not written.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}
func (pipes) Close() error   { return nil }
func (pipes) Addr() net.Addr { return &net.TCPAddr{} }

func TestScrapersThatDoNotReadKeepNobodyElseFromTheMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conns := make(pipes)
		mux := http.NewServeMux()
		mux.Handle("/metrics", newCounting(t, "", Options{}).Handler())
		mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
		server := &http.Server{Handler: mux}
		served := make(chan error)
		go func() { served <- server.Serve(conns) }()
		scrape := func() net.Conn {
			client, conn := net.Pipe()
			conns <- conn
			_, _ = io.WriteString(client, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
			return client
		}
		read := func(client net.Conn) int {
			resp, err := http.ReadResponse(bufio.NewReader(client), nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			return resp.StatusCode
		}
		var open []net.Conn
		for range maxScrapes {
			open = append(open, scrape())
			synctest.Wait()
		}
		last := scrape()
		if code := read(last); code != http.StatusServiceUnavailable {
			t.Errorf("one more at the same time: %d", code)
		}
		time.Sleep(slowestScrape + time.Second)
		another := scrape()
		if code := read(another); code != http.StatusOK {
			t.Errorf("after those who do not read were cut off: %d", code)
		}
		time.Sleep(slowestScrape + time.Second)
		_, _ = io.WriteString(another, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if code := read(another); code != http.StatusOK {
			t.Errorf("something else on the same connection, later: %d", code)
		}
		for _, conn := range append(open, last, another) {
			conn.Close()
		}
		close(conns)
		_ = server.Close()
		if err := <-served; !errors.Is(err, net.ErrClosed) && !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}
