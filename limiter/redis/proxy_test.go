package redis

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy stands between a store and Redis, and loses answers when told to.
type proxy struct {
	addr   string
	target atomic.Pointer[string]
	lose   atomic.Int32 // how many more chunks of answers are lost
	silent atomic.Bool  // after which the connection stays open
	lost   atomic.Int32

	mu    sync.Mutex
	conns []net.Conn
}

func startProxy(t testing.TB, target string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: listener.Addr().String()}
	p.target.Store(&target)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", *p.target.Load())
			if err != nil {
				_ = client.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, client, server)
			p.mu.Unlock()
			running.Go(func() { p.forward(client, server) })
			running.Go(func() { p.answer(client, server) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		p.cut()
		running.Wait()
	})
	return p
}

func (p *proxy) forward(client, server net.Conn) {
	defer server.Close()
	pump(server, client, func() bool { return true })
}

func (p *proxy) answer(client, server net.Conn) {
	defer client.Close()
	pump(client, server, func() bool {
		if p.lose.Add(-1) < 0 {
			p.lose.Store(0)
			return true
		}
		p.lost.Add(1)
		if !p.silent.Load() {
			_ = client.Close()
		}
		return false
	})
}

func pump(to, from net.Conn, pass func() bool) {
	chunk := make([]byte, 64<<10)
	for {
		n, err := from.Read(chunk)
		if err != nil {
			return
		}
		if !pass() {
			continue
		}
		if _, err := to.Write(chunk[:n]); err != nil {
			return
		}
	}
}

// cut ends all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}
