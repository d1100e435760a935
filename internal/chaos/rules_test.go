package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"weir/internal/testenv"
)

// rulesAt is where the instances have their rules from.
type rulesAt struct {
	where   string // as --rules has it, without a proxy
	addr    string // of the source; empty: files
	put     func(text string) error
	process *testenv.Process
}

func (w *world) startRules() {
	switch w.source {
	case "file":
		dir := filepath.Join(w.dir, "rules")
		if err := os.Mkdir(dir, 0o750); err != nil {
			w.t.Fatal(err)
		}
		w.rules = rulesAt{where: dir, put: func(text string) error {
			temp := filepath.Join(w.dir, "rules.new")
			if err := os.WriteFile(temp, []byte(text), 0o600); err != nil {
				return err
			}
			return os.Rename(temp, filepath.Join(dir, "chaos.yaml"))
		}}
	case "etcd":
		e := testenv.StartEtcd(w.t, testenv.EtcdOptions{})
		w.rules = rulesAt{where: "etcd://" + e.Addr + "/weir/rules", addr: e.Addr, process: e.Process,
			put: func(text string) error { e.Put(w.t, "weir/rules/chaos.yaml", text); return nil }}
	case "consul":
		c := testenv.StartConsul(w.t, testenv.ConsulOptions{})
		w.rules = rulesAt{where: "consul://" + c.Addr + "/weir/rules", addr: c.Addr, process: c.Process,
			put: func(text string) error { c.Put(w.t, "weir/rules/chaos.yaml", text); return nil }}
	}
	if err := w.rules.put(rulesText(0)); err != nil {
		w.t.Fatal(err)
	}
}

// onRules does something to the rules, or to where they come from.
func (w *world) onRules(f fault) error {
	switch f.kind {
	case "change":
		version := w.version.Add(1)
		return w.rules.put(rulesText(int(version)))
	case "broken-change": // which is refused as a whole, and mended
		if w.rules.addr == "" { // with broken files nothing begins, as it should
			w.starting.Lock()
			defer w.starting.Unlock()
		}
		if err := w.rules.put("domain: chaos\nrules: [{match: {small: \"*\"}, limit: -1, window: 1s}]\n"); err != nil {
			return err
		}
		w.sleep(f.lasts)
		return w.rules.put(rulesText(int(w.version.Load())))
	case "stop":
		return w.stopFor(f, w.rules.process)
	case "with-redis-away":
		w.redisBusy.Lock()
		defer w.redisBusy.Unlock()
		if err := w.master.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		err := w.stopFor(f, w.rules.process)
		if err2 := w.master.Signal(syscall.SIGCONT); err == nil {
			err = err2
		}
		return err
	}
	for _, in := range w.instances {
		w.weather(in.rules, f.kind)
	}
	w.sleep(f.lasts)
	for _, in := range w.instances {
		in.rules.Set(Weather{})
	}
	return nil
}

func (w *world) stopFor(f fault, p *testenv.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	w.sleep(f.lasts)
	return p.Signal(syscall.SIGCONT)
}

// inForce tells whether an instance has the rules that were written last.
func (w *world) inForce(in *instance) bool {
	version := fmt.Sprintf("version-%d", w.version.Load())
	text, err := w.explain(in, fmt.Sprint(w.version.Load()))
	return err == nil && text == version
}
