package envoy_test

import (
	"context"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// called is what a gRPC caller sees of a call's end.
type called struct {
	status *status.Status
	hints  metadata.MD // headers and trailers
}

// startGRPC runs grpc.yaml before a server of the health service, and returns
// the caller of tenant acme.
func startGRPC(t *testing.T, replace map[string]string, weirArgs ...string) func(t *testing.T, stream bool) called {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	upstream := grpc.NewServer()
	healthpb.RegisterHealthServer(upstream, health.NewServer())
	go func() { _ = upstream.Serve(listener) }()
	t.Cleanup(upstream.Stop)
	r := startRecipe(t, "grpc", recipeOptions{listener: listener.Addr(), replace: replace, weirArgs: weirArgs})
	conn, err := grpc.NewClient(r.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	client := healthpb.NewHealthClient(conn)
	return func(t *testing.T, stream bool) called {
		t.Helper()
		ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "x-tenant", "acme"), 20*time.Second)
		defer cancel()
		if stream {
			watch, err := client.Watch(ctx, &healthpb.HealthCheckRequest{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = watch.Recv()
			header, _ := watch.Header() // the same error
			return called{status.Convert(err), metadata.Join(header, watch.Trailer())}
		}
		var header, trailer metadata.MD
		_, err := client.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Header(&header), grpc.Trailer(&trailer))
		return called{status.Convert(err), metadata.Join(header, trailer)}
	}
}

func (c called) want(t *testing.T, what string, code codes.Code, message string, hints map[string]string) {
	t.Helper()
	if c.status.Code() != code || c.status.Message() != message {
		t.Errorf("%s: %v %q, want %v %q", what, c.status.Code(), c.status.Message(), code, message)
	}
	for name, want := range hints {
		if got := c.hints.Get(name); want == "" && len(got) > 0 || want != "" && (len(got) != 1 || got[0] != want) {
			t.Errorf("%s: %s is %q, want %q", what, name, got, want)
		}
	}
}

func TestARefusedGRPCCallEndsAsEnvoyIsTold(t *testing.T) {
	t.Parallel()
	const problem = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
		`"title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":["checks"]}` + "\n"
	for _, c := range []struct {
		name    string
		replace map[string]string
		args    []string
		code    codes.Code
		message string
	}{
		{"as in the config", nil, nil, codes.ResourceExhausted, ""},
		{"without the option", map[string]string{"rate_limited_as_resource_exhausted: true": "rate_limited_as_resource_exhausted: false"}, nil, codes.Unavailable, ""},
		{"with a body", nil, []string{"--denied-body", "text:too many calls"}, codes.ResourceExhausted, "too many calls"},
		{"with a body for the domain", nil, []string{"--denied-body", "problem+json", "--denied-body", "grpc=text:too many calls"}, codes.ResourceExhausted, "too many calls"},
		{"with a body that is not for them", nil, []string{"--denied-body", "problem+json"}, codes.ResourceExhausted, problem},
		{"with a body of several lines, and not ASCII", nil, []string{"--denied-body", "text:zu viele\r\nAufrufe: 100 % – é\n"}, codes.ResourceExhausted, "zu viele\r\nAufrufe: 100 % – é\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			call := startGRPC(t, c.replace, c.args...)
			for i := range 2 {
				got := call(t, false)
				got.want(t, "a call that passes", codes.OK, "", map[string]string{"x-ratelimit-limit": "2", "x-ratelimit-remaining": strconv.Itoa(1 - i), "retry-after": ""})
			}
			got := call(t, false)
			got.want(t, "the third", c.code, c.message, map[string]string{"x-ratelimit-limit": "2", "x-ratelimit-remaining": "0", "content-type": "application/grpc"})
			if wait := got.hints.Get("retry-after"); len(wait) != 1 || wait[0] == "0" {
				t.Errorf("retry-after is %q", wait)
			}
			for name := range got.hints {
				if strings.Contains(name, "aufrufe") {
					t.Errorf("a line of the body became the header %q", name)
				}
			}
		})
	}
}

// A streaming call is one request: it is asked about when it begins.
func TestAStreamingCallIsLimitedWhenItBegins(t *testing.T) {
	t.Parallel()
	call := startGRPC(t, map[string]string{"domain: grpc": "domain: grpc-streams"}, "--rules",
		writeRules(t, `{domain: grpc-streams, rules: [{match: {method: "*", tenant: "*"}, limit: 1, window: 1h}]}`))
	call(t, true).want(t, "the first", codes.OK, "", map[string]string{"x-ratelimit-remaining": "0"})
	call(t, true).want(t, "the second", codes.ResourceExhausted, "", map[string]string{"x-ratelimit-limit": "1"})
	call(t, false).want(t, "another method", codes.OK, "", nil)
}
