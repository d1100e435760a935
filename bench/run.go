package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"weir/bench/load"
	"weir/bench/proc"
	"weir/bench/report"
)

// options are those of a run of the matrix.
type options struct {
	rounds   int
	length   time.Duration // of one drive
	inFlight int
	conns    int
	only     []string // scenarios; none: all
}

// takes is about how long the scenarios take, without starting servers.
func (o options) takes(scenarios []scenario) (sum time.Duration) {
	for _, s := range scenarios {
		sum += time.Duration(len(s.rows)) * (o.length*time.Duration(o.rounds) + o.warmUp())
	}
	return sum
}

// warmUp is the length of the drive before the first round, which does not count.
func (o options) warmUp() time.Duration { return o.length / 2 }

// runScenario drives all rows in turn, round after round, so that what else the
// machine does meets them all.
func runScenario(ctx context.Context, f *fleet, s scenario, o options, progress io.Writer) (*report.Scenario, error) {
	out := &report.Scenario{ID: s.id, Title: s.title, Against: s.against, Rows: make([]report.Row, len(s.rows))}
	servers, targets := make([]*server, len(s.rows)), make([]*load.Target, len(s.rows))
	for i, r := range s.rows {
		var err error
		if servers[i], err = f.get(ctx, r.server); err != nil {
			return nil, fmt.Errorf("%s: %w", r.server, err)
		}
		usage := servers[i].usage
		if !proc.Measurable {
			usage = load.Processes{}
		}
		if targets[i], err = load.NewTarget(r.load, servers[i].asker(servers[i].conns, r.load), usage); err != nil {
			return nil, fmt.Errorf("%s: %w", r.name(), err)
		}
		out.Rows[i] = report.Row{
			Label: r.name(), Server: r.server, CPUKnown: proc.Measurable, HasRedis: len(servers[i].usage.Redis) > 0,
			Masters: servers[i].masters, Rate: r.load.Rate, Unchecked: r.unchecked, Note: r.note,
		}
	}
	before, err := standby(ctx, servers)
	if err != nil {
		return nil, err
	}
	for round := range o.rounds + 1 { // the first warms up
		length := o.length
		if round == 0 {
			length = o.warmUp()
		}
		for i, r := range s.rows {
			result, err := targets[i].Drive(ctx, length)
			if err != nil {
				return nil, errors.Join(fmt.Errorf("%s, %s: %w", s.id, r.name(), err), servers[i].alive())
			}
			if round > 0 {
				out.Rows[i].Rounds = append(out.Rows[i].Rounds, result)
			}
		}
		fmt.Fprintf(progress, "  %s: round %d of %d done\n", s.id, round, o.rounds)
	}
	after, err := standby(ctx, servers)
	if err != nil {
		return nil, err
	}
	for i, r := range s.rows {
		out.Rows[i].Standby = after[i] - before[i]
		if r.unchecked == "" {
			counted, err := targets[i].Count(ctx, r.meaning)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: look at counters: %w", s.id, r.name(), err)
			}
			out.Rows[i].Counted = &counted
		}
		if err := servers[i].memory(&out.Rows[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// alive says which of the server's processes have ended.
func (s *server) alive() error {
	var errs []error
	for _, p := range s.processes {
		errs = append(errs, p.Alive())
	}
	return errors.Join(errs...)
}

func (s *server) memory(r *report.Row) error {
	if !proc.Measurable {
		return nil
	}
	for _, x := range []struct {
		pids []int
		sum  *int64
	}{{s.usage.Server, &r.ServerRSS}, {s.usage.Redis, &r.RedisRSS}} {
		for _, pid := range x.pids {
			bytes, err := proc.Resident(pid)
			if err != nil {
				return err
			}
			*x.sum += bytes
		}
	}
	return nil
}

// uncounted says which rows of Weir cannot be believed: what was admitted was not
// counted, or over one in a hundred was decided without Redis, which costs less.
func uncounted(s *report.Scenario) error {
	var errs []error
	requests := map[string]int64{} // by server
	for i := range s.Rows {
		for _, x := range s.Rows[i].Rounds {
			requests[s.Rows[i].Server] += x.Requests
		}
	}
	for i := range s.Rows {
		r := &s.Rows[i]
		if !strings.HasPrefix(r.Server, "weir-") {
			continue
		}
		if c := r.Counted; c != nil && !c.OK(r.Standby) {
			errs = append(errs, fmt.Errorf("%s, %s: only %d of %d counters hold what was admitted: %s", s.ID, r.Label, c.Right, c.Looked, c.Fault))
		}
		if all := requests[r.Server]; r.Standby*100 > all {
			errs = append(errs, fmt.Errorf("%s, %s: %d of %d hits were decided without Redis, which was late: the machine is too busy to measure", s.ID, r.Label, r.Standby, all))
		}
	}
	return errors.Join(errs...)
}
