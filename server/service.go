// Package server answers Envoy's RateLimitService over gRPC and JSON.
//
//	convert (wire.go) → rules.Set.Plan → limiter.Store.Decide → respond
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	weirv1 "weir/api/weir/v1"
	"weir/limiter"
	"weir/rules"
	"weir/server/metrics"
	"weir/server/top"
)

// Rules is where the rule set in force comes from: one load, no lock.
type Rules interface{ Current() *rules.Set }

// Options configures a Service. Rules and Store are required; the zero value of
// the rest is its default.
type Options struct {
	Rules   Rules
	Store   limiter.Store
	Shadow  bool         // the whole server in shadow: never refuses, never holds
	MaxHeld int          // requests held at once at most; 0: DefaultMaxHeld; below 0: none
	Logger  *slog.Logger // nil: slog.Default

	MaxInFlight int                 // requests that wait for the store at once at most; 0: DefaultMaxInFlight; below 0: any number
	OnShed      func(reason string) // is told of each request that is shed, see ShedInFlight; nil: nobody is
	Metrics     *metrics.Metrics    // of the same Rules; nil: none
	LogRefused  int                 // lines a second at most that the log has on refused requests; 0: none
	LogValues   bool                // those lines have the entries' values too

	Headers         HeaderOptions
	Denied          DeniedOptions
	Metadata        MetadataStyle
	UpstreamHeaders bool // tell the upstream x-weir-rule, -limit and -remaining of what passes

	Tracer Tracer // follows requests; nil: nobody does

	Clock func() time.Time // a simulated time, which the store goes by too: see Try; nil: the time of day

	Queue       Queue                               // takes what is over the limit of rules with over_limit: queue; nil: they refuse it
	CounterName func(key, queue limiter.Key) string // what the store calls a counter, for Explain; nil: not told

	Top        *top.Top                                             // counts refusals, for Top; nil: nothing does
	ShadowTop  *top.Top                                             // counts what would be one but for shadow mode, for Top; nil: nothing does
	ResetRules func(ctx context.Context, reset []*rules.Rule) error // has all counters of the rules begin anew, for Reset; nil: it cannot
	Status     Status                                               // what Stats and ListRules tell beside
}

// Queue is where requests go that are over the limit of a rule with an Overflow. It
// is safe for concurrent use.
type Queue interface {
	// Ready tells whether requests can go there now; else their rules refuse them.
	Ready() bool
	// Ticket is what the queue's ingest asks of such a request.
	Ticket(r *rules.Rule, cost uint64) string
	// Enqueue puts a request into the rule's queue. Its errors are gRPC statuses.
	Enqueue(ctx context.Context, r *rules.Rule, req *weirv1.EnqueueRequest) (*weirv1.EnqueueResponse, error)
}

// DefaultMaxHeld is how many requests wait for their turn at once at most.
const DefaultMaxHeld = 10_000

// Service decides rate limit requests.
type Service struct {
	opts  Options
	names HeaderNames // of the XRateLimit headers
	texts texts
	calls *calls
	held  atomic.Int64 // requests that wait, or might have to
	told  refusalLog

	shedding *shedding
	started  time.Time
	stopping chan struct{} // closed by EndWatches
	stop     sync.Once
}

