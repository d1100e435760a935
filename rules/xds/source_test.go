package xds

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc/codes"

	"weir/internal/testenv"
	"weir/rules"
)

func TestURLsAreReadOrRefusedWithTheReason(t *testing.T) {
	for _, row := range []struct {
		url, addr string
		tls       bool
		fault     string
	}{
		{url: "xds://envoy-gateway:18001", addr: "envoy-gateway:18001"},
		{url: "xds://envoy-gateway", addr: "envoy-gateway:18001"},
		{url: "xds://10.0.0.1:1/", addr: "10.0.0.1:1"},
		{url: "xds+tls://[::1]", addr: "[::1]:18001", tls: true},
		{url: "", fault: "the scheme of a control plane's URL is xds://"},
		{url: "http://host:1", fault: "the scheme"},
		{url: "xds:host:1", fault: "there is no host"},
		{url: "xds://", fault: "there is no host; write xds://host:18001"},
		{url: "xds://:18001", fault: "there is no host"},
		{url: "xds://host:0", fault: "a port is a number from 1 to 65535"},
		{url: "xds://host:65536", fault: "a port is a number"},
		{url: "xds://host:x", fault: "not a URL such as xds://host:18001"},
		{url: "xds://me:secret@host", fault: "xds://me:xxxxx@host: a control plane takes no user or password"},
		{url: "xds://host/path", fault: "nothing may follow host and port"},
		{url: "xds://host?a=b", fault: "nothing may follow host and port"},
		{url: "xds://host#a", fault: "nothing may follow host and port"},
	} {
		addr, tls, err := ParseURL(row.url)
		if addr != row.addr || tls != row.tls || (err == nil) != (row.fault == "") || err != nil && !strings.Contains(err.Error(), row.fault) {
			t.Errorf("%q: %q, %v, %v", row.url, addr, tls, err)
		}
	}
}

func TestWhatCanNeverWorkIsRefusedAtOnce(t *testing.T) {
	for _, row := range []struct {
		url     string
		options Options
		fault   string
	}{
		{"consul://host", Options{}, "the scheme"},
		{"xds+tls://host", Options{CertFile: "cert.pem"}, "needs both"},
		{"xds+tls://host", Options{KeyFile: "key.pem"}, "needs both"},
		{"xds://host", Options{CAFile: "ca.pem"}, "write xds+tls://host:18001"},
		{"xds://host", Options{ServerName: "x"}, "write xds+tls://host:18001"},
	} {
		if _, err := New(row.url, row.options); err == nil || !strings.Contains(err.Error(), row.fault) {
			t.Errorf("%s %+v: %v, want %q", row.url, row.options, err, row.fault)
		}
	}
	if _, err := New("xds://host", Options{TLS: true, CAFile: "not there yet"}); err != nil {
		t.Errorf("TLS by option: %v", err)
	}
}

func TestRulesAreInForceWithinASecondOfTheirPush(t *testing.T) {
	t.Parallel()
	c := newControl(t, nil)
	f := follow(t, "xds://"+c.addr, Options{}, quick)
	c.awaitRequests("ask")
	var slowest time.Duration
	for i := range 20 {
		value := fmt.Sprint("v", i)
		begin := time.Now()
		c.set(fmt.Sprint(i+1), limit("api", value), limit("web", value))
		eventually(t, "the push", func() bool { return f.has("api", value) })
		slowest = max(slowest, time.Since(begin))
		f.holds("api/"+value, "web/"+value)
		if got := f.status(); got.Version != fmt.Sprint(i+1) || got.Documents != 2 || got.LastError != "" {
			t.Fatalf("status %+v", got)
		}
	}
	t.Logf("the slowest of 20 took %v", slowest)
	if slowest > time.Second {
		t.Errorf("a push took %v", slowest)
	}
	eventually(t, "the last ACK", func() bool { return slices.Contains(c.kinds(), "ack 20") })
	for i, r := range c.seen() {
		want := "" // of the first
		if i > 0 {
			want = fmt.Sprint(i)
		}
		if r.GetNode().GetId() != "envoy-ratelimit" || r.TypeUrl != typeURL || r.VersionInfo != want || r.ResponseNonce != want || r.ErrorDetail != nil {
			t.Errorf("request %d: %v", i, r)
		}
	}
	f.awaitApplies(20, 0)
}

