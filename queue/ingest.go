package queue

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	weirv1 "weir/api/weir/v1"
)

// Headers of what comes to the ingest.
const (
	HeaderOverflow = "X-Weir-Overflow"        // from a decision: the rule
	HeaderTicket   = "X-Weir-Overflow-Ticket" // from a decision: see ticket.go
	HeaderQueue    = "X-Weir-Queue"           // from a client that comes by itself: DOMAIN/RULE
	HeaderSecret   = "X-Weir-Queue-Secret"    //nolint:gosec // of such a client; the name is no secret

	HeaderQueued = "X-Weir-Queued" // in the answer: the ID of what was stored
)

// statusPath is where the ingest tells what has become of a request.
const statusPath = "/queue/"

// IngestOptions configures an Ingest. Queues and Find are required; the zero value
// of the rest is its default.
type IngestOptions struct {
	Queues  *Queues
	Find    func(domain, rule string) *About // a queue by its name; nil: there is none
	Direct  string                           // clients that come by themselves show it; "": there are none
	MaxBody int64                            // bytes of a body; 0: DefaultMaxBody
	Busy    int64                            // bytes of bodies that are read at once; 0: DefaultBusy
	Logger  *slog.Logger                     // nil: none

	// Answered, unless nil, is called with the HTTP status of each request that came
	// for a queue.
	Answered func(a *About, status int)
}

// Defaults of IngestOptions.
const (
	DefaultMaxBody = 1 << 20
	DefaultBusy    = 64 << 20
)

// Ingest stores requests that a decision sent into a queue, and tells what has become
// of them.
//
//	202 stored, with Location and Retry-After      413 the body is too large
//	400 an idempotency key that cannot be          422 the idempotency key is another request's
//	403 not sent by a decision, or its ticket      429 the queue is full
//	    is used up                                 431 the headers are too large
//	404 no such request or queue                   501 what cannot be replayed
//	414 the path and query are too long            503 Redis does not answer: it may have it or not
type Ingest struct {
	opts    IngestOptions
	busy    *budget
	failing atomic.Bool // the last request could not be stored
}

// NewIngest returns the handler.
func NewIngest(opts IngestOptions) *Ingest {
	if opts.MaxBody == 0 {
		opts.MaxBody = DefaultMaxBody
	}
	if opts.Busy == 0 {
		opts.Busy = DefaultBusy
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Ingest{opts: opts, busy: &budget{left: max(opts.Busy, opts.MaxBody)}}
}

// ServeHTTP implements http.Handler.
func (i *Ingest) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ticket, queue := r.Header.Get(HeaderTicket), r.Header.Get(HeaderQueue)
	switch {
	case ticket != "" || r.Header.Get(HeaderOverflow) != "":
		about, t, err := i.opts.Queues.admit(ticket)
		if errors.Is(err, ErrUnavailable) {
			i.away(w, err, "the queue's Redis does not answer")
			return
		}
		if err != nil {
			i.opts.Logger.Debug("a request has no valid ticket", "remote", r.RemoteAddr)
			refuse(w, http.StatusForbidden, "this request was not sent into a queue by a decision, or too long ago")
			return
		}
		i.store(w, r, about, t)
	case queue != "":
		i.direct(w, r, queue)
	case strings.HasPrefix(r.URL.Path, statusPath):
		i.status(w, r)
	default:
		refuse(w, http.StatusNotFound, "nothing is here but "+statusPath+"ID, and queues for requests with "+HeaderOverflow+" or "+HeaderQueue)
	}
}

// direct takes a request that a client sends into a queue by itself.
func (i *Ingest) direct(w http.ResponseWriter, r *http.Request, queue string) {
	if i.opts.Direct == "" {
		refuse(w, http.StatusForbidden, "this server has no --queue-secret: it takes only what a decision has sent here")
		return
	}
	shown, wanted := sha256.Sum256([]byte(r.Header.Get(HeaderSecret))), sha256.Sum256([]byte(i.opts.Direct)) // the time tells not even its length
	if subtle.ConstantTimeCompare(shown[:], wanted[:]) != 1 {
		refuse(w, http.StatusForbidden, HeaderSecret+" is not the secret of this server (--queue-secret)")
		return
	}
	domain, rule, _ := strings.Cut(queue, "/")
	about := i.opts.Find(domain, rule)
	if about == nil {
		refuse(w, http.StatusNotFound, fmt.Sprintf("no rule %q with over_limit: queue in the domain %q; %s is DOMAIN/RULE", rule, domain, HeaderQueue))
		return
	}
	i.store(w, r, about, &ticket{Cost: 1})
}

