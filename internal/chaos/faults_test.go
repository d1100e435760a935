package chaos

import (
	"fmt"
	"syscall"
	"time"
)

// weather sets what a kind of fault of a network is.
func (w *world) weather(p *Proxy, kind string) {
	switch kind {
	case "delay":
		p.Set(Weather{Delay: time.Duration(1+w.chance()*40) * time.Millisecond})
	case "jitter":
		p.Set(Weather{Jitter: time.Duration(2+w.chance()*60) * time.Millisecond})
	case "loss":
		p.Set(Weather{Loss: 0.01 + 0.2*w.chance()})
	case "half-open":
		p.Set(Weather{HalfOpen: true})
	case "refuse":
		p.Set(Weather{Refuse: true})
		p.Reset()
	case "reset":
		p.Reset()
	case "cut":
		p.Set(Weather{Cut: 0.05 + 0.3*w.chance()})
	case "slow-bytes":
		p.Set(Weather{Slow: time.Duration(1+w.chance()*8) * time.Millisecond})
	}
}

// do does a fault, for as long as it lasts.
func (w *world) do(f fault) {
	from := w.since()
	var err error
	lane := f.lane[:len(f.lane)-1]
	switch {
	case f.lane == "redis":
		err = w.onRedis(f)
	case f.lane == "rules":
		err = w.onRules(f)
	case f.lane == "clients":
		err = w.onClients(f)
	case lane == "net":
		p := w.instances[f.instance].store
		w.weather(p, f.kind)
		w.sleep(f.lasts)
		p.Set(Weather{})
		if f.kind == "half-open" && w.chance() < 0.5 {
			p.Reset()
		}
	case lane == "weir":
		err = w.onWeir(f)
	}
	if err != nil && w.ctx.Err() == nil {
		w.found(fmt.Sprintf("harness: %v: %v", f, err))
	}
	name := f.lane
	if lane == "net" || lane == "weir" {
		name = lane
	}
	w.counts.add(name+" "+f.kind, 1)
	w.note(&w.done, span{from: from, to: w.since(), instance: f.instance, what: f.lane + " " + f.kind})
}

// onWeir kills an instance and starts it again, or stops it for a while.
func (w *world) onWeir(f fault) error {
	in := w.instances[f.instance]
	from := w.since()
	var err error
	if f.kind == "stop" {
		err = w.stopFor(f, in.Process)
	} else {
		in.Kill()
		w.sleep(f.lasts)
		in.start(w)
	}
	// A while after it a client may still say what it met before, and wait to dial again.
	w.note(&w.downs, span{from: from, to: w.since() + 2*time.Second, instance: in.n, what: f.kind})
	return err
}

// alive makes sure that nothing stays stopped, whatever became of a fault.
func (w *world) alive() {
	_ = w.master.Signal(syscall.SIGCONT)
	if w.rules.process != nil {
		_ = w.rules.process.Signal(syscall.SIGCONT)
	}
	for _, in := range w.instances {
		_ = in.Signal(syscall.SIGCONT)
	}
}
