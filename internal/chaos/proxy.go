// Package chaos does to Weir what networks, machines and clients do, at random
// times, and looks whether it keeps what it promises meanwhile. `make chaos` runs
// it for long, `go test` for some seconds; nothing else imports it but tests.
package chaos

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Weather is what a Proxy does to what passes. The zero value passes all on.
type Weather struct {
	Delay    time.Duration // of each chunk, each way
	Jitter   time.Duration // up to so much more, at random
	Loss     float64       // share of chunks that stall, as TCP has it when a packet is lost
	HalfOpen bool          // connections are taken, and nothing passes until the weather changes
	Refuse   bool          // connections are reset as they come
	Cut      float64       // share of answers of which half arrives, and then the connection ends
	Slow     time.Duration // after each few bytes
}

// A packet that is lost is sent again after this long, at the least, by Linux.
const retransmission = 200 * time.Millisecond

// slowBytes is how many bytes at once pass in weather that is Slow.
const slowBytes = 16

// Proxy stands between clients and a server, and has weather. All that it began
// has ended when Close returns.
type Proxy struct {
	listener net.Listener
	target   atomic.Pointer[string]
	running  sync.WaitGroup

	lose    atomic.Int32 // how many more answers are lost
	silent  atomic.Bool
	lost    atomic.Int32
	answers atomic.Int32

	mu      sync.Mutex
	weather Weather
	changed chan struct{} // closed when the weather changes
	conns   map[net.Conn]struct{}
	closed  bool
}

// NewProxy listens on an address of its own, 127.0.0.1 with a free port, or on
// the one that is given, and passes on to the target.
func NewProxy(addr, target string) (*Proxy, error) {
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: listener, changed: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	p.target.Store(&target)
	p.running.Go(p.accept)
	return p, nil
}

// Addr is where it listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Target sets where connections go that are begun from now on.
func (p *Proxy) Target(addr string) { p.target.Store(&addr) }

// Set changes the weather, also for what is under way.
func (p *Proxy) Set(w Weather) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.weather = w
	close(p.changed)
	p.changed = make(chan struct{})
}

// Lose has the next n answers never arrive: the connection ends in their place, or
// stays open, silent.
func (p *Proxy) Lose(n int32, silent bool) {
	p.silent.Store(silent)
	p.lose.Store(n)
}

// Lost is how many answers were lost by Lose.
func (p *Proxy) Lost() int { return int(p.lost.Load()) }

// Answers is how many there were: chunks that the server sent, about one for each
// round trip.
func (p *Proxy) Answers() int { return int(p.answers.Load()) }

// Reset ends all connections, by a reset.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		reset(c)
	}
}

func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// Close ends the proxy and all its connections.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.Set(Weather{}) // whoever waits for better weather goes on, and finds its connection closed
	p.running.Wait()
}

func (p *Proxy) now() (Weather, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.weather, p.changed
}

// enter keeps a connection, unless the proxy is closed.
func (p *Proxy) enter(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.conns[c] = struct{}{}
	}
	return !p.closed
}

func (p *Proxy) leave(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		if w, _ := p.now(); w.Refuse {
			reset(client)
			continue
		}
		p.running.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	if !p.enter(client) {
		_ = client.Close()
		return
	}
	defer p.leave(client)
	p.goodWeather()
	dialer := net.Dialer{Timeout: time.Second}
	server, err := dialer.DialContext(context.Background(), "tcp", *p.target.Load())
	if err != nil {
		reset(client)
		return
	}
	if !p.enter(server) {
		_ = server.Close()
		return
	}
	defer p.leave(server)
	var both sync.WaitGroup
	both.Go(func() { p.pump(server, client, false) })
	both.Go(func() { p.pump(client, server, true) })
	both.Wait()
}

// goodWeather waits until something passes.
func (p *Proxy) goodWeather() Weather {
	for {
		w, changed := p.now()
		if !w.HalfOpen {
			return w
		}
		<-changed
	}
}

// pump passes on what one side says until a side ends, and then ends both.
func (p *Proxy) pump(to, from net.Conn, answers bool) {
	defer to.Close()
	defer from.Close()
	chunk := make([]byte, 64<<10)
	for {
		n, err := from.Read(chunk)
		if err != nil {
			return
		}
		if answers && p.loses() {
			if !p.silent.Load() {
				return
			}
			continue
		}
		w := p.goodWeather()
		if !p.pass(to, chunk[:n], w, answers) {
			return
		}
	}
}

func (p *Proxy) loses() bool {
	p.answers.Add(1)
	if p.lose.Add(-1) < 0 {
		p.lose.Store(0)
		return false
	}
	p.lost.Add(1)
	return true
}

func (p *Proxy) pass(to net.Conn, chunk []byte, w Weather, answers bool) bool {
	wait := w.Delay
	if w.Jitter > 0 {
		wait += rand.N(w.Jitter)
	}
	if rand.Float64() < w.Loss {
		wait += retransmission + rand.N(retransmission)
	}
	time.Sleep(wait)
	if answers && rand.Float64() < w.Cut {
		_, _ = to.Write(chunk[:len(chunk)/2])
		return false
	}
	for w.Slow > 0 && len(chunk) > slowBytes {
		if _, err := to.Write(chunk[:slowBytes]); err != nil {
			return false
		}
		chunk = chunk[slowBytes:]
		time.Sleep(w.Slow)
		w, _ = p.now()
	}
	_, err := to.Write(chunk)
	return err == nil
}
