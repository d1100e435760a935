package queue_test

import "net"

// behind is a way to the Redis that shows what goes there and what comes back, before
// it passes it on.
func (b *bench) behind(asked, answered func([]byte)) (url string) {
	b.Helper()
	way, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { way.Close() })
	go func() {
		for {
			client, err := way.Accept()
			if err != nil {
				return
			}
			redis, err := net.Dial("tcp", b.redis.Addr)
			if err != nil {
				client.Close()
				continue
			}
			go carry(redis, client, asked)
			go carry(client, redis, answered)
		}
	}()
	return "redis://" + way.Addr().String()
}

// carry passes on what comes until either end closes.
func carry(to, from net.Conn, show func([]byte)) {
	defer to.Close()
	defer from.Close()
	for text := make([]byte, 64<<10); ; {
		n, err := from.Read(text)
		if err != nil {
			return
		}
		show(text[:n])
		if _, err := to.Write(text[:n]); err != nil {
			return
		}
	}
}
