package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/resolve"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/thread"
)

// Rows are the rows of threads and boxes in a database, which may be away. Then threads are settled, and boxes stay.
type Rows interface {
	// Running returns the row of a thread that runs; false for any other.
	Running(ctx context.Context, thread string) (resolve.Running, bool, error)
	// Follow gives a row that has not changed since the status of the log.
	Follow(ctx context.Context, thread string, seen resolve.Running, status string) error
	// Abandon ends the claim of a run that the log does not have.
	Abandon(ctx context.Context, thread, run string) error
	// Unhold drops the holds of runs that have ended.
	Unhold(ctx context.Context, thread string, runs []string) error
	// Commands returns the commands that hold a box for a thread.
	Commands(ctx context.Context, thread string) ([]string, error)
	// Stale returns threads that were claimed long ago by a run that the log did not have, and those that do not run
	// and have held a box for long.
	Stale(ctx context.Context) ([]string, error)

	// Boxes declares boxes dead that are pending for too long. It returns the rows of all boxes that may have a
	// machine, and those named.
	Boxes(ctx context.Context, named []string) ([]resolve.Row, error)
	// BoxAt returns the row of a machine; "" where it has none.
	BoxAt(ctx context.Context, provider, ref string) (row string, err error)
	// InBox returns the threads whose rows name a box.
	InBox(ctx context.Context, row string) (threads []string, err error)
	// Notices returns threads that may not have the signal of their new box.
	Notices(ctx context.Context) ([]resolve.Notice, error)
	// Noted notes that the logs of threads have it.
	Noted(ctx context.Context, row string, threads []string) error
	Lease(row string) lease.Lease
	Condemn(ctx context.Context, row string) error
	Gone(ctx context.Context, row string) error
}

// errNoRows is returned for a box with a row by a host that has no database.
var errNoRows = errors.New("it has a row in a database that this host does not use (--database)")