// NewService returns the service of these options.
func NewService(opts Options) *Service {
	if opts.MaxHeld == 0 {
		opts.MaxHeld = DefaultMaxHeld
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.MaxInFlight == 0 {
		opts.MaxInFlight = DefaultMaxInFlight
	}
	return &Service{
		opts: opts, names: opts.Headers.names(), calls: &calls{}, told: newRefusalLog(&opts), shedding: newShedding(opts.MaxInFlight),
		started: time.Now(), stopping: make(chan struct{}),
	}
}

// call is one request on its way, with all the memory it needs.
type call struct {
	request rules.Request
	entries []rules.Entry // backs the descriptors' entries
	fault   error         // why the request cannot be read
	plan    rules.Plan
	answer  answer
	encoded []byte // the answer on the wire

	measured metrics.Request
}

// calls keeps calls for use again.
type calls struct{ pool sync.Pool }

func (p *calls) get() *call {
	c, ok := p.pool.Get().(*call)
	if !ok {
		c = new(call)
	}
	return c
}

// put gives the call back; nothing of it may be used after. What a large request
// grew goes to the garbage collector.
func (p *calls) put(c *call) {
	const ordinary = 256
	if cap(c.entries) > ordinary || cap(c.request.Descriptors) > ordinary || cap(c.plan.Hits) > ordinary {
		return
	}
	clear(c.entries) // keep no client's text
	clear(c.request.Descriptors)
	c.request = rules.Request{Descriptors: c.request.Descriptors[:0]}
	c.entries, c.fault, c.encoded = c.entries[:0], nil, nil
	c.answer.clear()
	p.pool.Put(c)
}

// register adds RateLimitService to a gRPC server that uses the service's codec.
func (s *Service) register(r grpc.ServiceRegistrar) {
	r.RegisterService(&grpc.ServiceDesc{
		ServiceName: rls.RateLimitService_ServiceDesc.ServiceName,
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: s.shouldRateLimit}},
		Metadata:    rls.RateLimitService_ServiceDesc.Metadata,
	}, s)
}

