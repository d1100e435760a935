package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"
)

// breaker keeps requests from a Redis that fails. It opens after several
// failures in a row; while it is open, a probe asks now and then, and the first
// answer closes it.
type breaker struct {
	probe   func(context.Context) error
	changed func(open bool, cause error)

	failures atomic.Int32 // in a row
	open     atomic.Bool
	wake     chan struct{}
}

// failuresToOpen is how many failures in a row open the breaker. At 2,000
// requests a second, about twenty are under way when the first one times out.
const failuresToOpen = 5

// Waits between probes: doubled after each, with jitter.
const (
	firstProbe = 50 * time.Millisecond
	lastProbe  = time.Second
)

func newBreaker(probe func(context.Context) error, changed func(open bool, cause error)) *breaker {
	return &breaker{probe: probe, changed: changed, wake: make(chan struct{}, 1)}
}

func (b *breaker) isOpen() bool { return b.open.Load() }

func (b *breaker) succeeded() {
	if b.failures.Load() != 0 {
		b.failures.Store(0)
	}
}

func (b *breaker) failed(err error) {
	if b.failures.Add(1) >= failuresToOpen {
		b.trip(err)
	}
}

// trip opens the breaker.
func (b *breaker) trip(err error) {
	if b.open.CompareAndSwap(false, true) {
		b.changed(true, explain(err))
		b.wake <- struct{}{}
	}
}

// run probes while the breaker is open, until the context ends. A Redis that
// answers probes but still fails, such as a replica in a master's place, is not
// probed more often each time that the breaker opens.
func (b *breaker) run(ctx context.Context) {
	wait := firstProbe
	var closed time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.wake:
		}
		if time.Since(closed) > 2*lastProbe {
			wait = firstProbe
		}
		for answered := false; !answered; wait = min(2*wait, lastProbe) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait/2 + rand.N(wait)):
			}
			answered = b.probe(ctx) == nil
		}
		b.failures.Store(0)
		b.changed(false, nil) // before it may open again, so that changes are told in order
		closed = time.Now()
		b.open.Store(false)
	}
}

// explain adds to an error of Redis what one may do about it.
func explain(err error) error {
	text := err.Error()
	for _, hint := range []struct{ sign, advice string }{
		{"WRONGPASS", "correct the user and the password in the URL"},
		{"NOAUTH", "name the password in the URL, such as redis://:PASSWORD@host"},
		{"NOPERM", "have the ACL user run scripts on keys with the prefix of this store's"},
		{"The user executing the script can't", "have the ACL user run all commands of the scripts on keys with the prefix of this store's"},
		{"x509: certificate is", "say which name Redis's certificate has, by --store-tls-server-name"},
		{"x509: cannot validate certificate for", "say which name Redis's certificate has, by --store-tls-server-name"},
		{"x509:", "name the authority of Redis's certificate by --store-ca-file, or have this machine trust it (SSL_CERT_FILE)"},
		{"certificate required", "Redis lets in only who has a certificate: give --store-cert-file and --store-key-file"},
		{"remote error: tls:", "Redis does not take the certificate of --store-cert-file"},
		{"READONLY", "the URL names a replica; name its master, or let sentinels do so by redis+sentinel://"},
		{"OOM", "raise Redis's maxmemory"},
		{"LOADING", "wait: Redis reads its data"},
		{"MOVED", "the URL names a node of a cluster: redis+cluster:// is for that"},
	} {
		if strings.Contains(text, hint.sign) {
			return fmt.Errorf("%w; %s", err, hint.advice)
		}
	}
	return err
}
