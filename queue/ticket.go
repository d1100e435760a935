package queue

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"weir/limiter"
)

// A ticket says that a decision has sent a request into a queue, and into which. It
// goes to the ingest beside x-weir-overflow, signed, for clients could send that
// header too. With it the ingest needs no rules, and the decision and the ingest of
// one request agree on them. It stores one request: append.lua remembers it.

// ticketLife is how long a request may take from its decision to the ingest.
const ticketLife = time.Minute

// ticket is what is signed.
type ticket struct {
	Name    string `json:"i"` // of this ticket; "": from a Weir of before, it may be used again
	Hash    string `json:"h"` // of the queue's tag
	Domain  string `json:"d"`
	Rule    string `json:"r"`
	Path    string `json:"p"`
	Counter string `json:"c"`
	Limit   uint64 `json:"l"`
	Window  int64  `json:"w"` // ns
	Queue   uint64 `json:"q"`
	Cost    uint64 `json:"n"`
	Until   int64  `json:"t"` // ms since 1970
}

var errTicket = errors.New("the request was not sent here by a decision")

// LoadSecret reads what the instances of this Redis sign with, made by the first.
// Until it has, there are no tickets. Called again, it puts the secret back if Redis
// has lost it, or takes over another. It fails with ErrUnavailable.
func (q *Queues) LoadSecret(ctx context.Context) error {
	key := q.prefix + "queue-secret"
	ours := []byte(rand.Text() + rand.Text())
	if known := q.secret.Load(); known != nil {
		ours = *known
	}
	secret, err := q.client.Get(ctx, key).Bytes()
	if errors.Is(err, goredis.Nil) { // a full Redis that has one is only read
		if err := q.client.SetNX(ctx, key, ours, 0).Err(); err != nil {
			return unavailable("making the secret of the queues", err)
		}
		secret, err = q.client.Get(ctx, key).Bytes()
	}
	if err != nil {
		return unavailable("reading the secret of the queues", err)
	}
	q.secret.Store(&secret)
	return nil
}

// Ready tells whether requests can be sent into queues.
func (q *Queues) Ready() bool { return q.secret.Load() != nil }

// Ticket sends a request of this cost into a queue: what the ticket says and a MAC
// (RFC 2104), in base64url. It is empty where Ready is false.
func (q *Queues) Ticket(a *About, cost uint64) string {
	secret := q.secret.Load()
	text, err := json.Marshal(ticket{
		Name: rand.Text(),
		Hash: q.hash(a.Tag), Domain: brief(a.Domain), Rule: brief(a.Rule), Path: brief(a.Path), Counter: a.Counter,
		Limit: a.Limit.Requests, Window: int64(a.Limit.Window.Length), Queue: a.Limit.Queue,
		Cost: cost, Until: time.Now().Add(ticketLife).UnixMilli(),
	})
	if err != nil || secret == nil {
		return ""
	}
	body := base64.RawURLEncoding.EncodeToString(text)
	return body + "." + base64.RawURLEncoding.EncodeToString(mac(*secret, body))
}

// brief bounds the ticket, which is a header: names are there for people.
func brief(name string) string { return name[:min(len(name), 200)] }

func mac(secret []byte, text string) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(text))
	return h.Sum(nil)[:16]
}

// admit returns the queue that a ticket is for, and what it says beside, if it was
// signed with the secret and is not too old.
func (q *Queues) admit(text string) (*About, *ticket, error) {
	secret := q.secret.Load()
	if secret == nil {
		return nil, nil, unavailable("checking a ticket", errors.New("the secret of the queues is not known yet"))
	}
	body, sum, ok := strings.Cut(text, ".")
	signed, err := base64.RawURLEncoding.DecodeString(sum)
	if !ok || err != nil || !hmac.Equal(signed, mac(*secret, body)) {
		return nil, nil, errTicket
	}
	plain, err := base64.RawURLEncoding.DecodeString(body)
	var t ticket
	if err != nil || json.Unmarshal(plain, &t) != nil || time.Now().UnixMilli() > t.Until {
		return nil, nil, errTicket
	}
	a := &About{
		Tag: q.tag(t.Hash), Domain: t.Domain, Rule: t.Rule, Path: t.Path, Counter: t.Counter,
		Limit: limiter.Limit{Algorithm: limiter.LeakyBucket, Requests: t.Limit, Window: limiter.Window{Length: time.Duration(t.Window)}, Queue: t.Queue},
	}
	return a, &t, nil
}
