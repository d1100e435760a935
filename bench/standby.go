package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"weir/bench/proc"
)

// standby is how many hits each server has decided by its failure policy so far,
// because Redis did not answer in time. Only Weir has such a policy, and tells.
func standby(ctx context.Context, servers []*server) ([]int64, error) {
	sums := make([]int64, len(servers))
	for i, s := range servers {
		if s.metrics == "" {
			continue
		}
		text, err := proc.Get(ctx, s.metrics)
		if err == nil {
			sums[i], err = failedDecisions(text)
		}
		if err != nil {
			return nil, fmt.Errorf("metrics of %s: %w", s.name, err)
		}
	}
	return sums, nil
}

// failedDecisions adds up weir_decisions_total over the outcomes failed_….
func failedDecisions(metrics string) (sum int64, err error) {
	for line := range strings.Lines(metrics) {
		if !strings.HasPrefix(line, "weir_decisions_total{") || !strings.Contains(line, `outcome="failed_`) {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 64)
		if err != nil || strings.LastIndexByte(line, ' ') < 0 {
			return 0, fmt.Errorf("a line of another form: %q", line)
		}
		sum += int64(v)
	}
	return sum, nil
}
