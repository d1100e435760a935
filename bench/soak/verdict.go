package soak

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"weir/bench/proc"
)

// judge says what is wrong after the load has ended.
func (s *soak) judge(ctx context.Context, idle Sample) ([]string, error) {
	var names []string
	for _, w := range s.weirs {
		names = append(names, w.name)
	}
	widen := 1.0
	if s.opts.Length < settled {
		widen = loose
	}
	found := Judge(s.samples, names, widen)
	for _, text := range s.faults.list() {
		found = append(found, "unexpected, "+text)
	}
	right, unjudged, wrong := s.windows.judge()
	found = append(found, wrong...)
	fmt.Fprintf(s.opts.Progress, "%d windows held their limit exactly (%d could not be judged), and %d checked counters (%d could not be)\n", right, unjudged, s.checked.Load(), s.unchecked.Load())
	if right < unjudged || s.checked.Load() < s.unchecked.Load() {
		found = append(found, "most limits could not be judged: the machine is too busy, or the store decided little")
	}
	if s.changes.Load() == 0 {
		found = append(found, "no change of the rules came into force")
	}
	if most := s.mostKeys(); slices.ContainsFunc(s.samples, func(x Sample) bool { return x.RedisKeys > most }) {
		found = append(found, fmt.Sprintf("Redis had more than %.0f keys, which is all that can live", most))
	}
	more, err := s.redisKeys(ctx)
	if err != nil {
		return nil, err
	}
	calm, err := s.calm(ctx, idle)
	return append(append(found, more...), calm...), err
}

// mostKeys is how many keys can live at once: one for each known value and
// algorithm, and those of new values, for as long as the longest of their windows.
func (s *soak) mostKeys() float64 {
	const newKeysWindow = 10 // s: twice that of a sliding counter
	known := float64(8 * zipfValues)
	return known + float64(s.opts.Rate)*(newShare+2)/100*newKeysWindow*2
}

// redisKeys looks at each key's time to live.
func (s *soak) redisKeys(ctx context.Context) ([]string, error) {
	script := `local c, n, most, never = '0', 0, 0, 0 ` +
		`repeat local r = redis.call('SCAN', c, 'COUNT', 1000) c = r[1] ` +
		`for _, k in ipairs(r[2]) do local t = redis.call('PTTL', k) if t == -1 then never = never + 1 end if t > most then most = t end end ` +
		`until c == '0' return tostring(never) .. ' ' .. tostring(most)`
	text, err := proc.AskRedis(ctx, s.redisAddr, "EVAL "+strconv.Quote(script)+" 0")
	if err != nil {
		return nil, err
	}
	var never int
	var most int64
	if _, err := fmt.Sscan(text, &never, &most); err != nil {
		return nil, fmt.Errorf("times to live, %q: %w", text, err)
	}
	var found []string
	if never > 0 {
		found = append(found, fmt.Sprintf("%d keys in Redis have no time to live", never))
	}
	if live := time.Duration(most) * time.Millisecond; live > longest+5*time.Second {
		found = append(found, fmt.Sprintf("a key in Redis lives for %v more, though none has to for more than %v", live, longest))
	}
	return found, nil
}

// calm waits until the servers hold no more goroutines and files than before the
// load: all who called are gone.
func (s *soak) calm(ctx context.Context, idle Sample) ([]string, error) {
	for _, w := range s.weirs {
		_ = w.conns.Close()
	}
	const patience, spare = 20 * time.Second, 20
	begin := time.Now()
	for {
		now, err := s.look(ctx, begin)
		if err != nil {
			return nil, err
		}
		var found []string
		for i, p := range now.Processes {
			was := idle.Processes[i]
			if p.Goroutines > was.Goroutines+spare {
				found = append(found, fmt.Sprintf("%s: %.0f goroutines %v after the load, %.0f before it", s.weirs[i].name, p.Goroutines, patience, was.Goroutines))
			}
			if p.Files > was.Files+spare {
				found = append(found, fmt.Sprintf("%s: %.0f open files %v after the load, %.0f before it", s.weirs[i].name, p.Files, patience, was.Files))
			}
		}
		if len(found) == 0 || now.At > patience {
			return found, nil
		}
		if !pause(ctx, 200*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
}
