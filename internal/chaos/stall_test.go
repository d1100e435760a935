package chaos

import (
	"bufio"
	"io"
	"net"
	"time"
)

// A machine that is busy with other things stalls all of this together, and no
// promise holds for what does not run: so it is measured here when it did.

// watch notes when this process, which asks for as good as nothing, was not run.
func (w *world) watch(done <-chan struct{}) {
	const nap = 5 * time.Millisecond
	for {
		from := w.since()
		select {
		case <-done:
			return
		case <-time.After(nap):
		}
		if now := w.since(); now-from-nap > 50*time.Millisecond {
			w.note(&w.stalls, span{from: from, to: now, what: "stall"})
		}
	}
}

// stalled is how much of a time the machine did not run this.
func (h *history) stalled(from, to time.Duration) (sum time.Duration) {
	for _, s := range h.stalls {
		if s.meets(from, to) {
			sum += min(s.to, to) - max(s.from, from)
		}
	}
	return sum
}

// slowPings asks Redis itself, past all proxies, until done, and returns how often
// that took longer than half of what Weir may wait: each such time its probe may
// fail too.
func (w *world) slowPings(done <-chan struct{}) (slow int) {
	conn, err := net.DialTimeout("tcp", w.master.Addr, time.Second)
	if err != nil {
		return 0
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		select {
		case <-done:
			return slow
		case <-time.After(2 * time.Millisecond):
		}
		from := time.Now()
		_ = conn.SetDeadline(from.Add(10 * time.Second))
		if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
			return slow
		}
		if _, err := in.ReadString('\n'); err != nil {
			return slow
		}
		if time.Since(from) > w.timeout/2 {
			slow++
		}
	}
}
