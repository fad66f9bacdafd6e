package exec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// endAfter is how long beyond its time limit the end of a command may take to be on the thread: its processes get time
// to end, its supervisor posts the rest of the output, and a reconciler has to find a dead box.
const endAfter = 5 * time.Minute

// ErrNoEnd is returned by Run for a command whose end is long overdue.
var ErrNoEnd = errors.New("the command should have ended, and its end is not on the thread: its sandbox may be dead")

// Run runs a command to its end, with its output to f, and returns that end. Called again with the same request, by any
// host, it continues with the same command: the command runs once, and has one end. prepare returns what starts it, and
// completes the request; it is called only where nobody has started the command, and its error is returned as it is.
//
// The end of ctx does not end the command. One that is not started by then is left to the next call.
func Run(
	ctx context.Context, cl *client.Client, r Request,
	prepare func(context.Context, *Request) (*Host, error), f func(thread.ExecOutput),
) (end thread.ExecFinished, err error) {
	_, begun, err := cl.Entry(ctx, thread.ExecID(r.ID, 1))
	if err != nil && !client.NotFound(err) {
		return end, fmt.Errorf("look for command %s: %w", r.ID, err)
	}
	from, ended := "0", func() {}
	if !begun {
		h, err := prepare(ctx, &r)
		if err != nil {
			return end, err
		}
		var box sandbox.Ref
		if box, from, err = h.start(ctx, r); err != nil {
			return end, err
		}
		ended = func() { h.Ended(ctx, box, r) }
	}
	return wait(ctx, cl, r, from, f, ended)
}

// start starts a command that nobody has started, and returns its box, and the offset that its output comes behind. A
// command that can't be started has its end on the thread.
func (h *Host) start(ctx context.Context, r Request) (box sandbox.Ref, from string, err error) {
	p, err := h.Post(ctx, r)
	switch {
	case client.Taken(err): // it was posted with other secrets, and so with another text
		r.Timeout = cmp.Or(r.Timeout, DefaultTimeout)
		p = Posted{Request: r}
	case err != nil:
		return box, "", err
	case p.Again: // what it is now behind came later
		p.Offset = ""
	}
	firing, leave := context.WithCancelCause(context.WithoutCancel(ctx))
	defer leave(nil)
	defer context.AfterFunc(ctx, func() { leave(ErrStopped) })()
	box, err = h.Fire(firing, p)
	if err != nil && ctx.Err() == nil {
		if _, has, lerr := h.Client.Entry(ctx, thread.ExecID(r.ID, 1)); has && lerr == nil {
			err = nil // its end has the reason
		}
	}
	return box, cmp.Or(p.Offset, "0"), err
}

// wait passes on the output of a command behind an offset, and calls ended once its end is there.
func wait(
	ctx context.Context, cl *client.Client, r Request, from string, f func(thread.ExecOutput), ended func(),
) (thread.ExecFinished, error) {
	limit := cmp.Or(r.Timeout, DefaultTimeout) + endAfter
	waiting, stop := context.WithTimeout(ctx, limit)
	defer stop()
	end, ok, err := Follow(waiting, cl, r.ID, from, func(o thread.ExecOutput) error { f(o); return nil })
	switch {
	case ok:
		ended()
		return end, nil
	case ctx.Err() != nil:
		return end, ctx.Err()
	case waiting.Err() != nil:
		return end, ErrNoEnd
	}
	return end, err
}

// Stop ends a command, if it is open. One that nobody has started never starts.
func Stop(ctx context.Context, cl *client.Client, execID, author, reason string) error {
	x, open, _, err := find(ctx, cl, execID)
	if !open || err != nil {
		if client.NotFound(err) {
			return nil
		}
		return err
	}
	if x.Running == nil {
		r := Request{ID: execID, Author: author}
		_, err := cl.Append(ctx, []thread.Entry{entry(r, 1, thread.ExecFinished{
			Exec: signal(r, thread.TypeExecFinished), Cancelled: true, Error: errCancelled.Error(),
		})})
		if !client.Taken(err) {
			return err
		}
	}
	return Ask(ctx, cl, execID, author, reason)
}

// find returns a command that is open. known reports whether the thread has it at all.
func find(ctx context.Context, cl *client.Client, execID string) (x thread.OpenExec, open, known bool, err error) {
	var fold thread.Fold
	// The output of commands may be long.
	marks := cl.Only(thread.TypeExecStarted, thread.TypeExecRunning, thread.TypeExecFinished)
	_, err = marks.Read(ctx, "0", false, func(e thread.Entry) error {
		fold.Add(e)
		known = known || e.ID == thread.ExecID(execID, 0)
		return nil
	})
	x, open = fold.OpenExec(execID)
	return x, open, known, err
}