// shouldRateLimit answers one call. A panic becomes an error, never an empty
// answer, which Envoy would take for OK; so the answer is encoded here, not in
// the codec, which grpc calls outside.
//
//nolint:revive // the order of arguments is grpc's
func (s *Service) shouldRateLimit(_ any, ctx context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (_ any, err error) {
	defer func() { s.recovered(recover(), rls.RateLimitService_ShouldRateLimit_FullMethodName, &err) }()
	c := s.calls.get()
	if err := read(c); err != nil {
		return nil, err
	}
	if err := s.answer(ctx, c); err != nil {
		s.calls.put(c)
		return nil, err
	}
	c.encoded = c.answer.appendTo(make([]byte, 0, 128))
	return c, nil // the codec gives it back
}

// answer decides the call and holds it until its turn. Its errors are gRPC
// statuses.
func (s *Service) answer(ctx context.Context, c *call) error {
	decisions, passes, err := s.decide(ctx, c)
	if err != nil {
		return err
	}
	s.tellTrace(ctx, c, decisions, passes)
	s.respond(c, decisions, passes)
	return nil
}

// decide judges the call, and counts it: all requests come through here, whatever
// way they came in. Its errors are gRPC statuses.
func (s *Service) decide(ctx context.Context, c *call) (decisions []limiter.Decision, passes bool, err error) {
	c.measured = s.opts.Metrics.Begin()
	code := codes.Internal // if it panics
	defer func() { c.measured.End(c.request.Domain, uint32(code), !passes && !s.opts.Shadow) }()
	if c.fault != nil {
		err = grpcstatus.Error(codes.InvalidArgument, c.fault.Error())
	} else {
		decisions, passes, err = s.judge(ctx, c)
	}
	if err != nil {
		err = toStatus(err)
		code = grpcstatus.Code(err)
		return nil, false, err
	}
	code = codes.OK
	return decisions, passes, nil
}

// judge plans, asks the store, and holds a request that a leaky bucket delays.
func (s *Service) judge(ctx context.Context, c *call) ([]limiter.Decision, bool, error) {
	set := s.opts.Rules.Current()
	set.Plan(&c.request, &c.plan)
	hits := c.plan.Hits
	if len(hits) == 0 {
		return nil, true, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, false, err // what nobody waits for is not charged
	}
	release := s.offerPatience(ctx, hits)
	defer release()
	c.measured.Asking()
	decisions, err := s.decideOrShed(ctx, hits)
	if err != nil {
		return nil, false, err
	}
	c.measured.Decided(set, &c.request, &c.plan, decisions, s.opts.Shadow)
	passes := limiter.Passes(hits, decisions)
	s.noteRefusals(c, decisions, s.opts.ShadowTop, true)
	switch {
	case s.opts.Shadow:
	case passes:
		err = s.hold(ctx, decisions, &c.measured)
	default:
		s.told.refused(c, decisions)
		s.noteRefusals(c, decisions, s.opts.Top, false)
	}
	return decisions, passes, err
}

// noteRefusals counts the counters that refused the request; or, in shadow, would have.
// Those of one rule's limits for the same values are one.
func (s *Service) noteRefusals(c *call, decisions []limiter.Decision, to *top.Top, shadow bool) {
	if to == nil {
		return
	}
	for i := range c.plan.Matches {
		m := &c.plan.Matches[i]
		for h := m.First; h < m.First+m.Hits; h++ {
			hit := &c.plan.Hits[h]
			if decisions[h].Allowed || hit.Refund || (hit.Shadow || s.opts.Shadow) != shadow {
				continue
			}
			rule := ""
			if r := c.plan.Rules[h]; r != nil {
				rule = r.Label()
			}
			to.Add(&top.Refusal{Counter: c.plan.Hits[m.First].Key, Domain: c.request.Domain, Rule: rule, Entries: c.request.Descriptors[i].Entries})
			break
		}
	}
}

// offerPatience tells the leaky buckets how long the caller can wait. Only
// MaxHeld requests may wait at once; the rest are offered no wait. The place is
// kept until release is called.
func (s *Service) offerPatience(ctx context.Context, hits []limiter.Hit) (release func()) {
	release = func() {}
	terms := limiter.Terms{
		Shadow:   s.opts.Shadow,
		CanQueue: s.canQueue(),
		Patience: func() (patience time.Duration) {
			if s.held.Add(1) <= int64(s.opts.MaxHeld) {
				patience = s.untilDeadline(ctx)
			}
			release = func() { s.held.Add(-1) }
			return patience
		},
	}
	terms.Apply(hits)
	return release
}

// canQueue tells whether queues can take anything now.
func (s *Service) canQueue() bool { return s.opts.Queue != nil && s.opts.Queue.Ready() }

func (s *Service) untilDeadline(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	switch {
	case !ok:
		return limiter.NoDeadline
	case s.opts.Clock != nil:
		return max(0, deadline.Sub(s.opts.Clock())-limiter.DeadlineMargin)
	}
	return max(0, time.Until(deadline)-limiter.DeadlineMargin)
}

// delayOf is how long a request that passes is to be held: its longest delay.
func delayOf(decisions []limiter.Decision) (delay time.Duration) {
	for i := range decisions {
		if !decisions[i].Queued {
			delay = max(delay, decisions[i].Delay)
		}
	}
	return delay
}

// hold waits for the longest delay. A caller that leaves keeps its place. In
// simulated time nobody waits.
func (s *Service) hold(ctx context.Context, decisions []limiter.Decision, measured *metrics.Request) (err error) {
	delay := delayOf(decisions)
	if delay == 0 || s.opts.Clock != nil {
		return nil
	}
	if t := s.traced(ctx); t != nil {
		_, end := t.Step(ctx, "hold")
		defer func() { end(err) }()
	}
	defer measured.Holding()()
	t := time.NewTimer(delay)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// toStatus is where errors become gRPC codes, unless they have one.
func toStatus(err error) error {
	if _, has := grpcstatus.FromError(err); has {
		return err
	}
	switch {
	case errors.Is(err, limiter.ErrUnavailable):
		return grpcstatus.Error(codes.Unavailable, err.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return grpcstatus.FromContextError(err).Err()
	}
	return grpcstatus.Error(codes.Internal, fmt.Sprintf("deciding the request: %v", err))
}