// away answers where Redis does not; the log has the first of many.
func (i *Ingest) away(w http.ResponseWriter, err error, why string) {
	if !i.failing.Swap(true) {
		i.opts.Logger.Warn("requests cannot be queued", "err", err)
	}
	w.Header().Set("Retry-After", "1")
	refuse(w, http.StatusServiceUnavailable, why)
}

// maxKey is how long an idempotency key may be.
const maxKey = 255

func (i *Ingest) store(w http.ResponseWriter, r *http.Request, about *About, t *ticket) {
	plain := w // only it closes a connection whose body is too large
	if i.opts.Answered != nil {
		noted := &noted{ResponseWriter: w, status: http.StatusOK}
		defer func() { i.opts.Answered(about, noted.status) }()
		w = noted
	}
	if what := unreplayable(r); what != "" {
		refuse(w, http.StatusNotImplemented, what+" cannot be queued")
		return
	}
	key := r.Header.Get(HeaderIdempotencyKey)
	if len(key) > maxKey || len(r.Header.Values(HeaderIdempotencyKey)) > 1 {
		refuse(w, http.StatusBadRequest, fmt.Sprintf("%s is to be one, of up to %d bytes", HeaderIdempotencyKey, maxKey))
		return
	}
	request := httpRequest(r)
	if why := targetTooLong(request); why != "" {
		refuse(w, http.StatusRequestURITooLong, why)
		return
	}
	if why := headersTooLarge(request); why != "" {
		refuse(w, http.StatusRequestHeaderFieldsTooLarge, why)
		return
	}
	body, release, code := i.read(plain, r)
	defer release()
	if code != 0 {
		refuse(w, code, i.why(code))
		return
	}
	request.Body = body
	receipt, err := i.opts.Queues.Append(r.Context(), about, Request{
		HTTP: request, Cost: t.Cost, Key: key, Scope: r.Header.Get("Authorization"), ticket: t.Name,
	})
	i.answer(w, r, about, receipt, err)
}

// answer tells the client what became of its request.
func (i *Ingest) answer(w http.ResponseWriter, r *http.Request, about *About, receipt Receipt, err error) {
	switch {
	case errors.Is(err, ErrFull):
		if about.Limit.Requests > 0 { // else waiting cannot help
			w.Header().Set("Retry-After", wholeSeconds(about.interval()))
		}
		refuse(w, http.StatusTooManyRequests, err.Error())
	case errors.Is(err, ErrOtherByKey):
		refuse(w, http.StatusUnprocessableEntity, "another request was sent with this "+HeaderIdempotencyKey)
	case errors.Is(err, ErrTicketUsed):
		i.opts.Logger.Debug("a ticket came with a second request", "remote", r.RemoteAddr)
		refuse(w, http.StatusForbidden, err.Error()+"; each decision lets one request into the queue")
	case errors.Is(err, ErrRequest):
		refuse(w, http.StatusBadRequest, err.Error())
	case err != nil:
		i.away(w, err, "it is not known whether the queue has the request; send it again with the same "+HeaderIdempotencyKey)
	default:
		if i.failing.Swap(false) {
			i.opts.Logger.Info("requests are queued again")
		}
		w.Header().Set(HeaderQueued, receipt.ID)
		w.Header().Set("Location", statusPath+receipt.ID)
		w.Header().Set("Retry-After", wholeSeconds(receipt.DepartsAfter))
		state := StateWaiting
		if receipt.Duplicate { // it may be farther
			if s, err := i.opts.Queues.Status(r.Context(), receipt.ID); err == nil {
				state, receipt.Ahead = s.State, s.Ahead
			}
		}
		write(w, http.StatusAccepted, map[string]any{"id": receipt.ID, "state": state, "ahead": receipt.Ahead, "duplicate": receipt.Duplicate})
	}
}

// noted remembers the status of an answer.
type noted struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (n *noted) WriteHeader(status int) {
	n.status = status
	n.ResponseWriter.WriteHeader(status)
}

func (i *Ingest) why(code int) string {
	switch code {
	case http.StatusRequestEntityTooLarge:
		return fmt.Sprintf("a queued request's body may have %d bytes", i.opts.MaxBody)
	case http.StatusServiceUnavailable:
		return "too many bodies are being read; try again"
	}
	return "the request's body ended early"
}

