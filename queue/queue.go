// Package queue keeps requests that are over a limit in Redis Streams, and replays
// them to the upstream at the limit's rate.
//
//	decision: OK with x-weir-overflow ─ Envoy ─ Ingest ─ Redis Stream ─ Worker ─ upstream
//
// There is a stream for each rule with over_limit: queue. All keys of a queue begin
// with its tag (redis.QueueTag), which puts them on one node of a cluster:
//
//	TAG queue       stream: who waits, and the one or few that are being delivered
//	TAG dead        stream: who was given up
//	TAG about       hash: domain, rule, path, limit and the counter's name, for who reads no rules
//	TAG lock        string: the worker that empties it
//	TAG id:ID       hash: what has become of a request
//	TAG once:HASH   string: the request of an idempotency key
//	TAG ticket:NAME string: the request of a ticket, as long as it could be used again
//	TAG ruled       string: a server has told of its rule a while ago, or less
//	TAG COUNTER     the bucket of limiter/redis, which says when the next may depart
//
// and beside them PREFIX queues, the set of the tags' hashes, and PREFIX queue-secret.
package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"weir/limiter"
	"weir/limiter/redis"
	"weir/rules"
)

// Options says where queues are kept. URL is required; the zero value of the rest
// is its default.
type Options struct {
	URL       string         // as redis.Options has it
	TLS       redis.TLSFiles // for a URL that says TLS
	KeyPrefix string         // "": redis.DefaultKeyPrefix
	Timeout   time.Duration  // for an answer of Redis; 0: DefaultTimeout
}

// DefaultTimeout is how long Redis may take. It is longer than a decision's: a
// request that is to be kept is worth a wait.
const DefaultTimeout = 2 * time.Second

// ErrUnavailable is a Redis that did not answer: what was asked of it may have
// been done or not.
var ErrUnavailable = errors.New("the queue's Redis does not answer")

// Queues is the queues of a Redis. It is safe for concurrent use.
type Queues struct {
	client goredis.UniversalClient
	prefix string
	secret atomic.Pointer[[]byte] // tickets are signed with it; nil: not known yet
}

// Open returns the queues. It fails as redis.Dial does, and does not connect yet.
func Open(opts Options) (*Queues, error) {
	if opts.KeyPrefix == "" {
		opts.KeyPrefix = redis.DefaultKeyPrefix
	}
	if opts.Timeout == 0 {
		opts.Timeout = DefaultTimeout
	}
	client, err := redis.Dial(opts.URL, redis.DialOptions{Timeout: opts.Timeout, TLS: opts.TLS})
	if err != nil {
		return nil, err
	}
	tend(client, opts.Timeout)
	return &Queues{client: client, prefix: opts.KeyPrefix}, nil
}

// Close ends the connections.
func (q *Queues) Close() error { return q.client.Close() }

// About is what a queue must know of its rule.
type About struct {
	Tag     string // of its keys: redis.QueueTag
	Domain  string
	Rule    string // its label
	Path    string
	Counter string // the name of its bucket
	Limit   limiter.Limit
}

// AboutRule is what a queue knows of a rule that has an Overflow.
func (q *Queues) AboutRule(r *rules.Rule) About {
	return About{
		Tag: redis.QueueTag(q.prefix, r.Overflow), Domain: r.Domain, Rule: r.Label(), Path: r.Path,
		Counter: redis.QueueCounter(q.prefix, r.QueueCounter(), r.Overflow), Limit: r.Limits[0],
	}
}

// Name is what people call the queue.
func (a *About) Name() string { return a.Domain + "/" + a.Rule }

// interval is the time between two departures.
func (a *About) interval() time.Duration { return a.wait(1) }

// wait is the time that so many departures take; 0 for a limit of 0, under which
// nothing ever departs.
func (a *About) wait(n int64) time.Duration {
	if a.Limit.Requests == 0 {
		return 0
	}
	return time.Duration(float64(n) * float64(a.Limit.Window.Length) / float64(a.Limit.Requests))
}

// Of a queue, the names of its keys.
func (a *About) stream() string          { return a.Tag + "queue" }
func (a *About) dead() string            { return a.Tag + "dead" }
func (a *About) about() string           { return a.Tag + "about" }
func (a *About) lock() string            { return a.Tag + "lock" }
func (a *About) record(id string) string { return a.Tag + "id:" + id }
func (a *About) ruled() string           { return a.Tag + "ruled" }
func (a *About) once(hash string) string { return a.Tag + "once:" + hash }

