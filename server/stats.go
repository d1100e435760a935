package server

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "weir/api/weir/v1"
	"weir/rules"
)

// Status is what the server does not know by itself of what Stats tells. Any may be
// nil, which leaves its part out. They are called often, and do not wait long.
type Status struct {
	Version string                    // of the program
	Rules   func() rules.LiveStatus   // with the names of sources as anybody may read them
	Store   func() *weirv1.StoreStats //
	Queues  func(context.Context) []*weirv1.QueueStats
}

// Stats tells what this instance does. Without Options.Metrics its counts are 0.
func (a *api) Stats(ctx context.Context, _ *weirv1.StatsRequest) (*weirv1.StatsResponse, error) {
	s, st, counting := a.service, &a.service.opts.Status, a.service.opts.Metrics
	resp := &weirv1.StatsResponse{
		At: timestamppb.Now(), StartedAt: timestamppb.New(s.started), Version: st.Version, Shadow: s.opts.Shadow,
		Rules: s.ruleStats(), InFlight: uint64(max(0, counting.InFlight())), Held: uint64(max(0, counting.Held())), Errors: counting.Errors(),
	}
	for _, t := range counting.Totals() {
		resp.Outcomes = append(resp.Outcomes, &weirv1.OutcomeCount{Domain: t.Domain, Outcome: t.Outcome, Count: t.Count})
	}
	if st.Store != nil {
		resp.Store = st.Store()
	}
	if st.Queues != nil {
		resp.Queues = st.Queues(ctx)
	}
	return resp, nil
}

func (s *Service) ruleStats() *weirv1.RuleStats {
	set := s.opts.Rules.Current()
	domains, n := set.Size()
	out := &weirv1.RuleStats{Version: set.Version(), Domains: uint32(domains), Rules: uint32(n), Sources: s.sources()}
	if s.opts.Status.Rules != nil {
		status := s.opts.Status.Rules()
		out.LoadedAt, out.Reloads, out.Failures = timeOf(status.LoadedAt), status.Reloads, status.Failures
	}
	return out
}

// timeOf is unset for the zero time.
func timeOf(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// Intervals of WatchStats.
const (
	defaultWatch = time.Second
	minWatch     = 100 * time.Millisecond
	maxWatch     = time.Minute
)

// WatchStats sends Stats again and again.
func (a *api) WatchStats(req *weirv1.WatchStatsRequest, stream weirv1.WeirService_WatchStatsServer) error {
	return a.watch(stream.Context(), req, stream.Send)
}

// watch sends until the context ends, sending fails, or the server stops.
func (a *api) watch(ctx context.Context, req *weirv1.WatchStatsRequest, send func(*weirv1.WatchStatsResponse) error) error {
	interval := defaultWatch
	if req.Interval != nil {
		interval = req.Interval.AsDuration()
		if err := req.Interval.CheckValid(); err != nil || interval < minWatch || interval > maxWatch {
			return grpcstatus.Errorf(codes.InvalidArgument, "interval %v: it is %v to %v", interval, minWatch, maxWatch)
		}
	}
	if req.Top > maxTop {
		return grpcstatus.Errorf(codes.InvalidArgument, "top %d: it is %d at most", req.Top, maxTop)
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		resp, err := a.watched(ctx, req.Top)
		if err != nil {
			return err
		}
		if err := send(resp); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return toStatus(ctx.Err())
		case <-a.service.stopping:
			return grpcstatus.Error(codes.Unavailable, "the server stops")
		case <-tick.C:
		}
	}
}

func (a *api) watched(ctx context.Context, n uint32) (*weirv1.WatchStatsResponse, error) {
	stats, err := a.Stats(ctx, &weirv1.StatsRequest{})
	if err != nil {
		return nil, err
	}
	resp := &weirv1.WatchStatsResponse{Stats: stats}
	if n > 0 && a.service.opts.Top != nil {
		list, err := a.Top(ctx, &weirv1.TopRequest{Limit: n})
		if err != nil {
			return nil, err
		}
		resp.Top = list.Counters
	}
	return resp, nil
}

// EndWatches ends the streams of WatchStats, for whose end a stop would wait. It may
// be called again.
func (s *Service) EndWatches() { s.stop.Do(func() { close(s.stopping) }) }
