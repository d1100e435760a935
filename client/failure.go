package client

import (
	"cmp"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// errNotAsked is the failure of requests that were not sent.
var errNotAsked = grpcstatus.Error(codes.Unavailable, "Weir has not answered in time lately; it is asked again soon")

// A Weir that is known to be away costs no time: gRPC fails at once while it has no
// connection. One that keeps its connections and does not answer (it hangs, or
// the network swallows packets) would cost each request the whole timeout: so after
// some in a row that were not answered, only one request in a while asks.
const (
	tripAfter  = 5
	probeEvery = 100 * time.Millisecond
)

// circuit knows whether Weir answers.
type circuit struct {
	begin  time.Time
	misses atomic.Int64 // timeouts in a row
	next   atomic.Int64 // when the next request may ask, in ns since begin, while the circuit is open
}

// mayAsk tells whether a request is to be sent.
func (c *circuit) mayAsk() bool {
	if c.misses.Load() < tripAfter {
		return true
	}
	now, next := int64(time.Since(c.begin)), c.next.Load()
	return now >= next && c.next.CompareAndSwap(next, now+int64(probeEvery))
}

func (c *circuit) answered() {
	if c.misses.Load() != 0 { // a look costs the others nothing, a write does
		c.misses.Store(0)
	}
}

func (c *circuit) missed() {
	if c.misses.Add(1) >= tripAfter {
		c.next.Store(int64(time.Since(c.begin) + probeEvery))
	}
}

// logEvery is how often failures are told at most.
const logEvery = 10 * time.Second

// failures tells of them.
type failures struct {
	addr    string
	begin   time.Time
	log     *slog.Logger
	failed  func(error)
	untold  atomic.Int64
	mayTell atomic.Int64 // from when on, in ns since begin
}

func newFailures(addr string, o Options) *failures {
	return &failures{addr: addr, begin: time.Now(), log: cmp.Or(o.Logger, slog.Default()), failed: o.Failed}
}

func (f *failures) note(err error) {
	if f.failed != nil {
		f.failed(err)
	}
	f.untold.Add(1)
	now, mayTell := int64(time.Since(f.begin)), f.mayTell.Load()
	if now < mayTell || !f.mayTell.CompareAndSwap(mayTell, now+int64(logEvery)) {
		return
	}
	f.log.Warn("Weir did not decide: requests go by the failure policy", "addr", f.addr, "requests", f.untold.Swap(0), "err", err)
}
