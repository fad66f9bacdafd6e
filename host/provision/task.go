package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"arbe.0sk.ar/runner/harness/catalog"
	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/reap"
	"arbe.0sk.ar/runner/host/resolve"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// CheckHarness makes the harness of a task that of the catalog. A task without a harness and an agent is pi's.
func CheckHarness(t *rows.Task) error {
	if t.Agent == "" {
		t.Harness = cmp.Or(t.Harness, catalog.Pi.Name)
	}
	if t.Harness == "" {
		return nil
	}
	spec, err := catalog.Lookup(t.Harness)
	t.Harness = spec.Name
	return err
}

// Delegating returns what makes the rows of the tasks that members delegate.
func Delegating(to rows.Store) func(context.Context, rows.Task) (rows.Task, bool, error) {
	return func(ctx context.Context, t rows.Task) (made rows.Task, fresh bool, err error) {
		return Delegate(ctx, to.As(t.Author), t)
	}
}

// Delegate makes the row of a task in the scope of its author.
func Delegate(ctx context.Context, to rows.Tasks, t rows.Task) (made rows.Task, fresh bool, err error) {
	if err := CheckHarness(&t); err != nil {
		return made, false, &rows.Refusal{Kind: rows.ErrInvalid, Text: err.Error()}
	}
	return to.Delegate(ctx, t)
}

// Announce posts a task on its parent's thread.
func Announce(ctx context.Context, cl *client.Client, o rows.Task) error {
	_, err := cl.Append(ctx, []thread.Entry{thread.Spawn(o.Thread, o.Agent, o.Author)})
	return err
}

// Announce implements Tasks. An id that is taken by another entry stays so: its writer may write the parent.
func (h *Host) Announce(ctx context.Context, o rows.Task) error {
	cl, err := h.Client(o.Parent)
	if err != nil {
		return err
	}
	err = Announce(ctx, cl, o)
	if se, is := errors.AsType[*client.StatusError](err); is && se.Status == http.StatusConflict {
		h.Log.Warn("task not announced: the id is taken", "thread", o.Thread, "parent", o.Parent)
		return nil
	}
	return err
}

// Launch implements Tasks.
func (h *Host) Launch(ctx context.Context, o rows.Task) (again bool, err error) {
	launcher, task, err := h.prepare(ctx, o)
	return h.launch(ctx, launcher, task, err)
}

// launch launches a run whose preparation has failed with an error, or has not. It posts a failure that another call
// can't mend.
func (h *Host) launch(ctx context.Context, l *launch.Launcher, t launch.Task, err error) (again bool, _ error) {
	if err == nil {
		err = h.Remember(t.Thread)
	}
	switch {
	case err == nil:
		_, err = l.Launch(ctx, t)
		err = waits(err)
	case !temporary(err):
		err = errors.Join(err, h.refuse(ctx, t, err))
	}
	if errors.Is(err, launch.ErrLaunched) {
		h.Log.Info("not launched: the run is on the thread", "thread", t.Thread, "run", t.Run, "reason", err)
		err = nil
	}
	return temporary(err), err
}

// Refuse implements Tasks.
func (h *Host) Refuse(ctx context.Context, o rows.Task, cause error) error {
	return h.refuse(ctx, h.task(o), cause)
}

// refuse posts why a run is not launched.
func (h *Host) refuse(ctx context.Context, t launch.Task, cause error) error {
	cl, err := h.Client(t.Thread)
	if err != nil {
		return err
	}
	launcher := &launch.Launcher{Client: cl}
	return waits(launcher.Refuse(ctx, t, cause))
}

// waits gives the error about another run on a task's thread its sentinel.
func waits(err error) error {
	if _, other := errors.AsType[*launch.BusyError](err); other {
		err = fmt.Errorf("%w: %w", ErrBusy, err)
	}
	return err
}

// temporary reports whether a launch that has failed may succeed when it is repeated.
func temporary(err error) bool {
	if se, is := errors.AsType[*client.StatusError](err); is {
		switch se.Status {
		case http.StatusBadRequest, http.StatusConflict, http.StatusGone, http.StatusRequestEntityTooLarge:
			return false
		}
		return true
	}
	_, claimed := errors.AsType[*rows.ClaimedError](err)
	_, doubt := errors.AsType[*reap.DoubtError](err)
	_, schema := errors.AsType[*rows.SchemaError](err) // hosts of a newer release take the task
	return claimed || doubt || schema || rows.IsAway(err) || sandbox.Temporary(err) ||
		errors.Is(err, resolve.ErrSlow) || errors.Is(err, lease.ErrReleased) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded)
}

