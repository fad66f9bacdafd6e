package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/internal/durable"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// reconcileFlags are the limits of a reconciler.
func reconcileFlags() []cli.Flag {
	return []cli.Flag{
		&cli.DurationFlag{
			Name:  "orphan-after",
			Value: reconcile.DefaultOrphanAfter,
			Usage: "end a run without evidence after `DURATION` of silence",
		},
		&cli.DurationFlag{
			Name:  "reap-after",
			Value: reconcile.DefaultReapAfter,
			Usage: "release a box with unsaved work, a pending push or sync, or for commands, `DURATION` after its " +
				"last run or command",
		},
		&cli.DurationFlag{
			Name:  "notify-after",
			Value: reconcile.DefaultNotifyAfter,
			Usage: "post a provisional end of a delegated run on its parent after `DURATION`",
		},
	}
}

func (p *program) reconcileCommand() *cli.Command {
	return &cli.Command{
		Name:      "reconcile",
		Usage:     "end dead runs, notify parents, release boxes",
		ArgsUsage: "ID | --all | --explain [ID]",
		Description: `An open run gets an end on its thread if its box is gone, its runner's process is gone, or
it was silent for too long. That end is provisional: the runner's own end replaces it if it still arrives.
Pending work after a run (--push, --sync) is done if this host can do it. Boxes that nobody needs are deleted.
arbe serve does the same once a minute, unless it has --reconcile=false.

With --explain nothing is changed: for each box a line is printed with what would be done with it, and why.
stay is a box that is kept by hand, wait one that is in use or in doubt, keep one with work that is nowhere
else, condemn one that is gone, whose threads get another one, and delete one that nobody needs.`,
		Flags: append(reconcileFlags(),
			&cli.BoolFlag{Name: "all", Usage: "settle all threads that were launched from here or have boxes"},
			&cli.BoolFlag{
				Name: "explain", Usage: "print what would be done with each box, or those of ID, and do nothing",
			},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object for each action, or each box"},
			databaseFlag(), secretKeysFlag(), secretKMSFlag(),
		),
		Action: p.reconcileAction,
	}
}

func (p *program) reconcileAction(c *cli.Context) error {
	cmd, all, explain := p.command(c), c.Bool("all"), c.Bool("explain")
	id := cmd.first()
	want := 1
	if all {
		want = 0
	}
	if len(cmd.args) > want || len(cmd.args) < want && !explain {
		return cmdline.Usage("want one thread id, or --all")
	}
	h, err := cmd.host()
	if err == nil && id != "" {
		id, err = cmd.toChange(c.Context, id)
	}
	switch {
	case err != nil:
		return err
	case explain:
		return cmd.explain(c.Context, h, id)
	case all:
		return cmd.settleAll(c.Context, h, p.stdout)
	}
	cl, err := h.client(id)
	if err != nil {
		return err
	}
	s, err := h.settle(c.Context, h.reconciler(), id)
	cmd.print(h, p.stdout, id, s)
	if err == nil && s.Status == thread.StatusIdle && len(s.Actions) == 0 {
		if _, missing := exists(c.Context, cl); client.NoThread(missing) {
			err = missing
		}
	}
	return reachThread(cl, err)
}

// explain prints what a reconciler would do with the boxes of a thread; "" for all boxes.
func (c command) explain(ctx context.Context, h host, id string) error {
	enc := json.NewEncoder(c.stdout)
	return reach(h.reconciler().Explain(ctx, id, func(f reconcile.Finding) {
		if c.json {
			_ = enc.Encode(f) // a closed stdout has no reader
			return
		}
		threads := cmp.Or(strings.Join(f.Threads, ", "), "-")
		line := fmt.Sprintf("%s  %s  thread %s  %s", f.Sandbox, f.Decision, threads, f.Why)
		if f.Until != "" {
			line += "; until " + f.Until
		}
		fmt.Fprintln(c.stdout, view.Visible(line))
	}))
}

// settleAll settles all threads that were launched from here or have boxes.
func (c command) settleAll(ctx context.Context, h host, w io.Writer) error {
	ids, err := launchedThreads(h.data)
	if err != nil {
		return err
	}
	return reach(h.reconciler().All(ctx, ids, func(id string, s reconcile.State) { c.print(h, w, id, s) }))
}

// print prints the actions on a thread.
func (c command) print(h host, w io.Writer, id string, s reconcile.State) {
	if !s.Open {
		h.forget(id)
	}
	enc := json.NewEncoder(w)
	for _, action := range slices.Concat(s.Actions, s.Waits) {
		if c.json {
			_ = enc.Encode(action) // a closed stdout has no reader
			continue
		}
		fmt.Fprintf(w, "%s %s %s\n", action.Did, action.Thread, action.Why)
	}
}

// launchedDir returns the folder with a file for each thread that was launched from here and is not settled.
func launchedDir(d daemon.Data) string { return filepath.Join(string(d), "launched") }

// remember records that a thread is launched from here.
func remember(d daemon.Data, id string) error {
	if err := durable.MkdirAll(launchedDir(d)); err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(launchedDir(d), id), nil)
}

// forget removes this host's notes of a thread that is settled.
func (h host) forget(id string) {
	_ = os.Remove(filepath.Join(launchedDir(h.data), id)) // it may not have been launched from here
	h.folders.forget(id)
}

// launchedThreads returns the threads that were launched from here and are not settled.
func launchedThreads(d daemon.Data) (ids []string, err error) {
	entries, err := os.ReadDir(launchedDir(d))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") { // else left of a write that was interrupted
			ids = append(ids, e.Name())
		}
	}
	return ids, err
}

// reconcileAtMost is the interval of passes over open runs without a shorter limit.
const reconcileAtMost = 15 * time.Second

// reconcileEvery returns the interval of a server's passes over open runs: a quarter of their limit, 15 s at most.
func reconcileEvery(orphanAfter time.Duration) time.Duration {
	return min(reconcileAtMost, max(orphanAfter/4, 250*time.Millisecond))
}
