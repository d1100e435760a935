package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Overview is a queue as operators see it.
type Overview struct {
	About
	Hash    string // names it in IDs
	Waiting int64
	Failed  int64     // given up, until an operator retries or drops them
	Oldest  time.Time // when the first of who waits came; zero: nobody waits
	Worked  bool      // a worker has it
	Ruled   bool      // a server has told of its rule less than ruledLife ago
}

// Overviews lists the queues by name.
func (q *Queues) Overviews(ctx context.Context) ([]Overview, error) {
	queues, err := q.List(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(queues, func(a, b About) int { return strings.Compare(a.Name(), b.Name()) })
	var all []Overview
	for _, a := range queues {
		o := Overview{About: a, Hash: q.hash(a.Tag)}
		p := q.client.Pipeline()
		waiting, failed := p.XLen(ctx, a.stream()), p.XLen(ctx, a.dead())
		ruled, locked, first := p.Exists(ctx, a.ruled()), p.Exists(ctx, a.lock()), p.XRangeN(ctx, a.stream(), "-", "+", 1)
		if _, err := p.Exec(ctx); err != nil {
			return nil, unavailable("looking at a queue", err)
		}
		o.Waiting, o.Failed, o.Worked, o.Ruled = waiting.Val(), failed.Val(), locked.Val() == 1, ruled.Val() == 1
		if m := first.Val(); len(m) > 0 {
			o.Oldest = entryTime(m[0].ID)
		}
		all = append(all, o)
	}
	return all, nil
}

// Lookup finds a queue by DOMAIN/RULE, or by its hash.
func (q *Queues) Lookup(ctx context.Context, name string) (*About, error) {
	queues, err := q.List(ctx)
	if err != nil {
		return nil, err
	}
	var found []About
	var names []string
	for _, a := range queues {
		if a.Name() == name || q.hash(a.Tag) == name {
			found = append(found, a)
		}
		names = append(names, a.Name())
	}
	slices.Sort(names)
	switch {
	case len(found) == 1:
		return &found[0], nil
	case len(found) > 1:
		return nil, fmt.Errorf("several queues are called %s; name one by the hash that weir queue ls prints", name)
	case len(names) == 0:
		return nil, errors.New("there are no queues; weir serve --queue-addr makes one for each rule with over_limit: queue")
	}
	return nil, fmt.Errorf("no queue is called %s; there are: %s", name, strings.Join(names, ", "))
}

// Peek returns the first so many who wait, or who were given up.
func (q *Queues) Peek(ctx context.Context, a *About, failed bool, n int64) ([]*Entry, error) {
	return q.page(ctx, a, failed, "-", n)
}

func (q *Queues) page(ctx context.Context, a *About, failed bool, from string, n int64) ([]*Entry, error) {
	stream := a.stream()
	if failed {
		stream = a.dead()
	}
	messages, err := q.client.XRangeN(ctx, stream, from, "+", n).Result()
	if err != nil {
		return nil, unavailable("looking into a queue", err)
	}
	var entries []*Entry
	for _, m := range messages {
		entries = append(entries, q.entryOf(a, m))
	}
	return entries, nil
}

// Retry puts requests that were given up behind those that wait, all of them if no
// ID is given. It returns how many.
func (q *Queues) Retry(ctx context.Context, a *About, ids []string) (int, error) {
	return q.each(ctx, a, true, ids, func(e *Entry) (bool, error) { return q.again(ctx, e, StateWaiting, DefaultKeep) })
}

// Drop takes requests out for good, of who waits or of who was given up, all of
// them if no ID is given. It returns how many. One that is being delivered is not
// called back.
func (q *Queues) Drop(ctx context.Context, a *About, failed bool, ids []string) (int, error) {
	return q.each(ctx, a, failed, ids, func(e *Entry) (bool, error) {
		if failed {
			return q.again(ctx, e, StateDropped, DefaultKeep)
		}
		return q.leave(ctx, e, StateDropped, 0, "an operator dropped it", DefaultKeep)
	})
}

// each does something to the entries that are there now and have one of the IDs.
func (q *Queues) each(ctx context.Context, a *About, failed bool, ids []string, do func(*Entry) (bool, error)) (int, error) {
	stream := a.stream()
	if failed {
		stream = a.dead()
	}
	end, err := q.client.XRevRangeN(ctx, stream, "+", "-", 1).Result()
	if err != nil {
		return 0, unavailable("looking into a queue", err)
	}
	if len(end) == 0 {
		return 0, nil
	}
	done, from := 0, "-"
	for {
		page, err := q.page(ctx, a, failed, from, 100)
		if err != nil || len(page) == 0 {
			return done, err
		}
		for _, e := range page {
			if after(e.entry, end[0].ID) {
				return done, nil
			}
			if len(ids) > 0 && !slices.Contains(ids, e.ID) {
				continue
			}
			ok, err := do(e)
			if err != nil {
				return done, err
			}
			if ok {
				done++
			}
		}
		from = "(" + page[len(page)-1].entry
	}
}

// after tells whether an entry's ID comes after another's.
func after(a, b string) bool {
	var ams, aseq, bms, bseq uint64
	_, _ = fmt.Sscanf(a, "%d-%d", &ams, &aseq)
	_, _ = fmt.Sscanf(b, "%d-%d", &bms, &bseq)
	return ams > bms || ams == bms && aseq > bseq
}

func entryTime(id string) time.Time {
	var ms int64
	_, _ = fmt.Sscanf(id, "%d-", &ms)
	return time.UnixMilli(ms).UTC()
}

// Since is when the request was queued, or given up.
func (e *Entry) Since() time.Time { return entryTime(e.entry) }
