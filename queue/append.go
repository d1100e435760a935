package queue

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/proto"

	weirv1 "weir/api/weir/v1"
	"weir/limiter"
)

//go:embed append.lua
var appendLua string

var appendScript = goredis.NewScript(appendLua)

// What Append may fail with, beside ErrUnavailable.
var (
	ErrRequest     = errors.New("the request cannot be queued")
	ErrFull        = errors.New("the queue is full")
	ErrOtherByKey  = errors.New("the idempotency key belongs to another request")
	ErrTicketUsed  = errors.New("the ticket was used for another request")
	errOddAnswer   = errors.New("a script's answer has another shape than is wanted; does another version of Weir share this Redis under this key prefix?")
	errNoDeparture = fmt.Errorf("%w, and stays so: the rule's limit is 0", ErrFull)
)

// Request is what is to be queued.
type Request struct {
	HTTP  *weirv1.HttpRequest
	Cost  uint64 // how many intervals the upstream is left alone after it; 0 is 1
	Key   string // idempotency key; "": none
	Scope string // whose the key is: two clients may choose the same

	ticket string // of a request that a decision sent: which; "": none
}

// Receipt says where a request waits.
type Receipt struct {
	ID           string
	Ahead        uint64
	DepartsAfter time.Duration
	Duplicate    bool
}

// Append puts a request into a queue. When it returns no error, Redis has said
// that the queue has it; with ErrUnavailable, it may.
func (q *Queues) Append(ctx context.Context, a *About, r Request) (Receipt, error) {
	if a.Limit.Requests == 0 {
		return Receipt{}, errNoDeparture
	}
	if err := r.check(); err != nil {
		return Receipt{}, err
	}
	encoded, err := proto.Marshal(r.HTTP)
	if err != nil {
		return Receipt{}, fmt.Errorf("encoding the request: %w", err)
	}
	id := rand.Text()
	keys := []string{a.stream(), a.record(id), a.about(), a.Counter}
	fingerprint, remember := "", int64(0)
	if r.ticket != "" {
		keys = append(keys, a.ticket(r.ticket))
		remember = 2 * ticketLife.Milliseconds() // twice: the instances' clocks may differ
	}
	if r.Key != "" {
		keys = append(keys, a.once(digest([]byte(r.Scope), []byte(r.Key))))
	}
	if r.Key != "" || r.ticket != "" {
		fingerprint = digest([]byte(r.HTTP.Method), r.HTTP.Path, r.HTTP.Body)
	}
	n := a.Limit.Numbers()
	args := append([]any{
		id, encoded, min(max(r.Cost, 1), limiter.MaxCost), fingerprint, a.Limit.Queue,
		a.Limit.Requests, n.Window, int64(n.Unit / time.Microsecond), remember,
	}, a.fields()...)
	reply, err := appendScript.Run(ctx, q.client, keys, args...).Slice()
	if err != nil {
		return Receipt{}, unavailable("queueing a request", err)
	}
	if len(reply) == 5 && reply[4] == int64(1) {
		// On a cluster the list of queues may lie on a node that is away. It does not
		// matter: serve lists its queues again every few seconds.
		_ = q.client.SAdd(ctx, q.index(), q.hash(a.Tag)).Err()
	}
	return a.receipt(q.hash(a.Tag), reply)
}

// check completes the request, and says what is wrong with it.
func (r *Request) check() error {
	switch {
	case r.HTTP == nil || len(r.HTTP.Path) == 0 || r.HTTP.Path[0] != '/':
		return fmt.Errorf("%w: its path does not begin with a slash", ErrRequest)
	case r.HTTP.Method == http.MethodConnect:
		return fmt.Errorf("%w: CONNECT cannot be replayed", ErrRequest)
	case len(r.Key) > maxKey:
		return fmt.Errorf("%w: its idempotency key has %d bytes; %d are allowed", ErrRequest, len(r.Key), maxKey)
	}
	if r.HTTP.Method == "" {
		r.HTTP.Method = http.MethodPost
	}
	for _, why := range []string{targetTooLong(r.HTTP), headersTooLarge(r.HTTP)} {
		if why != "" {
			return fmt.Errorf("%w: %s", ErrRequest, why)
		}
	}
	if _, err := newRequest(context.Background(), &url.URL{Scheme: "http", Host: "upstream"}, r.HTTP); err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	return nil
}

// receipt reads what append.lua answers.
func (a *About) receipt(hash string, reply []any) (Receipt, error) {
	if len(reply) != 5 {
		return Receipt{}, errOddAnswer
	}
	what, _ := reply[0].(int64)
	id, _ := reply[1].(string)
	ahead, _ := reply[2].(int64)
	wait, _ := reply[3].(int64)
	switch what {
	case 0:
		return Receipt{}, ErrFull
	case 3:
		return Receipt{}, ErrOtherByKey
	case 4:
		return Receipt{}, ErrTicketUsed
	}
	return Receipt{ID: hash + "." + id, Ahead: uint64(ahead), DepartsAfter: a.Limit.Duration(wait), Duplicate: what == 2}, nil
}

// digest is 128 bits of a hash of the parts, as text.
func digest(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(p)))
		h.Write(length[:])
		h.Write(p)
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:16])
}
