package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/push"
	"arbe.0sk.ar/runner/host/reap"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

func (p *program) sandboxCommand() *cli.Command {
	return &cli.Command{
		Name:  "sandbox",
		Usage: "list boxes, release them, push their branches, copy their changes back",
		Subcommands: []*cli.Command{
			{
				Name:  "list",
				Usage: "print the boxes, their runs, and who holds them",
				Description: "With --database also the rows of boxes, with the threads on each. A row whose " +
					"machine is gone,\nand a machine whose row is, are listed with that fault.",
				Flags: append(reconcileFlags(),
					&cli.BoolFlag{Name: "reconcile", Usage: "settle the threads of the boxes first"},
					&cli.StringFlag{Name: "runtime", Usage: "print the boxes of `PROVIDER` only"},
					&cli.StringFlag{
						Name: "house", EnvVars: []string{"ARBE_HOUSE"},
						Usage: "print the boxes of `HOUSE` only, by name or id; without --database by the label",
					},
					&cli.BoolFlag{Name: "json", Usage: "print one JSON object for each box"},
					databaseFlag(),
				),
				Action: p.sandboxList,
			},
			p.removeCommand(),
			p.providersCommand(),
			{
				Name: "push", Usage: "push the branch of a box, and open a pull request", ArgsUsage: "PROVIDER:ID",
				Description: "GITHUB_TOKEN is the token. Prints one JSON object, {pushed, branch, commit, prUrl, " +
					"error}.",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "repo", Usage: "push to `ORG/REPO` (required)"},
					&cli.StringFlag{Name: "branch", Usage: "push `BRANCH` (required)"},
					&cli.StringFlag{Name: "title", Usage: "`TITLE` of the pull request"}, databaseFlag(),
				},
				Action: p.sandboxPush,
			},
			{
				Name: "pull", Usage: "copy the changes of a box back into the folder of launch --dir",
				ArgsUsage: "PROVIDER:ID",
				Description: "A file that changed on both sides stays as it is here; the box's version arrives as " +
					"NAME.box.",
				Flags: []cli.Flag{
					&cli.BoolFlag{
						Name:  "delete",
						Usage: "delete files here that were deleted in the box and did not change here",
					},
					databaseFlag(),
				},
				Action: p.sandboxPull,
			},
		},
	}
}

// fold reads a thread; one that was never written is empty.
func (h host) fold(ctx context.Context, id string) (*thread.Fold, error) {
	cl, err := h.client(id)
	if err != nil {
		return nil, err
	}
	fold, _, err := readRuns(ctx, cl, "signal.")
	if err != nil && !client.NotFound(err) {
		return nil, fmt.Errorf("read thread %s: %w", id, err)
	}
	return fold, nil
}

// boxNamed returns the box that an argument names, and its provider.
func (h host) boxNamed(arg string) (sandbox.Ref, sandbox.Provider, error) {
	name, id, ok := strings.Cut(arg, ":")
	if !ok || name == "" || id == "" {
		return sandbox.Ref{}, nil, cmdline.Usage("%q: want PROVIDER:ID, as arbe sandbox list prints it", arg)
	}
	provider, err := h.boxes.named("provider", name)
	return sandbox.Ref{Provider: name, ID: id}, provider, err
}

func (p *program) sandboxPush(c *cli.Context) error {
	if c.NArg() != 1 || c.String("repo") == "" || c.String("branch") == "" {
		return cmdline.Usage("want one box, --repo and --branch")
	}
	o, err := pushOptions(c.String("repo"), c.String("branch"))
	if err != nil {
		return cmdline.Usage("--repo: %w", err)
	}
	h, err := p.command(c).host()
	if err != nil {
		return err
	}
	return h.using(c.Context, c.Args().First(), func(box sandbox.Sandbox, on onThread) error {
		o.Intent = c.String("title")
		if on.client != nil {
			o.Thread, o.Run = on.client.Thread, on.run.ID
		}
		out := push.Push(c.Context, box, o)
		_ = json.NewEncoder(p.stdout).Encode(out) // a closed stdout has no reader
		result := pushed(out)
		result.Signal = on.signal(thread.TypePush)
		err := on.post(c.Context, fmt.Sprintf("push.%d", on.run.Pushes), result)
		if out.Error != "" {
			return errors.Join(err, &cmdline.Exit{Status: 1})
		}
		return err
	})
}

