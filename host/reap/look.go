package reap

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread/client"
)

// look is one look at a box: for a purpose, and at a state of its lease.
type look struct {
	*Reaper
	box   Box
	row   rows.BoxState // the zero one for none
	lease lease.State
	by    rows.Hold // the caller's own, which stands against nothing
	facts Facts
}

// Look gathers the facts about a box, and changes nothing. For Sweep and Replace it asks only what the decision depends
// on. by is the caller's own hold; the zero Hold for none.
func (r *Reaper) Look(ctx context.Context, b Box, purpose Purpose, by rows.Hold) (Facts, error) {
	b, leases, err := r.find(ctx, b)
	if err != nil {
		return Facts{}, err
	}
	s, err := leases.Read(ctx)
	if err != nil {
		return Facts{}, err
	}
	l, err := r.look(ctx, b, purpose, by, s)
	return l.facts, err
}

// Lease returns the lease of a box: in a database if it has a row, or on a stream of its own.
func (r *Reaper) Lease(ctx context.Context, b Box) (lease.Lease, error) {
	_, l, err := r.find(ctx, b)
	return l, err
}

// find returns a box with the id of its row, and its lease.
func (r *Reaper) find(ctx context.Context, b Box) (Box, lease.Lease, error) {
	var err error
	b.Row = cmp.Or(b.Row, b.Labels[sandbox.LabelRow])
	if b.Row == "" && r.Rows != nil {
		b.Row, err = r.Rows.BoxAt(ctx, b.Ref.Provider, b.Ref.ID)
	}
	switch {
	case err != nil:
	case b.Row != "" && r.Rows == nil:
		err = ErrNoRows
	case b.Row != "":
		return b, r.Rows.Lease(b.Row), nil
	default:
		var cl *client.Client
		if cl, err = r.Client(lease.Stream(b.Ref)); err == nil {
			return b, lease.OnStream{Client: cl}, nil
		}
	}
	return b, nil, fmt.Errorf("the sandbox %s: %w", b.Ref, err)
}

// look gathers the facts at a state of the lease.
func (r *Reaper) look(ctx context.Context, b Box, purpose Purpose, by rows.Hold, s lease.State) (*look, error) {
	l := r.begin(b, purpose)
	l.by, l.lease = by, s
	if b.Row != "" {
		row, is, err := r.Rows.Row(ctx, b.Row)
		if err != nil {
			return l, fmt.Errorf("the sandbox %s: %w", b.Ref, err)
		}
		if l.row = row; !is { // deleted with its house: nobody can hold the box
			l.row = rows.BoxState{ID: b.Row, Dead: true}
		}
	}
	return l, l.gather(ctx)
}

// begin begins a look with what the provider's list has.
func (r *Reaper) begin(b Box, purpose Purpose) *look {
	f := Facts{
		For: purpose, Why: "its provider's list does not have it",
		GoneAfter: cmp.Or(r.GoneAfter, DefaultGoneAfter), ReapAfter: cmp.Or(r.ReapAfter, DefaultReapAfter),
	}
	if b.Listed {
		f.Why = "its provider's list has it as " + b.State
	}
	if b.Listed && b.Health.Exists() {
		f.Answer, f.Why = There, b.State
	}
	f.Ephemeral = isEphemeral(b) || ofCommands(b) // any other box is kept
	return &look{Reaper: r, box: b, facts: f}
}

// known decides by what is known of the box's own thread alone; false where that does not suffice.
func (r *Reaper) known(b Box) (Verdict, bool) {
	l := r.begin(b, Sweep)
	if b.Known == nil || l.facts.Answer != There {
		return Verdict{}, false
	}
	l.thread(b.Labels[sandbox.LabelThread], *b.Known)
	return Decide(l.facts), l.enough()
}

// condemned reports whether the box's row died of an answer of its provider. What nobody can hold otherwise was decided
// about before, or never used.
func (l *look) condemned() bool { return l.row.Dead && !l.row.Condemned.IsZero() }

// gather asks for one group of facts after the other, until they suffice.
func (l *look) gather(ctx context.Context) error {
	f := &l.facts
	f.Released = l.lease.Released && !l.condemned()
	f.Stray = !l.row.Dead && l.row.Ref != "" && l.row.Ref != l.box.Ref.ID
	if err := l.threads(ctx); err != nil || f.Released || f.Stray || f.Answer == There && l.enough() {
		return err
	}
	if f.Answer != There || f.For == Replace {
		err := l.answer(ctx)
		if err != nil || f.Answer == Unsure || f.Answer == Gone || f.For == Replace || l.enough() {
			return err
		}
	}
	err := l.runners(ctx)
	if err == nil && !l.enough() {
		err = l.works(ctx)
	}
	if errors.Is(err, sandbox.ErrGone) { // its list has it
		f.Answer, f.Why = Unsure, f.Why+" by its provider's list, and the provider answers that it is gone"
		return nil
	}
	return err
}

// enough reports whether the box stays whatever else there is to ask.
func (l *look) enough() bool { return l.facts.For == Sweep && Decide(l.facts).What <= Wait }

// answer asks the provider about a box that it does not list as live, or that the caller could not use.
func (l *look) answer(ctx context.Context) error {
	e, err := l.Evidence(ctx, l.box.Ref, nil)
	f := &l.facts
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		f.Answer, f.Why = Unsure, err.Error()
	case e.Gone && e.Faulty:
		f.Answer, f.Why = Faulty, e.Why
	case e.Gone:
		f.Answer, f.Why = Gone, e.Why
	case e.Live && f.For == Replace:
		f.Answer, f.Why = There, e.Why
	case e.Why != "":
		f.Why += ", and the provider answers " + e.Why
	default:
		f.Why = "its own host alone can ask about it"
	}
	return nil
}
