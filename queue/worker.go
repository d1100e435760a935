package queue

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	mathrand "math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// WorkerOptions configures a Worker. Queues and Upstream are required; the zero
// value of the rest is its default.
type WorkerOptions struct {
	Queues   *Queues
	Upstream *url.URL // scheme, host, and what goes before each path

	Timeout       time.Duration // for the upstream's answer; 0: DefaultDeliveryTimeout
	MaxDeliveries int           // failed ones, after which a request is given up; 0: DefaultMaxDeliveries
	RetryMin      time.Duration // the first wait after a failure, doubled each time; 0: DefaultFirstRetry
	RetryMax      time.Duration // the longest; 0: DefaultLongestRetry
	Keep          time.Duration // how long results can be asked for; 0: DefaultKeep

	Transport http.RoundTripper                         // nil: one of its own, which heeds no proxy of the environment
	Around    func(http.RoundTripper) http.RoundTripper // around the transports, for traces; nil: nothing
	Logger    *slog.Logger                              // nil: none
}

// Defaults of WorkerOptions.
const (
	DefaultDeliveryTimeout = 30 * time.Second
	DefaultMaxDeliveries   = 10
	DefaultFirstRetry      = 500 * time.Millisecond
	DefaultLongestRetry    = 30 * time.Second
	DefaultKeep            = 24 * time.Hour
)

// Worker replays what waits in queues, each queue in order and at its rule's rate.
// Of several workers on one Redis, one has a queue at a time, and the others stand
// by. A request is sent at least once, each time with the count of its deliveries.
type Worker struct {
	opts WorkerOptions
	q    *Queues
	log  *slog.Logger
	name string // whose lock it is

	fresh http.RoundTripper // each request on a connection of its own; see transport

	mu   sync.Mutex
	here map[string]*attended // by tag
}

// attended is a queue that the worker looks after.
type attended struct {
	*About      // as it is now
	gone   bool // Redis does not list it any more
}

// NewWorker returns a worker that does nothing yet.
func NewWorker(opts WorkerOptions) *Worker {
	setDefault(&opts.Timeout, DefaultDeliveryTimeout)
	setDefault(&opts.RetryMin, DefaultFirstRetry)
	setDefault(&opts.RetryMax, DefaultLongestRetry)
	setDefault(&opts.Keep, DefaultKeep)
	if opts.MaxDeliveries == 0 {
		opts.MaxDeliveries = DefaultMaxDeliveries
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Transport == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.DisableCompression = true // the upstream is to see what the client asked for
		transport.Proxy = nil               // requests go where Upstream says, whatever else HTTP_PROXY is set for
		opts.Transport = transport
	}
	fresh := opts.Transport
	if t, ok := fresh.(*http.Transport); ok {
		t = t.Clone()
		t.DisableKeepAlives = true
		fresh = t
	}
	if opts.Around != nil {
		opts.Transport, fresh = opts.Around(opts.Transport), opts.Around(fresh)
	}
	return &Worker{
		opts: opts, q: opts.Queues, log: opts.Logger, name: rand.Text(), here: map[string]*attended{}, fresh: fresh,
	}
}

func setDefault(d *time.Duration, value time.Duration) {
	if *d == 0 {
		*d = value
	}
}

// discovery is how often the worker looks for queues and for what their limits are.
const discovery = time.Second

