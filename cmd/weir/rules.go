package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weir/limiter/redis"
	"weir/rules"
	"weir/rules/kv"
)

func newRules() *cobra.Command {
	cmd := newGroup("rules", "push, pull and compare rules in Consul or etcd, and take them back",
		`Rules in Consul (or etcd) as versions: push a folder, see what changed, go back.
Where they are is said by --rules, as for serve; by default Consul where its own
environment variables say, beneath weir/rules.`)
	t := new(target)
	t.addFlags(cmd.PersistentFlags())
	cmd.AddCommand(newRulesPush(t), newRulesPull(t), newRulesDiff(t), newRulesLog(t), newRulesRollback(t), newRulesStatus(t))
	return cmd
}

// target says where the rules are that a command is about.
type target struct {
	urls     []string
	remote   remoteFlags
	patience time.Duration
}

func (t *target) addFlags(f *pflag.FlagSet) {
	f.StringArrayVar(&t.urls, "rules", nil, "where the rules are: consul://host:port/PREFIX or etcd://host:port,…/PREFIX (default: the Consul that CONSUL_HTTP_ADDR says, else of this machine)")
	f.DurationVar(&t.patience, "timeout", time.Minute, "how long all of it may take")
	t.remote.addStoreFlags(f)
}

// repository is an opened target.
type repository struct {
	*kv.Repository
	*openedStore
}

// open returns the repository, and a context for all that is asked of it.
func (t *target) open(ctx context.Context) (*repository, context.Context, error) {
	url, err := t.store()
	if err != nil {
		return nil, nil, err
	}
	if err := checkRemote(url); err != nil {
		return nil, nil, usagef("--rules %s: %w", redis.Redact(url), err)
	}
	if t.patience <= 0 {
		return nil, nil, usagef("--timeout %v: it is over 0", t.patience)
	}
	store, err := t.remote.openStore(url)
	if err != nil {
		return nil, nil, fmt.Errorf("--rules %s: %w", url, err)
	}
	ctx, cancel := context.WithTimeout(ctx, t.patience)
	closeStore := store.close
	store.close = func() { cancel(); closeStore() }
	return &repository{kv.NewRepository(store, store.prefix), store}, ctx, nil
}

// store is the one source that can be pushed to: WEIR_RULES may say for serve
// that there are others.
func (t *target) store() (string, error) {
	if len(t.urls) == 0 {
		return "consul://", nil
	}
	var stores []string
	for _, url := range t.urls {
		if kind := kindOf(url); (kind == "consul" || kind == "etcd") && strings.Contains(url, "://") {
			stores = append(stores, url)
		}
	}
	switch len(stores) {
	case 0:
		return "", usagef("--rules %s: it is consul://host:port/PREFIX or etcd://host:port,…/PREFIX", redis.Redact(strings.Join(t.urls, ", ")))
	case 1:
		return stores[0], nil
	}
	return "", usagef("--rules names several stores, %s: choose one", redis.Redact(strings.Join(stores, ", ")))
}

// who is the one that pushes.
type who struct{ by, message string }

func (w *who) addFlags(f *pflag.FlagSet) {
	f.StringVarP(&w.message, "message", "m", "", "why, for the log")
	f.StringVar(&w.by, "by", "", "who, for the log (default: user@host)")
}

func (w *who) info() kv.Info {
	return kv.Info{By: cmp.Or(w.by, userAtHost()), At: time.Now().UTC().Truncate(time.Second), Message: w.message}
}

func userAtHost() string {
	name := cmp.Or(os.Getenv("USER"), os.Getenv("LOGNAME"))
	if u, err := user.Current(); name == "" && err == nil {
		name = u.Username
	}
	host, _ := os.Hostname()
	return cmp.Or(name, "unknown") + "@" + cmp.Or(host, "unknown")
}

// printFaults shows why rules would not load, and says how many faults there are.
func printFaults(w io.Writer, err error, then string) error {
	faults := rules.Faults(nil)
	if !errors.As(err, &faults) {
		return err
	}
	for _, f := range faults {
		fmt.Fprintln(w, f)
	}
	return fmt.Errorf("%s in the rules; %s", count(len(faults), "fault"), then)
}

// named is where in the store a document stands.
func (r *repository) named(name string) string { return r.url + "/" + name }

// refusePushing says what to do while another push stands.
func refusePushing(s *kv.State) error {
	if s.Push == nil {
		return nil
	}
	return fmt.Errorf("%w: %v; wait for it, or finish it (weir rules push --resume) or take it back (weir rules push --abort) if it died", kv.ErrPushing, s.Push)
}

// stateText says what stands there.
func stateText(s *kv.State) string {
	switch {
	case s.Version == 0 && len(s.Files) == 0:
		return "no rules yet"
	case s.Version == 0:
		return fmt.Sprintf("%s that no push wrote", count(len(s.Files), "document"))
	case s.ByHand:
		return fmt.Sprintf("version %d, changed since by other means", s.Version)
	}
	return fmt.Sprintf("version %d", s.Version)
}
