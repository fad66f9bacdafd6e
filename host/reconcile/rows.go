package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"arbe.0sk.ar/runner/host/reap"
	"arbe.0sk.ar/runner/host/resolve"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// Rows are the rows of threads and boxes in a database, which may be away. Then threads are settled, and boxes stay.
type Rows interface {
	threadRows
	boxRows
	reap.Rows
}

// threadRows are the rows of threads, which follow their logs.
type threadRows interface {
	// Running returns the row of a thread that runs; false for any other.
	Running(ctx context.Context, thread string) (rows.Running, bool, error)
	// Follow gives a row that has not changed since the status of the log, and ends its claim.
	Follow(ctx context.Context, thread string, seen rows.Running, status string) error
	holds
}

// holds are those of runs and commands, which end with them.
type holds interface {
	// Commands returns the commands that hold a box for a thread.
	Commands(ctx context.Context, thread string) ([]string, error)
	// Unhold drops the holds of runs and commands that have ended.
	Unhold(ctx context.Context, thread string, runs []string) error
	// Stale returns threads that were claimed long ago by a run that the log did not have, and those that do not run
	// and have held a box for long.
	Stale(ctx context.Context) ([]string, error)
}

// boxRows are the rows of boxes, as a pass compares them with the machines.
type boxRows interface {
	// Expire declares boxes dead that are pending for too long, and removes holds that have expired.
	Expire(ctx context.Context) error
	// Boxes returns the rows of all boxes that may have a machine, and those named.
	Boxes(ctx context.Context, named []string) ([]rows.Box, error)
	marks
}

// marks are rows that hosts have marked for a pass.
type marks interface {
	// Notices returns threads that may not have the signal of their new box.
	Notices(ctx context.Context) ([]rows.Notice, error)
	resolve.Notes
	doubts
}

// doubts are live boxes that a host could not use.
type doubts interface {
	// Doubted returns their rows.
	Doubted(ctx context.Context) ([]rows.Box, error)
	// Trust ends the doubt of one.
	Trust(ctx context.Context, row string) error
}

// rows makes the thread's row follow its log, and drops the holds of its runs that have ended.
func (t *settling) rows(ctx context.Context) error {
	if t.r.Rows == nil {
		return nil
	}
	seen, is, err := t.r.Rows.Running(ctx, t.id)
	if err == nil && is {
		err = t.follow(ctx, seen)
	}
	if err == nil {
		var ended []string
		for _, run := range t.fold.Runs() {
			if run.Status != thread.StatusRunning {
				ended = append(ended, run.ID)
			}
		}
		var commands []string
		if commands, err = t.endedCommands(ctx); len(ended)+len(commands) > 0 && err == nil {
			err = t.r.Rows.Unhold(ctx, t.id, append(ended, commands...))
		}
	}
	if err != nil {
		return fmt.Errorf("the row of thread %s: %w", t.id, err)
	}
	return nil
}

// endedCommands returns the thread's commands that hold a box and have ended. A command is on the log before it holds a
// box, so the log is read after the holds.
func (t *settling) endedCommands(ctx context.Context) (ended []string, err error) {
	holding, err := t.r.Rows.Commands(ctx, t.id)
	if err != nil || len(holding) == 0 {
		return nil, err
	}
	if err := t.read(ctx); err != nil && !client.NoThread(err) {
		return nil, err
	}
	for _, id := range holding {
		if _, open := t.fold.OpenExec(id); !open {
			ended = append(ended, id)
		}
	}
	return ended, nil
}

// follow settles the row of a thread that runs by the log, which is read after the row.
func (t *settling) follow(ctx context.Context, seen rows.Running) error {
	if err := t.read(ctx); err != nil && !client.NoThread(err) {
		return err
	}
	_, known := t.fold.Run(seen.Run)
	abandoned := seen.Run != "" && !known
	if abandoned && seen.Since < rows.ClaimTimeout {
		t.pending = true
		return nil
	}
	status := t.fold.Status()
	if status == thread.StatusRunning && !abandoned {
		return nil
	}
	return t.r.Rows.Follow(ctx, t.id, seen, status)
}

