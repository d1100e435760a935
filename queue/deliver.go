package queue

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"golang.org/x/net/http/httpguts"

	weirv1 "weir/api/weir/v1"
)

//go:embed depart.lua
var departLua string

var departScript = goredis.NewScript(departLua)

// A full Redis counts, too; see lock.go.
var triesScript = goredis.NewScript(`redis.call('HDEL', KEYS[1], 'why') return redis.call('HINCRBY', KEYS[1], 'tries', 1)`)

// What the upstream is told of a request that was queued.
const (
	HeaderIdempotencyKey = "Idempotency-Key"  // the client's, or else the request's ID
	HeaderDelivery       = "X-Weir-Delivery"  // 1 for the first time; more: it may have been there before
	HeaderQueueID        = "X-Weir-Queue-Id"  // as /queue/ID has it
	HeaderQueuedAt       = "X-Weir-Queued-At" // RFC 3339
)

// schedule is when the next may depart, by this process's clock: who comes a little
// late must not slow the rest down.
type schedule struct {
	due  time.Time
	sent time.Time // when the last one departed here: Redis knows when it let it, which a slow answer makes earlier
}

// early is how long at least the next is to wait, whatever Redis says.
func (s *schedule) early(now time.Time, interval time.Duration) time.Duration {
	return s.sent.Add(interval / 2).Sub(now)
}

// late is how late a departure is, if it follows the one before it closely.
func (s *schedule) late(now time.Time, interval time.Duration) time.Duration {
	late := now.Sub(s.due)
	if s.due.IsZero() || late < 0 || late > interval {
		return 0
	}
	return late
}

// deliver sends one request until the upstream has answered, or it is given up. It
// returns early when the context ends, and fails if Redis does not answer.
func (w *Worker) deliver(ctx context.Context, tag string, e *Entry, s *schedule) error {
	if e.Request == nil {
		w.log.Error("a request cannot be read, and is given up", "queue", e.about.Name(), "id", e.ID)
		_, err := w.q.leave(ctx, e, StateFailed, 0, "it cannot be read", w.opts.Keep)
		return err
	}
	for fails := 1; ; fails++ {
		delivery, err := w.depart(ctx, w.about(tag), e, s)
		if err != nil || delivery == 0 {
			return err
		}
		// What was begun is finished, also when the worker is asked to stop.
		last := context.WithoutCancel(ctx)
		answer := w.send(last, e, delivery)
		if answer.final {
			_, err := w.q.leave(last, e, StateDone, answer.status, "", w.opts.Keep)
			return err
		}
		w.log.Warn("a delivery failed", "queue", e.about.Name(), "id", e.ID, "delivery", delivery, "why", answer.why)
		if answer.reached {
			tries, err := triesScript.Run(last, w.q.client, []string{e.about.record(e.name)}).Int64()
			if err != nil {
				return unavailable("counting a request's tries", err)
			}
			if tries >= int64(w.opts.MaxDeliveries) {
				w.log.Error("a request is given up; weir queue retry puts it back", "queue", e.about.Name(), "id", e.ID, "delivery", delivery, "why", answer.why)
				_, err := w.q.leave(last, e, StateFailed, answer.status, answer.why, w.opts.Keep)
				return err
			}
		}
		if !sleep(ctx, max(w.backoff(fails), answer.after)) {
			return nil
		}
	}
}

