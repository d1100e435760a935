package xds

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ads "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	pb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"

	"weir/internal/testenv"
	"weir/rules"
)

// eventually waits for what another goroutine will do.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come about", what)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// control is a control plane: a go-control-plane server, as Envoy Gateway has it,
// that can be stopped and started again.
type control struct {
	t     testing.TB
	addr  string
	tls   *tls.Config
	cache cache.SnapshotCache // of the server that runs

	stop func() // ends the server; nil: it does not run

	mu       sync.Mutex
	requests []*ads.DiscoveryRequest // in order, from all streams
	streams  int
}

// newControl starts a control plane that has no rules yet.
func newControl(t testing.TB, config *tls.Config) *control {
	t.Helper()
	c := &control{t: t, addr: testenv.FreeAddr(t), tls: config}
	c.start(nil)
	t.Cleanup(func() {
		if c.stop != nil {
			c.stop()
		}
	})
	return c
}

// start starts the server anew: it knows nothing of before. Prepare may set rules
// before anyone can connect.
func (c *control) start(prepare func()) {
	c.t.Helper()
	c.cache = cache.NewSnapshotCache(false, cache.IDHash{}, nil)
	if prepare != nil {
		prepare()
	}
	c.serve(server.NewServer(c.t.Context(), c.cache, server.CallbackFuncs{
		StreamOpenFunc: func(context.Context, int64, string) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.streams++
			return nil
		},
		StreamRequestFunc: func(_ int64, request *ads.DiscoveryRequest) error {
			c.note(request)
			return nil
		},
	}))
}

// serve serves ADS until stop.
func (c *control) serve(handler ads.AggregatedDiscoveryServiceServer) {
	c.t.Helper()
	listener, err := net.Listen("tcp", c.addr)
	must(c.t, err)
	var options []grpc.ServerOption
	if c.tls != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(c.tls)))
	}
	s := grpc.NewServer(options...)
	ads.RegisterAggregatedDiscoveryServiceServer(s, handler)
	var served sync.WaitGroup
	served.Go(func() { _ = s.Serve(listener) })
	c.stop = func() {
		s.Stop()
		served.Wait()
		c.stop = nil
	}
}

func (c *control) note(request *ads.DiscoveryRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, proto.Clone(request).(*ads.DiscoveryRequest))
}

// set gives the node envoy-ratelimit these rules.
func (c *control) set(version string, configs ...*pb.RateLimitConfig) {
	c.t.Helper()
	list := make([]types.Resource, len(configs))
	for i, config := range configs {
		list[i] = config
	}
	snap, err := cache.NewSnapshot(version, map[resource.Type][]types.Resource{resource.RateLimitConfigType: list})
	must(c.t, err)
	must(c.t, c.cache.SetSnapshot(c.t.Context(), "envoy-ratelimit", snap))
}

// seen returns the requests until now.
func (c *control) seen() []*ads.DiscoveryRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.requests)
}

// kinds writes the requests until now in short: ask, ask 7, ack 8, nack 8.
func (c *control) kinds() []string {
	var kinds []string
	for _, r := range c.seen() {
		switch {
		case r.ErrorDetail != nil:
			kinds = append(kinds, strings.TrimSpace("nack "+r.VersionInfo))
		case r.ResponseNonce != "":
			kinds = append(kinds, strings.TrimSpace("ack "+r.VersionInfo))
		default:
			kinds = append(kinds, strings.TrimSpace("ask "+r.VersionInfo))
		}
	}
	return kinds
}

// awaitRequests waits until the requests in short are these.
func (c *control) awaitRequests(want ...string) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("requests %q (have %q)", want, c.kinds()), func() bool { return slices.Equal(c.kinds(), want) })
}

// limit is a resource with one rule: 1 a second for key=value.
func limit(domain, value string) *pb.RateLimitConfig {
	return &pb.RateLimitConfig{Name: domain, Domain: domain, Descriptors: []*pb.RateLimitDescriptor{{
		Key: "key", Value: value, RateLimit: &pb.RateLimitPolicy{Unit: pb.RateLimitUnit_SECOND, RequestsPerUnit: 1},
	}}}
}

// faulty is a resource that does not compile.
func faulty(domain string) *pb.RateLimitConfig {
	config := limit(domain, "x")
	config.Descriptors[0].RateLimit.Unit = pb.RateLimitUnit_UNKNOWN
	return config
}

// following is a source that runs, and the Live that it feeds.
type following struct {
	t    testing.TB
	live *rules.Live
	log  *lockedBuffer

	mu      sync.Mutex
	applied []error // of each apply
}

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// quick are the timings of tests in which nothing depends on them.
var quick = timings{
	pause: 100 * time.Millisecond, reask: 100 * time.Millisecond, quiet: time.Minute,
	backoff: 20 * time.Millisecond, backoffTo: 200 * time.Millisecond,
}

// follow runs a source until the test ends.
func follow(t testing.TB, url string, options Options, times timings) *following {
	t.Helper()
	f := &following{t: t, live: rules.NewLive(rules.LiveOptions{}), log: &lockedBuffer{}}
	options.Logger = slog.New(slog.NewTextHandler(f.log, nil))
	source, err := New(url, options)
	must(t, err)
	source.times = times
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- source.Run(ctx, func(snap rules.Snapshot) error {
			err := f.live.Apply("xds", snap)
			f.mu.Lock()
			defer f.mu.Unlock()
			f.applied = append(f.applied, err)
			return err
		})
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("Run does not end with its context")
		}
	})
	return f
}

// applies is how often apply was called, and with how many refusals.
func (f *following) applies() (all, refused int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, err := range f.applied {
		if err != nil {
			refused++
		}
	}
	return len(f.applied), refused
}

// awaitApplies waits until apply was called so often, with so many refusals.
func (f *following) awaitApplies(all, refused int) {
	f.t.Helper()
	eventually(f.t, fmt.Sprintf("%d applies with %d refused", all, refused), func() bool {
		a, r := f.applies()
		if a > all || r > refused {
			f.t.Fatalf("%d applies with %d refused, want %d and %d: %v", a, r, all, refused, f.applied)
		}
		return a == all && r == refused
	})
}

// status is what operators see of the source.
func (f *following) status() rules.SourceStatus { return f.live.Status().Sources["xds"] }

// has tells whether key=value has a rule in a domain.
func (f *following) has(domain, value string) bool {
	return f.live.Current().Explain(domain, []rules.Entry{{Key: "key", Value: value}}).Rule != nil
}

// holds compares the rules in force, each as domain/value.
func (f *following) holds(want ...string) {
	f.t.Helper()
	if _, n := f.live.Current().Size(); n != len(want) {
		f.t.Fatalf("%d rules in force, want %q", n, want)
	}
	for _, w := range want {
		domain, value, _ := strings.Cut(w, "/")
		if !f.has(domain, value) {
			f.t.Fatalf("%s is not in force", w)
		}
	}
}
