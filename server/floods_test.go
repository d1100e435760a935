package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip" // as the whole program has it

	"weir/limiter"
)

// overTCP is a server on an address of this machine, for clients that are none of
// grpc's.
func overTCP(t *testing.T, s setup) (addr string, call func() error) {
	t.Helper()
	f := newFixture(t, s)
	g := NewGRPC(f.Service, s.grpc)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(listener) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-ended; err != nil {
			t.Errorf("serving ended with %v", err)
		}
	})
	addr = listener.Addr().String()
	return addr, func() error {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer conn.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err = rls.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, request("default", "a=1"))
		return err
	}
}

// A message of 256 KiB that inflates to 256 MiB is inflated no farther than a message
// may be long.
func TestACompressedMessageIsInflatedNoFartherThanItMayBeLong(t *testing.T) {
	addr, call := overTCP(t, setup{rules: "rules: [{match: {a: \"*\"}, limit: 5, window: 60s}]"})
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	_, _ = zip.Write(make([]byte, 1<<20))
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	bomb := bytes.Repeat(packed.Bytes(), 256) // one after the other, which is one file
	message := binary.BigEndian.AppendUint32([]byte{1}, uint32(len(bomb)))
	message = append(message, bomb...)

	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+rls.RateLimitService_ShouldRateLimit_FullMethodName, bytes.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("Grpc-Encoding", "gzip")
	r.Header.Set("Te", "trailers")
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	runtime.ReadMemStats(&after)
	status := resp.Trailer.Get("Grpc-Status") + resp.Header.Get("Grpc-Status")
	if status != "8" { // RESOURCE_EXHAUSTED
		t.Errorf("grpc-status %q, %q", status, resp.Trailer.Get("Grpc-Message"))
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 32<<20 {
		t.Errorf("it took %d MiB", took>>20)
	}
	if err := call(); err != nil {
		t.Errorf("an ordinary call then: %v", err)
	}
}

// framed is a connection of HTTP/2 that speaks frame by frame.
type framed struct {
	net.Conn
	*http2.Framer
	headers bytes.Buffer
	encoder *hpack.Encoder
}

func frames(t *testing.T, addr string) *framed {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second)) // a server that stops reading is one that holds the flood up
	f := &framed{Conn: conn, Framer: http2.NewFramer(conn, conn)}
	f.encoder = hpack.NewEncoder(&f.headers)
	_, _ = io.WriteString(conn, http2.ClientPreface)
	_ = f.WriteSettings()
	return f
}

func (f *framed) block(more ...string) []byte {
	f.headers.Reset()
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", rls.RateLimitService_ShouldRateLimit_FullMethodName}, {":authority", "weir"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		_ = f.encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	for i := 0; i+1 < len(more); i += 2 {
		_ = f.encoder.WriteField(hpack.HeaderField{Name: more[i], Value: more[i+1]})
	}
	return f.headers.Bytes()
}

// What HTTP/2 lets a client do cheaply costs the server little, too: no flood of frames
// takes memory, or keeps others from being answered.
func TestFloodsOfFramesTakeNoMemoryAndTheServerGoesOn(t *testing.T) {
	addr, call := overTCP(t, setup{rules: "rules: [{match: {a: \"*\"}, limit: 1000, window: 60s}]"})
	const many = 20_000
	for _, x := range []struct {
		name  string
		flood func(f *framed, i uint32) error
	}{
		{"streams that are reset as soon as they are opened", func(f *framed, i uint32) error {
			id := 2*i + 1
			if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: f.block(), EndHeaders: true}); err != nil {
				return err
			}
			return f.WriteRSTStream(id, http2.ErrCodeCancel)
		}},
		{"headers that never end", func(f *framed, i uint32) error {
			if i == 0 {
				return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.block(), EndHeaders: false})
			}
			f.headers.Reset()
			_ = f.encoder.WriteField(hpack.HeaderField{Name: "x", Value: string(make([]byte, 1000)), Sensitive: true})
			return f.WriteContinuation(1, false, f.headers.Bytes())
		}},
		{"settings", func(f *framed, _ uint32) error {
			return f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
		}},
		{"pings", func(f *framed, _ uint32) error { return f.WritePing(false, [8]byte{}) }},
		{"empty data", func(f *framed, i uint32) error {
			if i == 0 {
				return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.block(), EndHeaders: true})
			}
			return f.WriteData(1, false, nil)
		}},
		{"priorities", func(f *framed, i uint32) error { return f.WritePriority(2*i+1, http2.PriorityParam{Weight: 1}) }},
	} {
		t.Run(x.name, func(t *testing.T) {
			f := frames(t, addr)
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			sent := uint32(0)
			for ; sent < many; sent++ {
				if err := x.flood(f, sent); err != nil { // cut off, or not read any more
					break
				}
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			took := int64(after.HeapAlloc) - int64(before.HeapAlloc)
			t.Logf("%d frames were taken, %d KiB are held", sent, took>>10)
			if took > 16<<20 {
				t.Errorf("%d MiB are held", took>>20)
			}
			if err := call(); err != nil {
				t.Errorf("an ordinary call meanwhile: %v", err)
			}
		})
	}
}

// An alarm that needs no bound: ever new values show as counters that begin, whatever
// counts them, and those who come again do not. Of what a limit beside refuses nothing
// begins.
func TestAFloodOfValuesShowsByRule(t *testing.T) {
	for _, rule := range []string{
		"limit: 5, window: 1h", "limit: 5, window: 1h, algorithm: token_bucket, burst: 7", "limit: 1, window: 1h, algorithm: sliding_window_log",
		"limit: 5, window: 1h, algorithm: sliding_window_counter", "limit: 5, window: 1h, algorithm: leaky_bucket, shadow_mode: true",
	} {
		store := limiter.NewMemory(limiter.MemoryOptions{})
		s := start(t, setup{metrics: true, service: Options{Store: store}, rules: `
rules:
  - {name: all, match: {all: "1"}, limit: 40, window: 8784h}
  - {name: each, match: {a: "*"}, ` + rule + `}
`})
		for i := range 50 {
			value := fmt.Sprintf("a=%d", i)
			s.call(t, request("default", "all=1 , "+value))
			if i < 10 {
				s.call(t, request("default", value))
			}
		}
		if got := s.counts(t, `weir_counters_begun_total{domain="default",rule="each"} `); !slices.Equal(got, []string{"40"}) {
			t.Errorf("%s: %v of 50 values began, want 40", rule, got)
		}
		if n := store.Len(); n != 41 {
			t.Errorf("%s: %d counters are held, want 41", rule, n)
		}
	}
}
