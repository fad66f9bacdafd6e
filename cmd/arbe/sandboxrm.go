package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/reap"
	"arbe.0sk.ar/runner/host/sandbox"
)

// endTimeout is the time that what is cancelled in a box has to end.
const endTimeout = time.Minute

func (p *program) removeCommand() *cli.Command {
	return &cli.Command{
		Name: "rm", Usage: "delete a box in which nothing is alive or unsaved", ArgsUsage: "PROVIDER:ID…",
		Description: `A box is deleted if nothing in it is alive and nothing would be lost. Else nothing is deleted, and
each run, command, hold and unsaved work in it is printed; exit status 75.

  --cancel  ends the runs and commands first, of each thread that shares the
            box, and waits up to a minute until their ends are on the threads.
            If one does not end, or work is unsaved, the box stays: arbe sandbox
            push or pull saves work.
  --force   deletes the box at once: its runs and commands die with it, and its
            work is lost.

Unsaved work is a commit that no remote has, a change in a repository or in a copied folder, and a push or copy back
that is not done. What a stopped box holds is not known. A box without a repository or folder has none.`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "cancel", Usage: "end the runs and commands in the box first"},
			&cli.BoolFlag{
				Name:  "force",
				Usage: "delete the box at once, whatever is in it, also one of another thread server",
			},
			databaseFlag(),
		},
		Action: p.sandboxRemove,
	}
}

func (p *program) sandboxRemove(c *cli.Context) error {
	cmd, cancel, force := p.command(c), c.Bool("cancel"), c.Bool("force")
	switch {
	case len(cmd.args) == 0:
		return cmdline.Usage("want the boxes to delete")
	case cancel && force:
		return cmdline.Usage("--cancel and --force exclude each other")
	}
	h, err := cmd.host()
	if err != nil {
		return err
	}
	var errs []error
	for _, arg := range cmd.args {
		ref, provider, err := h.boxNamed(arg)
		switch {
		case err != nil:
		case force:
			err = h.forceOff(c.Context, ref, provider)
		default:
			err = p.remove(c.Context, h, ref, provider, cancel)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// reaper returns what decides about the boxes of a provider.
func (h host) reaper(provider sandbox.Provider) *reap.Reaper {
	r := &reap.Reaper{
		Name: provider.Name(), Provider: provider, Client: h.client, Unsaved: unsavedAnywhere,
	}
	if rows, is := h.rows(); is {
		r.Rows = rows
	}
	return r
}

// listTimeout bounds the list of boxes before one is deleted by force.
const listTimeout = 10 * time.Second

// forceOff deletes a box, whatever is in it.
func (h host) forceOff(ctx context.Context, ref sandbox.Ref, provider sandbox.Provider) error {
	limited, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	boxes, _ := provider.List(limited, nil) // an error: nothing is posted on its threads
	return h.reaper(provider).Force(ctx, listedBox(boxes, ref))
}

// listedBox returns a box as its provider lists it, where it does.
func listedBox(boxes []sandbox.Box, ref sandbox.Ref) reap.Box {
	b, is := reap.Find(boxes, ref.ID)
	if !is {
		b = sandbox.Box{Ref: ref}
	}
	return reap.Box{Box: b, Listed: is}
}

// remove deletes a box, or prints what stands against it. With cancel what runs in it is ended first.
func (p *program) remove(ctx context.Context, h host, ref sandbox.Ref, provider sandbox.Provider, cancel bool) error {
	boxes, err := provider.List(ctx, nil)
	if err != nil {
		return err
	}
	b := listedBox(boxes, ref)
	if !b.Listed {
		if _, _, err := provider.Probe(ctx, ref.ID); err != nil {
			return err
		}
	}
	if err := h.owns(ctx, b.Box); err != nil {
		return err
	}
	var verdict reap.Verdict
	if r := h.reaper(provider); cancel {
		verdict, err = r.Vacate(ctx, b, endTimeout, func(u reap.Use) {
			fmt.Fprintf(p.stderr, "asked %s %s to end\n", u.Kind, u.ID)
		})
	} else {
		verdict, err = r.Remove(ctx, b)
	}
	switch {
	case errors.Is(err, reap.ErrNoRows):
		return noRows(ref)
	case err != nil:
		return reach(err)
	case verdict.What != reap.Wait:
		return nil
	}
	for _, why := range verdict.Against {
		fmt.Fprintf(p.stderr, "arbe: %s: %s\n", ref, why)
	}
	return cmdline.Fail(exitBusy, "%s is not deleted: %s", ref, left(verdict, cancel))
}

// left returns what to do about a box that is not deleted.
func left(v reap.Verdict, cancelled bool) string {
	const force = "arbe sandbox rm --force deletes it with all that is in it"
	switch {
	case len(v.Uses) == 0:
		return "arbe sandbox push or pull saves its work, " + force
	case cancelled:
		return fmt.Sprintf("it is in use after %v; arbe reconcile --all ends what is dead, %s", endTimeout, force)
	}
	return "arbe sandbox rm --cancel ends what runs in it first, " + force
}

// owns returns an error for a box of another thread server.
func (h host) owns(ctx context.Context, b sandbox.Box) error {
	of := b.Labels[sandbox.LabelInstallation]
	if of == "" {
		return nil
	}
	client, err := h.client("_health")
	if err != nil {
		return err
	}
	server, err := client.Health(ctx)
	if err != nil {
		return fmt.Errorf("%w; use --force to delete the box without the thread server", err)
	}
	if of != server.Installation {
		return fmt.Errorf(
			"%s belongs to another thread server (installation %s): use --force to delete it", b.Ref, of)
	}
	return nil
}