func (a *About) ticket(name string) string { return a.Tag + "ticket:" + name }

func (q *Queues) index() string { return q.prefix + "queues" }

// hash is the part of the tag that names the queue.
func (q *Queues) hash(tag string) string {
	return strings.TrimSuffix(strings.TrimPrefix(tag, q.prefix+"{"), "}")
}

func (q *Queues) tag(hash string) string { return q.prefix + "{" + hash + "}" }

// ruledLife is how long a queue counts as its rule's after a server has last told of
// the rule: longer than a ticket, for a request that has one may still come.
const ruledLife = ticketLife + 30*time.Second

// Announce tells the workers of these queues, and of what their limits are now.
func (q *Queues) Announce(ctx context.Context, queues []About) error {
	for i := range queues {
		a := &queues[i]
		if err := q.client.SAdd(ctx, q.index(), q.hash(a.Tag)).Err(); err != nil {
			return unavailable("announcing a queue", err)
		}
		if err := q.client.HSet(ctx, a.about(), a.fields()).Err(); err != nil {
			return unavailable("announcing a queue", err)
		}
		if err := q.client.Set(ctx, a.ruled(), "", ruledLife).Err(); err != nil {
			return unavailable("announcing a queue", err)
		}
	}
	return nil
}

// Announced tells whether Redis knows all of these queues: one that began anew does
// not. It says again that their rules are in force, and is to be called often; see
// Remove.
func (q *Queues) Announced(ctx context.Context, queues []About) (bool, error) {
	for i := range queues {
		n, err := q.client.Exists(ctx, queues[i].about()).Result()
		if err != nil {
			return false, unavailable("looking for a queue", err)
		}
		listed, err := q.client.SIsMember(ctx, q.index(), q.hash(queues[i].Tag)).Result()
		if err != nil {
			return false, unavailable("looking for a queue", err)
		}
		ruled, err := q.client.PExpire(ctx, queues[i].ruled(), ruledLife).Result() // not SET: a full Redis allows it
		if err != nil {
			return false, unavailable("announcing a queue", err)
		}
		if n == 0 || !listed || !ruled {
			return false, nil
		}
	}
	return true, nil
}

// fields are what the hash TAG about has.
func (a *About) fields() []any {
	return []any{
		"domain", a.Domain, "rule", a.Rule, "path", a.Path, "counter", a.Counter,
		"limit", a.Limit.Requests, "window", int64(a.Limit.Window.Length), "queue", a.Limit.Queue,
	}
}

// List returns the queues that were announced, in no order.
func (q *Queues) List(ctx context.Context) ([]About, error) {
	hashes, err := q.client.SMembers(ctx, q.index()).Result()
	if err != nil {
		return nil, unavailable("listing the queues", err)
	}
	var queues []About
	for _, hash := range hashes {
		a, err := q.about(ctx, hash)
		if err != nil {
			return nil, err
		}
		if a != nil {
			queues = append(queues, *a)
		}
	}
	return queues, nil
}

// about reads what a queue knows of its rule; nil: nothing.
func (q *Queues) about(ctx context.Context, hash string) (*About, error) {
	a := &About{Tag: q.tag(hash)}
	f, err := q.client.HGetAll(ctx, a.about()).Result()
	if err != nil {
		return nil, unavailable("reading what a queue is", err)
	}
	a.Domain, a.Rule, a.Path, a.Counter = f["domain"], f["rule"], f["path"], f["counter"]
	window, _ := strconv.ParseInt(f["window"], 10, 64)
	a.Limit = limiter.Limit{Algorithm: limiter.LeakyBucket, Window: limiter.Window{Length: time.Duration(window)}}
	a.Limit.Requests, _ = strconv.ParseUint(f["limit"], 10, 64)
	a.Limit.Queue, _ = strconv.ParseUint(f["queue"], 10, 64)
	if sound := a.Counter != "" && a.Limit.Validate() == nil; !sound { // none of ours, or lost
		return nil, nil
	}
	return a, nil
}

func unavailable(doing string, err error) error {
	return fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, err)
}
