package ruletest

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"weir/limiter"
	"weir/rules"
	"weir/server"
)

// Setup is what flags of serve come to.
type Setup struct {
	Server server.Options // Rules, Store, Clock and Logger are filled in
	Rules  rules.Options
	Memory limiter.MemoryOptions // Now is filled in
}

// Configure reads flags of serve. It fails if one of them makes no sense in a test.
type Configure func(flags []string) (Setup, error)

// Result is what came of a test.
type Result struct {
	Test     *Test
	Took     time.Duration
	Unplayed string // why it was not played; "": it was
	Steps    []Outcome
}

// Failed tells whether a step came otherwise than it was wanted.
func (r *Result) Failed() bool {
	for i := range r.Steps {
		if len(r.Steps[i].Differs) > 0 {
			return true
		}
	}
	return false
}

// Outcome is what came of a step.
type Outcome struct {
	Line    int
	At      time.Time     // of its first request
	Elapsed time.Duration // since the start of the test
	Did     string        // what the step did, for people
	Differs []string      // from what was wanted, each as "WHAT: CAME, want WANTED"
	Answers string        // A, D or E for each request
	Shown   *server.Trial // the answer that was compared; nil: none came
	ShownNo int           // which request's it is, from 1
	Message string        // of the error, or of rules that were refused
	Hints   []string      // why no rule matched, if something differs
}

// Play plays a test.
func Play(ctx context.Context, t *Test, configure Configure) (*Result, error) {
	result := &Result{Test: t, Unplayed: t.unplayed}
	if t.unplayed != "" {
		return result, nil
	}
	begin := time.Now()
	p, err := newPlayer(t, configure)
	if err != nil {
		return nil, err
	}
	for _, s := range t.steps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		result.Steps = append(result.Steps, p.step(ctx, s))
	}
	result.Took = time.Since(begin)
	return result, nil
}

// player is the world of a test: a service, its rules and its clock.
type player struct {
	service *server.Service
	rules   rules.Options
	set     *rules.Set
	start   time.Time
	now     time.Time
	last    time.Time // of the last request
}

// Current implements server.Rules.
func (p *player) Current() *rules.Set { return p.set }

func (p *player) clock() time.Time { return p.now }

func newPlayer(t *Test, configure Configure) (*player, error) {
	setup, err := configure(t.flags)
	if err != nil {
		return nil, fmt.Errorf("flags: %w", err)
	}
	p := &player{rules: setup.Rules, start: t.start, now: t.start, last: t.start}
	if p.set, err = rules.CompileWith(p.rules, t.documents...); err != nil {
		return nil, err
	}
	setup.Memory.Now = p.clock
	o := setup.Server
	o.Rules, o.Store, o.Clock = p, limiter.NewMemory(setup.Memory), p.clock
	o.Logger = slog.New(slog.DiscardHandler)
	p.service = server.NewService(o)
	return p, nil
}

func (p *player) step(ctx context.Context, s *step) Outcome {
	out := Outcome{Line: s.line}
	problem := p.move(s.at)
	out.At, out.Elapsed = p.now, p.now.Sub(p.start)
	switch {
	case problem != "":
		out.Did, out.Differs = "wait", []string{problem}
	case s.send != nil:
		out.Did = "send " + s.send.text
		p.send(ctx, s, &out)
	case s.reload.documents != nil:
		out.Did = "change the rules"
		p.reload(s, &out)
	default:
		out.Did = fmt.Sprintf("wait %v", s.settle)
	}
	if s.remark != "" {
		out.Did += " (" + s.remark + ")"
	}
	p.now = p.now.Add(s.settle)
	return out
}

// move sets the clock to when a step begins. It says what is wrong with that.
func (p *player) move(m moment) (problem string) {
	to := p.now
	switch m.kind {
	case later:
		to = p.now.Add(m.after)
	case elapsed:
		to = p.start.Add(m.after)
	case absolute:
		to = m.at.In(p.start.Location())
	}
	switch {
	case to.Before(p.last):
		return fmt.Sprintf("at: %v is before the last request, at %v; steps are in order of time", timeText(to), timeText(p.last))
	case !inRange(to):
		return fmt.Sprintf("at: %v is out of the years %d to %d", timeText(to), firstYear, lastYear)
	}
	p.now = to
	return ""
}

// send sends the requests of a step. The clock goes on by what each is held, or what
// lies between them.
func (p *player) send(ctx context.Context, s *step, out *Outcome) {
	begin, longest := p.now, time.Duration(0)
	c := comparison{want: &s.want}
	request := s.send.asked.encode()
	for i := range s.send.times {
		at := p.now
		p.last = at
		trial, err := p.service.Try(ctx, request, s.send.patience)
		c.add(i, trial, err)
		if trial != nil {
			longest = max(longest, trial.Delay)
		}
		switch {
		case s.send.parallel:
		case s.send.every > 0 && i+1 < s.send.times:
			p.now = at.Add(s.send.every)
		case trial != nil:
			p.now = at.Add(trial.Delay)
		}
		if !inRange(p.now) {
			c.differs("request %d: %v is out of the years %d to %d", i+2, timeText(p.now), firstYear, lastYear)
			break
		}
	}
	if s.send.parallel {
		p.now = begin.Add(longest)
	}
	c.finish(out)
	if len(out.Differs) > 0 && out.Shown != nil && out.Shown.Rule == "" {
		out.Hints = p.explain(s.send)
	}
}

// explain says why no rule matches what is sent, and which nearly does.
func (p *player) explain(s *send) (hints []string) {
	for i := range s.asked.descriptors {
		var entries []rules.Entry
		for _, e := range s.asked.descriptors[i].entries {
			entries = append(entries, rules.Entry{Key: e.key, Value: e.value})
		}
		x := p.set.Explain(s.asked.domain, entries)
		hints = append(hints, x.Verdict)
		for _, miss := range x.NearMisses {
			hints = append(hints, fmt.Sprintf("nearly: %s (%s): %s", miss.Path, miss.Place, miss.Why))
		}
	}
	return hints[:min(len(hints), mostHints)]
}

// mostHints is how many lines of them are told.
const mostHints = 6

// reload puts rules into force, or keeps those before.
func (p *player) reload(s *step, out *Outcome) {
	set, err := rules.CompileWith(p.rules, s.reload.documents...)
	wanted := s.want.failure
	switch {
	case err == nil:
		p.set = set
		if wanted != "" {
			out.Differs = append(out.Differs, fmt.Sprintf("error: none, the rules are sound, want %q", wanted))
		}
	case wanted != "":
		out.Message = err.Error()
		if !failureHas(wanted, "", out.Message) {
			out.Differs = append(out.Differs, fmt.Sprintf("error: %s, want %q", out.Message, wanted))
		}
	case s.reload.lenient:
		out.Message = err.Error()
	default:
		out.Message = err.Error()
		out.Differs = append(out.Differs, "the rules are refused, and those before stay in force (if that is wanted, say want: {error: …}): "+out.Message)
	}
}

// timeText is a time as its zone's clocks show it.
func timeText(t time.Time) string { return t.Format("2006-01-02T15:04:05.999999999Z07:00") }
