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
		if err := CheckHarness(&t); err != nil {
			return made, false, &rows.Refusal{Kind: rows.ErrInvalid, Text: err.Error()}
		}
		return to.As(t.Author).Delegate(ctx, t)
	}
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
	if err == nil {
		err = h.Remember(o.Thread)
	}
	switch {
	case err == nil:
		_, err = launcher.Launch(ctx, task)
		err = waits(err)
	case !temporary(err):
		err = errors.Join(err, h.Refuse(ctx, o, err))
	}
	if errors.Is(err, launch.ErrLaunched) {
		h.Log.Info("task not launched: its run is on the thread", "thread", o.Thread, "reason", err)
		err = nil
	}
	return temporary(err), err
}

// Refuse implements Tasks.
func (h *Host) Refuse(ctx context.Context, o rows.Task, cause error) error {
	cl, err := h.Client(o.Thread)
	if err != nil {
		return err
	}
	launcher := &launch.Launcher{Client: cl}
	return waits(launcher.Refuse(ctx, h.task(o), cause))
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
	return claimed || doubt || rows.IsAway(err) || sandbox.Temporary(err) ||
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
	if o.Trusted {
		t.Box.Token = h.Token
	}
	return t
}

// prepare returns the launch of a task, and what launches it.
func (h *Host) prepare(ctx context.Context, o rows.Task) (*launch.Launcher, launch.Task, error) {
	t := h.task(o)
	fail := func(err error) (*launch.Launcher, launch.Task, error) { return nil, t, err }
	r, err := h.Rows(ctx)
	if err != nil {
		return fail(err)
	}
	p, err := place(ctx, r, o.Thread, Asked{})
	switch {
	case err != nil:
		return fail(err)
	case p.Provider == sandbox.LocalName && !o.Trusted && !h.LocalBoxes:
		return fail(ErrLocal)
	}
	if err := h.Follow(&t, p); err != nil {
		return fail(err)
	}
	provider, err := h.Provider("the environment's runtime", p.Provider)
	if err != nil {
		return fail(err)
	}
	cl, err := h.Client(o.Thread)
	if err != nil {
		return fail(err)
	}
	progress := func(step string) { h.Log.Debug("launch", "thread", o.Thread, "step", step) }
	l, err := h.Launcher(t, p, provider, cl, progress)
	if err != nil {
		return fail(err)
	}
	l.Continued = func(ctx context.Context, err error) bool {
		return errors.Is(context.Cause(ctx), ErrStopped) || temporary(err)
	}
	return l, t, nil
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