func (p *program) sandboxPull(c *cli.Context) error {
	if c.NArg() != 1 {
		return cmdline.Usage("want one box")
	}
	h, err := p.command(c).host()
	if err != nil {
		return err
	}
	return h.using(c.Context, c.Args().First(), func(box sandbox.Sandbox, on onThread) error {
		result, mine := h.folders.pull(c.Context, box, c.Bool("delete"))
		if !mine {
			const text = "%s has no folder of this host: run arbe sandbox pull on the host that launched it"
			return fmt.Errorf(text, box.Ref())
		}
		if result.Conflicts == nil {
			result.Conflicts = []string{}
		}
		result.Signal = on.signal(thread.TypeSync)
		err := on.post(c.Context, fmt.Sprintf("sync.%d", on.run.Syncs), result)
		if result.Error != "" {
			return errors.Join(errors.New(result.Error), err)
		}
		fmt.Fprintln(p.stdout, synced(result))
		report(p.stdout, result)
		return err
	})
}

// onThread is the newest run of a box, on its thread; without a client for a box that has none.
type onThread struct {
	client *client.Client
	run    thread.Run
}

// signal returns the fields that each signal about the run has.
func (o onThread) signal(typ string) thread.Signal {
	return thread.Signal{Type: typ, RunID: o.run.ID, Harness: o.run.Harness}
}

// post posts a result about the run, if there is one.
func (o onThread) post(ctx context.Context, id string, result any) error {
	if o.client == nil {
		return nil
	}
	_, err := o.client.Append(ctx, []thread.Entry{
		{ID: o.run.ID + "." + id, TS: thread.Stamp(time.Now()), Payload: thread.Marshal(result)},
	})
	return reach(err)
}

// using opens a box and holds it while f uses it.
func (h host) using(ctx context.Context, arg string, f func(box sandbox.Sandbox, on onThread) error) error {
	ref, provider, err := h.boxNamed(arg)
	if err != nil {
		return err
	}
	boxes, err := provider.List(ctx, nil)
	if err != nil {
		return err
	}
	listed, _ := reap.Find(boxes, ref.ID)
	l, err := h.leaseOf(ref, listed.Labels)
	if err != nil {
		return err
	}
	hold := rows.Hold{Holder: lease.NewHolder(lease.KindUses), TTL: lease.TTL}
	err = l.Hold(ctx, hold)
	switch {
	case errors.Is(err, lease.ErrReleased): // nobody can hold it, but its work can be saved while it is there
	case err != nil:
		return fmt.Errorf("%s: %w", ref, err)
	default:
		defer lease.Keep(ctx, l, hold)()
	}
	box, err := provider.Open(ctx, ref.ID)
	if err != nil {
		return err
	}
	on, err := h.newestRun(ctx, ref, listed.Labels)
	if err != nil {
		return err
	}
	return f(box, on)
}

// newestRun returns the newest run of a box, if its label names a thread that has one in it.
func (h host) newestRun(ctx context.Context, ref sandbox.Ref, labels map[string]string) (onThread, error) {
	id := labels[sandbox.LabelThread]
	if !thread.ValidThread(id) {
		return onThread{}, nil
	}
	fold, err := h.fold(ctx, id)
	if err != nil {
		return onThread{}, err
	}
	for _, r := range slices.Backward(fold.Runs()) {
		if in := r.Box(); in != nil && in.Provider == ref.Provider && in.Ref == ref.ID {
			cl, err := h.client(id)
			return onThread{cl, r}, err
		}
	}
	return onThread{}, nil
}
