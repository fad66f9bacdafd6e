package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/cmd/internal/screen"
	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/push"
	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/thread"
)

// runAction launches, shows the run, and does the work after it. Until that is done it holds the run's box.
func (p *program) runAction(c *cli.Context) error {
	h, err := p.command(c).host()
	if err != nil {
		return err
	}
	done, err := p.launch(c, h, lease.NewHolder(lease.KindWatches))
	if err != nil {
		return err
	}
	client, err := h.client(done.Thread)
	if err != nil {
		return err
	}
	harness, author := c.String("harness"), c.String("author")
	// The run no longer needs this process: a signal is for the watching alone.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, leaving...)
	defer signal.Stop(signals)
	ctx, leave := context.WithCancel(context.WithoutCancel(c.Context))
	defer leave()
	if done.Attached != "" {
		hold := rows.Hold{Holder: done.Attached, ThreadID: done.Thread, RunID: done.Run, TTL: lease.TTL}
		defer lease.Keep(ctx, done.Lease, hold)() // the launch got it
	}
	var fold thread.Fold
	shown := p.show(client, screen.Options{
		Full: c.Bool("full"), Typed: c.Bool("live") && p.types(), Ends: true,
		Name: p.names(ctx, h.database, done.Thread),
	})
	defer shown.Stop()
	var asking sync.WaitGroup
	asking.Go(func() { p.endDead(ctx, h.reconciler(), done, shown.Dead) })
	defer func() {
		leave()
		asking.Wait()
	}()
	over := make(chan error, 1)
	go func() {
		over <- client.Follow(ctx, done.Offset, func(e thread.Entry) error {
			fold.Add(e)
			return shown.Entry(e)
		}, func() bool {
			return statusOf(&fold, done.Run) != thread.StatusRunning && statusOf(&fold, done.Run) != ""
		})
	}()
	if c.Bool("live") {
		poster, err := h.client(done.Thread) // one of its own, which logs
		if err != nil {
			return err
		}
		next, typing := p.texts(ctx, mostTyped, true)
		var posting sync.WaitGroup
		posting.Go(func() { p.postTexts(ctx, poster, done.Run, harness, author, next) })
		defer func() {
			leave()
			posting.Wait()
			_ = typing.Close() // a terminal that is gone can't be restored
		}()
	}
	err = attend(over, signals, leave, func() {
		if err := p.askToEnd(ctx, client, done.Run, harness, author, interrupted); err != nil {
			fmt.Fprintf(p.stderr, "arbe: %v\n", err)
		}
	})
	shown.Stop()
	status := statusOf(&fold, done.Run) // "" if no entry of the run was read
	if err != nil || status == thread.StatusRunning || status == "" {
		const text = "the run continues: arbe thread tail %s shows it, arbe cancel %[1]s ends it"
		return errors.Join(reach(err), cmdline.Fail(1, text, done.Thread))
	}
	if status != thread.StatusCompleted {
		fmt.Fprintf(p.stderr, "  resume: arbe run --thread %s --resume -- TASK\n", done.Thread)
	}
	return errors.Join(ended(&fold, done.Run), p.after(ctx, h, done))
}

// leaving are the signals with which a person stops watching what continues.
var leaving = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}

// interrupted is the reason of an end that a person asks for by the first Ctrl-C.
const interrupted = "interrupted at the terminal"

// attend waits for the result of what is watched. The first Ctrl-C asks it to end; any other signal leaves it.
func attend[T any](over <-chan T, signals <-chan os.Signal, leave, ask func()) T {
	for asked := false; ; {
		select {
		case result := <-over:
			return result
		case sig := <-signals:
			if asked || sig != syscall.SIGINT {
				leave()
				continue
			}
			asked = true
			ask()
		}
	}
}

// askEvery is the interval of the questions about a run that looks dead.
const askEvery = reconcileAtMost

// endDead gives the run its provisional end if it is dead, until ctx is done. It asks while three heartbeats are
// missing, as dead reports, and prints the first of errors that are the same.
func (p *program) endDead(ctx context.Context, r *reconcile.Reconciler, done launch.Launched, dead func() bool) {
	last := ""
	for pause.For(ctx, time.Second) {
		if !dead() {
			continue
		}
		err := r.End(ctx, done.Thread, done.Run)
		if err == nil {
			last = ""
		} else if text := err.Error(); text != last && ctx.Err() == nil {
			last = text
			fmt.Fprintf(p.stderr, "arbe: whether the run is dead is not known: %v\n", err)
		}
		pause.For(ctx, askEvery) // the loop looks at ctx
	}
}

// after does the work after the run and prints its results. A push that fails does not fail the run: its commits are
// still in the box.
func (p *program) after(ctx context.Context, h host, done launch.Launched) error {
	if done.Attached == "" {
		return nil
	}
	copies, _ := h.folders.all(done.Sandbox) // the copy back reports an error
	run, err := h.reconciler().After(ctx, done.Thread, done.Run, done.Attached)
	if err != nil {
		return fmt.Errorf("after the run: %w", err)
	}
	if r := run.Push; r != nil {
		// A closed stdout has no reader.
		_ = json.NewEncoder(p.stdout).Encode(push.Outcome{
			Pushed: r.Pushed, Branch: r.Branch, Commit: r.Commit, PRURL: r.PRURL, Error: r.Error,
		})
	}
	r := run.Sync
	if r == nil {
		return nil
	}
	fmt.Fprintf(p.stderr, "· %s: %s\n", paths(copies), synced(*r))
	report(p.stderr, *r)
	if r.Error != "" {
		return cmdline.Fail(1, "copy the folder back: %s; try again with arbe sandbox pull %s", r.Error, done.Sandbox)
	}
	return nil
}

// synced describes a copy back: "2 files copied back (12 KiB), 1 deleted, 1 conflict".
func synced(r thread.Synced) string {
	return fmt.Sprintf("%s copied back (%s), %d deleted, %s", view.Count(int64(r.Copied), "file"),
		view.Size(r.Bytes), r.Deleted, view.Count(int64(len(r.Conflicts)), "conflict"))
}

// ended is the error with which the program ends after the run; nil if the run has completed.
func ended(fold *thread.Fold, id string) error {
	if status := launch.ExitStatus(fold, id); status != 0 {
		return &cmdline.Exit{Status: status}
	}
	return nil
}
