package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"arbe.0sk.ar/runner/host/exec"
	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/reap"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread/client"
)

// ErrLocal is returned for what would run as the user of this process, and may not.
var ErrLocal = errors.New("this host launches no runs of members in local boxes: start it with --local-boxes")

// ofThread is the place where the provider of a box stands that a thread names.
const ofThread = "the provider of the thread's box"

// Command returns what runs a command in the box of its thread. rowed reports that the thread has a row: a box that is
// missing or dead is made then, by the environment with this id; "" leaves the choice. The command gets the secrets of
// the box's environment: one that is missing ends it on the thread.
func (h *Host) Command(
	ctx context.Context, cl *client.Client, r *exec.Request, environment string, progress func(string),
) (x *exec.Host, rowed bool, err error) {
	x = &exec.Host{
		Client: cl, Box: h.BoxOf(cl).Box, Lease: h.lease(cl), Runner: h.Runner, StreamURL: h.StreamURL,
		Tokens: execTokens(h.Key, ""), Progress: progress,
	}
	p, err := h.onRows(ctx, r.Thread, func(all Rows) (rows.Place, error) {
		p, err := place(ctx, all, r.Thread, Asked{Environment: environment})
		if p.House == "" {
			err = rows.Present(err) // the thread has no row
		}
		return p, err
	})
	if err != nil || p.House == "" {
		return x, false, err
	}
	provider, err := h.usable("the environment's runtime", p.Provider)
	if err != nil {
		return x, true, err
	}
	t := launch.Task{
		Thread: r.Thread, Exec: r.ID, Author: r.Author, Environment: environment, Box: h.Box,
	}
	if err := h.Follow(&t, p); err != nil {
		return x, true, err
	}
	secrets, missing := t.Secrets(ctx)
	t.Secrets = func(context.Context) (map[string]string, error) { return secrets, missing }
	t.Env = map[string]string{}
	maps.Copy(t.Env, secrets)
	maps.Copy(t.Env, r.Env)
	r.Env, r.Secrets = t.Env, slices.Sorted(maps.Keys(secrets))
	x.Tokens = execTokens(h.Key, p.House)
	x.Box = exec.Rowed{Task: t, Launcher: h.boxer(p, provider, cl, progress)}.Box
	return x, true, nil
}

// usable returns the provider of a box for a command, if this host uses its boxes.
func (h *Host) usable(place, name string) (Provider, error) {
	p, err := h.Provider(place, name)
	switch {
	case err != nil:
		return nil, &UnreachableError{err}
	case !p.Traits().Isolated && !h.LocalBoxes:
		return nil, ErrLocal
	}
	return p, nil
}

// Reaches returns an error where a thread without a row names no box, or one that this host does not use. Whether the
// box lives is found out when the command is started.
func (h *Host) Reaches(ctx context.Context, cl *client.Client) error {
	ref, err := h.BoxOf(cl).Named(ctx)
	if err != nil {
		return err
	}
	p, err := h.usable(ofThread, ref.Provider)
	if err == nil && p.Traits().SameMachine {
		if _, _, perr := p.Probe(ctx, ref.ID); errors.Is(perr, sandbox.ErrForeign) {
			err = &UnreachableError{perr}
		}
	}
	return err
}

// BoxOf returns what finds the box that a thread without a row names.
func (h *Host) BoxOf(cl *client.Client) exec.Boxes {
	provider := func(name string) (exec.Provider, error) { return h.Provider(ofThread, name) }
	return exec.Boxes{Client: cl, Lease: h.lease(cl), Labels: h.labels, Provider: provider}
}

// labels returns the labels of a box; none of one that its provider does not list.
func (h *Host) labels(ctx context.Context, box sandbox.Ref) (map[string]string, error) {
	p, err := h.Provider(ofThread, box.Provider)
	if err != nil {
		return nil, err
	}
	boxes, err := p.List(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("the labels of the sandbox %s: %w", box, err)
	}
	listed, _ := reap.Find(boxes, box.ID)
	return listed.Labels, nil
}

// lease returns what returns the lease of a box: that of its row, or one on a stream.
func (h *Host) lease(cl *client.Client) func(context.Context, sandbox.Ref) (lease.Lease, error) {
	return func(ctx context.Context, box sandbox.Ref) (lease.Lease, error) {
		labels, err := h.labels(ctx, box)
		switch row := labels[sandbox.LabelRow]; {
		case err != nil:
			return nil, err
		case row == "":
			return lease.OnStream{Client: Client(h.Key, cl, lease.Stream(box))}, nil
		case h.Rows == nil:
			return nil, NoRows(box)
		default:
			return h.Boxes.Lease(row), nil
		}
	}
}
