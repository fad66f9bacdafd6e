package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"arbe.0sk.ar/runner/host/reap"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
)

// Finding is the decision that a pass would make on a box now, and its reason.
type Finding struct {
	Sandbox  sandbox.Ref `json:"sandbox"`
	Threads  []string    `json:"threads"`
	Decision string      `json:"decision"` // a reap.Decision
	Why      string      `json:"why"`
	Until    string      `json:"until,omitempty"` // of one that is kept
}

// Explain passes to f what a pass would do with each box of this installation, or of one thread, and changes nothing:
// it posts and deletes nothing, and writes no row and no lease. The decision is the one that a pass acts on.
func (r *Reconciler) Explain(ctx context.Context, threadID string, f func(Finding)) error {
	p, err := r.begin(ctx)
	if err != nil {
		return err
	}
	boxes, err := p.explained(ctx)
	errs := []error{err}
	for _, b := range boxes {
		if is, err := p.concerns(ctx, b, threadID); err != nil || !is {
			errs = append(errs, err)
			continue
		}
		facts, err := p.reaper(p.views[b.Ref.Provider]).Look(ctx, b, reap.Sweep, rows.Hold{})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		v := reap.Decide(facts)
		found := Finding{Sandbox: b.Ref, Threads: v.Threads, Decision: v.What.String(), Why: v.Why}
		if id := b.Labels[sandbox.LabelThread]; len(found.Threads) == 0 && thread.ValidThread(id) {
			found.Threads = []string{id}
		}
		if v.What == reap.Keep {
			found.Until = thread.Stamp(v.Until)
		}
		f(found)
	}
	return errors.Join(errs...)
}

// explained returns the boxes of this installation: those that providers list, and those of live rows that they do not.
func (p *pass) explained(ctx context.Context) (all []reap.Box, err error) {
	var errs []error
	var named []string
	for _, v := range p.views {
		boxes, err := v.list(ctx)
		errs = append(errs, err)
		for _, b := range boxes {
			if b.Going {
				continue
			}
			all = append(all, reap.Box{Box: b, Listed: true})
			if row := b.Labels[sandbox.LabelRow]; row != "" {
				named = append(named, row)
			}
		}
	}
	if p.r.Rows == nil {
		return all, errors.Join(errs...)
	}
	boxes, err := p.r.Rows.Boxes(ctx, named)
	if err != nil {
		errs = append(errs, fmt.Errorf("the rows of sandboxes: %w", err))
	}
	for _, row := range boxes {
		v := p.views[row.Provider]
		if row.Status != rows.BoxLive || v == nil {
			continue
		}
		if _, is, err := v.listed(ctx, row.Ref); err == nil && !is {
			ref := sandbox.Ref{Provider: row.Provider, ID: row.Ref}
			all = append(all, reap.Box{Box: sandbox.Box{Ref: ref}, Row: row.ID})
		}
	}
	return all, errors.Join(errs...)
}

// concerns reports whether a box is a thread's; each box is for the thread "".
func (p *pass) concerns(ctx context.Context, b reap.Box, threadID string) (bool, error) {
	if threadID == "" || b.Labels[sandbox.LabelThread] == threadID {
		return true, nil
	}
	id := b.Row
	if id == "" {
		id = b.Labels[sandbox.LabelRow]
	}
	if id == "" || p.r.Rows == nil {
		return false, nil
	}
	row, _, err := p.r.Rows.Row(ctx, id)
	return slices.ContainsFunc(row.Threads, func(t rows.BoxThread) bool { return t.ID == threadID }), err
}