func TestTenThousandRulesComeIntoForceAtOnce(t *testing.T) {
	c := newControl(t, nil)
	f := follow(t, "xds://"+c.addr, Options{}, quick)
	configs := make([]*pb.RateLimitConfig, 500)
	for i := range configs {
		configs[i] = limit(fmt.Sprint("domain-", i), "v0")
		for n := 1; n < 20; n++ {
			configs[i].Descriptors = append(configs[i].Descriptors, limit("", fmt.Sprint("v", n)).Descriptors...)
		}
	}
	begin := time.Now()
	c.set("1", configs...)
	eventually(t, "the push", func() bool { return f.has("domain-499", "v19") })
	t.Logf("it took %v", time.Since(begin))
}

func TestARefusedPushIsNackedAndTheLastGoodRulesStay(t *testing.T) {
	t.Parallel()
	c := newControl(t, nil)
	times := quick
	times.pause = time.Second
	f := follow(t, "xds://"+c.addr, Options{}, times)
	c.set("1", limit("api", "a"))
	c.awaitRequests("ask", "ack 1")
	begin := time.Now()
	c.set("2", limit("web", "b"), faulty("api"))
	c.awaitRequests("ask", "ack 1", "nack 1")
	if waited := time.Since(begin); waited < times.pause/2 {
		t.Errorf("the NACK came after %v", waited)
	}
	f.holds("api/a")
	nack := c.seen()[2]
	wantFault := "xds://" + c.addr + `/api:7:13: unknown unit "UNKNOWN"`
	if nack.ResponseNonce != "2" || nack.ErrorDetail.Code != int32(codes.InvalidArgument) || !strings.Contains(nack.ErrorDetail.Message, wantFault) {
		t.Errorf("the NACK is %v, want %q", nack, wantFault)
	}
	if got := f.status(); got.Version != "1" || !strings.Contains(got.LastError, wantFault) {
		t.Errorf("status %+v", got)
	}
	// The server sends the same again after each NACK. It is not applied again.
	c.awaitRequests("ask", "ack 1", "nack 1", "nack 1", "nack 1")
	if took := time.Since(begin); took < 3*times.pause/2 {
		t.Errorf("three NACKs took %v", took)
	}
	for i, r := range c.seen()[2:] {
		if r.ResponseNonce != fmt.Sprint(i+2) {
			t.Errorf("NACK %d has the nonce %s", i, r.ResponseNonce)
		}
	}
	f.awaitApplies(2, 1)
	// A good one after a bad one.
	begin = time.Now()
	c.set("3", limit("api", "c"))
	eventually(t, "the good push", func() bool { return f.has("api", "c") })
	t.Logf("the good one was in force after %v", time.Since(begin))
	if took := time.Since(begin); took > 5*times.pause {
		t.Errorf("the good one took %v", took)
	}
	f.holds("api/c")
	f.awaitApplies(3, 1)
	if got := f.status(); got.Version != "3" || got.LastError != "" {
		t.Errorf("status %+v", got)
	}
}

func TestBackToTheRulesInForceEndsARefusal(t *testing.T) {
	t.Parallel()
	c := newControl(t, nil)
	f := follow(t, "xds://"+c.addr, Options{}, quick)
	c.set("1", limit("api", "a"))
	f.awaitApplies(1, 0)
	c.set("2", faulty("api"))
	f.awaitApplies(2, 1)
	c.set("3", limit("api", "a"))
	f.awaitApplies(3, 1)
	eventually(t, "the end of the refusal", func() bool { return f.status().LastError == "" && f.status().Version == "3" })
	f.holds("api/a")
}

func TestTheSameRulesAgainAreNoReload(t *testing.T) {
	t.Parallel()
	c := newControl(t, nil)
	f := follow(t, "xds://"+c.addr, Options{}, quick)
	c.set("1", limit("api", "a"), limit("web", "b"))
	f.awaitApplies(1, 0)
	c.set("2", limit("web", "b"), limit("api", "a"))
	eventually(t, "the new version", func() bool { return f.status().Version == "2" })
	c.awaitRequests("ask", "ack 1", "ack 2")
	if reloads := f.live.Status().Reloads; reloads != 1 {
		t.Errorf("%d reloads", reloads)
	}
}