// readChunk is how much of a body may be read before it is counted.
const readChunk = 32 << 10

// read reads the body. The code says what went wrong; 0: nothing. What all bodies
// take together is bounded: release gives this one's share back.
func (i *Ingest) read(w http.ResponseWriter, r *http.Request) (body []byte, release func(), code int) {
	release = func() {}
	if r.ContentLength > i.opts.MaxBody {
		return nil, release, http.StatusRequestEntityTooLarge
	}
	var share int64
	release = func() { i.busy.give(share) }
	var read bytes.Buffer
	bounded := http.MaxBytesReader(w, r.Body, i.opts.MaxBody)
	for {
		n, err := io.CopyN(&read, bounded, readChunk)
		var tooLarge *http.MaxBytesError
		switch {
		case errors.As(err, &tooLarge):
			return nil, release, http.StatusRequestEntityTooLarge
		case err != nil && !errors.Is(err, io.EOF):
			return nil, release, http.StatusBadRequest
		case !i.busy.take(n): // what has come, not what is announced: a silent client holds nothing
			w.Header().Set("Retry-After", "1")
			return nil, release, http.StatusServiceUnavailable
		}
		share += n
		if err != nil {
			return read.Bytes(), release, 0
		}
	}
}

// unreplayable says what of a request makes no sense later; "": nothing.
func unreplayable(r *http.Request) string {
	switch {
	case r.Method == http.MethodConnect:
		return "CONNECT"
	case r.Header.Get("Upgrade") != "" && tokens(r.Header, "Connection")["upgrade"]:
		return "an upgrade"
	case strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc"):
		return "a gRPC call"
	case !strings.HasPrefix(r.RequestURI, "/"):
		return "a request for * or for an absolute URL" // Envoy makes a path of the latter
	}
	return ""
}

// hopByHop are the headers that belong to a connection (RFC 9110, 7.6.1), and those
// that are made anew when the request is sent.
var hopByHop = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"Content-Length", "Expect", HeaderOverflow, HeaderTicket, HeaderQueue, HeaderSecret, HeaderDelivery, HeaderQueueID, HeaderQueuedAt,
	"X-Envoy-Expected-Rq-Timeout-Ms", // of the proxy that the ingest is behind
}

// httpRequest is the request as it is kept, yet without its body.
func httpRequest(r *http.Request) *weirv1.HttpRequest {
	out := &weirv1.HttpRequest{Method: r.Method, Authority: r.Host, Path: []byte(r.RequestURI)}
	named := tokens(r.Header, "Connection") // once: of many names and many headers, the product takes seconds
	for name, values := range r.Header {
		if slices.Contains(hopByHop, name) || named[strings.ToLower(name)] {
			continue
		}
		for _, v := range values {
			out.Headers = append(out.Headers, &weirv1.HttpHeader{Name: name, Value: []byte(v)})
		}
	}
	return out
}

// tokens are the words of a header that is a list, in lower case.
func tokens(h http.Header, name string) map[string]bool {
	found := map[string]bool{}
	for _, line := range h.Values(name) {
		for t := range strings.SplitSeq(line, ",") {
			found[strings.ToLower(strings.TrimSpace(t))] = true
		}
	}
	return found
}

// status tells what has become of a request.
func (i *Ingest) status(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, "ask with GET")
		return
	}
	s, err := i.opts.Queues.Status(r.Context(), strings.TrimPrefix(r.URL.Path, statusPath))
	switch {
	case errors.Is(err, ErrUnknown):
		refuse(w, http.StatusNotFound, err.Error())
	case err != nil:
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusServiceUnavailable, "the queue's Redis does not answer")
	default:
		switch s.State {
		case StateWaiting:
			w.Header().Set("Retry-After", wholeSeconds(s.DepartsAfter()))
		case StateDelivering:
			w.Header().Set("Retry-After", "1")
		}
		write(w, http.StatusOK, s)
	}
}

// wholeSeconds is a wait for Retry-After: rounded up, at least 1.
func wholeSeconds(d time.Duration) string {
	return strconv.FormatInt(max(1, int64(math.Ceil(d.Seconds()))), 10)
}

func write(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // who left needs no answer
}

func refuse(w http.ResponseWriter, code int, why string) {
	write(w, code, map[string]any{"error": why})
}
