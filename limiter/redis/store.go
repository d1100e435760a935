// Package redis keeps counters in Redis, shared by all instances: one round trip
// a request, whatever its number of hits, in scripts that run all or nothing.
package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"weir/limiter"
)

// Options configures a Store. URL is required; the zero value of the rest is its
// default.
type Options struct {
	limiter.Options
	URL       string           // see dial
	KeyPrefix string           // of every key; empty: DefaultKeyPrefix
	KeySecret []byte           // for the names of counters, see Naming; empty: none
	TLS       TLSFiles         // for a URL that says TLS
	Timeout   time.Duration    // the longest wait for Redis; 0: DefaultTimeout
	DenyCache time.Duration    // how long a refusal is remembered at most; 0: not
	Local     *limiter.Standby // decides while Redis is away; required
	Now       func() time.Time // the clock of the scripts, for tests; nil: Redis's own
	Logger    *slog.Logger     // nil: none
	Events    Events
}

// Defaults of Options.
const (
	DefaultKeyPrefix = "weir:"
	DefaultTimeout   = 10 * time.Millisecond
	DefaultDenyCache = time.Second
)

// Events are called as things happen, for metrics. Any may be nil.
type Events struct {
	Failed     func(err error)       // a decision that Redis did not make; see Reason
	Waited     func(d time.Duration) // how long such a decision waited for Redis
	Breaker    func(open bool)
	DenyCached func()        // a request was answered by the deny cache
	Healed     func(n int64) // keys that held nothing of ours, or had no time to live
	Dropped    func(n int64) // counters too far ahead of the clock
}

// Store is a limiter.Store in Redis.
type Store struct {
	opts    Options
	log     *slog.Logger
	naming  *Naming
	pipe    *pipe
	cluster bool
	scripts *scripts
	clock   clock
	breaker *breaker
	denied  *denyCache
	buffers sync.Pool // of *request
	leases  *leaseTable
	errands errands // of the leases
	spare   uint64  // plainSpare
	loose   loose
	opened  time.Time
	stop    context.CancelFunc
	stopped sync.WaitGroup
}

// ErrURL is a malformed URL of a store.
var ErrURL = errors.New("not the URL of a store")

