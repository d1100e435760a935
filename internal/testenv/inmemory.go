package testenv

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
)

// Server is what InMemory serves: a *grpc.Server, or one around it.
type Server interface {
	Serve(listener net.Listener) error
	Stop()
}

// InMemory serves gRPC over a connection in memory, with real HTTP/2 and real codecs,
// until the test ends.
func InMemory(t testing.TB, s Server) *grpc.ClientConn {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///weir",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		s.Stop()
		if err := <-ended; err != nil {
			t.Errorf("serving ended with %v", err)
		}
	})
	return conn
}
