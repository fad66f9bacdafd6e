package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/reap"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
)

// tryAgainAfter is the time between two tries of a push or a copy back by one reconciler that no person waits for.
const tryAgainAfter = 5 * time.Minute

// after does the pending push and copy back of a run, if this host can do it and no other host is doing it. The results
// are posted on the thread; a push or copy back that fails is no error here. holder is the caller's hold of the box; ""
// if it has none.
func (t *settling) after(ctx context.Context, run thread.Run, holder string, urgent bool) error {
	if run.ID == "" || run.Sandbox == nil || t.views[run.Sandbox.Provider] == nil || t.superseded(run) {
		return nil
	}
	if run.Provisional && (run.Orphaned == nil || run.Orphaned.Reason != reasonLost) {
		return nil // its runner may still be running
	}
	push, sync := reap.WantsPush(run) && t.r.Host.Push != nil, reap.WantsSync(run) && t.r.Host.Sync != nil
	if !push && !sync {
		t.r.mu.Lock()
		defer t.r.mu.Unlock()
		delete(t.r.tried, t.id+"."+run.ID)
		return nil
	}
	if t.now.Sub(run.Ended) > cmp.Or(t.r.ReapAfter, DefaultReapAfter) {
		return nil
	}
	t.pending = true
	if !t.due(run.ID, urgent) {
		return nil
	}
	v := t.views[run.Sandbox.Provider]
	err := v.ask(ctx, func(ctx context.Context) error {
		_, _, err := v.Probe(ctx, run.Sandbox.Ref)
		return err
	})
	if errors.Is(err, sandbox.ErrForeign) {
		return nil // the box belongs to another host
	}
	in := sandbox.Ref{Provider: run.Sandbox.Provider, ID: run.Sandbox.Ref}
	if mine, err := t.uses(ctx, v, in); err != nil || !mine {
		return err
	}
	l, err := t.leaseOf(ctx, v, in)
	if err != nil {
		return err
	}
	if holder == "" {
		holder = lease.NewHolder(lease.KindAfter)
		mine := rows.Hold{Holder: holder, ThreadID: t.id, RunID: run.ID, TTL: lease.TTL}
		got, err := l.Try(ctx, mine)
		if errors.Is(err, lease.ErrReleased) {
			return nil
		} else if err != nil || !got {
			return errors.Join(err, t.busy(ctx, run, l))
		}
		defer lease.Keep(ctx, l, mine)()
	}
	// Another host may have done it before this one got its hold.
	if err := t.read(ctx); err != nil {
		return fmt.Errorf("read thread %s: %w", t.id, err)
	}
	run = t.run(run.ID)
	push, sync = push && reap.WantsPush(run), sync && reap.WantsSync(run)
	if !push && !sync {
		return nil
	}
	box, err := v.Open(ctx, run.Sandbox.Ref)
	if errors.Is(err, sandbox.ErrGone) {
		return nil // there is nothing to push or copy
	}
	if err != nil {
		return fmt.Errorf("open the sandbox %s:%s: %w", run.Sandbox.Provider, run.Sandbox.Ref, err)
	}
	var errs []error
	if sync {
		if result, mine := t.r.Host.Sync(ctx, box, t.id, run); mine {
			errs = append(errs, t.synced(ctx, run, result))
		}
	}
	if push {
		intent, err := t.prompt(ctx, run.ID)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		errs = append(errs, t.pushed(ctx, run, t.r.Host.Push(ctx, box, t.id, run, intent)))
	}
	return errors.Join(append(errs, t.read(ctx))...)
}

// due reports whether to try the work after a run now.
func (t *settling) due(run string, urgent bool) bool {
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	key := t.id + "." + run
	if last, tried := t.r.tried[key]; !urgent && tried && time.Since(last) < tryAgainAfter {
		return false
	}
	if t.r.tried == nil {
		t.r.tried = map[string]time.Time{}
	}
	t.r.tried[key] = time.Now()
	return true
}