func TestAnEmptySetClearsAllRules(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2", ""} { // a snapshot without the type has no version
		c := newControl(t, nil)
		f := follow(t, "xds://"+c.addr, Options{}, quick)
		c.set("1", limit("api", "a"))
		f.awaitApplies(1, 0)
		c.set(version)
		f.awaitApplies(2, 0)
		f.holds()
		c.awaitRequests("ask", "ack 1", strings.TrimSpace("ack "+version))
		c.set("3", limit("api", "c"))
		f.awaitApplies(3, 0)
		f.holds("api/c")
	}
}

func TestResourcesOfOneDomainMergeAndOnePathTwiceNamesBoth(t *testing.T) {
	t.Parallel()
	c := newControl(t, nil)
	f := follow(t, "xds://"+c.addr, Options{}, quick)
	one, two := limit("api", "a"), limit("api", "b")
	one.Name, two.Name = "one", "two"
	c.set("1", one, two)
	f.awaitApplies(1, 0)
	f.holds("api/a", "api/b")
	again := limit("api", "a")
	again.Name = "again"
	c.set("2", one, two, again)
	f.awaitApplies(2, 1)
	url := "xds://" + c.addr
	if got, want := f.status().LastError, url+"/one:3:5: the path key=a has a rule already, at "+url+"/again:3:5"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	f.holds("api/a", "api/b")
}

func TestAServerThatComesBackHasItsNewestRulesTaken(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		remark  string
		version string // that the server comes back with; it left with 1
		values  []string
		want    []string // requests after those of before
	}{
		{"it has another version", "2", []string{"b"}, []string{"ask 1", "ack 2"}},
		{"its numbers began anew", "1", []string{"b"}, []string{"ask 1", "ack 1"}},
		{"and it has no rules any more", "1", nil, []string{"ask 1", "ask", "ack 1"}},
		{"it has the same", "1", []string{"a"}, []string{"ask 1", "ack 1"}},
		{"the same in another version", "2", []string{"a"}, []string{"ask 1", "ack 2"}},
	} {
		t.Run(row.remark, func(t *testing.T) {
			t.Parallel()
			c := newControl(t, nil)
			f := follow(t, "xds://"+c.addr, Options{}, quick)
			c.set("1", limit("api", "a"))
			c.awaitRequests("ask", "ack 1")
			c.stop()
			// It is told once that the server is away, and nothing is lost.
			f.awaitApplies(2, 1)
			if got := f.status().LastError; !strings.Contains(got, "xds://"+c.addr+": no stream of rules: ") || !strings.HasSuffix(got, "; the last good rules stay") {
				t.Error(got)
			}
			f.holds("api/a")
			c.start(func() {
				var configs []*pb.RateLimitConfig
				for _, v := range row.values {
					configs = append(configs, limit("api", v))
				}
				c.set(row.version, configs...)
			})
			c.awaitRequests(append([]string{"ask", "ack 1"}, row.want...)...)
			f.awaitApplies(3, 1)
			if got := f.status(); got.LastError != "" || got.Version != row.version || len(row.values) != got.Documents {
				t.Errorf("status %+v", got)
			}
			for _, v := range row.values {
				f.holds("api/" + v)
			}
			if first := c.seen()[2]; first.ResponseNonce != "" {
				t.Errorf("the first request of the new stream has a nonce: %v", first)
			}
			// What it pushes from now on is taken as ever.
			c.set("9", limit("api", "z"))
			eventually(t, "the next push", func() bool { return f.has("api", "z") })
		})
	}
}

func TestAStreamThatIsSoonBackIsNoProblem(t *testing.T) {
	t.Parallel()
	c := newControl(t, nil)
	times := quick
	times.backoff, times.backoffTo = 3*time.Second, 3*time.Second
	f := follow(t, "xds://"+c.addr, Options{}, times)
	c.set("1", limit("api", "a"))
	c.awaitRequests("ask", "ack 1")
	c.stop()
	c.start(func() { c.set("1", limit("api", "a")) })
	c.awaitRequests("ask", "ack 1", "ask 1", "ack 1")
	f.awaitApplies(1, 0)
	if !strings.Contains(f.log.String(), "the stream of rules ended") {
		t.Errorf("the log says %q", f.log)
	}
}

