package soak

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weir/bench/load"
)

func descriptor(key, value string) *rlcommon.RateLimitDescriptor {
	return &rlcommon.RateLimitDescriptor{Entries: []*rlcommon.RateLimitDescriptor_Entry{{Key: key, Value: value}}}
}

func request(ds ...*rlcommon.RateLimitDescriptor) *rls.RateLimitRequest {
	return &rls.RateLimitRequest{Domain: "soak", Descriptors: ds}
}

var algorithms = []string{"fixed", "counter", "log", "token", "leaky"}

// client is one of the workers that send the mix.
type client struct {
	*soak
	random *rand.Rand
	zipf   *rand.Zipf
}

func (s *soak) client(n uint64) *client {
	random := rand.New(rand.NewPCG(n, 7))
	return &client{s, random, rand.NewZipf(random, 1.1, 1, zipfValues-1)}
}

const zipfValues = 5000

// kind is one kind of request, with how many of a hundred are of it.
type kind struct {
	name   string
	share  int
	untold bool // its time is no latency: it is held, or leaves
	send   func(c *client, ctx context.Context, w *weir) error
}

// newShare is how many of a hundred requests bring a value that never was before.
const newShare = 15

// mix is what is sent. Shares add up to 100.
var mix = []kind{
	{"zipf", 38, false, (*client).known},
	{"new", newShare, false, (*client).unknown},
	{"several", 15, false, (*client).several},
	{"leased", 12, false, (*client).leased},
	{"moving", 6, false, (*client).moving},
	{"tried", 2, false, (*client).tried},
	{"json", 2, false, (*client).json},
	{"held", 3, true, (*client).held},
	{"leaves", 4, true, (*client).leaves},
	{"hangs up", 1, true, (*client).hangsUp},
	{"bad", 2, true, (*client).bad},
}

// drawKind draws by shares.
func (c *client) drawKind() kind {
	n := c.random.IntN(100)
	for _, k := range mix {
		if n -= k.share; n < 0 {
			return k
		}
	}
	return mix[0]
}

func (c *client) zipfValue() string { return fmt.Sprint("z", c.zipf.Uint64()) }
func (c *client) newValue() string  { return fmt.Sprint("n", c.newValues.Add(1)) }

func answered(_ *rls.RateLimitResponse, err error) error { return err }

func (c *client) known(ctx context.Context, w *weir) error {
	return answered(w.ask(ctx, request(descriptor(algorithms[c.random.IntN(5)], c.zipfValue()))))
}

func (c *client) unknown(ctx context.Context, w *weir) error {
	return answered(w.ask(ctx, request(descriptor(algorithms[c.random.IntN(5)], c.newValue()))))
}

func (c *client) several(ctx context.Context, w *weir) error {
	return answered(w.ask(ctx, request(descriptor("fixed", c.zipfValue()), descriptor("token", c.zipfValue()), descriptor("broken", c.zipfValue()), descriptor("no", "rule"))))
}

func (c *client) leased(ctx context.Context, w *weir) error {
	return answered(w.ask(ctx, request(descriptor("leased", fmt.Sprint(c.random.IntN(5))))))
}

func (c *client) moving(ctx context.Context, w *weir) error {
	g := fmt.Sprintf("%d-%d", c.generation.Load(), c.random.IntN(generation))
	return answered(w.ask(ctx, request(descriptor("moving", c.zipfValue()), descriptor("generation", g))))
}

func (c *client) tried(ctx context.Context, w *weir) error {
	return answered(w.ask(ctx, request(descriptor("tried", c.zipfValue()), descriptor("told", c.newValue()))))
}

// held is a request that waits for its turn, for up to 0.2 s.
func (c *client) held(ctx context.Context, w *weir) error {
	return answered(w.ask(ctx, request(descriptor("held", fmt.Sprint(c.random.IntN(20))))))
}

// leaves before its answer comes, or is about to.
func (c *client) leaves(ctx context.Context, w *weir) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(c.random.IntN(5000))*time.Microsecond)
	defer cancel()
	_, err := w.ask(ctx, request(descriptor("held", fmt.Sprint(c.random.IntN(20))), descriptor("log", c.zipfValue())))
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.ResourceExhausted: // the last: it was told that it would be too late
		return nil
	}
	return err
}