// depart waits for the request's turn, and returns which delivery it is; 0: there is
// nothing to deliver any more.
func (w *Worker) depart(ctx context.Context, a *About, e *Entry, s *schedule) (delivery int64, err error) {
	for {
		if a.Limit.Requests == 0 {
			sleep(ctx, discovery) // the limit may be raised
			return 0, nil
		}
		if early := s.early(time.Now(), a.interval()); early > 0 {
			if !sleep(ctx, min(early, discovery)) {
				return 0, nil
			}
			a = w.about(a.Tag)
			continue
		}
		n := a.Limit.Numbers()
		late := s.late(time.Now(), a.interval())
		keys := []string{a.lock(), a.stream(), a.Counter, a.record(e.name)}
		cost := min(max(e.cost, 1), uint64(n.Most/n.Window))
		asked := time.Now()
		reply, err := departScript.Run(ctx, w.q.client, keys,
			w.name, e.entry, a.Limit.Requests, n.Window, int64(n.Unit/time.Microsecond), cost, int64(late/n.Unit)).Int64Slice()
		switch {
		case err != nil:
			return 0, unavailable("letting a request depart", err)
		case len(reply) != 3:
			return 0, errOddAnswer
		}
		switch reply[0] {
		case 1:
			if time.Since(asked) > lockLife/2 {
				continue // another may have the lock by now, or the next master of Redis not know of this
			}
			s.sent = time.Now()
			s.due = s.sent.Add(a.Limit.Duration(reply[2]))
			return reply[1], nil
		case 0:
			wait := a.Limit.Duration(reply[1])
			s.due = time.Now().Add(wait)
			if !sleep(ctx, min(wait, discovery)) {
				return 0, nil
			}
			a = w.about(a.Tag) // its limit may be another now
		case -1:
			return 0, errLockLost
		default:
			return 0, nil
		}
	}
}

// answer is what the upstream said.
type answer struct {
	final   bool // it is the client's answer, whatever it is
	reached bool // the upstream may have had the request
	status  int
	after   time.Duration // the upstream asks to be left alone so long
	why     string
}

// send delivers the request once.
func (w *Worker) send(ctx context.Context, e *Entry, delivery int64) answer {
	r, err := w.request(ctx, e, delivery)
	if err != nil {
		return answer{reached: true, why: err.Error()} // it never will be better: it is given up in the end
	}
	// Without a connection the upstream has not had it, whatever the error looks like: a
	// timeout while dialing is the client's, not the dialer's.
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	ctx, cancel := context.WithTimeout(ctx, w.opts.Timeout)
	defer cancel()
	resp, err := w.transport(r).RoundTrip(r.WithContext(httptrace.WithClientTrace(ctx, trace)))
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %v", w.opts.Timeout)
	}
	if err != nil {
		return answer{reached: connected.Load(), why: err.Error()}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols { // the rest of that one is a connection, whose reads heed no context
		drain(resp.Body, cancel)
	}
	a := answer{status: resp.StatusCode, reached: true}
	switch {
	case resp.StatusCode < 200: // 101, which nobody asked for, or none at all: as a 5xx (RFC 9110, 15)
		a.why = "the upstream answered " + resp.Status + ", which is no answer to this"
	case resp.StatusCode >= 500 && resp.StatusCode != http.StatusNotImplemented && resp.StatusCode != http.StatusHTTPVersionNotSupported,
		resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusRequestTimeout, resp.StatusCode == http.StatusTooEarly:
		a.why = "the upstream answered " + resp.Status
		a.after = min(retryAfter(resp.Header.Get("Retry-After"), time.Now()), w.opts.RetryMax)
	default:
		a.final = true
	}
	if copied := resp.Header.Get(HeaderQueued); copied != "" && w.ours(context.WithoutCancel(ctx), r, e, copied) {
		return answer{why: "it came back into the queue: --upstream leads to a listener whose limit queues; let it lead to the service itself"}
	}
	return a
}

// ours tells whether the upstream's answer is one of our own ingest's, and takes the
// copy out again that it made. Only a copy: what has another key is another request,
// whoever answered with its ID.
func (w *Worker) ours(ctx context.Context, r *http.Request, e *Entry, copied string) bool {
	if copied == e.ID {
		return true
	}
	if _, err := w.q.Status(ctx, copied); errors.Is(err, ErrUnknown) {
		return false // a queue of the upstream's own, elsewhere
	}
	found, err := w.q.waiting(ctx, copied)
	switch {
	case err == nil && found != nil && found.key() == r.Header.Get(HeaderIdempotencyKey):
		_, err = w.q.leave(ctx, found, StateDropped, 0, "it was a copy, made by a worker whose upstream leads into the queue", w.opts.Keep)
	case err == nil && found != nil:
		w.log.Warn("the upstream answered with the ID of another request", "id", e.ID, "other", copied)
	}
	if err != nil {
		w.log.Warn("a copy of a request stays in the queue", "id", e.ID, "copy", copied, "err", err)
	}
	return true
}