// rows makes the thread's row follow its log, and drops the holds of its runs that have ended.
func (t *settling) rows(ctx context.Context) error {
	rows := t.r.Rows
	if rows == nil {
		return nil
	}
	seen, is, err := rows.Running(ctx, t.id)
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
			err = rows.Unhold(ctx, t.id, append(ended, commands...))
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
	if err := t.read(ctx); err != nil && !thread.NotFound(err) {
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
func (t *settling) follow(ctx context.Context, seen resolve.Running) error {
	if err := t.read(ctx); err != nil && !thread.NotFound(err) {
		return err
	}
	if _, known := t.fold.Run(seen.Run); seen.Run != "" && !known {
		if seen.Since < resolve.ClaimTimeout {
			t.pending = true
			return nil
		}
		return t.r.Rows.Abandon(ctx, t.id, seen.Run)
	}
	status := t.fold.Status()
	if status == thread.StatusRunning {
		return nil
	}
	return t.r.Rows.Follow(ctx, t.id, seen, status)
}

// lease returns the lease of a box, which a label names the row of; "" where the label is not known.
func (t *settling) lease(ctx context.Context, box sandbox.Ref, row string) (lease.Lease, error) {
	rows := t.r.Rows
	if row == "" && rows != nil {
		var err error
		if row, err = rows.BoxAt(ctx, box.Provider, box.ID); err != nil {
			return nil, fmt.Errorf("the row of %s: %w", box, err)
		}
	}
	switch {
	case row != "" && rows == nil:
		return nil, fmt.Errorf("%s: %w", box, errNoRows)
	case row != "":
		return rows.Lease(row), nil
	}
	client, err := t.r.Client(lease.Stream(box))
	return lease.OnStream{Client: client}, err
}

// sweep compares the rows of boxes with the machines: a dead row's machine is deleted, and the row of a machine that is
// gone is dead. It returns the threads whose claims and holds a host that died may have left.
func (p *pass) sweep(ctx context.Context) (stale []string, err error) {
	rows := p.r.Rows
	if rows == nil {
		return nil, nil
	}
	machines := map[string][]sandbox.Box{} // by row; listed before the rows are read, which die but once
	var named []string
	for _, v := range p.views {
		boxes, _ := v.list(ctx) // a failure is an error of the threads that need the list
		for _, b := range boxes {
			if row := b.Labels[sandbox.LabelRow]; row != "" && !beingDeleted(b) {
				named = append(named, row)
				machines[row] = append(machines[row], b)
			}
		}
	}
	all, err := rows.Boxes(ctx, named)
	if err != nil {
		return nil, fmt.Errorf("the rows of sandboxes: %w", err)
	}
	errs := []error{p.announce(ctx)}
	for _, row := range all {
		if err := p.sweepRow(ctx, row, machines[row.ID]); err != nil {
			errs = append(errs, fmt.Errorf("sandbox %s: %w", row.ID, err))
		}
	}
	stale, err = rows.Stale(ctx)
	return stale, errors.Join(append(errs, err)...)
}

// announce posts on threads the signal of their new box that a host which died has not posted.
func (p *pass) announce(ctx context.Context) error {
	all, err := p.r.Rows.Notices(ctx)
	if err != nil {
		return fmt.Errorf("the threads with a new sandbox: %w", err)
	}
	var errs []error
	for _, n := range all {
		client, err := p.r.Client(n.Thread)
		if err == nil {
			_, err = client.Append(ctx, []thread.Entry{n.Entry()})
		}
		if err == nil || thread.Gone(err) { // a log that was deleted needs no signal
			err = p.r.Rows.Noted(ctx, n.Row, []string{n.Thread})
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("post the sandbox %s on thread %s: %w", n.Row, n.Thread, err))
		}
	}
	return errors.Join(errs...)
}

// sweepRow does for one row what sweep does.
func (p *pass) sweepRow(ctx context.Context, row resolve.Row, machines []sandbox.Box) error {
	v := p.views[row.Provider]
	if v == nil || v.installation == "" {
		return nil // another host's
	}
	if _, err := v.list(ctx); err != nil {
		return nil // what is not listed may be there
	}
	if row.Status != resolve.Dead {
		if len(machines) == 0 && row.Status == resolve.Live {
			return p.missing(ctx, v, row)
		}
		if row.Status == resolve.Live {
			return p.others(ctx, v, row, machines)
		}
		return nil
	}
	for _, b := range machines {
		if err := v.ask(ctx, func(context.Context) error { return v.Destroy(ctx, b.Ref.ID) }); err != nil {
			return err
		}
		p.logDeleted(row, b)
	}
	if row.Destroyed {
		return nil
	}
	if len(machines) == 0 && row.Ref != "" {
		gone, err := p.gone(ctx, v, row.Ref)
		if err != nil || !gone {
			return err
		}
	}
	return p.r.Rows.Gone(ctx, row.ID)
}

// others deletes the machines of a live row that are not its own: what a launch has left that was not its last maker.
func (p *pass) others(ctx context.Context, v *view, row resolve.Row, machines []sandbox.Box) error {
	for _, b := range machines {
		if b.Ref.ID == row.Ref {
			continue
		}
		if err := v.ask(ctx, func(context.Context) error { return v.Destroy(ctx, b.Ref.ID) }); err != nil {
			return err
		}
		p.logDeleted(row, b)
	}
	return nil
}

// missing notes that the machine of a live row is gone, which the provider has to report twice.
func (p *pass) missing(ctx context.Context, v *view, row resolve.Row) error {
	for n := range 2 {
		if gone, err := p.gone(ctx, v, row.Ref); err != nil || !gone {
			return err
		}
		if n == 0 {
			if !pause.For(ctx, p.again()) {
				return context.Cause(ctx)
			}
		}
	}
	return p.r.Rows.Gone(ctx, row.ID)
}

// gone reports whether a machine is gone, in the provider's words. That of another host is not.
func (p *pass) gone(ctx context.Context, v *view, ref string) (is bool, err error) {
	err = v.ask(ctx, func(ctx context.Context) error {
		health, _, err := v.Probe(ctx, ref)
		is = health == sandbox.Gone
		return err
	})
	if errors.Is(err, sandbox.ErrForeign) {
		return false, nil
	}
	return is && err == nil, err
}

func (p *pass) again() time.Duration {
	if p.r.Again == 0 {
		return 2 * time.Second
	}
	return p.r.Again
}

func (p *pass) logDeleted(row resolve.Row, b sandbox.Box) {
	if p.r.Log != nil {
		p.r.Log.Info("deleted the machine of a dead sandbox", "sandbox", row.ID, "machine", b.Ref.String())
	}
}
