package chaos

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"weir/internal/testenv"
)

// redis is a Redis of the world.
type redis struct {
	*testenv.Redis
	dir   string
	args  []string
	env   []string
	clock string // a file that sets its clock
}

// startRedis starts those of the setting.
func (w *world) startRedis() {
	w.master = w.newRedis("a")
	if w.setting.redis == "pair" {
		w.replica = w.newRedis("b")
		if err := w.follow(w.replica, w.master); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) newRedis(name string) *redis {
	path, err := testenv.FindRedis()
	if err != nil {
		w.t.Fatal(err)
	}
	r := &redis{Redis: &testenv.Redis{Addr: testenv.FreeAddr(w.t)}, dir: filepath.Join(w.dir, name)}
	if err := os.MkdirAll(r.dir, 0o750); err != nil {
		w.t.Fatal(err)
	}
	port := r.Addr[len("127.0.0.1:"):]
	// A write beyond the file size limit is an error then, and no end of Redis.
	r.args = []string{"-c", `trap '' XFSZ; exec "$@"`, "sh", path, "--bind", "127.0.0.1", "--port", port, "--dir", r.dir, "--save", "", "--daemonize", "no",
		"--lua-time-limit", "50", "--repl-diskless-sync-delay", "0"}
	if w.persists != "no" {
		r.args = append(r.args, "--appendonly", "yes", "--appendfsync", w.persists)
	}
	if w.setting.redis == "clock" {
		r.clock = filepath.Join(r.dir, "clock")
		r.setClock(w, 0)
		// libc comes next, for its malloc: jemalloc's asks for the time before the
		// library is ready.
		r.env = []string{"LD_PRELOAD=" + faketime() + ":libc.so.6", "FAKETIME_TIMESTAMP_FILE=" + r.clock, "FAKETIME_CACHE_DURATION=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"}
	}
	r.start(w)
	return r
}

// faketime is the library that sets a process's clock; empty: there is none
// (Debian: libfaketime).
func faketime() string {
	found, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	if len(found) == 0 {
		return ""
	}
	return found[0]
}

func (r *redis) setClock(w *world, offset time.Duration) {
	temp := r.clock + ".new"
	err := os.WriteFile(temp, fmt.Appendf(nil, "%+ds\n", int(offset.Seconds())), 0o600)
	if err == nil {
		err = os.Rename(temp, r.clock)
	}
	if err != nil {
		w.t.Error(err)
	}
}

// start starts it, and waits until it has read its data.
func (r *redis) start(w *world) {
	r.Process = testenv.Start(w.t, testenv.Program{Path: "/bin/sh", Args: r.args, Env: r.env, Addr: r.Addr})
	w.until(20*time.Second, "Redis answers after its start", func() bool { _, err := r.Do("PING"); return err == nil && r.Info("loading") == "0" })
}

// until polls; it is the harness's fault if it takes too long.
func (w *world) until(most time.Duration, what string, is func() bool) bool {
	for deadline := time.Now().Add(most); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.found(fmt.Sprintf("harness: not in %v: %s", most, what))
			return false
		}
	}
	return true
}

// follow makes one Redis the replica of another.
func (w *world) follow(r, master *redis) error {
	_, err := r.Do("REPLICAOF", "127.0.0.1", master.Addr[len("127.0.0.1:"):])
	if err == nil && !w.until(20*time.Second, "the replica follows", func() bool { return r.Info("master_link_status") == "up" }) {
		err = errors.New("the replica does not follow")
	}
	return err
}

func (w *world) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-w.ctx.Done():
	}
}

