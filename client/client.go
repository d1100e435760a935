// Package client asks Weir whether requests may pass, for services that have no
// Envoy in front: from net/http, from gRPC servers, or by hand.
//
//	weir, err := client.New(client.Options{Addr: "127.0.0.1:8081"})
//	…
//	defer weir.Close()
//	http.ListenAndServe(":8000", weir.Handler(mux, client.HTTPOptions{}))
//
// A request waits for the answer for Options.Timeout at most. Where there is none,
// Options.OnFailure decides, by default that it passes: Weir away never takes the
// service down with it.
package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	grpcstatus "google.golang.org/grpc/status"

	weirv1 "weir/api/weir/v1"
)

// DefaultAddr is where `weir serve` serves gRPC unless told otherwise.
const DefaultAddr = "127.0.0.1:8081"

// DefaultTimeout is Envoy's default for the same question.
const DefaultTimeout = 20 * time.Millisecond

// DefaultDomain is that of rules that name none.
const DefaultDomain = "default"

// FailurePolicy decides requests that Weir did not.
type FailurePolicy uint8

const (
	Allow FailurePolicy = iota // they pass
	Deny                       // they are refused: 429, RESOURCE_EXHAUSTED
	Error                      // they fail: 503, UNAVAILABLE
)

// Options configures a Client. The zero value is its default.
type Options struct {
	// Where Weir serves gRPC: host:port, unix:PATH, or any target of gRPC. Calls
	// are spread over all the addresses that a name has. Empty: DefaultAddr.
	Addr string
	// To connect with TLS, with a certificate of one's own where the server asks
	// for one. nil: plain text.
	TLS *tls.Config
	// How long a request may wait for its decision, with all that this takes: to
	// connect, and to be held for its turn by a leaky_bucket limit, which refuses
	// at once what it would hold longer. 0: DefaultTimeout.
	Timeout time.Duration
	// What becomes of a request that gets no decision in that time. It decides too
	// where Weir answers with an error, but for INVALID_ARGUMENT: see Check.
	OnFailure FailurePolicy
	// The server's admin token. Only HTTPOptions.Enqueue needs it.
	Token string
	// Failed is told of each request that OnFailure decides, to count them. It is
	// called while the request waits, by many at once. nil: nobody is.
	Failed func(error)
	// Where failures are told: the first, then one line in ten seconds at most.
	// nil: slog.Default.
	Logger *slog.Logger
	// More options of the connection, such as a stats handler. They win over the
	// options above.
	DialOptions []grpc.DialOption
}

// Client asks one Weir, or several that share their counters. It is safe for
// concurrent use. Close it.
type Client struct {
	conn      *grpc.ClientConn
	api       weirv1.WeirServiceClient
	timeout   time.Duration
	onFailure FailurePolicy
	token     string
	failures  *failures
	circuit   *circuit
}

// New returns a client that begins to connect and does not wait for it: a Weir that
// is away is a failure like any other, and is found when it comes. Errors: options
// that make no sense.
func New(o Options) (*Client, error) {
	if o.Timeout < 0 {
		return nil, fmt.Errorf("weir client: Timeout %v: it is over 0, or 0 for %v", o.Timeout, DefaultTimeout)
	}
	if o.OnFailure > Error {
		return nil, fmt.Errorf("weir client: OnFailure %d: it is Allow, Deny or Error", o.OnFailure)
	}
	transport := insecure.NewCredentials()
	if o.TLS != nil {
		transport = credentials.NewTLS(o.TLS)
	}
	dial := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithIdleTimeout(0), // who comes after a quiet half hour need not wait for a connection
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 2 * time.Second,
		}),
		// Finds a Weir that vanished without closing its connection.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 2 * time.Second, PermitWithoutStream: true}),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`),
		grpc.WithDisableServiceConfig(), // no look-up of one in the DNS
	}
	addr := cmp.Or(o.Addr, DefaultAddr)
	conn, err := grpc.NewClient(addr, append(dial, o.DialOptions...)...)
	if err != nil {
		return nil, fmt.Errorf("weir client: Addr %q: %w", addr, err)
	}
	conn.Connect()
	return &Client{
		conn: conn, api: weirv1.NewWeirServiceClient(conn),
		timeout: cmp.Or(o.Timeout, DefaultTimeout), onFailure: o.OnFailure, token: o.Token,
		failures: newFailures(addr, o), circuit: &circuit{begin: time.Now()},
	}, nil
}

