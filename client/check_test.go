package client_test

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	weirv1 "weir/api/weir/v1"
	"weir/client"
	"weir/internal/testenv"
	"weir/server"
)

const slow = `
rules:
  - {name: slow, match: {endpoint: "*"}, limit: 1, window: 2s, algorithm: leaky_bucket, queue: 3}
`

func TestARequestIsHeldForItsTurnButNotLongerThanTheTimeout(t *testing.T) {
	w := start(t, setup{rules: slow, realTime: true, client: client.Options{Timeout: time.Second}})
	patient := w.WithTimeout(time.Minute)
	about := client.Describe("endpoint", "/orders")
	for _, step := range []struct {
		client *client.Client
		want   bool
		delay  bool
		remark string
	}{
		{patient, true, false, "the first passes at once"},
		{w.Client, false, false, "the second would wait two seconds: refused at once"},
		{patient, true, true, "who has the time is held"},
	} {
		begin := time.Now()
		d, err := step.client.Check(t.Context(), "default", about)
		if err != nil || d.Failure != nil || d.Allowed != step.want {
			t.Fatalf("%+v, %v: %s", d, err, step.remark)
		}
		if held := d.Response.Decisions[0].Delay.AsDuration(); held > 0 != step.delay || time.Since(begin) < held {
			t.Errorf("held for %v of %v: %s", time.Since(begin), held, step.remark)
		}
	}
}

func TestACallerWhoLeftIsNoFailureOfWeir(t *testing.T) {
	var failed counted
	w := start(t, setup{rules: slow, realTime: true, client: failed.options(client.Options{Timeout: time.Minute})})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	brief, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	for range 20 { // more than would have Weir not be asked any more
		if d, err := w.Check(gone, "default", client.Describe("endpoint", "/")); grpcstatus.Code(err) != grpccodes.Canceled || d.Allowed {
			t.Fatalf("cancelled: %+v, %v", d, err)
		}
		if d, err := w.Check(brief, "default", client.Describe("endpoint", "/")); grpcstatus.Code(err) != grpccodes.DeadlineExceeded || d.Allowed {
			t.Fatalf("in a hurry: %+v, %v", d, err)
		}
	}
	if d, err := w.Check(t.Context(), "default", client.Describe("endpoint", "/")); err != nil || d.Failure != nil || failed.n.Load() != 0 {
		t.Errorf("then %+v, %v, with %d failures", d, err, failed.n.Load())
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(gone)
	answer := httptest.NewRecorder()
	if w.Handler(hello, client.HTTPOptions{}).ServeHTTP(answer, r); answer.Code != http.StatusServiceUnavailable {
		t.Errorf("the handler answers %d", answer.Code)
	}
}

// late is a Weir that sees the deadline pass before its caller does.
type late struct {
	weirv1.UnimplementedWeirServiceServer
}

func (late) Check(context.Context, *weirv1.CheckRequest) (*weirv1.CheckResponse, error) {
	return nil, grpcstatus.Error(grpccodes.DeadlineExceeded, "too late")
}

func TestWhoseDeadlinePassedIsNotAMatterOfWhoSeesItFirst(t *testing.T) {
	s := grpc.NewServer()
	weirv1.RegisterWeirServiceServer(s, late{})
	c := newClient(t, client.Options{Addr: serve(t, s), Timeout: time.Minute})
	hasty, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if d, err := c.Check(hasty, "default", client.Describe("a")); grpcstatus.Code(err) != grpccodes.DeadlineExceeded || d.Allowed {
		t.Errorf("the caller's: %+v, %v", d, err)
	}
	if d, err := c.Check(t.Context(), "default", client.Describe("a")); err != nil || !d.Allowed || d.Failure == nil {
		t.Errorf("the client's: %+v, %v", d, err)
	}
}

func TestWhatMakesNoSenseDoesNotPassByThePolicy(t *testing.T) {
	var failed counted
	w := start(t, setup{rules: slow, client: failed.options(client.Options{OnFailure: client.Allow})})
	for _, domain := range []string{"", "default"} {
		about := client.Describe("", "a key that is empty")
		if d, err := w.Check(t.Context(), domain, about); grpcstatus.Code(err) != grpccodes.InvalidArgument || d.Allowed || failed.n.Load() > 0 {
			t.Errorf("domain %q: %+v, %v, %d failures", domain, d, err, failed.n.Load())
		}
	}
}

func TestOptionsThatMakeNoSenseAreErrors(t *testing.T) {
	for _, o := range []client.Options{{Timeout: -1}, {OnFailure: 9}, {Addr: "no\x00where"}} {
		if c, err := client.New(o); err == nil {
			c.Close()
			t.Errorf("%+v is taken", o)
		}
	}
}

func TestTheConnectionMayBeTLSWithACertificateOfItsOwn(t *testing.T) {
	dir := t.TempDir()
	authority := testenv.NewAuthority(t)
	files := authority.MustIssue(t, dir, testenv.Leaf{})
	certs, err := server.LoadCertificates(server.CertificateOptions{CertFile: files.Cert, KeyFile: files.Key, ClientCAFile: files.CA})
	if err != nil {
		t.Fatal(err)
	}
	mine, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	grpcOptions := server.GRPCOptions{Certificates: certs}
	for _, c := range []struct {
		remark string
		tls    *tls.Config
		works  bool
	}{
		{"with a certificate", &tls.Config{RootCAs: authority.Pool, Certificates: []tls.Certificate{mine}}, true},
		{"without", &tls.Config{RootCAs: authority.Pool}, false},
		{"plain text", nil, false},
	} {
		w := start(t, setup{rules: slow, grpc: grpcOptions, client: client.Options{TLS: c.tls, OnFailure: client.Error}})
		d, err := w.Check(t.Context(), "default", client.Describe("endpoint", "/"))
		if (err == nil && d.Allowed) != c.works {
			t.Errorf("%s: %+v, %v", c.remark, d, err)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	w := start(b, setup{rules: "rules:\n  - {match: {endpoint: '*'}, limit: 4294967295, window: 60s}\n"})
	if err := w.WaitReady(b.Context()); err != nil {
		b.Fatal(err)
	}
	h := w.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), client.HTTPOptions{})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			get(h, "/posts")
		}
	})
}
