package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/thread"
)

// runAction launches, shows the run, and does what was wanted after it. While it does, it holds the run's box.
func (p *program) runAction(c *cli.Context) error {
	attached := "attached:" + uuid.NewString()
	if !c.Bool("push") && !c.Bool("sync") {
		attached = "" // nothing is done after the run
	}
	done, err := p.launch(c, attached)
	if err != nil {
		return err
	}
	h, err := p.host(c)
	if err != nil {
		return err
	}
	client, err := h.client(done.Thread)
	if err != nil {
		return err
	}
	// From here on the run is its own: a signal is for who watches it.
	came := make(chan os.Signal, 4)
	signal.Notify(came, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(came)
	ctx, leave := context.WithCancel(context.WithoutCancel(c.Context))
	defer leave()
	if attached != "" {
		drop, err := h.hold(ctx, done, attached)
		if err != nil {
			return err
		}
		defer drop()
	}
	var fold thread.Fold
	show := p.show(c.Bool("full"))
	over := make(chan error, 1)
	go func() {
		over <- client.Follow(ctx, "0", func(e thread.Entry) error {
			fold.Add(e)
			return show(e)
		}, func() bool {
			return statusOf(&fold, done.Run) != thread.StatusRunning && statusOf(&fold, done.Run) != ""
		})
	}()
	for asked := false; ; {
		select {
		case err := <-over:
			status := statusOf(&fold, done.Run) // "" for a run of which nothing was read
			if err != nil || status == thread.StatusRunning || status == "" {
				return errors.Join(reach(err), p.left(done))
			}
			return errors.Join(ended(&fold, done.Run), p.after(ctx, c, h, done, attached))
		case sig := <-came:
			if asked || sig != syscall.SIGINT {
				leave()
				continue
			}
			asked = true
			if err := p.askToEnd(ctx, client, done.Run, c.String("harness"), c.String("author"), "interrupted at the terminal"); err != nil {
				fmt.Fprintf(p.stderr, "arbe: %v\n", err)
			}
		}
	}
}

// hold renews this process's hold of the box until drop is called.
func (h host) hold(ctx context.Context, done launch.Launched, holder string) (drop func(), err error) {
	client, err := h.client(lease.Stream(done.Sandbox))
	if err != nil {
		return nil, err
	}
	l := lease.Lease{Client: client}
	keeping, stop := context.WithCancel(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		l.Keep(keeping, lease.Hold{Holder: holder, ThreadID: done.Thread, RunID: done.Run, TTL: lease.TTL})
	}()
	return func() {
		stop()
		<-kept
		_ = l.Drop(context.WithoutCancel(ctx), holder) // it expires by itself
	}, nil
}

// after does what was wanted after the run, and prints it. A push that fails does not fail the run: its work is in
// the box.
func (p *program) after(ctx context.Context, c *cli.Context, h host, done launch.Launched, holder string) error {
	if holder == "" {
		return nil
	}
	run, err := h.reconciler(c).After(ctx, done.Thread, done.Run, holder)
	if err != nil {
		return fmt.Errorf("after the run: %w", err)
	}
	if r := run.Push; r != nil {
		// A closed stdout has no reader.
		_ = json.NewEncoder(p.stdout).Encode(pushResult{r.Pushed, r.Branch, r.Commit, r.PRURL, r.Error})
	}
	r := run.Sync
	if r == nil {
		return nil
	}
	fmt.Fprintf(
		p.stderr,
		"· %s: %d copied back, %d deleted, %d changed on both sides\n",
		c.String("dir"),
		r.Copied,
		r.Deleted,
		len(r.Conflicts),
	)
	report(p.stderr, *r)
	if r.Error != "" {
		return &cmdline.Exit{Status: 1, Cause: fmt.Errorf("%s; arbe sandbox pull %s tries again", r.Error, done.Sandbox)}
	}
	return nil
}

// pushResult is a push as the commands print it.
type pushResult struct {
	Pushed bool   `json:"pushed"`
	Branch string `json:"branch,omitempty"`
	Commit string `json:"commit,omitempty"`
	PRURL  string `json:"prUrl,omitempty"`
	Error  string `json:"error,omitempty"`
}

// left is the end of watching a run that goes on.
func (p *program) left(done launch.Launched) error {
	return &cmdline.Exit{
		Status: 1,
		Cause: fmt.Errorf(
			"the run goes on: arbe thread tail %s shows it, arbe cancel %s ends it",
			done.Thread,
			done.Thread,
		),
	}
}

// ended is the error with which the program ends after the run; nil if the run has completed.
func ended(fold *thread.Fold, id string) error {
	if status := launch.ExitStatus(fold, id); status != 0 {
		return &cmdline.Exit{Status: status}
	}
	return nil
}
