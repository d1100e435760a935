package queue_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/queue"
)

// startWorker runs `weir worker`, as a process that can be killed.
func (b *bench) startWorker(u *upstream, args ...string) *testenv.Process {
	b.Helper()
	return testenv.Start(b.T, testenv.Program{
		Path: testenv.WeirBinary(b.T),
		Args: append([]string{"worker", "--store", "redis://" + b.redis.Addr, "--upstream", u.URL, "--retry-min", "10ms", "--retry-max", "100ms"}, args...),
	})
}

// checkDeliveries holds what came against what was queued: all of it, in order but
// for repetitions, each of which says so.
func checkDeliveries(t *testing.T, got []delivered, n int) {
	t.Helper()
	seen, next := map[string]int{}, 0
	for _, d := range got {
		seen[d.path]++
		if fmt.Sprint(seen[d.path]) > d.header.Get(queue.HeaderDelivery) {
			t.Errorf("%s came the %d. time and says %s", d.path, seen[d.path], d.header.Get(queue.HeaderDelivery))
		}
		if seen[d.path] == 1 {
			if d.path != fmt.Sprint("/", next) {
				t.Fatalf("%s came where /%d was due", d.path, next)
			}
			next++
		}
	}
	if next != n {
		t.Errorf("%d of %d came", next, n)
	}
}

// Workers are killed at random moments, also between a delivery and its record.
func TestNothingIsLostWhenWorkersAreKilled(t *testing.T) {
	t.Parallel()
	b := newBench(t, 200, 300)
	u := newUpstream(t, func(int, delivered) int { time.Sleep(rand.N(4 * time.Millisecond)); return 200 })
	const n = 200
	for i := range n {
		b.wantCode(b.post(fmt.Sprint("/", i), "x"), 202)
	}
	for range 4 {
		worker := b.startWorker(u)
		before := len(u.all())
		await(t, "some are delivered", func() bool { return len(u.all()) > before+5 })
		time.Sleep(rand.N(50 * time.Millisecond)) // any moment
		worker.Kill()
	}
	b.startWorker(u)
	await(t, "all are delivered", func() bool {
		all, err := b.queues.Overviews(t.Context())
		return err == nil && all[0].Waiting == 0
	})
	checkDeliveries(t, u.all(), n)
}

// A worker that was stopped in its tracks comes back when another has its queue.
func TestAWorkerThatWasAwayDoesNotInterfere(t *testing.T) {
	t.Parallel()
	b := newBench(t, 50, 300)
	u := newUpstream(t, nil)
	const n = 150
	for i := range n {
		b.wantCode(b.post(fmt.Sprint("/", i), "x"), 202)
	}
	first := b.startWorker(u)
	await(t, "it has begun", func() bool { return len(u.all()) > 10 })
	if err := first.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped := len(u.all())
	b.startWorker(u)
	await(t, "the other goes on", func() bool { return len(u.all()) > stopped+20 })
	if err := first.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	await(t, "all are delivered", func() bool {
		all, err := b.queues.Overviews(t.Context())
		return err == nil && all[0].Waiting == 0
	})
	checkDeliveries(t, u.all(), n)
}

func TestAStoppedWorkerFinishesWhatItHasBegunAndLeavesTheLock(t *testing.T) {
	t.Parallel()
	b := newBench(t, 50, 300)
	begun := make(chan struct{}, 10)
	u := newUpstream(t, func(int, delivered) int {
		begun <- struct{}{}
		time.Sleep(4 * time.Second) // longer than a lock that nobody renews
		return 200
	})
	first, second := b.post("/0", ""), b.post("/1", "")
	worker := b.startWorker(u)
	<-begun
	stopping := time.AfterFunc(3500*time.Millisecond, func() {
		if all, err := b.queues.Overviews(t.Context()); err != nil || !all[0].Worked {
			t.Errorf("it has left the lock while it still delivers: %v", err)
		}
	})
	defer stopping.Stop()
	if code := worker.Stop(t); code != 0 {
		t.Errorf("it ended with %d:\n%s", code, worker.Output())
	}
	if b.state(first) != queue.StateDone || b.state(second) != queue.StateWaiting || len(u.all()) != 1 {
		t.Errorf("the first is %s, the second %s", b.state(first), b.state(second))
	}
	if all, err := b.queues.Overviews(t.Context()); err != nil || all[0].Worked {
		t.Errorf("the lock is still there: %v", err)
	}
}

// The user of the pages may do what they say, on keys of Weir's, and nothing else.
func TestTheRightsOnThePageSuffice(t *testing.T) {
	t.Parallel()
	var rights []string
	for _, page := range []string{"../docs/redis.md", "../docs/queue.md"} {
		src, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile("(?:[`\\s])(\\+[a-z]+(?:\\|[a-z]+)?)").FindAllStringSubmatch(string(src), -1) {
			rights = append(rights, found[1])
		}
	}
	if len(rights) < 30 {
		t.Fatalf("the pages name %v", rights)
	}
	redis := testenv.StartRedis(t, testenv.RedisOptions{Users: []string{"weir on >secret ~weir:* -@all " + strings.Join(rights, " ")}})
	b := newBenchOn(t, redis, 100, 100)
	queues, err := queue.Open(queue.Options{URL: "redis://weir:secret@" + redis.Addr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = queues.Close() })
	all := b.queues
	b.queues = queues
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(queues.LoadSecret(t.Context()))
	ok(queues.Announce(t.Context(), []queue.About{b.orders}))
	request := queue.Request{HTTP: httpPost("/a"), Key: "k"}
	_, err = queues.Append(t.Context(), &b.orders, request)
	ok(err)
	receipt, err := queues.Append(t.Context(), &b.orders, request)
	ok(err)
	_, err = queues.Status(t.Context(), receipt.ID)
	ok(err)
	_, err = queues.Overviews(t.Context())
	ok(err)
	_, err = queues.Drop(t.Context(), &b.orders, false, nil)
	ok(err)
	b.queues = all
	a := b.post("/b", "")
	u := newUpstream(t, func(int, delivered) int { return 500 })
	testenv.Start(t, testenv.Program{Path: testenv.WeirBinary(t), Args: []string{
		"worker", "--store", "redis://weir:secret@" + redis.Addr, "--upstream", u.URL, "--max-deliveries", "2", "--retry-min", "10ms",
	}})
	await(t, "it was given up", func() bool { return b.state(a) == queue.StateFailed })
	n, err := queues.Retry(t.Context(), &b.orders, nil)
	if err != nil || n != 1 {
		t.Errorf("put back %d, %v", n, err)
	}
	_, err = queues.Announced(t.Context(), []queue.About{b.orders})
	ok(err)
	await(t, "it is given up again", func() bool { return b.state(a) == queue.StateFailed })
	_, err = queues.Drop(t.Context(), &b.orders, true, nil)
	ok(err)
	b.ruleGone()
	ok(queues.Remove(t.Context(), &b.orders))
}
