package queue

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"golang.org/x/net/http/httpguts"
	"google.golang.org/protobuf/proto"

	weirv1 "weir/api/weir/v1"
)

//go:embed leave.lua
var leaveLua string

//go:embed again.lua
var againLua string

var (
	leaveScript = goredis.NewScript(leaveLua)
	againScript = goredis.NewScript(againLua)
)

// group is the consumers of a stream. It has one consumer of the same name, for
// the lock lets one worker at a time empty a queue: what one that died had begun
// is its successor's at once.
const group = "weir"

// States of a request.
const (
	StateWaiting    = "waiting"
	StateDelivering = "delivering" // or between two tries
	StateDone       = "done"       // the upstream has answered
	StateFailed     = "failed"     // given up; an operator may retry it
	StateDropped    = "dropped"    // by an operator
)

// ErrUnknown is a request that was never queued, or whose record has expired.
var ErrUnknown = errors.New("no such request, or it is done for longer than results are kept")

// Status is what has become of a request.
type Status struct {
	ID         string    `json:"id"`
	State      string    `json:"state"`
	Ahead      uint64    `json:"ahead"`            // of one that waits: how many are before it
	Status     int       `json:"status,omitempty"` // the upstream's last
	Why        string    `json:"why,omitempty"`    // it failed
	Deliveries uint64    `json:"deliveries"`       // how often it was sent
	Since      time.Time `json:"since"`            // when it was queued

	about About
}

// DepartsAfter is about the time until one that waits departs.
func (s *Status) DepartsAfter() time.Duration { return s.about.wait(int64(min(s.Ahead, 1<<32)) + 1) }

// Status tells what has become of the request of this ID. It fails with ErrUnknown
// or ErrUnavailable.
func (q *Queues) Status(ctx context.Context, id string) (*Status, error) {
	hash, name, ok := strings.Cut(id, ".")
	if !ok || len(hash) != 22 || len(name) != 26 || strings.ContainsAny(id, "{}:") {
		return nil, ErrUnknown
	}
	a := About{Tag: q.tag(hash)}
	f, err := q.client.HGetAll(ctx, a.record(name)).Result()
	if err != nil {
		return nil, unavailable("reading a request's record", err)
	}
	if f["state"] == "" {
		return nil, ErrUnknown
	}
	s := &Status{ID: id, State: f["state"], Why: f["why"]}
	s.Status, _ = strconv.Atoi(f["status"])
	s.Deliveries, _ = strconv.ParseUint(f["deliveries"], 10, 64)
	since, _ := strconv.ParseInt(f["since"], 10, 64)
	s.Since = time.UnixMilli(since).UTC()
	if s.State == StateWaiting {
		about, err := q.about(ctx, hash)
		if err != nil {
			return nil, err
		}
		if about != nil {
			s.about = *about
		}
		left, err := q.client.HGet(ctx, a.about(), "left").Int64()
		if err != nil && !errors.Is(err, goredis.Nil) {
			return nil, unavailable("reading what a queue is", err)
		}
		place, _ := strconv.ParseInt(f["place"], 10, 64)
		s.Ahead = uint64(max(0, place-left-1))
	}
	return s, nil
}

// Entry is a request in a queue, or of those that were given up.
type Entry struct {
	ID      string
	Request *weirv1.HttpRequest // nil: it cannot be read
	Status  string              // given up: the upstream's last status
	Why     string              // given up: why

	about *About
	entry string // its place in the stream
	name  string // of its record
	once  string // the key of its idempotency key; "": none
	cost  uint64
}

// entryOf reads an entry of a stream. One that cannot be read has no Request.
func (q *Queues) entryOf(a *About, m goredis.XMessage) *Entry {
	text := func(name string) string { s, _ := m.Values[name].(string); return s }
	e := &Entry{about: a, entry: m.ID, name: text("id"), once: text("once"), Status: text("status"), Why: text("why"), Request: &weirv1.HttpRequest{}}
	e.cost, _ = strconv.ParseUint(text("cost"), 10, 64)
	e.ID = q.hash(a.Tag) + "." + e.name
	sound := e.name != "" && httpguts.ValidHeaderFieldValue(e.ID) // the upstream is told it: one that cannot be sent were tried for ever
	if !sound || proto.Unmarshal([]byte(text("request")), e.Request) != nil || !bytes.HasPrefix(e.Request.Path, []byte("/")) {
		e.Request = nil
	}
	return e
}

// waiting returns the entry of a request that waits or is being delivered; nil: there
// is none.
func (q *Queues) waiting(ctx context.Context, id string) (*Entry, error) {
	hash, name, _ := strings.Cut(id, ".")
	a, err := q.about(ctx, hash)
	if err != nil || a == nil {
		return nil, err
	}
	entry, err := q.client.HGet(ctx, a.record(name), "entry").Result()
	if errors.Is(err, goredis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, unavailable("reading a request's record", err)
	}
	found, err := q.client.XRange(ctx, a.stream(), entry, entry).Result()
	if err != nil {
		return nil, unavailable("looking into a queue", err)
	}
	if len(found) == 0 {
		return nil, nil
	}
	return q.entryOf(a, found[0]), nil
}

// key is the request's idempotency key, by its headers; "": none, or it cannot be read.
func (e *Entry) key() string {
	for _, h := range e.Request.GetHeaders() {
		if http.CanonicalHeaderKey(h.GetName()) == HeaderIdempotencyKey {
			return string(h.GetValue())
		}
	}
	return ""
}

func (e *Entry) keys() []string {
	keys := []string{e.about.stream(), e.about.record(e.name), e.about.about(), e.about.dead()}
	if e.once != "" {
		keys = append(keys, e.once)
	}
	return keys
}

// leave takes a request out of its queue, into a final state. It tells whether it
// was still there.
func (q *Queues) leave(ctx context.Context, e *Entry, state string, status int, why string, keep time.Duration) (bool, error) {
	n, err := leaveScript.Run(ctx, q.client, e.keys(), e.entry, state, status, why, keep.Milliseconds(), group).Int64()
	if err != nil {
		return false, unavailable("taking a request out of its queue", err)
	}
	return n == 1, nil
}

// again puts a request that was given up behind those that wait, or drops it.
func (q *Queues) again(ctx context.Context, e *Entry, state string, keep time.Duration) (bool, error) {
	n, err := againScript.Run(ctx, q.client, e.keys(), e.entry, state, keep.Milliseconds()).Int64()
	if err != nil {
		return false, unavailable("deciding on a request that was given up", err)
	}
	return n == 1, nil
}
