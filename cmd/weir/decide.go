package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"weir/queue"
	"weir/rules"
)

const defaultAddr = "127.0.0.1:8081"

type decideConfig struct {
	addr    string
	hits    uint32
	times   int
	timeout time.Duration
	details bool
	tls     clientTLSFlags
}

func newDecide() *cobra.Command {
	var c decideConfig
	cmd := &cobra.Command{
		Use:   "decide DOMAIN key=value…",
		Short: "ask a running server whether a request may pass, as Envoy does",
		Long: `Ask a running server whether a request may pass, as Envoy does, and print the
decision. The entries make up one descriptor, in this order; a comma standing
alone begins another one. The request is charged like any other. A refusal is an
answer too: the exit code is 0. Any server of Envoy's RateLimitService will do; with
--details it is weir.v1 that is asked, and each limit tells what it says.`,
		Example: `  weir decide default endpoint=/api/posts user=alice --times 3
  weir decide default endpoint=/api/login , remote_address=192.0.2.7`,
		Args: atLeast(2, "a domain and one key=value at least"),
		RunE: func(cmd *cobra.Command, args []string) error {
			descriptors, err := parseDescriptors(args[1:])
			if err != nil {
				return err
			}
			if c.times < 1 {
				return usagef("--times %d: it is 1 at least", c.times)
			}
			if c.timeout <= 0 {
				return usagef("--timeout %v: it is over 0", c.timeout)
			}
			if c.details {
				return decideDetails(cmd.Context(), cmd.OutOrStdout(), c, args[0], descriptors)
			}
			return decide(cmd.Context(), cmd.OutOrStdout(), c, requestOf(args[0], descriptors, c.hits))
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.addr, "addr", defaultAddr, "the server's gRPC address: host:port or unix:PATH")
	f.Uint32Var(&c.hits, "hits", 0, "the cost of the request (0: unset, which counts as 1)")
	f.IntVar(&c.times, "times", 1, "ask so often, one after another")
	f.DurationVar(&c.timeout, "timeout", 5*time.Second, "how long to wait for each answer")
	f.BoolVar(&c.details, "details", false, "ask weir.v1, and print what each limit says, to the millisecond")
	c.tls.addGRPCFlags(f)
	return cmd
}

// parseDescriptors reads key=value words; a lone comma begins another descriptor.
func parseDescriptors(words []string) ([][]rules.Entry, error) {
	descriptors := [][]rules.Entry{nil}
	for _, w := range words {
		if w == "," {
			descriptors = append(descriptors, nil)
			continue
		}
		key, value, ok := strings.Cut(w, "=")
		if !ok || key == "" {
			return nil, usagef("%q is not key=value", w)
		}
		last := len(descriptors) - 1
		descriptors[last] = append(descriptors[last], rules.Entry{Key: key, Value: value})
	}
	for _, entries := range descriptors {
		if len(entries) == 0 {
			return nil, usagef("an empty descriptor: a comma stands between key=value words")
		}
	}
	return descriptors, nil
}

func requestOf(domain string, descriptors [][]rules.Entry, hits uint32) *rls.RateLimitRequest {
	req := &rls.RateLimitRequest{Domain: domain, HitsAddend: hits}
	for _, entries := range descriptors {
		d := &rlcommon.RateLimitDescriptor{}
		for _, e := range entries {
			d.Entries = append(d.Entries, &rlcommon.RateLimitDescriptor_Entry{Key: e.Key, Value: e.Value})
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	return req
}

func decide(ctx context.Context, w io.Writer, c decideConfig, req *rls.RateLimitRequest) error {
	conn, err := connect(c.addr, &c.tls)
	if err != nil {
		return err
	}
	defer conn.Close()
	client := rls.NewRateLimitServiceClient(conn)
	for range c.times {
		resp, err := askOnce(ctx, client, c.timeout, req)
		if err != nil {
			return askFailed(conn, c.addr, &c.tls, err)
		}
		if _, err := io.WriteString(w, describeAnswer(req, resp)); err != nil {
			return err
		}
	}
	return nil
}

// connection is a gRPC connection that notes whether anybody has answered on it.
type connection struct {
	*grpc.ClientConn
	answered atomic.Bool
}

// connect returns a connection that is dialled when it is first used.
func connect(addr string, t *clientTLSFlags, options ...grpc.DialOption) (*connection, error) {
	if err := checkAddr("--addr", addr); err != nil {
		return nil, err
	}
	creds, err := t.credentials()
	if err != nil {
		return nil, err
	}
	conn := &connection{}
	options = append(options, grpc.WithTransportCredentials(creds), grpc.WithUnaryInterceptor(conn.noteAnswer))
	if conn.ClientConn, err = grpc.NewClient(addr, options...); err != nil {
		return nil, usagef("--addr %s: %w", addr, err)
	}
	return conn, nil
}

// noteAnswer is a grpc.UnaryClientInterceptor. What a server answers comes with
// headers, be it an error; what grpc makes up has none.
func (c *connection) noteAnswer(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	var header, trailer metadata.MD
	err := invoke(ctx, method, req, reply, conn, append(opts, grpc.Header(&header), grpc.Trailer(&trailer))...)
	c.answered.Store(err == nil || len(header)+len(trailer) > 0)
	return err
}

// askFailed tells of a call that failed, and what to do if nobody was there.
func askFailed(conn *connection, addr string, t *clientTLSFlags, err error) error {
	st := grpcstatus.Convert(err)
	if !conn.answered.Load() {
		if hint := t.hint(st.Message()); hint != "" {
			return fmt.Errorf("asking %s: %s; %s", addr, st.Message(), hint)
		}
		return fmt.Errorf("asking %s: %s; start `weir serve`, or say where it runs with --addr", addr, st.Message())
	}
	return fmt.Errorf("asking %s: %s: %s", addr, st.Code(), st.Message())
}

func askOnce(ctx context.Context, client rls.RateLimitServiceClient, timeout time.Duration, req *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return client.ShouldRateLimit(ctx, req)
}

// describeAnswer is the decision as text: the verdict, a line for each
// descriptor, and the headers that the client would see.
func describeAnswer(req *rls.RateLimitRequest, resp *rls.RateLimitResponse) string {
	var b strings.Builder
	fmt.Fprintln(&b, resp.OverallCode)
	for i, st := range resp.Statuses {
		if i < len(req.Descriptors) {
			fmt.Fprintf(&b, "  %s: ", descriptorText(req.Descriptors[i]))
		}
		fmt.Fprintln(&b, statusText(st))
	}
	weir := resp.DynamicMetadata.GetFields()["weir"].GetStructValue()
	for _, rule := range weir.GetFields()["shadow"].GetListValue().GetValues() {
		fmt.Fprintf(&b, "  in shadow, %s would have refused it\n", rule.GetStringValue())
	}
	for _, h := range resp.RequestHeadersToAdd {
		if strings.EqualFold(h.Key, queue.HeaderOverflow) {
			fmt.Fprintf(&b, "  to be queued by %s; decide itself queues nothing\n", h.Value)
		}
	}
	for _, h := range resp.ResponseHeadersToAdd {
		fmt.Fprintf(&b, "  %s: %s\n", h.Key, h.Value)
	}
	return b.String()
}

func descriptorText(d *rlcommon.RateLimitDescriptor) string {
	var words []string
	for _, e := range d.Entries {
		words = append(words, e.Key+"="+e.Value)
	}
	return strings.Join(words, " ")
}

func statusText(st *rls.RateLimitResponse_DescriptorStatus) string {
	l := st.CurrentLimit
	switch {
	case l == nil && st.LimitRemaining > 0:
		return "OK, unlimited"
	case l == nil:
		return "OK, no limit (`weir explain` says why)"
	}
	text := fmt.Sprintf("%v, limit %d %s, %d left", st.Code, l.RequestsPerUnit, perText(l), st.LimitRemaining)
	if st.DurationUntilReset != nil {
		after := st.DurationUntilReset.AsDuration()
		switch {
		case st.Code == rls.RateLimitResponse_OVER_LIMIT:
			text += fmt.Sprintf(", retry after %v", after)
		case after > 0:
			text += fmt.Sprintf(", full again in %v", after)
		}
	} else if st.Code == rls.RateLimitResponse_OVER_LIMIT {
		text += ", waiting cannot help"
	}
	if l.Name != "" {
		text += " (" + l.Name + ")"
	}
	return text
}

// perText is a limit's window, such as "a minute" or "in 5 minutes".
func perText(l *rls.RateLimitResponse_RateLimit) string {
	unit, times := strings.ToLower(l.Unit.String()), l.UnitMultiplier.GetValue()
	switch {
	case l.Unit == rls.RateLimitResponse_RateLimit_UNKNOWN:
		return "a window"
	case times > 1:
		return fmt.Sprintf("in %d %ss", times, unit)
	case l.Unit == rls.RateLimitResponse_RateLimit_HOUR:
		return "an hour"
	}
	return "a " + unit
}