// Close ends the connection. Requests that still come are decided by OnFailure.
func (c *Client) Close() error { return c.conn.Close() }

// WithTimeout returns a client of the same connection with another timeout, for
// routes that leaky_bucket limits hold: what is not answered holds a request up as
// long. 0 is DefaultTimeout. Only the first need be closed.
func (c *Client) WithTimeout(d time.Duration) *Client {
	other := *c
	other.timeout = cmp.Or(max(0, d), DefaultTimeout)
	return &other
}

// WaitReady waits until the client is connected. Services need not call it; they
// may, so that their first requests are decided by Weir. Errors: the context's.
func (c *Client) WaitReady(ctx context.Context) error {
	for {
		state := c.conn.GetState()
		if state == connectivity.Ready {
			return nil
		}
		if state == connectivity.Shutdown {
			return errors.New("weir client: it is closed")
		}
		if !c.conn.WaitForStateChange(ctx, state) {
			return fmt.Errorf("weir client: connecting: %w", ctx.Err())
		}
	}
}

// Describe returns a descriptor of keys and values in turn, of any bytes; a last key
// without a value stands alone. None of the keys is empty.
//
//	client.Describe("endpoint", "/api/posts", "user", "alice")
func Describe(keysAndValues ...string) *weirv1.Descriptor {
	d := &weirv1.Descriptor{Entries: make([]*weirv1.Entry, 0, (len(keysAndValues)+1)/2)}
	for i := 0; i < len(keysAndValues); i += 2 {
		value := ""
		if i+1 < len(keysAndValues) {
			value = keysAndValues[i+1]
		}
		d.Entries = append(d.Entries, weirv1.NewEntry(keysAndValues[i], value))
	}
	return d
}

// Decision is what becomes of a request.
type Decision struct {
	// The request may pass.
	Allowed bool
	// What Weir said. Not nil; where Failure is set it is empty.
	Response *weirv1.CheckResponse
	// Why Weir did not decide and OnFailure did. nil: Weir decided.
	Failure error
}

// Queued tells that the request is over the limit of a rule with over_limit: queue,
// and has its place in the queue: it is not to pass now, though Weir says allowed.
func (d *Decision) Queued() bool { return d.Response.GetQueue() != "" }

// Check asks whether a request of these descriptors may pass, and charges it. It
// returns when the request's turn has come, and after the timeout at most. Errors:
//   - the context's own, when it ends first;
//   - INVALID_ARGUMENT, where the request makes no sense to Weir, be it by a
//     mistake or because a client sent more than Weir takes: OnFailure has no say,
//     for who sends such requests could otherwise pass without a limit;
//   - with OnFailure Error, why there is no decision. All are gRPC statuses.
func (c *Client) Check(ctx context.Context, domain string, descriptors ...*weirv1.Descriptor) (Decision, error) {
	if !c.circuit.mayAsk() {
		return c.decide(errNotAsked)
	}
	own, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	resp, err := c.api.Check(own, &weirv1.CheckRequest{Domain: domain, Descriptors: descriptors})
	if err == nil {
		c.circuit.answered()
		return Decision{Allowed: resp.Allowed, Response: resp}, nil
	}
	code := grpcstatus.Code(err)
	switch {
	case ctx.Err() != nil:
		return refused(), grpcstatus.FromContextError(ctx.Err()).Err()
	case code == codes.DeadlineExceeded && shorter(ctx, own): // and told by Weir first
		return refused(), err
	case code == codes.DeadlineExceeded:
		c.circuit.missed()
	default:
		c.circuit.answered() // or known to be away, which takes no time
	}
	if code == codes.InvalidArgument {
		return refused(), err
	}
	return c.decide(err)
}

// shorter tells whether a context ends before the timeout: a caller in a hurry
// says nothing of Weir.
func shorter(ctx, own context.Context) bool {
	callers, ok := ctx.Deadline()
	ours, _ := own.Deadline()
	return ok && !callers.After(ours)
}

func refused() Decision { return Decision{Response: &weirv1.CheckResponse{}} }

// decide is the policy's decision.
func (c *Client) decide(err error) (Decision, error) {
	c.failures.note(err)
	d := refused()
	if c.onFailure == Error {
		return d, grpcstatus.Errorf(codes.Unavailable, "asking Weir: %s", grpcstatus.Convert(err).Message())
	}
	d.Allowed, d.Failure = c.onFailure == Allow, err
	return d, nil
}
