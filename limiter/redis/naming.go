package redis

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"slices"
	"sync"

	"weir/limiter"
)

// keyHash is 128 bits that stand for a counter's identity: short, and neither to
// be forged nor to be read.
type keyHash [16]byte

// hashKey is without a secret: SHA-256.
func hashKey(k limiter.Key) keyHash {
	sum := sha256.Sum256(k)
	return keyHash(sum[:16])
}

func (h keyHash) name(prefix string) string {
	var text [22]byte
	base64.RawURLEncoding.Encode(text[:], h[:])
	return prefix + string(text[:])
}

// MinSecret is how many bytes a secret of Naming has at least. A shorter one
// could be guessed, and then so could what it hides.
const MinSecret = 16

// Naming says what counters are called in Redis. All who share counters have the
// same one. It is safe for concurrent use.
//
// Without a secret the name has SHA-256 of the counter's identity: nobody can read
// it back, but who reads Redis can try values (all addresses of IPv4 are soon
// tried). With one it has HMAC-SHA-256, and trying takes the secret. What overflows
// into queues has no client's values in its identity, and its names have no
// secret: so the worker and the commands for queues need none, and a new secret
// leaves alone what waits.
type Naming struct {
	prefix string
	macs   *sync.Pool // of *mac; nil: there is no secret
}

// mac is an HMAC that is used again and again: it has the secret's share of the
// work behind it.
type mac struct {
	hash.Hash
	sum [sha256.Size]byte
}

// NewNaming returns the naming for a prefix (empty: DefaultKeyPrefix) and a secret
// (empty: none).
func NewNaming(prefix string, secret []byte) *Naming {
	n := &Naming{prefix: prefix}
	if prefix == "" {
		n.prefix = DefaultKeyPrefix
	}
	if len(secret) > 0 {
		secret = slices.Clone(secret)
		n.macs = &sync.Pool{New: func() any { return &mac{Hash: hmac.New(sha256.New, secret)} }}
	}
	return n
}

// Counter is what a counter is called in Redis. One whose hits overflow into a
// queue lies beside that queue.
func (n *Naming) Counter(k, overflow limiter.Key) string {
	if overflow != nil {
		return QueueCounter(n.prefix, k, overflow)
	}
	return n.hash(k, nil).name(n.prefix)
}

// Prefix begins all names.
func (n *Naming) Prefix() string { return n.prefix }

// hash is the part of a counter's name that stands for its identity.
func (n *Naming) hash(k, overflow limiter.Key) keyHash {
	if n.macs == nil || overflow != nil {
		return hashKey(k)
	}
	m := n.macs.Get().(*mac)
	m.Reset()
	_, _ = m.Write(k) // a hash takes everything
	h := keyHash(m.Sum(m.sum[:0])[:16])
	n.macs.Put(m)
	return h
}

// QueueTag begins all keys of a queue that hits overflow into, and puts them on one
// node of a cluster.
func QueueTag(prefix string, overflow limiter.Key) string {
	return prefix + "{" + hashKey(overflow).name("") + "}"
}

// QueueName is what the stream of who waits is called in Redis.
func QueueName(prefix string, overflow limiter.Key) string {
	return QueueTag(prefix, overflow) + "queue"
}

// QueueCounter is what the counter is called whose hits overflow into the queue.
func QueueCounter(prefix string, k, overflow limiter.Key) string {
	return hashKey(k).name(QueueTag(prefix, overflow))
}
