package reconcile

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"arbe.0sk.ar/runner/host/reap"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
)

// reaper returns what decides about the boxes of a provider. It reads this thread as the settling has it.
func (t *settling) reaper(v *view) *reap.Reaper {
	r := t.pass.reaper(v)
	r.Read = func(ctx context.Context, id string) (reap.Thread, error) { return t.pass.state(ctx, id, t) }
	return r
}

// reaper returns what decides about the boxes of a provider.
func (p *pass) reaper(v *view) *reap.Reaper {
	return &reap.Reaper{
		Name: v.name, Provider: v.Provider, Client: p.r.Client, Rows: p.r.Rows, Listed: v.listed, Ask: v.ask,
		Read:      func(ctx context.Context, id string) (reap.Thread, error) { return p.state(ctx, id, nil) },
		Unsaved:   p.r.Host.Unsaved,
		GoneAfter: min(reap.DefaultGoneAfter, cmp.Or(p.r.OrphanAfter, DefaultOrphanAfter)),
		ReapAfter: p.r.ReapAfter, Again: p.r.Again, Author: p.r.Author,
	}
}

// state returns the state of a thread as it is now; own is a thread under way.
func (p *pass) state(ctx context.Context, id string, own *settling) (reap.Thread, error) {
	if own != nil && id == own.id {
		return own.state(), own.read(ctx)
	}
	on, err := p.open(ctx, id)
	if err != nil {
		return reap.Thread{}, err
	}
	return on.state(), nil
}

func (t *settling) state() reap.Thread {
	return reap.Thread{Fold: &t.fold, Now: t.now, Writable: t.server.WritableSince}
}

// reap releases the thread's boxes that are no longer needed, of this installation only.
func (t *settling) reap(ctx context.Context) error {
	// The providers of its runs first: another one may hang.
	var views []*view
	mine := map[string]bool{}
	for _, run := range t.fold.Runs() {
		if in := run.Box(); in != nil {
			mine[in.Provider] = true
		}
	}
	for name, v := range t.views {
		if mine[name] {
			views = slices.Insert(views, 0, v)
		} else {
			views = append(views, v)
		}
	}
	var errs []error
	for _, v := range views {
		boxes, err := v.list(ctx)
		errs = append(errs, err)
		for _, b := range boxes {
			if b.Labels[sandbox.LabelThread] == t.id && !b.Going {
				errs = append(errs, t.consider(ctx, v, b))
			}
		}
	}
	return errors.Join(errs...)
}

// consider lets a box that the thread made be decided about, and records the act.
func (t *settling) consider(ctx context.Context, v *view, b sandbox.Box) error {
	known := t.state()
	verdict, err := t.reaper(v).Settle(ctx, reap.Box{Box: b, Listed: true, Known: &known})
	t.pending = t.pending || err != nil || verdict.What != reap.Stay
	switch {
	case err != nil:
		return err
	case verdict.What == reap.Wait && verdict.Held != nil:
		t.waits("", b.Ref, *verdict.Held)
	case verdict.What == reap.Keep && verdict.New:
		why := b.Ref.String() + " until " + thread.Stamp(verdict.Until) + ": " + verdict.Why
		t.actions = append(t.actions, Action{verdict.Thread, verdict.Run, Kept, why})
	case verdict.What == reap.Release:
		t.record(verdict.Run, Reaped, b.Ref.String()+" "+verdict.Why)
	}
	return nil
}

// box settles a box with a row whose provider calls it gone: each thread on it but one, and the row. It does so once a
// pass. The state's Open is set if somebody keeps the row.
func (p *pass) box(ctx context.Context, ref sandbox.Ref, but string) (s State, err error) {
	if p.r.Rows == nil || !p.first(ref) {
		return s, nil
	}
	row, err := p.r.Rows.BoxAt(ctx, ref.Provider, ref.ID)
	if err != nil || row == "" {
		return s, err
	}
	now, _, err := p.r.Rows.Row(ctx, row)
	errs := []error{err}
	for _, on := range now.Threads {
		if on.ID != but {
			one, err := p.thread(ctx, on.ID, false)
			s.Actions, s.Waits = append(s.Actions, one.Actions...), append(s.Waits, one.Waits...)
			errs = append(errs, err)
		}
	}
	v, err := p.reaper(p.views[ref.Provider]).Settle(ctx, reap.Box{Box: sandbox.Box{Ref: ref}, Row: row})
	s.Open = v.What == reap.Wait
	return s, errors.Join(append(errs, err)...)
}

// first reports whether a box is met for the first time in a pass.
func (p *pass) first(ref sandbox.Ref) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	is := !p.met[ref]
	p.met[ref] = true
	return is
}