// superseded reports whether a later run has used the run's box, whose content then belongs to the later one.
func (t *settling) superseded(run thread.Run) bool {
	later := false
	for _, r := range t.fold.Runs() {
		if r.ID == run.ID {
			later = true
		} else if later && r.Sandbox != nil && *r.Sandbox == *run.Sandbox {
			return true
		}
	}
	return false
}

// uses reports whether a box is the thread's to use: it was made for the thread, or rows of threads that share it name
// it. An entry of the thread may name any box.
func (t *settling) uses(ctx context.Context, v *view, box sandbox.Ref) (bool, error) {
	b, listed, err := v.listed(ctx, box.ID)
	switch {
	case err != nil:
		return false, err
	case !listed: // it is gone, or of another installation; an older server has no id of one
		return v.installation == "", nil
	case b.Labels[sandbox.LabelThread] == t.id:
		return true, nil
	}
	id := b.Labels[sandbox.LabelRow]
	if id == "" || t.r.Rows == nil {
		return id != "", nil // without the rows its lease is refused
	}
	row, _, err := t.r.Rows.Row(ctx, id)
	return slices.ContainsFunc(row.Threads, func(r rows.BoxThread) bool { return r.ID == t.id }), err
}

// leaseOf returns the lease of a run's box. A host without a database learns from the box's label that it has a row.
func (t *settling) leaseOf(ctx context.Context, v *view, box sandbox.Ref) (lease.Lease, error) {
	b := sandbox.Box{Ref: box}
	if t.r.Rows == nil {
		if listed, is, err := v.listed(ctx, box.ID); err != nil {
			return nil, err
		} else if is {
			b = listed
		}
	}
	return t.reaper(v).Lease(ctx, reap.Box{Box: b})
}

// busy records who holds the box of a run whose work after it waits for that.
func (t *settling) busy(ctx context.Context, run thread.Run, l lease.Lease) error {
	s, err := l.Read(ctx)
	if h, is := s.Held(func(rows.Hold) bool { return false }); err == nil && is {
		t.waits(run.ID, sandbox.Ref{Provider: run.Sandbox.Provider, ID: run.Sandbox.Ref}, reap.HoldOf(h))
	}
	return err
}

// waits records, once, that a box waits for a hold.
func (t *settling) waits(run string, box sandbox.Ref, hold reap.Use) {
	wait := Action{t.id, run, Waits, box.String() + " is " + hold.String()}
	if !slices.Contains(t.waiting, wait) {
		t.waiting = append(t.waiting, wait)
	}
}

// pushed posts the result of a push, unless the newest one is the same.
func (t *settling) pushed(ctx context.Context, run thread.Run, result thread.Pushed) error {
	result.Signal = signal(run, thread.TypePush)
	if run.Push != nil && *run.Push == result {
		return nil
	}
	return t.did(ctx, run, Pushed, cmp.Or(result.Error, result.PRURL, result.Branch),
		t.entry(fmt.Sprintf("%s.push.%d", run.ID, run.Pushes), result))
}

// synced posts the result of a copy back, unless the newest one is the same failure.
func (t *settling) synced(ctx context.Context, run thread.Run, result thread.Synced) error {
	result.Signal = signal(run, thread.TypeSync)
	if run.Sync != nil && result.Error != "" && run.Sync.Error == result.Error {
		return nil
	}
	if result.Conflicts == nil {
		result.Conflicts = []string{}
	}
	files := fmt.Sprintf("%d copied, %d deleted, %d conflicts", result.Copied, result.Deleted, len(result.Conflicts))
	return t.did(ctx, run, Synced, cmp.Or(result.Error, files),
		t.entry(fmt.Sprintf("%s.sync.%d", run.ID, run.Syncs), result))
}

// did posts the result of the work after a run, and records it.
func (t *settling) did(ctx context.Context, run thread.Run, what, why string, result thread.Entry) error {
	_, err := t.post(ctx, t.client, result)
	if err != nil && !errors.Is(err, errTaken) {
		return err
	}
	t.record(run.ID, what, why)
	return nil
}
