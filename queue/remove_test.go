package queue_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"weir/internal/testenv"
	"weir/queue"
)

// ruleGone ends what the server has told of the rule, as ruledLife does.
func (b *bench) ruleGone() {
	b.Helper()
	b.redis.MustDo(b.T, "DEL", b.orders.Tag+"ruled")
}

func (b *bench) ruled() bool {
	b.Helper()
	all, err := b.queues.Overviews(b.Context())
	if err != nil || len(all) != 1 {
		b.Fatalf("%+v, %v", all, err)
	}
	return all[0].Ruled
}

func TestAQueueIsRemovedOnceItsRuleIsGoneAndItIsEmpty(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, 10)
	u := newUpstream(t, func(int, delivered) int { return 500 })
	opts := impatient
	opts.MaxDeliveries = 1
	stop := b.work(u, opts)
	a := b.post("/a", "")
	await(t, "it is given up", func() bool { return b.state(a) == queue.StateFailed })
	stop()
	waits := b.post("/b", "")

	for _, step := range []struct {
		do     func() error
		want   error
		remark string
	}{
		{nil, queue.ErrRuled, "a server has told of its rule"},
		{func() error { b.ruleGone(); return nil }, queue.ErrNotEmpty, "one waits and one was given up"},
		{func() error { _, err := b.queues.Drop(t.Context(), &b.orders, false, nil); return err }, queue.ErrNotEmpty, "one was given up"},
		{func() error { _, err := b.queues.Drop(t.Context(), &b.orders, true, nil); return err }, nil, "nothing is in it"},
	} {
		if step.do != nil {
			if err := step.do(); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.queues.Remove(t.Context(), &b.orders); !errors.Is(err, step.want) {
			t.Errorf("%s: %v, want %v", step.remark, err, step.want)
		}
	}
	if all, err := b.queues.Overviews(t.Context()); len(all) != 0 || err != nil {
		t.Errorf("there are %+v, %v", all, err)
	}
	if b.state(a) != queue.StateDropped || b.state(waits) != queue.StateDropped {
		t.Errorf("they are %s and %s", b.state(a), b.state(waits))
	}
	b.wantCode(b.post("/c", ""), 202) // it begins anew with what comes
	if b.ruled() {
		t.Error("its rule is in force, says who only queues")
	}
}

// Announced is what a server calls now and then, also when Redis takes nothing new.
func TestARuleCountsAsInForceAsLongAsItIsSaid(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, 10)
	announced := func() bool {
		t.Helper()
		ok, err := b.queues.Announced(t.Context(), []queue.About{b.orders})
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	b.redis.MustDo(t, "PEXPIRE", b.orders.Tag+"ruled", "1000")
	b.redis.MustDo(t, "CONFIG", "SET", "maxmemory", "1")
	if !announced() || !b.ruled() {
		t.Error("a full Redis does not know it")
	}
	if ms := b.redis.MustDo(t, "PTTL", b.orders.Tag+"ruled"); len(ms) != 5 { // 10 s to 100 s
		t.Errorf("it counts for %s ms more", ms)
	}
	b.redis.MustDo(t, "CONFIG", "SET", "maxmemory", "0")
	b.ruleGone()
	if announced() || b.ruled() {
		t.Error("it is still known")
	}
	if err := b.queues.Announce(t.Context(), []queue.About{b.orders}); err != nil {
		t.Fatal(err)
	}
	if !announced() || !b.ruled() {
		t.Error("it was announced again, and is not known")
	}
}

func TestAWorkerLeavesARemovedQueueAloneAndComesBackToANewOne(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1000, 10)
	u := newUpstream(t, nil)
	b.work(u, impatient)
	first := b.post("/a", "")
	await(t, "it is done", func() bool { return b.state(first) == queue.StateDone })
	b.ruleGone()
	if err := b.queues.Remove(t.Context(), &b.orders); err != nil {
		t.Fatal(err)
	}
	await(t, "the worker gives the lock back", func() bool {
		return b.redis.MustDo(t, "EXISTS", b.orders.Tag+"lock") == "0"
	})
	if left := b.redis.MustDo(t, "EXISTS", b.orders.Tag+"queue", b.orders.Tag+"about", b.orders.Tag+"dead"); left != "0" {
		t.Errorf("%s of its keys are there again", left)
	}
	second := b.post("/b", "")
	await(t, "what comes then is done", func() bool { return b.state(second) == queue.StateDone })
}

// It would wait for ever in a queue that no worker sees.
func TestARequestThatComesWhileItsQueueIsRemovedIsNotLost(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1000, 10)
	b.ruleGone()
	direct, meanwhile := b.url, answer{}
	b.url = b.behind(func(asked []byte) {
		if bytes.Contains(bytes.ToLower(asked), []byte("srem")) { // the queue is gone, and yet in the list
			meanwhile = b.post("/a", "")
		}
	}, func([]byte) {})
	if err := b.open().Remove(t.Context(), &b.orders); err != nil {
		t.Fatal(err)
	}
	b.wantCode(meanwhile, 202)
	b.url = direct
	b.work(newUpstream(t, nil), impatient)
	await(t, "it is done", func() bool { return b.state(meanwhile) == queue.StateDone })
}

// All keys of a script are of one node.
func TestAQueueOnACluster(t *testing.T) {
	t.Parallel()
	cluster := testenv.StartRedisCluster(t, testenv.RedisClusterOptions{})
	b := newBenchAt(t, cluster.Nodes[0], "redis+cluster://"+cluster.Addrs(), 1000, 10)
	const key = queue.HeaderIdempotencyKey
	ticket := b.queues.Ticket(&b.orders, 1)
	first := b.send("POST", "/a", "", queue.HeaderTicket, ticket, key, "k")
	b.wantCode(first, 202)
	b.wantCode(b.send("POST", "/b", "", queue.HeaderTicket, ticket, key, "k"), 403)
	u := newUpstream(t, nil)
	b.work(u, impatient)
	await(t, "it is done", func() bool { return b.state(first) == queue.StateDone })
	if err := b.queues.Remove(t.Context(), &b.orders); !errors.Is(err, queue.ErrRuled) || !strings.Contains(err.Error(), "remove the rule") {
		t.Errorf("removed: %v", err)
	}
	for _, node := range cluster.Nodes {
		_, _ = node.Do("DEL", b.orders.Tag+"ruled") // one of them has it
	}
	if err := b.queues.Remove(t.Context(), &b.orders); err != nil {
		t.Error(err)
	}
}