// Open returns a store. It fails with ErrURL if the URL is malformed, and if the
// files for TLS cannot be used. It waits for Redis until the context ends; a Redis
// that does not answer by then is away, and the failure policies decide until it
// does.
func Open(ctx context.Context, opts Options) (*Store, error) {
	if opts.KeyPrefix == "" {
		opts.KeyPrefix = DefaultKeyPrefix
	}
	if opts.Timeout == 0 {
		opts.Timeout = DefaultTimeout
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	client, err := Dial(opts.URL, DialOptions{Timeout: opts.Timeout, TLS: opts.TLS})
	if err != nil {
		return nil, err
	}
	p, err := newPipe(client, opts.Timeout)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	running, stop := context.WithCancel(context.Background())
	s := &Store{opts: opts, log: opts.Logger, naming: NewNaming(opts.KeyPrefix, opts.KeySecret), pipe: p, scripts: newScripts(), denied: newDenyCache(opts.DenyCache), spare: plainSpare, stop: stop}
	_, s.cluster = client.(*goredis.ClusterClient)
	s.buffers.New = func() any { return new(request) }
	s.leases, s.opened = newLeaseTable(), time.Now()
	if opts.Now != nil {
		s.opened = opts.Now()
	}
	s.breaker = newBreaker(s.prepare, s.breakerChanged)
	if err := s.connect(ctx); err != nil {
		s.breaker.trip(err)
	}
	s.stopped.Go(func() { s.breaker.run(running) })
	s.stopped.Go(func() { s.tendLeases(running) })
	s.stopped.Go(func() { s.tendLoose(running) })
	return s, nil
}

// connect prepares Redis, again and again until the context ends.
func (s *Store) connect(ctx context.Context) error {
	var why error // the last failure that is Redis's, not the context's
	for {
		err := s.prepare(ctx)
		if err == nil {
			return nil
		}
		if why == nil || ctx.Err() == nil {
			why = err
		}
		select {
		case <-ctx.Done():
			return why
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *Store) breakerChanged(open bool, cause error) {
	if s.opts.Events.Breaker != nil {
		s.opts.Events.Breaker(open)
	}
	if open {
		s.log.Error("Redis is away; failure policies decide until it answers", "url", Redact(s.opts.URL), "err", cause)
	} else {
		s.log.Info("Redis answers; it decides again", "url", Redact(s.opts.URL))
	}
}

// Close gives back what is leased and ends the store's connections. Nothing may be
// decided any more.
func (s *Store) Close() error {
	s.endLeases()
	s.stop()
	s.stopped.Wait()
	return s.pipe.close()
}

// Healthy tells whether Redis decides: false while the breaker is open.
func (s *Store) Healthy() bool { return !s.breaker.isOpen() }

// DenyCached is how many refusals are remembered, some of which may have ended.
func (s *Store) DenyCached() int { return int(s.denied.size.Load()) }

// Decide implements limiter.Store.
func (s *Store) Decide(ctx context.Context, hits []limiter.Hit) ([]limiter.Decision, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(hits) == 1 && hits[0].Limit.Requests == 0 { // no counter is needed, and it says nothing of Redis
		return []limiter.Decision{{Allowed: hits[0].Refund}}, nil
	}
	r := s.buffers.Get().(*request)
	defer s.buffers.Put(r)
	r.gather(s.naming, hits)
	for i := range hits {
		if hits[i].Refund {
			s.denied.forget(r.hashes[r.index[i]])
		}
	}
	now := time.Now()
	apart := len(r.hashes) == len(hits) // hits that share a counter depend on each other
	if apart {
		if decisions := s.denied.answer(hits, r.hashes, now); decisions != nil {
			if s.opts.Events.DenyCached != nil {
				s.opts.Events.DenyCached()
			}
			return decisions, nil
		}
		if decisions, decided, err := s.spend(ctx, r, hits, now); decided {
			return decisions, err
		}
	}
	if s.breaker.isOpen() {
		return s.opts.Local.Decide(ctx, hits)
	}
	decisions, err := s.ask(ctx, r, hits, now)
	if err != nil {
		return s.failed(ctx, hits, err, time.Since(now))
	}
	s.breaker.succeeded()
	if apart {
		s.denied.remember(hits, decisions, r.hashes, now)
	}
	s.opts.Local.Learn(hits, decisions, now)
	s.noteDemand(r, hits, decisions, now)
	return decisions, nil
}

// failed decides by the failure policies what Redis did not.
func (s *Store) failed(ctx context.Context, hits []limiter.Hit, err error, waited time.Duration) ([]limiter.Decision, error) {
	if left := s.note(ctx, err, waited); left != nil {
		return nil, left
	}
	return s.opts.Local.Decide(ctx, hits)
}

// note tells of a failure of Redis, or returns the error of a caller that left:
// that says nothing of Redis, unless Redis let its deadline pass.
func (s *Store) note(ctx context.Context, err error, waited time.Duration) error {
	if left := ctx.Err(); left != nil {
		if errors.Is(left, context.DeadlineExceeded) && waited >= s.opts.Timeout/2 {
			s.breaker.failed(errTimeout)
		}
		return left
	}
	s.blame(err)
	if s.opts.Events.Failed != nil {
		s.opts.Events.Failed(err)
	}
	if s.opts.Events.Waited != nil {
		s.opts.Events.Waited(waited)
	}
	s.log.Debug("Redis did not decide", "err", err)
	return nil
}

// blame has the breaker know of a failure, if it is Redis's.
func (s *Store) blame(err error) {
	if strings.Contains(err.Error(), "user_script") && isERR(err) {
		s.log.Error("a script failed on a key of ours that holds something else; delete the key", "err", err) // Redis itself is there
	} else {
		s.breaker.failed(err)
	}
}

// ask lets Redis decide the hits.
func (s *Store) ask(ctx context.Context, r *request, hits []limiter.Hit, now time.Time) ([]limiter.Decision, error) {
	if s.cluster && len(r.hashes) > 1 {
		if parts := s.split(hits); len(parts) > 1 {
			return s.askParts(ctx, parts, hits)
		}
	}
	mode := byte(modeAllOrNothing)
	if s.opts.ChargeEach {
		mode = modeEach
	}
	run := &s.scripts.multi
	if len(hits) == 1 {
		switch h := &hits[0]; {
		case h.Limit.Algorithm == limiter.FixedWindow:
			return s.askFixed(ctx, r, hits, now)
		case h.Overflow != nil:
			run = &s.scripts.single[queueing]
		default:
			run = &s.scripts.single[h.Limit.Algorithm]
		}
	}
	a, err := s.run(ctx, run, mode, r, hits, now)
	return a.decisions, err
}

// run runs a script on the hits, once more if a calendar window ended on the way.
func (s *Store) run(ctx context.Context, script *script, mode byte, r *request, hits []limiter.Hit, now time.Time) (answer, error) {
	c := call{script: script, keys: r.keys(s.opts.KeyPrefix, hits), now: now}
	for range 2 {
		var expected window
		if script == &s.scripts.single[limiter.FixedWindow] {
			expected = s.expected(&hits[0], c.now)
		}
		c.args = s.arguments(script, mode, r, hits, expected, c.now)
		reply, err := s.pipe.eval(ctx, &c)
		if err != nil {
			return answer{}, err
		}
		a, err := decode(reply, hits, mode == modePart, expected)
		if err != nil {
			return answer{}, err
		}
		if a.clock > 0 {
			s.clock.read(a.clock, c.now, time.Now())
		}
		if !a.outside {
			s.report(a.dropped, a.healed)
			return a, nil
		}
		c.now = time.Now()
	}
	return answer{}, errCalendar
}

var errCalendar = errors.New("no calendar window has Redis's time in it: its clock and this one's differ by a window or more; set them right")

func (s *Store) report(dropped, healed int64) {
	if dropped > 0 && s.opts.Events.Dropped != nil {
		s.opts.Events.Dropped(dropped)
	}
	if healed > 0 {
		s.log.Warn("keys of ours held something else or had no time to live; they begin anew", "keys", healed, "prefix", s.opts.KeyPrefix)
		if s.opts.Events.Healed != nil {
			s.opts.Events.Healed(healed)
		}
	}
}

func (s *Store) arguments(script *script, mode byte, r *request, hits []limiter.Hit, expected window, now time.Time) []any {
	if s.opts.Now != nil {
		now = s.opts.Now()
	}
	record := make([]byte, 0, 1+64*len(hits)) // not pooled: it may be sent after the caller left
	if script == &s.scripts.multi {
		record = append(record, mode)
	}
	for i := range hits {
		queue := 0
		if hits[i].Overflow != nil && script != &s.scripts.giveBack {
			queue = r.queues[r.index[i]]
		}
		h := &hits[i]
		if script == &s.scripts.single[limiter.FixedWindow] {
			expecting := *h
			expecting.MaxDelay = h.Limit.Duration(expected.tag) // the script's patience, in units
			h = &expecting
		}
		record = appendHit(record, h, r.index[i]+1, queue, now)
	}
	if s.opts.Now != nil {
		return []any{record, now.UnixMicro()}
	}
	return []any{record}
}

// prepare looks whether Redis takes writes and can run the scripts, and loads
// them, all in one round trip: a network on which some round trips take too long
// should not keep a Redis away that decides most requests in time. On a cluster no
// one key tells for all masters.
func (s *Store) prepare(ctx context.Context) error {
	if !s.cluster {
		if err := s.pipe.client.Do(ctx, "psetex", s.opts.KeyPrefix+"probe", 1, 1).Err(); err != nil {
			return fmt.Errorf("trying a write: %w", err)
		}
	}
	return s.pipe.everywhere(ctx, func(ctx context.Context, c goredis.Cmdable) error {
		if err := checkVersion(ctx, c); err != nil {
			return err
		}
		_, err := c.Pipelined(ctx, func(p goredis.Pipeliner) error {
			for _, script := range s.scripts.all() {
				p.ScriptLoad(ctx, script.text)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("loading the scripts into Redis: %w", err)
		}
		return nil
	})
}

func (s *Store) String() string { return fmt.Sprintf("Redis at %s", Redact(s.opts.URL)) }
