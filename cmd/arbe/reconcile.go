package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/stream"
	"arbe.0sk.ar/runner/thread"
)

func orphanAfterFlag() cli.Flag {
	return &cli.DurationFlag{Name: "orphan-after", Value: reconcile.DefaultOrphanAfter, Usage: "how long a run may be silent before it is given up"}
}

func (p *program) reconcileCommand() *cli.Command {
	return &cli.Command{
		Name:      "reconcile",
		Usage:     "settle runs whose box or runner has died, tell parents, release boxes",
		ArgsUsage: "ID | --all",
		Description: `For a thread with an open run the provider of its box is asked. A box that is gone, or a run that has been silent for too long, is given
up on the thread; should its runner still come back, its own word counts. arbe serve --reconcile does the same all the time.`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "all", Usage: "all threads that were launched from here, and all whose boxes can be listed"},
			orphanAfterFlag(),
			&cli.BoolFlag{Name: "json", Usage: "say what was done as JSON, one object a line"},
		},
		Action: p.reconcileAction,
	}
}

func (p *program) reconcileAction(c *cli.Context) error {
	if c.Bool("all") == (c.NArg() == 1) || c.NArg() > 1 {
		return cmdline.Usage("want one thread id, or --all")
	}
	d, err := data(c)
	if err != nil {
		return err
	}
	providers := p.providers(d)
	ids := c.Args().Slice()
	if c.Bool("all") {
		if ids, err = launchedThreads(c.Context, d, providers); err != nil {
			fmt.Fprintf(p.stderr, "arbe: %v\n", err) // those that are known are settled all the same
		}
	}
	err = p.settle(c, d, providers, ids)
	if err != nil {
		return reach(err)
	}
	return nil
}

// settle settles threads, and says what was done.
func (p *program) settle(c *cli.Context, d stream.Data, providers map[string]sandbox.Provider, ids []string) error {
	r := &reconcile.Reconciler{
		Client:    func(id string) (*thread.Client, error) { return p.client(c, id, stream.ScopeWrite) },
		Providers: providers, OrphanAfter: c.Duration("orphan-after"),
	}
	enc := json.NewEncoder(p.stdout)
	return r.All(c.Context, ids, func(id string, s reconcile.State) {
		if !s.Open {
			forget(d, id)
		}
		for _, deed := range s.Deeds {
			if c.Bool("json") {
				_ = enc.Encode(deed) // stdout is gone: there is nobody to tell
				continue
			}
			fmt.Fprintf(p.stdout, "%s %s %s\n", deed.Did, deed.Thread, deed.Why)
		}
	})
}

// providers are those that can be asked from here.
func (p *program) providers(d stream.Data) map[string]sandbox.Provider {
	all := map[string]sandbox.Provider{}
	for _, name := range []string{"local", "daytona"} {
		if provider, err := providerNamed(d, name); err == nil { // one that is not configured has no boxes of ours
			all[name] = provider
		}
	}
	return all
}

// launchedDir has a file for each thread that was launched from here and is not known to have ended.
func launchedDir(d stream.Data) string { return filepath.Join(string(d), "launched") }

// remember notes that a thread is launched.
func remember(d stream.Data, id string) error {
	if err := os.MkdirAll(launchedDir(d), 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(launchedDir(d), id), nil, 0o600)
}

func forget(d stream.Data, id string) {
	_ = os.Remove(filepath.Join(launchedDir(d), id)) // it may not have been launched from here
}

// launchedThreads are the threads that were launched from here, and those whose boxes can be listed.
func launchedThreads(ctx context.Context, d stream.Data, providers map[string]sandbox.Provider) ([]string, error) {
	var ids []string
	entries, err := os.ReadDir(launchedDir(d))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	errs := []error{err}
	for _, provider := range providers {
		boxes, err := provider.List(ctx, nil)
		errs = append(errs, err)
		for _, b := range boxes {
			if id := b.Labels[sandbox.LabelThread]; thread.ValidThread(id) {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), errors.Join(errs...)
}

// reconcileEvery is how often a server looks.
const reconcileEvery = time.Minute

// reconciling is what a server does beside serving: it settles its own threads.
func (p *program) reconciling(d stream.Data, orphanAfter time.Duration, cfg stream.Config) func(context.Context, string, *stream.Log, []byte) error {
	return func(ctx context.Context, at string, log *stream.Log, key []byte) error {
		r := &reconcile.Reconciler{
			Client: func(id string) (*thread.Client, error) {
				token := func() (string, error) {
					return stream.Mint(key, stream.Grant{Thread: id, Scope: []string{stream.ScopeWrite}, Until: time.Now().Add(10 * time.Minute)})
				}
				return &thread.Client{Base: thread.BaseURL(at), Thread: id, Token: token, Log: cfg.Logger}, nil
			},
			Providers: p.providers(d), OrphanAfter: orphanAfter, Log: cfg.Logger,
		}
		return r.Loop(ctx, reconcileEvery, func(f func(id string, version uint64) error) error { return log.Threads(ctx, f) }, func(id string, s reconcile.State) {
			if !s.Open {
				forget(d, id)
			}
		})
	}
}
