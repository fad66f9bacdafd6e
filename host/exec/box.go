package exec

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// Provider opens and probes boxes for a Boxes.
type Provider interface {
	// Open returns the box with the id, which must be live; sandbox.ErrGone if there is no such box.
	Open(ctx context.Context, id string) (sandbox.Sandbox, error)
	// Probe returns the state of the box with the id, and why in the provider's words.
	Probe(ctx context.Context, id string) (h sandbox.Health, why string, err error)
}

// Boxes finds the box of a thread: that of its newest run which had one.
type Boxes struct {
	// Client is the host's client of the thread.
	Client *client.Client
	// Lease returns the lease of a box.
	Lease func(ctx context.Context, box sandbox.Ref) (lease.Lease, error)
	// Provider returns the provider with the name; an error if it is not configured here.
	Provider func(name string) (Provider, error)
	// Labels returns the labels of a box. No command runs in one that was not made for the thread, whatever entries of
	// the thread name. nil for boxes that no provider labels.
	Labels func(ctx context.Context, box sandbox.Ref) (map[string]string, error)
}

// NoBoxError is returned for a thread without a live box.
type NoBoxError struct{ Thread, Why string }

func (e *NoBoxError) Error() string { return fmt.Sprintf("thread %s %s", e.Thread, e.Why) }

// Named returns the box of the newest of the thread's runs that had one, or a *NoBoxError.
func (b Boxes) Named(ctx context.Context) (sandbox.Ref, error) {
	var fold thread.Fold
	// The output of commands may be long.
	runs := b.Client.Only("signal.dispatch.", "signal.thread.").Without(thread.TypeDelta)
	_, err := runs.Read(ctx, "0", false, func(e thread.Entry) error { fold.Add(e); return nil })
	if err != nil && !client.NotFound(err) {
		return sandbox.Ref{}, fmt.Errorf("read the thread: %w", err)
	}
	for _, r := range slices.Backward(fold.Runs()) {
		if ref := r.Sandbox; ref != nil {
			return sandbox.Ref{Provider: ref.Provider, ID: ref.Ref}, nil
		}
	}
	return sandbox.Ref{}, &NoBoxError{b.Client.Thread, "has no box: arbe launch --thread makes one"}
}

// Find returns the thread's box if the provider reports it as live, or a *NoBoxError.
func (b Boxes) Find(ctx context.Context) (sandbox.Ref, Provider, error) {
	ref, err := b.Named(ctx)
	if err != nil {
		return ref, nil, err
	}
	p, err := b.Provider(ref.Provider)
	if err != nil {
		return ref, nil, err
	}
	health, why, err := p.Probe(ctx, ref.ID)
	switch {
	case err != nil:
		return ref, nil, fmt.Errorf("the sandbox %s of thread %s: %w", ref, b.Client.Thread, err)
	case !health.Exists():
		return ref, nil, &NoBoxError{b.Client.Thread, fmt.Sprintf(
			"has the box %s, and its provider answers %q: arbe launch --thread with --resume makes another one if it "+
				"is gone", ref, why)}
	}
	if b.Labels == nil {
		return ref, p, nil
	}
	labels, err := b.Labels(ctx, ref)
	switch {
	case err != nil:
		return ref, nil, err
	case labels[sandbox.LabelThread] != b.Client.Thread:
		return ref, nil, &NoBoxError{b.Client.Thread, fmt.Sprintf("names the box %s, which was not made for it", ref)}
	}
	return ref, p, nil
}

// Rowed is the box of a thread that has a row: a live one is used, and one that is dead or missing is made.
type Rowed struct {
	Launcher *launch.Launcher // with Rows, for the thread
	Task     launch.Task      // how a new box is made
}

// Box is a function for Host.Box.
func (r Rowed) Box(ctx context.Context, p Posted) (box sandbox.Sandbox, release func(), err error) {
	t, hold := r.Task, lease.Opening(p.Thread)
	t.Thread, t.Run, t.Exec, t.Author = p.Thread, "", p.ID, p.Author
	box, l, err := r.Launcher.CommandBox(ctx, t, hold)
	if err != nil {
		return nil, nil, err
	}
	return box, lease.Keep(ctx, l, hold), nil
}

// Box is a function for Host.Box.
func (b Boxes) Box(ctx context.Context, posted Posted) (box sandbox.Sandbox, release func(), err error) {
	ref, p, err := b.Find(ctx)
	if err != nil {
		return nil, nil, err
	}
	// Hold it first: a box that is held is not released while it is opened.
	l, err := b.Lease(ctx, ref)
	if err != nil {
		return nil, nil, err
	}
	hold := lease.Opening(posted.Thread)
	err = l.Hold(ctx, hold)
	if errors.Is(err, lease.ErrReleased) {
		return nil, nil, &NoBoxError{posted.Thread, fmt.Sprintf("has the box %s, which has been released", ref)}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("hold the sandbox %s: %w", ref, err)
	}
	release = lease.Keep(ctx, l, hold)
	if box, err = p.Open(ctx, ref.ID); err != nil {
		release()
		return nil, nil, fmt.Errorf("open the sandbox %s: %w", ref, err)
	}
	return box, release, nil
}
