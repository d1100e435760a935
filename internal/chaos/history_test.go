package chaos

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
)

// answer is what became of a request. What an instance did lies between start and
// end.
type answer struct {
	start, end time.Duration // since the world began
	instance   int
	life       int // of the instance: how often it had been started
	rules      []string
	hits       uint64
	code       codes.Code
	text       string // of an error
	allowed    bool
	verdicts   []verdict
}

// verdict is what one limit said.
type verdict struct {
	policy    policy
	counter   string
	limit     uint64 // that was in force
	allowed   bool
	remaining uint64
	delay     time.Duration
	by        string
}

// span is a time in which something was so.
type span struct {
	from, to time.Duration
	instance int
	what     string
}

func (s span) meets(from, to time.Duration) bool { return s.from <= to && from <= s.to }

// history is what a schedule leaves for the oracle.
type history struct {
	mu      sync.Mutex
	answers []answer
	losses  []span // Redis lost all
	tails   []span // what was admitted then may be forgotten, or not
	steps   []span // Redis's clock was set
	downs   []span // of an instance: killed, stopped, beginning
	stalls  []span // of the machine
	done    []span // all faults, for reports
	problem []string
}

func (h *history) answer(a answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answers = append(h.answers, a)
}

func (h *history) note(list *[]span, s span) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*list = append(*list, s)
}

func (h *history) found(problem string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Contains(h.problem, problem) {
		h.problem = append(h.problem, problem)
	}
}

func anyMeets(spans []span, from, to time.Duration) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return s.meets(from, to) })
}