func TestAwayIsToldOnceHoweverLong(t *testing.T) {
	t.Parallel()
	addr := testenv.FreeAddr(t)
	times := quick
	times.backoffTo = 20 * time.Millisecond
	f := follow(t, "xds://"+addr, Options{}, times)
	f.awaitApplies(1, 1)
	if got := f.status().LastError; !strings.Contains(got, "connection refused") || strings.Contains(got, "last good") {
		t.Error(got)
	}
	time.Sleep(15 * times.backoffTo) // nothing is to happen, which cannot be polled for
	f.awaitApplies(1, 1)
}

func TestAServerWithoutRulesForTheNodeIsToldOf(t *testing.T) {
	t.Parallel()
	c := newControl(t, nil)
	c.set("1", limit("api", "a")) // for envoy-ratelimit
	times := quick
	times.quiet = 200 * time.Millisecond
	f := follow(t, "xds://"+c.addr, Options{NodeID: "another"}, times)
	f.awaitApplies(1, 1)
	if got, want := f.status().LastError, "xds://"+c.addr+`: connected, but the server has sent no rules yet; it may have none for the node id "another"`; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	f.holds()
	time.Sleep(2 * times.quiet) // once is enough
	f.awaitApplies(1, 1)
	c.awaitRequests("ask")
	if got := c.seen()[0].GetNode().GetId(); got != "another" {
		t.Errorf("it asks as %q", got)
	}
}

func TestAServerWithNoRulesAndNoVersionMayStaySilent(t *testing.T) {
	t.Parallel()
	c := newControl(t, nil)
	times := quick
	times.quiet = 300 * time.Millisecond
	c.set("1", limit("api", "a"))
	f := follow(t, "xds://"+c.addr, Options{}, times)
	f.awaitApplies(1, 0)
	c.set("") // as Envoy Gateway does when the last rule is gone
	f.awaitApplies(2, 0)
	c.stop()
	f.awaitApplies(3, 1)
	c.start(func() { c.set("") })
	f.awaitApplies(4, 1)
	if got := f.status().LastError; got != "" {
		t.Error(got)
	}
}

func TestRunEndsAtOnceWhereverItIs(t *testing.T) {
	t.Parallel()
	silent := newControl(t, nil)
	refusing := newControl(t, nil)
	refusing.set("1", faulty("api"))
	for _, addr := range []string{silent.addr, refusing.addr, testenv.FreeAddr(t)} {
		source, err := New("xds://"+addr, Options{})
		must(t, err)
		source.times.pause, source.times.backoff, source.times.backoffTo = time.Hour, time.Hour, time.Hour
		ctx, cancel := context.WithCancel(t.Context())
		reached := make(chan struct{}, 10)
		ended := make(chan error)
		go func() {
			ended <- source.Run(ctx, func(s rules.Snapshot) error {
				reached <- struct{}{}
				return s.Faults
			})
		}()
		if addr == silent.addr {
			silent.awaitRequests("ask")
		} else {
			<-reached
		}
		begin := time.Now()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("it took %v to end", took)
		}
	}
}

// A set that another source is in the way of is refused; once that one has
// changed, it is in force, and the server is told so.
func TestWhatAnotherSourceMadeRoomForIsAcknowledged(t *testing.T) {
	t.Parallel()
	c := newControl(t, nil)
	f := follow(t, "xds://"+c.addr, Options{}, quick)
	c.set("1", limit("api", "a"))
	c.awaitRequests("ask", "ack 1")
	file := func(value string) rules.Snapshot {
		return rules.ParseSnapshot(map[string][]byte{"f.yaml": fmt.Appendf(nil, "domain: api\ndescriptors: [{key: key, value: %s, unlimited: true}]", value)})
	}
	must(t, f.live.Apply("file", file("b")))
	c.set("2", limit("api", "b"))
	c.awaitRequests("ask", "ack 1", "nack 1")
	must(t, f.live.Apply("file", file("z")))
	if !f.has("api", "b") {
		t.Error("the rules are not in force")
	}
	eventually(t, "it is acknowledged", func() bool { kinds := c.kinds(); return kinds[len(kinds)-1] == "ack 2" })
}