// onRedis does something to Redis.
func (w *world) onRedis(f fault) error {
	w.redisBusy.Lock()
	defer w.redisBusy.Unlock()
	r := w.master
	do := func(args ...string) error {
		_, err := r.Do(args...)
		for n := 0; err != nil && strings.Contains(err.Error(), "dial") && n < 5; n++ {
			_, err = r.Do(args...) // the machine is busy
		}
		if err != nil {
			err = fmt.Errorf("%v: %w", args, err)
		}
		return err
	}
	switch f.kind {
	case "kill":
		w.killRedis(f.lasts)
		return nil
	case "stop":
		err := r.Signal(syscall.SIGSTOP)
		w.sleep(f.lasts)
		return errors.Join(err, r.Signal(syscall.SIGCONT))
	case "flushall":
		from := w.since()
		err := do("FLUSHALL")
		w.note(&w.losses, span{from: from, to: w.since(), what: f.kind})
		return err
	case "script-flush":
		return do("SCRIPT", "FLUSH")
	case "client-pause":
		err := do("CLIENT", "PAUSE", fmt.Sprint(f.lasts.Milliseconds()), pickBy(w, "ALL", "WRITE"))
		w.sleep(f.lasts)
		return err
	case "client-kill":
		return do("CLIENT", "KILL", "TYPE", "normal")
	case "out-of-memory":
		err := do("CONFIG", "SET", "maxmemory", "1")
		w.sleep(f.lasts)
		return errors.Join(err, do("CONFIG", "SET", "maxmemory", "0"))
	case "busy":
		err := do("EVAL", `local function now() local t = redis.call('TIME'); return t[1]*1000+t[2]/1000 end
			local until_ = now() + ARGV[1]; while now() < until_ do end`, "0", fmt.Sprint(min(f.lasts, time.Second).Milliseconds()))
		return err
	case "full-disk":
		return w.fullDisk(f.lasts)
	case "failover", "failover-kill":
		return w.failover(f)
	case "replica": // the master is made one, and takes no writes
		err := do("REPLICAOF", "127.0.0.1", "1")
		w.sleep(f.lasts)
		return errors.Join(err, do("REPLICAOF", "NO", "ONE"))
	case "clock-ahead", "clock-back":
		return w.stepClock(f)
	}
	return fmt.Errorf("unknown: %s", f.kind)
}

func pickBy[T any](w *world, of ...T) T { return of[int(w.chance()*float64(len(of)))] }

// killRedis kills it, and starts it again.
func (w *world) killRedis(away time.Duration) {
	from := w.since()
	w.master.Kill()
	w.sleep(away)
	w.master.start(w)
	switch w.persists {
	case "no":
		w.note(&w.losses, span{from: from, to: w.since(), what: "kill"})
	case "everysec": // what it had not written yet
		w.note(&w.tails, span{from: from - 3*time.Second, to: w.since(), what: "kill"})
	}
}

// fullDisk has Redis's files grow no more.
func (w *world) fullDisk(lasts time.Duration) error {
	pid := w.master.Pid()
	err := fileSizeLimit(pid, 1)
	w.sleep(lasts)
	err = errors.Join(err, fileSizeLimit(pid, ^uint64(0)))
	if w.until(20*time.Second, "Redis writes again, or has ended", func() bool { return !w.master.Runs() || w.master.Info("aof_last_write_status") == "ok" }) && !w.master.Runs() {
		w.counts.add("redis ended for its disk was full", 1)
		w.master.start(w) // appendfsync always: it ends then
	}
	return err
}

// failover has the replica take over, and the master follow it.
func (w *world) failover(f fault) error {
	from := w.since()
	old, next := w.master, w.replica
	if next.Info("master_link_status") != "up" {
		w.counts.add("failover left out, as the replica was behind", 1)
		return nil
	}
	var err error
	if f.kind == "failover-kill" {
		old.Kill()
		w.sleep(f.lasts)
		_, err = next.Do("REPLICAOF", "NO", "ONE")
	} else {
		_, err = next.Do("REPLICAOF", "NO", "ONE")
		_, err2 := old.Do("REPLICAOF", "127.0.0.1", next.Addr[len("127.0.0.1:"):])
		err = errors.Join(err, err2)
		w.sleep(f.lasts) // whoever still asks the old one is told READONLY
	}
	w.note(&w.tails, span{from: from - 2*time.Second, to: w.since(), what: f.kind})
	w.master, w.replica = next, old
	for _, in := range w.instances {
		in.store.Target(next.Addr)
		in.store.Reset()
	}
	ended := w.since()
	if f.kind == "failover-kill" {
		old.start(w)
	}
	w.note(&w.done, span{from: from, to: ended, what: "redis " + f.kind})
	return errors.Join(err, w.follow(old, next))
}

// stepClock sets Redis's clock by whole minutes, and back.
func (w *world) stepClock(f fault) error {
	offset := pickBy(w, time.Minute, time.Hour)
	if f.kind == "clock-back" {
		offset = -offset
	}
	// The library looks once a second, and Weir asks for the time as often.
	const seen = 2500 * time.Millisecond
	step := func(to time.Duration) {
		from := w.since()
		w.master.setClock(w, to)
		w.sleep(seen)
		w.note(&w.steps, span{from: from, to: w.since(), what: f.kind})
	}
	step(offset)
	w.sleep(f.lasts)
	step(0)
	return nil
}
