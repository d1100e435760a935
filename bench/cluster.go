package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"weir/bench/proc"
)

// cluster starts a Redis Cluster of s.masters masters without replicas, and
// returns when all of them hold it for whole.
func (f *fleet) cluster(ctx context.Context, s *server) (addrs []string, err error) {
	buses, err := f.take(ctx, s.masters)
	if err != nil {
		return nil, err
	}
	const slots = 16384
	for i := range s.masters {
		addr, err := f.redis(ctx, s, "--cluster-enabled", "yes", "--cluster-port", port(buses[i]), "--cluster-config-file", fmt.Sprintf("nodes-%s.conf", port(buses[i])))
		if err != nil {
			return nil, err
		}
		commands := []string{
			fmt.Sprintf("CLUSTER SET-CONFIG-EPOCH %d", i+1),
			fmt.Sprintf("CLUSTER ADDSLOTSRANGE %d %d", i*slots/s.masters, (i+1)*slots/s.masters-1),
		}
		for j, other := range addrs {
			commands = append(commands, fmt.Sprintf("CLUSTER MEET 127.0.0.1 %s %s", port(other), port(buses[j])))
		}
		for _, c := range commands {
			if _, err := proc.AskRedis(ctx, addr, c); err != nil {
				return nil, err
			}
		}
		addrs = append(addrs, addr)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, addr := range addrs {
		for !whole(ctx, addr, s.masters) {
			select {
			case <-ctx.Done():
				return nil, fmt.Errorf("wait for a Redis Cluster of %d masters: %w", s.masters, ctx.Err())
			case <-time.After(50 * time.Millisecond): // nodes have no way to tell
			}
		}
	}
	return addrs, nil
}

func whole(ctx context.Context, addr string, masters int) bool {
	info, err := proc.AskRedis(ctx, addr, "CLUSTER INFO")
	return err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", masters))
}
