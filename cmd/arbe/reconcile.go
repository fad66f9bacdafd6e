package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/stream"
	"arbe.0sk.ar/runner/thread"
)

// reconcileFlags are the limits of a reconciler.
func reconcileFlags() []cli.Flag {
	return []cli.Flag{
		&cli.DurationFlag{Name: "orphan-after", Value: reconcile.DefaultOrphanAfter, Usage: "how long a run may be silent before it is given up"},
		&cli.DurationFlag{Name: "reap-after", Value: reconcile.DefaultReapAfter, Usage: "how long a box with unsaved or wanted work is kept after its run"},
	}
}

func (p *program) reconcileCommand() *cli.Command {
	return &cli.Command{
		Name:      "reconcile",
		Usage:     "settle runs whose box or runner has died, tell parents, release boxes",
		ArgsUsage: "ID | --all",
		Description: `An open run whose box is gone, whose runner's process is gone, or that was silent for too long, is given up on the thread;
the runner's own end, should it still come, replaces that. What a launch wanted after the run (--push, --sync) is done where this
host can. Boxes that nobody needs are released. arbe serve --reconcile does the same once a minute.`,
		Flags: append(reconcileFlags(),
			&cli.BoolFlag{Name: "all", Usage: "all threads that were launched from here, and all that boxes are labelled with"},
			&cli.BoolFlag{Name: "json", Usage: "print what was done as JSON, one object a line"},
		),
		Action: p.reconcileAction,
	}
}

func (p *program) reconcileAction(c *cli.Context) error {
	if c.Bool("all") == (c.NArg() == 1) || c.NArg() > 1 {
		return cmdline.Usage("want one thread id, or --all")
	}
	h, err := p.host(c)
	if err != nil {
		return err
	}
	if c.Bool("all") {
		return p.settleAll(c, h, p.stdout)
	}
	id := c.Args().First()
	s, err := h.reconciler(c).Thread(c.Context, id)
	p.print(c, h, p.stdout, id, s)
	return reach(err)
}

// settleAll settles all threads that this host knows.
func (p *program) settleAll(c *cli.Context, h host, w io.Writer) error {
	ids, err := launchedThreads(h.data)
	if err != nil {
		return err
	}
	return reach(h.reconciler(c).All(c.Context, ids, func(id string, s reconcile.State) { p.print(c, h, w, id, s) }))
}

// print prints what was done on a thread.
func (p *program) print(c *cli.Context, h host, w io.Writer, id string, s reconcile.State) {
	if !s.Open {
		h.forget(id)
	}
	enc := json.NewEncoder(w)
	for _, deed := range s.Deeds {
		if c.Bool("json") {
			_ = enc.Encode(deed) // a closed stdout has no reader
			continue
		}
		fmt.Fprintf(w, "%s %s %s\n", deed.Did, deed.Thread, deed.Why)
	}
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

// forget removes what this host has noted of a thread of which nothing is left to be done.
func (h host) forget(id string) {
	_ = os.Remove(filepath.Join(launchedDir(h.data), id)) // it may not have been launched from here
	h.folders.forget(id)
}

// launchedThreads are the threads that were launched from here.
func launchedThreads(d stream.Data) (ids []string, err error) {
	entries, err := os.ReadDir(launchedDir(d))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	return ids, err
}

// reconcileEvery is how often a server looks at open runs: a run is given up soon after its limit.
func reconcileEvery(orphanAfter time.Duration) time.Duration {
	return min(15*time.Second, max(orphanAfter/4, 250*time.Millisecond))
}

// reconciling is what a server does beside serving: it settles its own threads.
func (p *program) reconciling(c *cli.Context, d stream.Data, cfg stream.Config) func(context.Context, string, *stream.Log, []byte) error {
	return func(ctx context.Context, at string, log *stream.Log, key []byte) error {
		h := host{data: d, providers: providers(d), folders: foldersOf(d)}
		h.client = h.minting(thread.BaseURL(at), key, &thread.Client{Log: cfg.Logger, HTTP: p.http})
		r := h.reconciler(c)
		r.Log = cfg.Logger
		return r.Loop(ctx, reconcileEvery(r.OrphanAfter), func(f func(id string, version uint64) error) error { return log.Threads(ctx, f) },
			func(id string, s reconcile.State) {
				if !s.Open {
					h.forget(id)
				}
			})
	}
}
