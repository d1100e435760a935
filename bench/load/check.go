package load

import (
	"context"
	"fmt"
	"time"
)

// Meaning is what the limit under a load means, so that what was admitted can be
// held against what was counted.
type Meaning struct {
	Refill time.Duration // in which what was used is given back evenly; 0: not before the window's end
	Slack  uint64        // how much may be counted that was not yet admitted: a lease
}

// Counted is what a look at a target's counters showed.
type Counted struct {
	Looked  int    `json:"looked"`            // counters
	Right   int    `json:"right"`             // that hold what was admitted
	Missing int    `json:"missing,omitempty"` // hits that were admitted, but not counted, over all counters
	Silent  bool   `json:"silent,omitempty"`  // the server does not tell what is left
	Fault   string `json:"fault,omitempty"`   // of the first that does not
}

// OK tells whether all is right that can be: elsewhere is how many hits the
// failure policy decided, because Redis did not answer in time, so that they are
// counted elsewhere. Beyond them one counter in fifty may be wrong.
func (c Counted) OK(elsewhere int64) bool {
	return (c.Looked-c.Right)*50 <= c.Looked || c.Missing > 0 && int64(c.Missing) <= elsewhere
}

// Count looks at up to 200 counters of the target, and holds what is left
// against what was admitted: a server that answers without counting is no
// limiter, and one that admits more than the limit neither.
func (t *Target) Count(ctx context.Context, m Meaning) (Counted, error) {
	var c Counted
	for v := 0; v < t.load.Values; v += max(1, t.load.Values/200) {
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		limit, remaining, told, err := t.asker.Look(call, v)
		cancel()
		if err := ctx.Err(); err != nil {
			return c, err
		}
		if err == nil && !told {
			c.Silent = true
			return c, nil
		}
		c.Looked++
		if err == nil {
			admitted := t.admitted[v].Load()
			err = m.judge(limit, remaining, uint64(admitted), uint64(t.failed.Load()), time.Since(t.begin))
			if err != nil {
				c.Missing += int(max(0, admitted-int64(limit-remaining)))
			}
		}
		if err == nil {
			c.Right++
		} else if c.Fault == "" {
			c.Fault = fmt.Sprintf("value %d: %v", v, err)
		}
	}
	return c, nil
}

// judge says what is wrong with a counter. Failed requests may have been counted
// or not, so they excuse that too much was counted; nothing excuses too little
// but what time has given back.
func (m Meaning) judge(limit, remaining, admitted, failed uint64, elapsed time.Duration) error {
	var refilled float64
	if m.Refill > 0 {
		refilled = 2 + float64(limit)*float64(elapsed)/float64(m.Refill)
	}
	used := float64(limit) - float64(remaining)
	switch {
	case float64(admitted) > float64(limit)+refilled:
		return fmt.Errorf("%d were admitted, over the limit of %d", admitted, limit)
	case used < float64(admitted)-refilled:
		return fmt.Errorf("%d were admitted, but only %.0f counted", admitted, used)
	case used > float64(admitted)+float64(failed+m.Slack) && remaining > 0:
		return fmt.Errorf("%d were admitted, but %.0f counted", admitted, used)
	}
	return nil
}
