package queue_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"weir/queue"
)

// A worker whose upstream is the listener that queues: the 202 of the ingest must not
// be taken for the upstream's answer.
func TestWhatComesBackIntoTheQueueIsNotLost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ remark, key string }{
		{"a copy is stored, and taken out again", ""},
		{"the copy is the request itself, by its key", "k"},
	} {
		t.Run(c.remark, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 100, 10)
			var mended atomic.Bool
			var looped, arrived atomic.Int64
			u := &upstream{}
			u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if mended.Load() {
					arrived.Add(1)
					return
				}
				looped.Add(1)
				body, _ := io.ReadAll(r.Body)
				a := b.post(r.RequestURI, string(body), queue.HeaderIdempotencyKey, r.Header.Get(queue.HeaderIdempotencyKey))
				w.Header().Set(queue.HeaderQueued, a.header.Get(queue.HeaderQueued))
				w.WriteHeader(a.code)
			}))
			t.Cleanup(u.Close)
			var key []string
			if c.key != "" {
				key = []string{queue.HeaderIdempotencyKey, c.key}
			}
			r := b.post("/orders", "one", key...)
			b.wantCode(r, 202)
			opts := impatient
			opts.MaxDeliveries = 2
			b.work(u, opts)
			await(t, "it has come back more often than it may fail", func() bool { return looped.Load() > 3 })
			if state := b.state(r); state == queue.StateDone || state == queue.StateFailed {
				t.Fatalf("it is %s", state)
			}
			mended.Store(true)
			await(t, "it is done", func() bool { return b.state(r) == queue.StateDone })
			await(t, "nothing waits", func() bool {
				n, err := b.queues.Overviews(t.Context())
				return err == nil && n[0].Waiting == 0
			})
			if n := arrived.Load(); n != 1 {
				t.Errorf("it arrived %d times", n)
			}
		})
	}
}

// Whoever answers with the ID of another request must not end that one by it.
func TestAnAnswerWithTheIDOfAnotherRequestDropsNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ remark, key string }{
		{"which has no key", ""},
		{"which has a key of its own", "k"},
	} {
		t.Run(c.remark, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1000, 10)
			var key []string
			if c.key != "" {
				key = []string{queue.HeaderIdempotencyKey, c.key}
			}
			first, second := b.post("/a", ""), b.post("/b", "", key...)
			var answered atomic.Int64
			u := &upstream{}
			u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if answered.Add(1) <= 2 {
					w.Header().Set(queue.HeaderQueued, second.header.Get(queue.HeaderQueued))
					w.WriteHeader(http.StatusAccepted)
				}
			}))
			t.Cleanup(u.Close)
			b.work(u, impatient)
			await(t, "nothing waits", func() bool {
				n, err := b.queues.Overviews(t.Context())
				return err == nil && n[0].Waiting == 0
			})
			if b.state(first) != queue.StateDone || b.state(second) != queue.StateDone || answered.Load() != 4 {
				t.Errorf("the first is %s, the second %s, after %d deliveries", b.state(first), b.state(second), answered.Load())
			}
		})
	}
}

// An upstream that has a Weir of its own answers like ours.
func TestA202OfAnotherQueueIsAnAnswer(t *testing.T) {
	t.Parallel()
	theirs, b := newBench(t, 100, 10), newBench(t, 100, 10)
	u := &upstream{}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := theirs.post(r.RequestURI, "")
		w.Header().Set(queue.HeaderQueued, a.header.Get(queue.HeaderQueued))
		w.WriteHeader(a.code)
	}))
	t.Cleanup(u.Close)
	r := b.post("/orders", "one")
	b.work(u, impatient)
	await(t, "it is done", func() bool { return b.state(r) == queue.StateDone })
}

// An instance that could not read the secret yet cannot tell a good ticket from a bad
// one: a 403 would be final.
func TestATicketIsNotRefusedForGoodBeforeTheSecretIsKnown(t *testing.T) {
	t.Parallel()
	b := newBench(t, 100, 10)
	ticket := b.queues.Ticket(&b.orders, 1)
	late := httptest.NewServer(queue.NewIngest(queue.IngestOptions{Queues: b.open()}))
	t.Cleanup(late.Close)
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, late.URL+"/orders", nil)
	r.Header.Set(queue.HeaderTicket, ticket)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("answered %s, Retry-After %q", resp.Status, resp.Header.Get("Retry-After"))
	}
}