// Run works until the context ends; what is under way then is finished first. A
// Redis that is away is waited for.
func (w *Worker) Run(ctx context.Context) error {
	var attending sync.WaitGroup
	defer attending.Wait()
	away := false
	for {
		queues, err := w.q.List(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if (err != nil) != away {
			away = err != nil
			if away {
				w.log.Warn("looking for queues", "err", err)
			} else {
				w.log.Info("queues can be seen again")
			}
		}
		if err == nil {
			for _, tag := range w.meet(queues) {
				attending.Go(func() { w.attend(ctx, tag) })
			}
		}
		if !sleep(ctx, discovery) {
			return nil
		}
	}
}

// meet keeps what the queues are now, and returns the tags of those that nobody
// attends to yet.
func (w *Worker) meet(queues []About) (tags []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.here {
		q.gone = true
	}
	for i := range queues {
		tag := queues[i].Tag
		if w.here[tag] == nil {
			tags = append(tags, tag)
		}
		w.here[tag] = &attended{About: &queues[i]}
	}
	return tags
}

// about is what a queue is now, or last was. It is for who attends to it.
func (w *Worker) about(tag string) *About {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.here[tag].About
}

// gone tells whether Redis does not list the queue any more.
func (w *Worker) gone(tag string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.here[tag].gone
}

// forget ends the attendance to a queue that is gone. Until then nobody else begins
// one: the lock does not tell two of one worker apart.
func (w *Worker) forget(tag string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.here[tag].gone {
		return false
	}
	delete(w.here, tag)
	return true
}

// attend takes a queue's lock whenever it is free, and empties the queue as long as
// it has it. It ends with the context, or when the queue is gone.
func (w *Worker) attend(ctx context.Context, tag string) {
	failing := false
	for sleep(ctx, lockLife/6+jitter(lockLife/6)) {
		if w.forget(tag) {
			return
		}
		a := w.about(tag)
		locked, err := w.takeLock(ctx, a)
		if (err != nil) != failing && ctx.Err() == nil {
			failing = err != nil
			if failing {
				w.log.Warn("taking the lock of a queue", "queue", a.Name(), "err", err)
			} else {
				w.log.Info("a queue's lock can be taken again", "queue", a.Name())
			}
		}
		if err != nil || !locked {
			continue
		}
		w.log.Info("emptying a queue", "queue", a.Name())
		running, stop := context.WithCancel(ctx)
		// It keeps the lock until the last delivery is done, also after a stop.
		keeping, release := context.WithCancel(context.WithoutCancel(ctx))
		var renewing sync.WaitGroup
		renewing.Go(func() { defer stop(); w.renew(keeping, a) })
		w.empty(running, tag)
		release()
		renewing.Wait()
		w.releaseLock(a)
		w.log.Info("leaving a queue", "queue", a.Name())
	}
}

// empty delivers what waits, one after another, until the context ends or the queue
// is gone.
func (w *Worker) empty(ctx context.Context, tag string) {
	s := &schedule{}
	fails := 0
	for ctx.Err() == nil && !w.gone(tag) {
		a := w.about(tag)
		e, err := w.next(ctx, a)
		if err == nil && e != nil {
			err = w.deliver(ctx, tag, e, s)
		}
		switch {
		case errors.Is(err, errLockLost):
			return
		case err != nil && ctx.Err() == nil:
			if fails++; fails == 1 {
				w.log.Warn("emptying a queue", "queue", a.Name(), "err", err)
			}
			sleep(ctx, w.backoff(fails))
		case e == nil:
			sleep(ctx, min(max(a.interval()/2, 5*time.Millisecond), 100*time.Millisecond))
		default:
			fails = 0
		}
	}
}

// groupScript makes a stream's group, in a full Redis too; see lock.go. No entry is
// 0-1. A queue that was removed stays so.
var groupScript = goredis.NewScript(`if redis.call('EXISTS', KEYS[2]) == 0 then return 0 end
redis.call('XDEL', KEYS[1], '0-1') return redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')`)

// next is the first of a queue: what was begun before, or else who waits longest.
func (w *Worker) next(ctx context.Context, a *About) (*Entry, error) {
	for _, from := range []string{"0", ">"} {
		streams, err := w.q.client.XReadGroup(ctx, &goredis.XReadGroupArgs{
			Group: group, Consumer: group, Streams: []string{a.stream(), from}, Count: 1, Block: -1,
		}).Result()
		switch {
		case errors.Is(err, goredis.Nil):
			continue
		case err != nil && strings.HasPrefix(err.Error(), "NOGROUP"):
			err = groupScript.Run(ctx, w.q.client, []string{a.stream(), a.about()}, group).Err()
			if err != nil && !strings.HasPrefix(err.Error(), "BUSYGROUP") {
				return nil, unavailable("making a queue's group", err)
			}
			return nil, nil // at once again
		case err != nil:
			return nil, unavailable("reading a queue", err)
		}
		for _, m := range streams[0].Messages {
			if m.Values == nil { // an operator dropped it while it was being delivered
				if err := w.q.client.XAck(ctx, a.stream(), group, m.ID).Err(); err != nil {
					return nil, unavailable("reading a queue", err)
				}
				continue
			}
			return w.q.entryOf(a, m), nil
		}
	}
	return nil, nil
}

// backoff is the wait after so many failures in a row, with a jitter of a quarter.
func (w *Worker) backoff(fails int) time.Duration {
	d := w.opts.RetryMax
	if fails < 20 {
		d = min(d, w.opts.RetryMin<<(fails-1))
	}
	return d - jitter(d/4+1)
}

func jitter(d time.Duration) time.Duration { return mathrand.N(d) }

// sleep waits, and tells whether the context goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
