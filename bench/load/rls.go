package load

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Conns are gRPC connections to one server.
type Conns []*grpc.ClientConn

// Dial makes n connections, which are not encrypted.
func Dial(addr string, n int) (Conns, error) {
	var conns Conns
	for range n {
		c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("dial %s: %w", addr, err), conns.Close())
		}
		conns = append(conns, c)
	}
	return conns, nil
}

// Close closes all of them.
func (c Conns) Close() error {
	var errs []error
	for _, conn := range c {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}

type rlsAsker struct {
	clients  []rls.RateLimitServiceClient
	requests []*rls.RateLimitRequest // by value
}

// NewRLS asks Envoy's RateLimitService what the load asks.
func NewRLS(conns Conns, l Load) Asker {
	a := &rlsAsker{requests: make([]*rls.RateLimitRequest, l.Values)}
	for _, c := range conns {
		a.clients = append(a.clients, rls.NewRateLimitServiceClient(c))
	}
	for v := range a.requests {
		r := &rls.RateLimitRequest{Domain: l.Domain}
		for i := range l.Descriptors {
			value := l.Prefix + strconv.Itoa((v+i)%l.Values)
			r.Descriptors = append(r.Descriptors, &rlcommon.RateLimitDescriptor{
				Entries: []*rlcommon.RateLimitDescriptor_Entry{{Key: l.Entry, Value: value}},
			})
		}
		a.requests[v] = r
	}
	return a
}

func (a *rlsAsker) Ask(ctx context.Context, worker, value int) (bool, error) {
	answer, err := a.clients[worker%len(a.clients)].ShouldRateLimit(ctx, a.requests[value])
	if err != nil {
		return false, err
	}
	switch answer.OverallCode {
	case rls.RateLimitResponse_OK:
		return false, nil
	case rls.RateLimitResponse_OVER_LIMIT:
		return true, nil
	default:
		return false, fmt.Errorf("overall_code %v", answer.OverallCode)
	}
}

func (a *rlsAsker) Look(ctx context.Context, value int) (limit, remaining uint64, told bool, err error) {
	asked := a.requests[value]
	look := &rls.RateLimitRequest{Domain: asked.Domain, Descriptors: []*rlcommon.RateLimitDescriptor{{
		Entries: asked.Descriptors[0].Entries, HitsAddend: wrapperspb.UInt64(0),
	}}}
	answer, err := a.clients[0].ShouldRateLimit(ctx, look)
	if err != nil {
		return 0, 0, false, err
	}
	if len(answer.Statuses) == 0 || answer.Statuses[0].CurrentLimit == nil {
		return 0, 0, false, nil
	}
	s := answer.Statuses[0]
	return uint64(s.CurrentLimit.RequestsPerUnit), uint64(s.LimitRemaining), true, nil
}