// What is read of an answer's body, so that its connection can be used for the next
// request. What became of this one is known from the answer's head.
const (
	drainBytes = 256 << 10
	drainTime  = time.Second
)

// drain reads a body to its end. One that is long, or slow in coming, is left: closing
// it closes its connection.
func drain(body io.Reader, cancel context.CancelFunc) {
	slow := time.AfterFunc(drainTime, cancel)
	defer slow.Stop()
	_, _ = io.CopyN(io.Discard, body, drainBytes)
}

// retryAfter reads seconds or a date (RFC 9110, 10.2.3); 0: neither, or it is past.
func retryAfter(text string, now time.Time) time.Duration {
	if s, err := strconv.ParseUint(text, 10, 63); err == nil {
		return time.Duration(min(s, 1<<31)) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return max(0, at.Sub(now))
}

// transport sends a request once only. http.Transport would by itself send one again
// that has an Idempotency-Key, when a connection that was used before breaks: the
// upstream had it twice then, uncounted and faster than the rate. It cannot do so to a
// body that it cannot rewind (request), nor on a connection that is new.
func (w *Worker) transport(r *http.Request) http.RoundTripper {
	if r.Body == nil || r.Body == http.NoBody {
		return w.fresh
	}
	return w.opts.Transport
}

// request is the HTTP request as the client sent it, but for where it goes and what
// it says of its delivery.
func (w *Worker) request(ctx context.Context, e *Entry, delivery int64) (*http.Request, error) {
	r, err := newRequest(ctx, w.opts.Upstream, e.Request)
	if err != nil {
		return nil, err
	}
	r.GetBody = nil // see transport
	r.Header.Set(HeaderDelivery, strconv.FormatInt(delivery, 10))
	r.Header.Set(HeaderQueueID, e.ID)
	if ms, _, ok := strings.Cut(e.entry, "-"); ok {
		at, _ := strconv.ParseInt(ms, 10, 64)
		r.Header.Set(HeaderQueuedAt, time.UnixMilli(at).UTC().Format(time.RFC3339Nano))
	}
	if r.Header.Get(HeaderIdempotencyKey) == "" {
		r.Header.Set(HeaderIdempotencyKey, e.ID)
	}
	if _, said := r.Header["User-Agent"]; !said {
		r.Header.Set("User-Agent", "") // Go's own is not the client's
	}
	return r, nil
}

// newRequest is the request as the client sent it, to another place.
func newRequest(ctx context.Context, base *url.URL, h *weirv1.HttpRequest) (*http.Request, error) {
	target, err := targetURL(base, strings.TrimSuffix(base.EscapedPath(), "/")+string(h.Path))
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, h.Method, "http://upstream", bytes.NewReader(h.Body))
	if err != nil {
		return nil, fmt.Errorf("making the request to the upstream: %w", err)
	}
	r.URL = target
	for _, line := range h.Headers {
		if slices.Contains(hopByHop, http.CanonicalHeaderKey(line.GetName())) {
			continue
		}
		if !httpguts.ValidHeaderFieldName(line.GetName()) || !httpguts.ValidHeaderFieldValue(string(line.GetValue())) {
			return nil, fmt.Errorf("the header %.100q is none, or its value is not", line.GetName())
		}
		r.Header.Add(line.Name, string(line.Value))
	}
	if !httpguts.ValidHostHeader(h.Authority) {
		return nil, fmt.Errorf("the authority %.100q is no host", h.Authority)
	}
	r.Host = h.Authority // "": the upstream's own
	return r, nil
}
