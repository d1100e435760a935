package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"golang.org/x/sync/errgroup"

	"weir/rules"
	"weir/rules/file"
)

// source is one that serve reads rules from.
type source struct {
	name string // as it was given
	rules.Source
	local bool // on this machine: if it fails at the start, so does serve
}

// openSources returns a source for each --rules, none of which reads yet, and
// what closes them.
func (c *serveConfig) openSources(log *slog.Logger) ([]source, func(), error) {
	if len(c.rules) == 0 {
		return []source{{name: sampleName, Source: embedded{}, local: true}}, func() {}, nil
	}
	var sources []source
	var closers []func()
	closeAll := func() {
		for i := len(closers) - 1; i >= 0; i-- {
			closers[i]()
		}
	}
	for _, name := range c.rules {
		if !strings.Contains(name, "://") {
			sources = append(sources, source{name, file.New(name, file.Options{ReloadInterval: c.reloadInterval, Logger: log}), true})
			continue
		}
		remote, closeRemote, err := c.remote.open(name, log)
		if err == nil {
			closers = append(closers, closeRemote)
			if c.rulesCache != "" {
				remote, err = rules.NewCache(remote, rules.CacheOptions{Dir: c.rulesCache, Name: name, Logger: log})
			}
		}
		if err != nil {
			closeAll()
			return nil, nil, fmt.Errorf("--rules %s: %w", name, err)
		}
		sources = append(sources, source{name, remote, false})
	}
	return sources, closeAll, nil
}

// embedded is the source of the sample.
type embedded struct{}

func (embedded) Run(ctx context.Context, apply func(rules.Snapshot) error) error {
	if err := apply(rules.ParseSnapshot(map[string][]byte{sampleName: sample})); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// startSources runs the sources and returns when each has given its first rules.
// Those on this machine come first: what elsewhere conflicts with them is refused
// and waits, rather than end the start. It returns context.Canceled if ctx ends
// before.
func startSources(ctx context.Context, background *errgroup.Group, sources []source, live *rules.Live) error {
	group, ctx := errgroup.WithContext(ctx)
	failed := make([]error, len(sources)) // each file reads once, whatever becomes of the others
	for _, local := range []bool{true, false} {
		for i, src := range sources {
			if src.local != local {
				continue
			}
			group.Go(func() error {
				failed[i] = src.Run(ctx, func(s rules.Snapshot) error { return live.Apply(src.name, s) })
				return failed[i]
			})
		}
		for _, src := range sources {
			if src.local != local {
				continue
			}
			select {
			case <-live.Loaded(src.name):
			case <-ctx.Done():
				_ = group.Wait()
				return cmp.Or(errors.Join(failed...), context.Canceled)
			}
		}
	}
	background.Go(group.Wait)
	return nil
}