// sweep compares the rows of boxes with the machines: a dead row's machine is deleted, and the row of a machine that is
// gone is dead. It returns the threads whose claims and holds a host that died may have left.
func (p *pass) sweep(ctx context.Context) (stale []string, err error) {
	if p.r.Rows == nil {
		return nil, nil
	}
	machines := map[string][]sandbox.Box{} // by row; listed before the rows are read, which die but once
	var named []string
	for _, v := range p.views {
		boxes, _ := v.list(ctx) // a failure is an error of the threads that need the list
		for _, b := range boxes {
			if row := b.Labels[sandbox.LabelRow]; row != "" && !b.Going {
				named = append(named, row)
				machines[row] = append(machines[row], b)
			}
		}
	}
	err = p.r.Rows.Expire(ctx)
	var all []rows.Box
	if err == nil {
		all, err = p.r.Rows.Boxes(ctx, named)
	}
	if err != nil {
		return nil, fmt.Errorf("the rows of sandboxes: %w", err)
	}
	errs := []error{p.announce(ctx)}
	for _, row := range all {
		if err := p.sweepRow(ctx, row, machines[row.ID]); err != nil {
			errs = append(errs, fmt.Errorf("sandbox %s: %w", row.ID, err))
		}
	}
	doubted, err := p.r.Rows.Doubted(ctx)
	errs = append(errs, err)
	for _, row := range doubted {
		errs = append(errs, p.doubt(ctx, row))
	}
	stale, err = p.r.Rows.Stale(ctx)
	return stale, errors.Join(append(errs, err)...)
}

// announce posts on threads the signal of their new box that a host which died has not posted.
func (p *pass) announce(ctx context.Context) error {
	all, err := p.r.Rows.Notices(ctx)
	if err != nil {
		return fmt.Errorf("the threads with a new sandbox: %w", err)
	}
	return resolve.Announce(ctx, all, p.r.Client, p.r.Rows)
}

// sweepRow does for one row what sweep does. All of it is for package reap to decide.
func (p *pass) sweepRow(ctx context.Context, row rows.Box, machines []sandbox.Box) error {
	v := p.views[row.Provider]
	if v == nil || v.installation == "" {
		return nil // another host's
	}
	if _, err := v.list(ctx); err != nil {
		return nil // what is not listed may be there
	}
	own := false
	for _, b := range machines {
		if b.Ref.ID == row.Ref && row.Status == rows.BoxLive {
			own = true // its threads' settling decides about it
			continue
		}
		if row.Status == rows.BoxPending {
			continue
		}
		verdict, err := p.reaper(v).Settle(ctx, reap.Box{Box: b, Listed: true, Row: row.ID})
		if err != nil {
			return err
		}
		if verdict.What == reap.Release && p.r.Log != nil {
			p.r.Log.Info("deleted a machine", "sandbox", row.ID, "machine", b.Ref.String(), "why", verdict.Why)
		}
	}
	switch {
	case row.Status == rows.BoxLive && !own, row.Status == rows.BoxDead && row.DestroyedAt == nil && len(machines) == 0:
		ref := sandbox.Ref{Provider: row.Provider, ID: row.Ref}
		_, err := p.reaper(v).Settle(ctx, reap.Box{Box: sandbox.Box{Ref: ref}, Row: row.ID})
		if errors.Is(err, sandbox.ErrForeign) {
			return nil // another host's
		}
		return err
	}
	return nil
}

// lookEvery is the interval of looks at boxes that a host could not use.
const lookEvery = 5 * time.Second

// looks looks at boxes that a host could not use, until ctx is done.
func (r *Reconciler) looks(ctx context.Context) {
	if r.Rows == nil {
		return
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for failing := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := r.doubts(ctx)
		if err != nil && !failing && ctx.Err() == nil && r.Log != nil {
			r.Log.Warn("look at doubted sandboxes", "error", err)
		}
		failing = err != nil
	}
}

// doubts makes a pass over the boxes that a host could not use.
func (r *Reconciler) doubts(ctx context.Context) error {
	rows, err := r.Rows.Doubted(ctx)
	if err != nil || len(rows) == 0 {
		return err
	}
	p, err := r.begin(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, row := range rows {
		errs = append(errs, p.doubt(ctx, row))
	}
	return errors.Join(errs...)
}

// doubt settles a box that a host could not use: if it is gone all its threads, and the row. It ends the doubt, unless
// somebody who shows life keeps a box that its provider calls gone.
func (p *pass) doubt(ctx context.Context, row rows.Box) error {
	v := p.views[row.Provider]
	if v == nil {
		return nil // another host's
	}
	ref := sandbox.Ref{Provider: row.Provider, ID: row.Ref}
	e, err := p.reaper(v).Evidence(ctx, ref, nil)
	if err != nil || !e.Live && !e.Gone {
		return err
	}
	if e.Gone {
		s, err := p.box(ctx, ref, "")
		if err != nil || s.Open {
			return err
		}
	}
	return p.r.Rows.Trust(ctx, row.ID)
}
