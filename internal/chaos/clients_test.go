package chaos

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	weirv1 "weir/api/weir/v1"
)

// onClients is what bad clients do, each time to one instance.
func (w *world) onClients(f fault) error {
	in := w.instances[int(w.chance()*float64(len(w.instances)))]
	switch f.kind {
	case "connections":
		w.holdConnections(in, f.lasts)
	case "slow-http1":
		w.slowClients(in.http, f.lasts, "POST /json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\nX-Slow: "+strings.Repeat("a", 4000))
	case "slow-http2": // the preface, SETTINGS, and headers that do not end
		w.slowClients(in.grpc, f.lasts, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x10\x00\x01\x00\x00\x00\x00\x01"+strings.Repeat("\x00", 4000))
	case "oversized":
		w.oversized(in)
	case "big-headers":
		w.bigHeaders(in)
	case "flood":
		w.flood(in, f.lasts)
	}
	return nil
}

// many is how many connections a client holds that holds many.
const many = 1500

func (w *world) holdConnections(in *instance, lasts time.Duration) {
	var conns []net.Conn
	for i := range many {
		addr := in.grpc
		if i%3 == 0 {
			addr = in.http
		}
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			break // it is killed
		}
		conns = append(conns, conn)
	}
	w.counts.add("connections held", len(conns))
	w.sleep(lasts)
	for _, c := range conns {
		_ = c.Close()
	}
}

// slowClients say a byte now and then.
func (w *world) slowClients(addr string, lasts time.Duration, say string) {
	var saying sync.WaitGroup
	end := time.Now().Add(lasts)
	for range 100 {
		saying.Go(func() {
			conn, err := net.DialTimeout("tcp", addr, time.Second)
			if err != nil {
				return
			}
			defer conn.Close()
			for i := 0; i < len(say) && time.Now().Before(end); i++ {
				if _, err := io.WriteString(conn, say[i:i+1]); err != nil {
					return
				}
				if i > 20 {
					w.sleep(30 * time.Millisecond)
				}
			}
		})
	}
	saying.Wait()
}

// apart is a connection of its own, so that the others are not ended with it.
func apart(in *instance, call func(weirv1.WeirServiceClient, context.Context) error) error {
	conn, err := grpc.NewClient(in.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(64<<20)))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return call(weirv1.NewWeirServiceClient(conn), ctx)
}

// wantCode takes what is expected, and what a killed instance makes of it.
func (w *world) wantCode(what string, from time.Duration, in *instance, err error, wanted ...codes.Code) {
	code := status.Code(err)
	w.counts.add(fmt.Sprintf("%s: %v", what, code), 1)
	for _, c := range wanted {
		if c == code {
			return
		}
	}
	if code == codes.DeadlineExceeded && w.busyNow(from) {
		return
	}
	if !w.beginning(in, from) {
		w.found(fmt.Sprintf("%s at %.2fs, instance %d: %v", what, from.Seconds(), in.n, err))
	}
}

// beginning tells whether an instance has been killed, stopped or started since a
// time, or is.
func (w *world) beginning(in *instance, from time.Duration) bool {
	if w.beingDone(fmt.Sprint("weir", in.n)) {
		return true // what is done is noted only afterwards
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return anyMeets(of(w.downs, in.n), from, w.since())
}

func of(spans []span, instance int) (own []span) {
	for _, s := range spans {
		if s.instance == instance {
			own = append(own, s)
		}
	}
	return own
}

// oversized sends messages of 5 MiB over gRPC, where 4 are let in, and of 2 MiB over HTTP, where 1 is.
func (w *world) oversized(in *instance) {
	from := w.since()
	err := apart(in, func(c weirv1.WeirServiceClient, ctx context.Context) error {
		_, err := c.Check(ctx, checkRequest([]entry{{"large", strings.Repeat("x", 5<<20)}}, 1))
		return err
	})
	w.wantCode("5 MiB over gRPC", from, in, err, codes.ResourceExhausted)
	from = w.since()
	err = apart(in, func(c weirv1.WeirServiceClient, ctx context.Context) error { // a large value is a value
		_, err := c.Check(ctx, checkRequest([]entry{{"large", strings.Repeat("x", 3<<20)}}, 1))
		return err
	})
	w.wantCode("3 MiB over gRPC", from, in, err, codes.OK)
	for _, path := range []string{"/json", "/v1/check"} {
		w.post(in, path, 2<<20, "", http.StatusRequestEntityTooLarge)
	}
}

// post sends a body of a size, and a header.
func (w *world) post(in *instance, path string, size int, header string, want int) {
	from := w.since()
	req, err := http.NewRequestWithContext(w.ctx, http.MethodPost, "http://"+in.http+path, strings.NewReader(`{"domain":"`+strings.Repeat("x", size)+`"}`))
	if err != nil {
		w.found("harness: " + err.Error())
		return
	}
	if header != "" {
		req.Header.Set("X-Big", header)
	}
	resp, err := w.client.Do(req)
	if err != nil { // ended while it was sent, which a server may do
		w.counts.add(path+": the connection ended", 1)
		return
	}
	_ = resp.Body.Close()
	w.counts.add(fmt.Sprintf("%s: %d", path, resp.StatusCode), 1)
	if resp.StatusCode == http.StatusServiceUnavailable && w.beginning(in, from) {
		return // it has no rules yet
	}
	if resp.StatusCode != want {
		w.found(fmt.Sprintf("%s at %.2fs, instance %d: %d, want %d", path, from.Seconds(), in.n, resp.StatusCode, want))
	}
}

// bigHeaders sends headers of over 1 MB.
func (w *world) bigHeaders(in *instance) {
	big := strings.Repeat("h", 1_100_000)
	from := w.since()
	err := apart(in, func(c weirv1.WeirServiceClient, ctx context.Context) error {
		_, err := c.Check(metadata.AppendToOutgoingContext(ctx, "x-big", big), checkRequest([]entry{{"large", "1"}}, 1))
		return err
	})
	// grpc refuses what is over the server's header list, here or there.
	w.wantCode("headers of 1 MB over gRPC", from, in, err, codes.Internal, codes.Unavailable, codes.ResourceExhausted)
	w.post(in, "/v1/check", 10, big, http.StatusRequestHeaderFieldsTooLarge)
}

// flood asks for as many clients as it can, each once.
func (w *world) flood(in *instance, lasts time.Duration) {
	var asking sync.WaitGroup
	var n, failed atomic.Int64
	end := time.Now().Add(lasts)
	for range 32 {
		asking.Go(func() {
			for time.Now().Before(end) && n.Add(1) <= 5000 {
				a := w.ask(in, "", []entry{{"flood", rand.Text()}}, 1)
				if a.code != codes.OK {
					failed.Add(1)
				}
				w.answer(a)
			}
		})
	}
	asking.Wait()
	w.counts.add("clients of floods", int(min(n.Load(), 5000)))
}
