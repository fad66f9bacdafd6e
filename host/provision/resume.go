package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/rows"
)

// resumeIdle is how long the agent of a run that was launched for a chat waits for the next one, where its environment
// has no other time. Providers cache what they have read for as long.
const resumeIdle = 5 * time.Minute

// Resume is a run that resumes a thread which a bot drives, for chats that wait there.
type Resume struct {
	Thread string
	Run    string
	Author string // a member of the house, of the chat
	Last   bool   // no other call follows one that fails
}

// Resume launches the run, live: its agent gets all chats that are pending, and those that come while it lasts. It
// returns nil also where the run needs no more of a host, ErrBusy where another run is in its way, and a
// *rows.HeldError where the house runs as many as it may. again reports that a failure is temporary. Any other failure
// is posted. A launch whose ctx ends is left to another host.
//
// A new box is the thread's, as that of a command: it stays for the next chats.
func (h *Host) Resume(ctx context.Context, o Resume) (again bool, err error) {
	stop := ctx
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(stop))
	defer cancel(nil)
	defer context.AfterFunc(stop, func() { cancel(ErrStopped) })()

	l, t, err := h.resumed(ctx, o)
	if _, held := errors.AsType[*rows.HeldError](err); held {
		return true, err
	}
	if l != nil && o.Last {
		l.Continued = func(ctx context.Context, _ error) bool { return errors.Is(context.Cause(ctx), ErrStopped) }
	}
	if err != nil && o.Last && temporary(err) && ctx.Err() == nil {
		err = fmt.Errorf("the last try: %w", err)
		return true, errors.Join(err, h.refuse(ctx, t, err))
	}
	again, err = h.launch(ctx, l, t, err)
	if errors.Is(err, ErrBusy) {
		h.dismiss(ctx, o)
	}
	return again, err
}

// dismiss frees the place of a run whose thread has another one. Where that fails, reconcilers free it.
func (h *Host) dismiss(ctx context.Context, o Resume) {
	r, err := h.Rows(ctx)
	if err == nil {
		err = r.Dismiss(ctx, o.Thread, o.Run)
	}
	if err != nil {
		h.Log.Debug("the place of a run is not freed", "thread", o.Thread, "run", o.Run, "error", err)
	}
}

// resumed returns the launch of a run for chats, which is admitted, and what launches it.
func (h *Host) resumed(ctx context.Context, o Resume) (*launch.Launcher, launch.Task, error) {
	t := launch.Task{
		Thread: o.Thread, Run: o.Run, Author: o.Author, Resume: true, Live: true,
		Env: h.Env, Files: h.Files, Box: h.Box,
	}
	r, err := h.Rows(ctx)
	if err != nil {
		return nil, t, err
	}
	if err := r.Admit(ctx, o.Thread, o.Run); err != nil {
		return nil, t, err
	}
	of, err := r.Thread(ctx, o.Thread)
	if err != nil {
		return nil, t, err
	}
	bot, err := r.Agent(ctx, of.Agent)
	if err != nil {
		return nil, t, err
	}
	t.Driver, t.Harness = bot.ID, bot.Runtime
	l, err := h.ready(ctx, r, &t, false)
	t.Idle = cmp.Or(t.Idle, resumeIdle)
	return l, t, err
}
