package queue_test

import (
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/queue"
)

// weirQueue runs `weir queue`, and returns what it prints.
func (s *site) weirQueue(args ...string) string {
	s.Helper()
	cmd := exec.Command(testenv.WeirBinary(s.T), append(append([]string{"queue"}, args...), "--store", s.url)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.Fatalf("weir queue %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// wantLine wants a line of a text to match.
func wantLine(t *testing.T, text, line string) {
	t.Helper()
	if !regexp.MustCompile("(?m)^" + line).MatchString(text) {
		t.Errorf("no line is %q of\n%s", line, text)
	}
}

func TestOperatorsCommandsWorkOnAClusterAndBySentinels(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		on   func(*testing.T) place
	}{{"cluster", onCluster}, {"sentinel", onSentinel}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			operate(t, tt.on(t))
		})
	}
}

func operate(t *testing.T, p place) {
	var healthy atomic.Bool
	s := newSite(t, p, func(int, delivered) int {
		if healthy.Load() {
			return http.StatusOK
		}
		return http.StatusInternalServerError
	})
	orders, mails := s.orders.Name(), s.mails.Name()
	put := func(a *queue.About, path string) string {
		t.Helper()
		receipt, err := s.queues.Append(t.Context(), a, queue.Request{HTTP: httpPost(path)})
		if err != nil {
			t.Fatal(err)
		}
		return receipt.ID
	}
	ids := []string{put(&s.orders, "/0"), put(&s.orders, "/1"), put(&s.orders, "/2")}
	put(&s.mails, "/mail")

	ls := s.weirQueue("ls")
	wantLine(t, ls, orders+" +3 .* 0 +none")
	wantLine(t, ls, mails+" +1 .* 0 +none")
	for i, id := range ids {
		wantLine(t, s.weirQueue("peek", orders), id+" .*POST /"+string(rune('0'+i))+", 0 bytes")
	}
	wantLine(t, s.weirQueue("drop", mails, "--all"), "1 request dropped")
	wantLine(t, s.weirQueue("drop", orders, ids[1]), "1 request dropped")

	worker := s.startWorker("--max-deliveries", "1")
	await(t, "the rest is given up", func() bool {
		all, err := s.queues.Overviews(t.Context())
		return err == nil && all[0].Failed+all[1].Failed == 2
	})
	wantLine(t, s.weirQueue("ls"), orders+" +0 .* 2 +yes")
	failed := s.weirQueue("peek", orders, "--failed")
	wantLine(t, failed, ids[0]+" .*POST /0, 0 bytes\n  given up: the upstream answered 500")
	wantLine(t, failed, ids[2]+" .*POST /2, 0 bytes\n  given up: ")
	wantLine(t, s.weirQueue("drop", orders, "--failed", ids[0]), "1 request dropped")
	healthy.Store(true)
	wantLine(t, s.weirQueue("retry", orders, "--all"), "1 request put back")
	await(t, "it is delivered", s.empty)
	if code := worker.Stop(t); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
	wantLine(t, s.weirQueue("ls"), orders+" +0 .* 0 +none")
	for i, want := range []string{queue.StateDropped, queue.StateDropped, queue.StateDone} {
		if status, err := s.queues.Status(t.Context(), ids[i]); err != nil || status.State != want {
			t.Errorf("request %d is %+v, %v; want %s", i, status, err, want)
		}
	}
}

// With min-replicas-to-write, a master that has lost its replicas takes nothing:
// neither a request nor the record of a delivery.
func TestAMasterWithoutItsReplicasIsAwayForQueues(t *testing.T) {
	t.Parallel()
	b := newBench(t, 100, 10)
	lost := make(chan struct{})
	lose := sync.OnceFunc(func() {
		defer close(lost)
		if _, err := b.redis.Do("CONFIG", "SET", "min-replicas-to-write", "1"); err != nil {
			t.Error(err)
		}
	})
	u := newUpstream(t, func(int, delivered) int { lose(); return 200 })
	first := b.post("/0", "")
	b.wantCode(first, 202)
	b.wantCode(b.post("/1", ""), 202)
	b.work(u, impatient)
	select {
	case <-lost:
	case <-time.After(time.Minute):
		t.Fatal("no request came to the upstream")
	}
	b.wantCode(b.post("/2", ""), 503)
	if state := b.state(first); state != queue.StateDelivering {
		t.Errorf("it is %s where nothing can be written", state)
	}
	b.redis.MustDo(t, "CONFIG", "SET", "min-replicas-to-write", "0")
	b.wantCode(b.post("/2", ""), 202)
	await(t, "all are delivered", func() bool {
		all, err := b.queues.Overviews(t.Context())
		return err == nil && all[0].Waiting == 0
	})
	if got := u.all(); len(got) != 4 || got[1].header.Get(queue.HeaderDelivery) != "2" {
		t.Errorf("%d deliveries, want the first twice", len(got))
	}
	checkDeliveries(t, u.all(), 3)
}