// task returns the launch of a task without what its box needs.
func (h *Host) task(o rows.Task) launch.Task {
	t := launch.Task{
		Thread: o.Thread, Run: o.Run(), Queued: true, Author: o.Author, Driver: o.Agent, Prompt: o.Prompt,
		Harness: o.Harness, Model: o.Model, Live: o.Live, Env: h.Env, Files: h.Files, Box: h.Box,
	}
	t.Box.Repo, t.Box.Branch, t.Box.Ephemeral = o.Repo, o.Branch, o.Sandbox == ""
	if o.Parent != "" {
		t.Parent = &thread.Parent{ThreadID: o.Parent, AuthorID: o.Result}
	}
	if o.Push {
		t.After = &thread.After{Push: &thread.AfterPush{Repo: o.Repo, Branch: o.Branch, PR: o.PR}}
	}
	if o.Trusted {
		t.Box.Token = h.Token
	} else if o.Push {
		t.After.Push.Environment = o.Environment
	}
	return t
}

// prepare returns the launch of a task, and what launches it.
func (h *Host) prepare(ctx context.Context, o rows.Task) (*launch.Launcher, launch.Task, error) {
	t := h.task(o)
	r, err := h.Rows(ctx)
	if err != nil {
		return nil, t, err
	}
	l, err := h.ready(ctx, r, &t, o.Trusted)
	return l, t, err
}

// ErrOldBox is returned for a run in a box that is older than its house allows.
var ErrOldBox = errors.New("the thread's box is too old for a run")

// leastLeft is the least time that a run has in a box whose hours its house limits.
const leastLeft = time.Minute

// ready gives the launch of a run what its bot and its environment have, and returns what launches it. It is trusted if
// it is the operator's.
func (h *Host) ready(ctx context.Context, r Rows, t *launch.Task, trusted bool) (*launch.Launcher, error) {
	p, err := place(ctx, r, t.Thread, Asked{})
	if err != nil {
		return nil, err
	}
	provider, err := h.Provider("the environment's runtime", p.Provider)
	switch {
	case err != nil:
		return nil, err
	case !provider.Traits().Isolated && !trusted && !h.LocalBoxes:
		return nil, ErrLocal
	}
	if err := drive(ctx, r, t, t.Driver); err != nil {
		return nil, err
	}
	if err := h.Follow(t, p); err != nil {
		return nil, err
	}
	if left, limited := p.Left(); limited && left < leastLeft {
		const text = "%w: the house's may exist for %d hours: delete it with arbe sandbox rm, " +
			"or see arbe house set --box-hours"
		return nil, fmt.Errorf(text, ErrOldBox, p.BoxHours)
	} else if limited {
		why := fmt.Sprintf("the hours of its box (%d) are over: see arbe house set --box-hours", p.BoxHours)
		t.Within(left.Truncate(time.Second), why)
	}
	cl, err := h.Client(t.Thread)
	if err != nil {
		return nil, err
	}
	progress := func(step string) { h.Log.Debug("launch", "thread", t.Thread, "step", step) }
	l, err := h.Launcher(*t, p, provider, cl, progress)
	if err != nil {
		return nil, err
	}
	l.Continued = func(ctx context.Context, err error) bool {
		return errors.Is(context.Cause(ctx), ErrStopped) || temporary(err)
	}
	return l, nil
}

// Waiting is the queue for a caller that ends tasks before they are launched.
type Waiting interface {
	Queue
	// TakeOne gives a task that no host has to this host, also one that is not due yet. is is false for a thread
	// without such a task.
	TakeOne(ctx context.Context, thread string, lease time.Duration) (o rows.Task, is bool, err error)
}

// withdrawLease is how long a host that died while it withdrew a task keeps it from the others.
const withdrawLease = 20 * time.Second

// Withdraw ends a task that waits, if its thread asks for that. One that a host has is left to that host: done is false
// then.
func (h *Host) Withdraw(ctx context.Context, q Waiting, o rows.Task) (done bool, err error) {
	cl, err := h.Client(o.Thread)
	if err != nil {
		return false, err
	}
	launcher := &launch.Launcher{Client: cl}
	asked, err := launcher.Cancelled(ctx, h.task(o))
	if err != nil || !asked {
		return false, err
	}
	o, is, err := q.TakeOne(ctx, o.Thread, withdrawLease)
	if err != nil || !is {
		return false, err
	}
	if o.Parent != "" {
		err = h.Announce(ctx, o)
	}
	if err == nil {
		err = h.Remember(o.Thread)
	}
	if err == nil {
		err = launcher.Withdraw(ctx, h.task(o))
	}
	if err != nil {
		err = fmt.Errorf("end the task of thread %s: %w", o.Thread, err)
		return false, errors.Join(err, q.PutBack(ctx, o.Thread, 0, false))
	}
	return true, q.Done(ctx, o.Thread)
}
