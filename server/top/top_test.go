package top

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"weir/rules"
)

func refusal(user string) *Refusal {
	return &Refusal{Counter: []byte("rule " + user), Domain: "api", Rule: "login", Entries: []rules.Entry{{Key: "user", Value: user}}}
}

// clock stands still until a test moves it on.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func words(counters []Counter) string {
	var text []string
	for _, c := range counters {
		text = append(text, fmt.Sprintf("%s/%s %v %d+%d", c.Domain, c.Rule, c.Entries, c.Refused, c.Error))
	}
	return strings.Join(text, "; ")
}

func TestTheMostRefusedComeFirst(t *testing.T) {
	c := &clock{time.Unix(1e9, 0)}
	top := New(Options{Now: c.now})
	for i, user := range []string{"ann", "bob", "eve"} {
		for range 10 * (i + 1) {
			top.Add(refusal(user))
		}
	}
	top.Add(&Refusal{Counter: []byte("x"), Domain: "web"})
	counters, since := top.Top("", 2)
	if got := words(counters); got != "api/login [{user eve}] 30+0; api/login [{user bob}] 20+0" || !since.Equal(c.at) {
		t.Errorf("all: %s since %v", got, since)
	}
	if counters, _ := top.Top("web", 10); words(counters) != "web/ [] 1+0" {
		t.Errorf("of one domain: %s", words(counters))
	}
	if counters, _ := top.Top("none", 10); len(counters) > 0 {
		t.Errorf("of a domain that was never refused: %s", words(counters))
	}
}

func TestWhatIsOldIsForgotten(t *testing.T) {
	c := &clock{time.Unix(1e9, 0)}
	top := New(Options{Now: c.now})
	began := c.at
	for _, step := range []struct {
		after  time.Duration
		refuse string
		want   string
		since  time.Duration
	}{
		{0, "ann", "ann 1", 0},
		{4 * time.Minute, "ann", "ann 2", 0},
		{time.Minute, "bob", "ann 2 bob 1", 0}, // the second sketch begins
		{2 * time.Minute, "ann", "ann 3 bob 1", 0},
		{3 * time.Minute, "bob", "bob 2 ann 1", 5 * time.Minute}, // the first one is gone
		{10 * time.Minute, "eve", "eve 1", 20 * time.Minute},     // both are
	} {
		c.at = c.at.Add(step.after)
		top.Add(refusal(step.refuse))
		counters, since := top.Top("", 10)
		var got []string
		for _, x := range counters {
			got = append(got, fmt.Sprintf("%s %d", x.Entries[0].Value, x.Refused))
		}
		if strings.Join(got, " ") != step.want || since.Sub(began) != step.since {
			t.Errorf("at %v: %q since %v, want %q since %v", c.at.Sub(began), got, since.Sub(began), step.want, step.since)
		}
	}
}

// Whoever is refused often is found among a million who are refused once, counted
// between what is told and what is told with the error; and memory stays bounded.
func TestAMillionOthersHideNobodyAndTakeNoMemory(t *testing.T) {
	top := New(Options{})
	for i := range 2000 { // what it will ever need
		top.Add(refusal(fmt.Sprintf("warm %d %s", i, strings.Repeat("x", 2*MaxText))))
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	loud := map[string]uint64{"loud": 20, "louder": 10}
	sent := map[string]uint64{}
	const n = 1_000_000
	for i := range n {
		top.Add(refusal(fmt.Sprintf("quiet %d", i)))
		for user, every := range loud {
			if i%int(every) == 0 {
				top.Add(refusal(user))
				sent[user]++
			}
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 1<<20 {
		t.Errorf("a million others took %d bytes", grown)
	}
	counters, _ := top.Top("", 2)
	for i, user := range []string{"louder", "loud"} {
		c := counters[i]
		if c.Entries[0].Value != user || c.Refused > sent[user] || c.Refused+c.Error < sent[user] {
			t.Errorf("place %d is %v, refused %d to %d times; want %s, %d times", i+1, c.Entries, c.Refused, c.Refused+c.Error, user, sent[user])
		}
	}
	runtime.KeepAlive(top)
}

func TestLongValuesAreCut(t *testing.T) {
	top := New(Options{})
	r := refusal("x")
	r.Entries = []rules.Entry{{Key: "k", Value: strings.Repeat("é", MaxText)}, {Key: "next", Value: "y"}}
	for range 100 {
		r.Entries = append(r.Entries, rules.Entry{Key: "more", Value: "\xff\xfe"})
	}
	top.Add(r)
	counters, _ := top.Top("", 1)
	total := 0
	for _, e := range counters[0].Entries {
		total += len(e.Key) + len(e.Value)
	}
	if total > MaxText || len(counters[0].Entries) > maxEntries || !utf8.ValidString(counters[0].Entries[0].Value) {
		t.Errorf("kept %d bytes, %d entries", total, len(counters[0].Entries))
	}
}

func TestTopIsExactUnderParallelLoadAndWhileItIsRead(t *testing.T) {
	top := New(Options{Size: 10})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 1000 {
				top.Add(refusal(fmt.Sprint(i % 4)))
				if i == 0 {
					top.Top("", 3)
				}
			}
		})
	}
	wg.Wait()
	counters, _ := top.Top("", 10)
	if len(counters) != 4 {
		t.Fatalf("got %s", words(counters))
	}
	for _, c := range counters {
		if c.Refused != 2000 || c.Error != 0 {
			t.Errorf("%v was refused %d+%d times, want 2000", c.Entries, c.Refused, c.Error)
		}
	}
}

func TestNoTopCountsNothing(t *testing.T) {
	var top *Top
	top.Add(refusal("ann"))
	if counters, since := top.Top("", 1); counters != nil || !since.IsZero() {
		t.Errorf("got %v", counters)
	}
}

func TestAKnownCounterCostsNoMemory(t *testing.T) {
	top := New(Options{})
	r := refusal("ann")
	top.Add(r)
	if n := testing.AllocsPerRun(100, func() { top.Add(r) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAdd(b *testing.B) {
	b.Run("known", func(b *testing.B) {
		top := New(Options{})
		r := refusal("ann")
		b.ReportAllocs()
		for b.Loop() {
			top.Add(r)
		}
	})
	b.Run("new", func(b *testing.B) {
		top := New(Options{})
		r := refusal("ann")
		key := make([]byte, 8)
		r.Counter = key
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			key[0], key[1], key[2], key[3] = byte(i), byte(i>>8), byte(i>>16), byte(i>>24)
			top.Add(r)
		}
	})
}
