package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/rules"
	"weir/rules/kv"
)

func newRulesStatus(t *target) *cobra.Command {
	var instances []string
	var tls clientTLSFlags
	var service string
	var waitFor time.Duration
	var expect int
	cmd := &cobra.Command{
		Use:   "status",
		Short: "which version is in force in the store, and in each instance",
		Long: `Tell which version stands in the store, whether a push is under way, and which
version each instance serves. Instances are those of --instance, or those that are
registered in Consul (serve --register). The exit code is 1 if a push stands, if an
instance does not serve what the store has, or if fewer are known than --expect (with
--wait, one at least). AGE is since when an instance has last heard that it is current.`,
		Example: `weir rules status --instance 127.0.0.1:8080
weir rules status --wait 30s --expect 3`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if waitFor < 0 || expect < 0 {
				return usagef("--wait and --expect are 0 at least")
			}
			if waitFor > 0 && expect == 0 {
				expect = 1
			}
			t.patience += waitFor
			client, err := tls.httpClient()
			if err != nil {
				return err
			}
			defer client.CloseIdleConnections()
			repo, ctx, err := t.open(cmd.Context())
			if err != nil {
				return err
			}
			defer repo.close()
			s := &fleet{repo: repo, client: client, https: tls.given(), instances: instances, service: service, expect: expect}
			return s.report(ctx, waitFor, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringArrayVar(&instances, "instance", nil, "host:port of an instance's HTTP, or https://host:port (repeatable; default: those registered in Consul)")
	tls.addHTTPFlags(cmd.Flags())
	cmd.Flags().StringVar(&service, "service", defaultService, "the name that instances are registered under")
	cmd.Flags().IntVar(&expect, "expect", 0, "how many instances there should be at least")
	cmd.Flags().DurationVar(&waitFor, "wait", 0, "wait so long for all instances to serve what the store has")
	return cmd
}

// fleet is the store and the instances that read it.
type fleet struct {
	repo      *repository
	client    *http.Client
	https     bool // for instances that are host:port
	instances []string
	service   string
	expect    int
}

// report prints the status, after waiting for it to be good if asked to.
func (f *fleet) report(ctx context.Context, wait time.Duration, out io.Writer) error {
	deadline := time.Now().Add(wait)
	for {
		state, err := f.repo.State(ctx)
		if err != nil {
			return f.without(ctx, err, out)
		}
		answers, err := f.ask(ctx, state)
		if err != nil {
			return err
		}
		problem := f.problemOf(state, answers)
		if problem == nil || !time.Now().Before(deadline) {
			if err := f.print(ctx, state, answers, out); err != nil {
				return err
			}
			return problem
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// without reports what instances say while the store cannot be asked.
func (f *fleet) without(ctx context.Context, err error, out io.Writer) error {
	if len(f.instances) == 0 {
		return err
	}
	answers, _ := f.ask(ctx, nil) // of named instances it cannot fail
	if e := printAnswers(answers, out); e != nil {
		return e
	}
	return err
}

// answer is what an instance says.
type answer struct {
	instance string
	source   rules.SourceStatus
	problem  string // it does not serve what the store has; "": it does
}

// ask asks all instances at once. Without a state they are not compared with it.
func (f *fleet) ask(ctx context.Context, state *kv.State) ([]answer, error) {
	addrs := f.instances
	if len(addrs) == 0 && f.repo.consul != nil {
		registered, err := f.repo.consul.Instances(ctx, f.service)
		if err != nil {
			return nil, fmt.Errorf("%w; or name them by --instance", err)
		}
		for _, i := range registered {
			if i.HTTP != "" {
				addrs = append(addrs, i.HTTP)
			}
		}
	}
	answers := make([]answer, len(addrs))
	var all sync.WaitGroup
	for i, addr := range addrs {
		all.Go(func() { answers[i] = f.askOne(ctx, addr, state) })
	}
	all.Wait()
	slices.SortFunc(answers, func(a, b answer) int { return strings.Compare(a.instance, b.instance) })
	return answers, nil
}

func (f *fleet) askOne(ctx context.Context, addr string, state *kv.State) answer {
	a := answer{instance: addr}
	status, err := f.rulesOf(ctx, addr)
	if err != nil {
		a.problem = err.Error()
		return a
	}
	// An instance may reach the store by another name: what counts is the digest.
	want := ""
	if state != nil {
		want = state.Digest()
	}
	var stores []string
	for name, source := range status.Sources {
		if kind := kindOf(name); kind != "consul" && kind != "etcd" {
			continue
		}
		stores = append(stores, name)
		if a.source = source; source.Digest == want {
			break
		}
	}
	switch {
	case len(stores) == 0:
		a.problem = "it has no rules of Consul or etcd"
	case a.source.Digest != want && state != nil:
		a.problem = "it serves other rules"
	}
	if a.source.LastError != "" {
		first, _, _ := strings.Cut(a.source.LastError, "\n")
		a.problem = strings.TrimPrefix(a.problem+"; "+first, "; ")
	}
	return a
}

// rulesOf asks an instance over HTTP.
func (f *fleet) rulesOf(ctx context.Context, addr string) (*rules.LiveStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if !strings.Contains(addr, "://") {
		scheme := "http://"
		if f.https {
			scheme = "https://"
		}
		addr = scheme + addr
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(addr, "/")+"/rules", nil)
	if err != nil {
		return nil, err
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", req.URL, resp.Status)
	}
	status := new(rules.LiveStatus)
	if err := json.NewDecoder(io.LimitReader(resp.Body, 16<<20)).Decode(status); err != nil {
		return nil, fmt.Errorf("%s does not answer as Weir does: %w", req.URL, err)
	}
	return status, nil
}

func (f *fleet) problemOf(state *kv.State, answers []answer) error {
	behind := 0
	for _, a := range answers {
		if a.problem != "" {
			behind++
		}
	}
	switch {
	case state.Push != nil:
		return fmt.Errorf("a push stands: %v", state.Push)
	case behind > 0:
		return fmt.Errorf("%d of %s not well", behind, count(len(answers), "instance"))
	case len(answers) < f.expect:
		return fmt.Errorf("%s known, and %d expected", count(len(answers), "instance"), f.expect)
	}
	return nil
}

func (f *fleet) print(ctx context.Context, state *kv.State, answers []answer, out io.Writer) error {
	fmt.Fprintf(out, "%s: %s, %s, digest %s\n", f.repo.url, stateText(state), count(len(state.Files), "document"), state.Digest())
	if state.Version > 0 {
		if v, err := f.repo.VersionInfo(ctx, state.Version); err == nil {
			message := ""
			if v.Message != "" {
				message = ": " + oneLine(v.Message)
			}
			fmt.Fprintf(out, "  pushed %s by %s%s\n", v.At.UTC().Format(time.RFC3339), oneLine(v.By), message)
		}
	}
	if state.Push != nil {
		fmt.Fprintf(out, "  under way: the push of %v; until it is done, rules stay as they were\n", state.Push)
	}
	if len(answers) == 0 {
		_, err := fmt.Fprintln(out, "no instance is known: name them by --instance, or have them registered by serve --register")
		return err
	}
	return printAnswers(answers, out)
}

func printAnswers(answers []answer, out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "INSTANCE\tVERSION\tDIGEST\tAGE\tSTATE")
	for _, a := range answers {
		version, age, text := a.source.Version, "", "current"
		if !a.source.AsOf.IsZero() {
			age = time.Since(a.source.AsOf).Round(time.Second).String()
		}
		if a.source.Cached {
			version += " (cached)"
		}
		if a.problem != "" {
			text = a.problem
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", a.instance, version, a.source.Digest, age, text)
	}
	return w.Flush()
}
