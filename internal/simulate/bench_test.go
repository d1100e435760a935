package simulate_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/simulate"
	"weir/rules"
)

// BenchmarkSimulate replays requests of many clients, and tries other limits on them:
// the time is of one request.
func BenchmarkSimulate(b *testing.B) {
	doc, err := rules.Parse("rules.yaml", []byte(`rules: [{match: {user: "*"}, limits: [{limit: 5, window: 1s}, {limit: 200, window: 1h, algorithm: token_bucket}]}, {match: {all: x}, limit: 10, window: 1s, algorithm: sliding_window_counter}]`))
	if err != nil {
		b.Fatal(err)
	}
	set, err := rules.Compile(doc)
	if err != nil {
		b.Fatal(err)
	}
	s := simulate.New(simulate.Options{Sets: []simulate.NamedSet{{Name: "rules", Set: set}}, AtMost: 0.001})
	defer s.Close()
	at := time.Unix(1_800_000_000, 0)
	users := make([]string, 10_000)
	for i := range users {
		users[i] = fmt.Sprint("user", i)
	}
	i := 0
	for b.Loop() {
		entries := []rules.Entry{{Key: "user", Value: users[i*i%len(users)]}, {Key: "all", Value: "x"}}
		req := rules.Request{Domain: "default", Descriptors: []rules.Descriptor{{Entries: entries[:1]}, {Entries: entries[1:]}}}
		if err := s.Add(at.Add(time.Duration(i)*80*time.Millisecond), &req); err != nil {
			b.Fatal(err)
		}
		i++
	}
	if _, err := s.Report(); err != nil {
		b.Fatal(err)
	}
}
