package server

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"weir/limiter"
)

// Time within these tests is synctest's.

// slowStore is a store in memory that takes its time.
type slowStore struct {
	limiter.Store
	mu    sync.Mutex
	takes time.Duration
	asked int
}

func newSlowStore() *slowStore {
	return &slowStore{Store: limiter.NewMemory(limiter.MemoryOptions{})}
}

func (s *slowStore) Decide(ctx context.Context, hits []limiter.Hit) ([]limiter.Decision, error) {
	s.mu.Lock()
	s.asked++
	takes := s.takes
	s.mu.Unlock()
	if takes > 0 {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(takes):
		}
	}
	return s.Store.Decide(ctx, hits)
}

// shedBook keeps for what reasons requests were shed.
type shedBook struct {
	mu      sync.Mutex
	reasons []string
}

func (b *shedBook) add(reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reasons = append(b.reasons, reason)
}

func TestMoreThanMayWaitForTheStoreAreShed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, book := newSlowStore(), new(shedBook)
		store.takes = time.Second
		f := newFixture(t, setup{service: Options{Store: store, MaxInFlight: 3, OnShed: book.add}, rules: `rules: [{match: {a: "*"}, limit: 100, window: 1h}]`})
		begin := time.Now()
		got := f.askAll(t, begin, "a=1", make([]time.Duration, 10)...)
		for i, a := range got {
			switch {
			case i < 3 && (a.err != nil || a.at != time.Second):
				t.Errorf("request %d: %+v, want an answer", i+1, a)
			case i >= 3 && (!isShed(a.err) || a.at != 0):
				t.Errorf("request %d: %+v, want that it is shed at once", i+1, a)
			}
		}
		if len(book.reasons) != 7 || book.reasons[0] != ShedInFlight {
			t.Errorf("reasons: %v", book.reasons)
		}
		next := f.askAll(t, begin, "a=1", 0)[0]
		if next.err != nil || !strings.Contains(next.text, "left 96") { // what was shed is not charged
			t.Errorf("the next: %+v", next)
		}
	})
}

func TestWhoIsHeldDoesNotCountAsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, setup{service: Options{MaxInFlight: 1}, rules: bucket, realTime: true})
		for i, a := range f.askAll(t, time.Now(), "a=1", 0, 0, 0, 0) {
			if a.err != nil || a.at != time.Duration(i)*time.Second {
				t.Errorf("request %d: %+v", i+1, a)
			}
		}
	})
}

func TestAnyNumberMayWaitIfToldSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSlowStore()
		store.takes = time.Second
		f := newFixture(t, setup{service: Options{Store: store, MaxInFlight: -1}, rules: bucket})
		for i, a := range f.askAll(t, time.Now(), "full=1", make([]time.Duration, 50)...) {
			if a.err != nil {
				t.Errorf("request %d: %+v", i+1, a)
			}
		}
	})
}

func TestWhoWouldLeaveBeforeTheStoreAnswersIsShed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, book := newSlowStore(), new(shedBook)
		f := newFixture(t, setup{service: Options{Store: store, OnShed: book.add}, rules: `rules: [{match: {a: "*"}, limit: 100000, window: 1h}]`})
		ms := time.Millisecond
		for i, step := range []struct {
			wait, takes, deadline time.Duration
			times                 int
			want                  string // shed, late, OK
			remark                string
		}{
			{0, 8 * ms, 20 * ms, 20, "OK", "a store that takes 8 ms; nothing is known at first"},
			{0, 8 * ms, 5 * ms, 10, "shed", "5 ms are too few"},
			{0, 8 * ms, 9 * ms, 1, "OK", "9 ms are enough"},
			{101 * ms, 8 * ms, 5 * ms, 1, "late", "nobody knows how long it takes now: one finds out"},
			{0, 8 * ms, 5 * ms, 5, "shed", "and the rest need not"},
			{101 * ms, 1 * ms, 5 * ms, 1, "OK", "it is quick again, which one finds out"},
			{0, 1 * ms, 20 * ms, 10, "OK", "so do others"},
			{0, 1 * ms, 5 * ms, 10, "OK", "then 5 ms are enough"},
			{0, 9 * ms, 0, 50, "OK", "who has no deadline is never shed, and says nothing of the store"},
			{0, 1 * ms, 5 * ms, 10, "OK", "so that it passes for quick"},
		} {
			time.Sleep(step.wait)
			store.takes = step.takes
			for range step.times {
				before := store.asked
				a := f.askAll(t, time.Now(), "a=1", step.deadline)[0]
				got := "OK"
				switch {
				case isShed(a.err):
					got = "shed"
					if store.asked != before {
						t.Errorf("%d: %s: it is shed, and the store was asked", i, step.remark)
					}
				case grpcstatus.Code(a.err) == codes.DeadlineExceeded:
					got = "late"
				}
				if got != step.want {
					t.Errorf("%d: %s: %s (%v), want %s", i, step.remark, got, a.err, step.want)
				}
			}
		}
		store.takes = 8 * ms
		f.askAll(t, time.Now(), "a=1", slices.Repeat([]time.Duration{20 * ms}, 20)...)
		time.Sleep(101 * ms)
		before := store.asked
		f.askAll(t, time.Now(), "a=1", slices.Repeat([]time.Duration{5 * ms}, 10)...)
		if n := store.asked - before; n != 1 {
			t.Errorf("of ten that come at once, %d find out how long the store takes", n)
		}
		if len(book.reasons) != 15+9 || slices.Contains(book.reasons, ShedInFlight) {
			t.Errorf("reasons: %v", book.reasons)
		}
	})
}

func TestInShadowNobodyIsShedForTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSlowStore()
		store.takes = 8 * time.Millisecond
		f := newFixture(t, setup{service: Options{Store: store, Shadow: true}, rules: bucket})
		for _, d := range []int{20, 20, 20, 9, 9, 7} {
			if a := f.askAll(t, time.Now(), "full=1", time.Duration(d)*time.Millisecond)[0]; isShed(a.err) {
				t.Errorf("with %d ms: %v", d, a.err)
			}
		}
	})
}

func TestACallIsBounded(t *testing.T) {
	store := newSlowStore()
	s := start(t, setup{service: Options{Store: store}, rules: bucket})
	large := strings.Repeat("x", 70<<10)
	if _, err := s.client.ShouldRateLimit(metadata.AppendToOutgoingContext(t.Context(), "x-large", large), request("default", "full=1")); err == nil {
		t.Error("headers of 70 KiB are taken")
	}
	if _, err := s.client.ShouldRateLimit(t.Context(), request("default", "full="+strings.Repeat("x", 5<<20))); grpcstatus.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message of 5 MiB: %v", err)
	}
	if store.asked != 0 {
		t.Error("the store was asked")
	}
	if _, err := s.client.ShouldRateLimit(t.Context(), request("default", "full="+large)); err != nil {
		t.Errorf("a large value in an ordinary call: %v", err)
	}
}