// hangsUp connects, and is gone: before it said anything, in the middle of a word,
// or with a request that waits.
func (c *client) hangsUp(ctx context.Context, w *weir) error {
	if c.random.IntN(2) == 0 {
		conns, err := load.Dial(w.addr, 1)
		if err != nil {
			return err
		}
		defer conns.Close()
		ctx, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
		defer cancel()
		_, _ = rls.NewRateLimitServiceClient(conns[0]).ShouldRateLimit(ctx, request(descriptor("held", "0"))) // whether it was in time, nobody knows
		return nil
	}
	to, word := w.addr, "PRI * HTTP/2.0\r\n\r\nSM"
	if c.random.IntN(2) == 0 {
		to, word = w.http, "POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", to)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = io.WriteString(conn, word[:c.random.IntN(len(word)+1)])
	return err
}

// bad is a request that is refused as what it is.
func (c *client) bad(ctx context.Context, w *weir) error {
	want := codes.InvalidArgument
	var err error
	switch c.random.IntN(4) {
	case 0:
		_, err = w.ask(ctx, &rls.RateLimitRequest{Descriptors: []*rlcommon.RateLimitDescriptor{descriptor("fixed", "a")}})
	case 1:
		_, err = w.ask(ctx, &rls.RateLimitRequest{Domain: "soak", Descriptors: make([]*rlcommon.RateLimitDescriptor, 1001)})
	case 2: // a domain that nobody has rules for
		want = codes.OK
		_, err = w.ask(ctx, &rls.RateLimitRequest{Domain: c.newValue(), Descriptors: []*rlcommon.RateLimitDescriptor{descriptor("fixed", "a")}})
	case 3:
		return c.post(ctx, w, `{"domain": "soak", "descriptors": 7`, http.StatusBadRequest)
	}
	if got := status.Code(err); got != want {
		return fmt.Errorf("%v instead of %v: %w", got, want, err)
	}
	return nil
}

func (c *client) json(ctx context.Context, w *weir) error {
	body := fmt.Sprintf(`{"domain": "soak", "descriptors": [{"entries": [{"key": "token", "value": %q}]}]}`, c.zipfValue())
	return c.post(ctx, w, body, http.StatusOK, http.StatusTooManyRequests)
}

func (c *client) post(ctx context.Context, w *weir, body string, want ...int) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+w.http+"/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	for _, code := range want {
		if code == resp.StatusCode {
			return err
		}
	}
	return fmt.Errorf("/json: %s: %s", resp.Status, text)
}

// mostLate is how late a request is sent. One that is due for longer is left out, and
// its time counts as a latency: what a machine that stood still makes up for at once
// is another load, under which more lives.
const mostLate = time.Second

// drive sends the mix in an open loop: so many requests a second are due at fixed
// times, from which latencies count.
func (s *soak) drive(ctx context.Context) {
	var wg sync.WaitGroup
	start := time.Now()
	for n := range s.opts.InFlight {
		c := s.client(uint64(n))
		wg.Go(func() {
			for {
				due := start.Add(time.Duration(s.due.Add(1)) * time.Second / time.Duration(s.opts.Rate))
				if !pause(ctx, time.Until(due)) {
					return
				}
				if late := time.Since(due); late > mostLate {
					c.latencies.add(late)
					c.skipped.Add(1)
					continue
				}
				c.one(ctx, due)
			}
		})
	}
	wg.Wait()
}

func (c *client) one(ctx context.Context, due time.Time) {
	w, k := c.weirs[c.random.IntN(len(c.weirs))], c.drawKind()
	call, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	err := k.send(c, call, w)
	switch {
	case ctx.Err() != nil: // it was we who ended it
		return
	case err != nil:
		c.faults.add(fmt.Sprintf("%s, %s: %v", w.name, k.name, err))
		return
	}
	c.requests.Add(1)
	if !k.untold {
		c.latencies.add(time.Since(due))
	}
}

// pause waits, and is false if the context ends before.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
