// Package resolve gives a thread its box, by rows: a live one is used, a dead one replaced, and one is made where the
// thread has none. Package reap decides whether a box is dead: one whose provider does not answer, or answers once that
// it is gone, is neither used nor replaced.
//
// The row comes before the machine, and the machine carries the row's id as a label. So whatever a host that dies
// leaves is found: a row without a machine expires, and a machine of a dead row is deleted. A machine without the label
// of its row is never used, whatever the row has.
//
// Threads may share a box. The first caller makes it and renews its row meanwhile; the others wait until it is live.
// If the maker dies the row expires, and the next caller makes another one. All threads of a dead box get the new one
// at once, and each gets a signal of it.
package resolve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/reap"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// Provider is the provider of the boxes.
type Provider interface {
	Name() string
	reap.Provider
}

// Resolver resolves boxes. All fields but Progress are required.
type Resolver struct {
	Rows     Rows
	Provider Provider
	Client   func(thread string) *client.Client // for the signals on the threads of a box that is replaced
	Progress func(step string)                  // nil for none

	// WaitEvery is the interval of looks at a box that another caller makes; 0: 1 s. WaitFor bounds the wait; 0: 15
	// min.
	WaitEvery, WaitFor time.Duration
}

// Box is a thread's box, held for the caller. A new one is ended by Ready or Fail; Fail may follow Ready.
type Box struct {
	Row     rows.Box
	Lease   lease.Lease
	Sandbox sandbox.Sandbox // nil: the caller makes it, with Labels, and calls Made

	// Taken reports of a new box that an earlier attempt for the same holder may have made a machine for it.
	Taken bool

	r             *Resolver
	thread        string
	holder, maker string
	stop          func() // ends the renewals; nil for a box that was there

	tried bool // Ready was called: others may use the box
	ready bool // it was made live: others may use it

	mu  sync.Mutex
	ref string // of the machine; "" while there is none
}

// ErrSlow is returned where another caller makes the box for too long.
var ErrSlow = errors.New("another launch still makes the sandbox of the thread")

// mostRevivals bounds the looks at a box that seems gone, and then lives.
const mostRevivals = 5

// Box returns a thread's box. ctx is used until Ready or Fail. After an error the box is not held; a *reap.DoubtError
// is of a box that can neither be used nor replaced now.
func (r *Resolver) Box(ctx context.Context, o rows.BoxOrder) (_ *Box, err error) {
	o.Maker = o.Hold.Holder + "#" + uuid.NewString()
	began, revivals := time.Now(), 0
	announced := false
	var turn rows.BoxTurn // the last one
	defer func() {
		if err != nil {
			r.leave(ctx, turn, o)
		}
	}()
	for {
		next, err := r.Rows.Obtain(ctx, o)
		if err != nil {
			return nil, err
		}
		turn = next
		o.Claim = false // it has
		if err := Announce(ctx, turn.Notices, r.client, r.Rows); err != nil {
			r.progress("post the new sandbox on its threads: %v", err) // the next caller does, or a reconciler
		}
		if turn.Row.Provider != r.Provider.Name() {
			return nil, fmt.Errorf("the sandbox %s is one of %s, not of %s", turn.Row.ID, turn.Row.Provider,
				r.Provider.Name())
		}
		b := &Box{
			Row: turn.Row, Lease: r.Rows.Lease(turn.Row.ID), Taken: turn.Taken,
			r: r, thread: o.Thread, holder: o.Hold.Holder, maker: o.Maker,
		}
		switch {
		case turn.Make:
			b.renew(ctx)
			return b, nil
		case turn.Row.Status == rows.BoxLive:
			if b.Sandbox, err = r.open(ctx, turn.Row, o.Hold); err != nil || b.Sandbox != nil {
				return b, err
			}
			if revivals++; revivals > mostRevivals {
				return nil, fmt.Errorf("the sandbox %s:%s goes and comes", turn.Row.Provider, turn.Row.Ref)
			}
			continue // it is dead now, or lives after all
		}
		if !announced {
			r.progress("waiting for the sandbox that another launch makes")
			announced = true
		}
		if time.Since(began) > cmp.Or(r.WaitFor, 15*time.Minute) {
			return nil, ErrSlow
		}
		if !pause.For(ctx, cmp.Or(r.WaitEvery, time.Second)) {
			return nil, context.Cause(ctx)
		}
	}
}

// leaveTimeout bounds the calls that give up the row of a box.
const leaveTimeout = 10 * time.Second

// leave gives up the row of a turn that no caller gets.
func (r *Resolver) leave(ctx context.Context, t rows.BoxTurn, o rows.BoxOrder) {
	if t.Row.ID == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	var err error
	if t.Make {
		_, _, err = r.Rows.GiveUp(ctx, t.Row.ID, o.Maker)
	} else {
		err = r.Rows.Lease(t.Row.ID).Drop(ctx, o.Hold.Holder)
	}
	if err != nil {
		r.progress("give up the sandbox %s: %v", t.Row.ID, err) // a reconciler does, once the run has ended
	}
}

// open opens the machine of a live box; nil where it is dead by then, or has come back: the caller asks for it again.
func (r *Resolver) open(ctx context.Context, row rows.Box, by rows.Hold) (sandbox.Sandbox, error) {
	fail := func(err error) (sandbox.Sandbox, error) {
		return nil, fmt.Errorf("open the sandbox %s:%s: %w", row.Provider, row.Ref, err)
	}
	health, why, err := r.Provider.Probe(ctx, row.Ref)
	switch {
	case err != nil:
		return fail(err)
	case health == sandbox.Gone:
		return nil, r.replace(ctx, row, by, why)
	case !health.Exists():
		return fail(errors.New(why))
	}
	switch is, err := r.labelled(ctx, row); {
	case err != nil:
		return fail(err)
	case !is:
		ref := sandbox.Ref{Provider: row.Provider, ID: row.Ref}
		b := reap.Box{Box: sandbox.Box{Ref: ref}, Row: row.ID}
		return nil, r.reaper(row.ID).Doubt(ctx, b,
			fmt.Sprintf("its provider answers %s, and lists none with the label %s=%s", why, sandbox.LabelRow, row.ID))
	}
	box, err := r.Provider.Open(ctx, row.Ref)
	if errors.Is(err, sandbox.ErrGone) {
		return nil, r.replace(ctx, row, by, err.Error())
	}
	if err == nil {
		// Another host may have taken the box for gone meanwhile: from here on it can't.
		err = r.Rows.Lease(row.ID).Hold(ctx, by)
	}
	switch {
	case errors.Is(err, lease.ErrReleased):
		return nil, nil
	case err != nil:
		return fail(err)
	}
	r.progress("continuing in the sandbox %s", box.Ref())
	return box, nil
}

// replace asks for another box in place of one that seems gone.
func (r *Resolver) replace(ctx context.Context, row rows.Box, by rows.Hold, why string) error {
	ref := sandbox.Ref{Provider: row.Provider, ID: row.Ref}
	r.progress("the provider answers %s for the sandbox %s: asking again", why, ref)
	gone, err := r.reaper(row.ID).Replace(ctx, reap.Box{Box: sandbox.Box{Ref: ref}, Row: row.ID}, by)
	if gone {
		r.progress("the sandbox %s is gone: making another one", ref)
	}
	return err
}

// reaper returns what decides about the machines of a row.
func (r *Resolver) reaper(row string) *reap.Reaper {
	return &reap.Reaper{
		Name: r.Provider.Name(), Provider: r.Provider, Rows: r.Rows, Client: r.client,
		Listed: func(ctx context.Context, id string) (sandbox.Box, bool, error) {
			boxes, err := r.Provider.List(ctx, map[string]string{sandbox.LabelRow: row})
			b, is := reap.Find(boxes, id)
			return b, is, err
		},
	}
}

// labelled reports whether a machine is that of its row. The row alone is no proof: who could write another machine's
// id there would be let into it.
func (r *Resolver) labelled(ctx context.Context, row rows.Box) (bool, error) {
	boxes, err := r.Provider.List(ctx, map[string]string{sandbox.LabelRow: row.ID})
	_, is := reap.Find(boxes, row.Ref)
	return is, err
}

// Resumed returns the signal of a new box for its threads. Its id follows from the row: a repeat posts nothing.
func Resumed(n rows.Notice) thread.Entry {
	payload := thread.SandboxResumed{Type: thread.TypeSandboxResumed, Sandbox: n.Row, From: n.From}
	return thread.NewEntry("sandbox."+n.Row+".resumed", "", payload)
}

// Announce posts new boxes on their threads, and notes which threads have the signal.
func Announce(
	ctx context.Context, all []rows.Notice, clientOf func(thread string) (*client.Client, error), in Notes,
) error {
	var errs []error
	for _, n := range all {
		cl, err := clientOf(n.Thread)
		if err == nil {
			_, err = cl.Append(ctx, []thread.Entry{Resumed(n)})
		}
		if err == nil || client.Gone(err) { // a log that was deleted needs no signal
			err = in.Noted(ctx, n)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("post the sandbox %s on thread %s: %w", n.Row, n.Thread, err))
		}
	}
	return errors.Join(errs...)
}

func (r *Resolver) client(id string) (*client.Client, error) { return r.Client(id), nil }

// Labels returns the labels of the machine to make.
func (b *Box) Labels() map[string]string {
	return map[string]string{
		sandbox.LabelRow: b.Row.ID, sandbox.LabelHouse: b.Row.House, sandbox.LabelEnvironment: b.Row.Environment,
	}
}

// renew renews the row until stop. A renewal that fails is left to the next one.
func (b *Box) renew(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var renewals sync.WaitGroup
	renewals.Go(func() {
		for pause.For(ctx, rows.MakeTimeout/5) {
			_ = b.Renew(ctx)
		}
	})
	b.stop = sync.OnceFunc(func() {
		cancel()
		renewals.Wait()
	})
}

// Renew returns an error unless the caller still makes the box. A machine with the box's label that was there before
// the call is not that of a later maker.
func (b *Box) Renew(ctx context.Context) error {
	return b.r.Rows.Renew(ctx, b.Row.ID, b.maker, b.machine())
}

// machine returns the id of the box's machine, "" until it is made.
func (b *Box) machine() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ref
}

// Made notes the machine of a new box.
func (b *Box) Made(ctx context.Context, box sandbox.Sandbox) error {
	b.mu.Lock()
	b.Sandbox, b.ref = box, box.Ref().ID
	b.mu.Unlock()
	return b.Renew(ctx)
}

// Ready makes a new box live, once its content is in. For one that was there it does nothing.
func (b *Box) Ready(ctx context.Context) error {
	if b.stop == nil {
		return nil
	}
	b.stop()
	b.tried = true
	err := b.r.Rows.Ready(ctx, b.Row.ID, b.maker, b.machine())
	b.ready = err == nil
	if errors.Is(err, lease.ErrReleased) {
		return fmt.Errorf("the sandbox took too long to make, or another launch of the run makes it: %w", err)
	}
	return err
}

// Fail gives the box up. A new one is dead, and its machine is deleted. Of one that was there, or that Ready has made
// live, the hold is dropped: other threads may run in it, and a reconciler releases one that nobody needs. Where
// another call makes the box only this one's machine is deleted.
func (b *Box) Fail(ctx context.Context) error {
	if b.stop == nil || b.ready {
		return b.Lease.Drop(ctx, b.holder)
	}
	b.stop()
	now, mine, err := b.r.Rows.GiveUp(ctx, b.Row.ID, b.maker)
	switch {
	case err != nil && b.tried:
		return err // it may be live; if not, it expires, and a reconciler deletes the machine
	case err == nil && mine && now.Status == rows.BoxLive:
		return b.Lease.Drop(ctx, b.holder) // Ready's answer was lost
	}
	row := ""
	if err == nil && mine {
		row = b.Row.ID
	}
	box := sandbox.Ref{Provider: b.Row.Provider, ID: b.machine()}
	return errors.Join(err, b.r.reaper(b.Row.ID).Discard(ctx, box, row, b.thread, "its launch has failed"))
}

func (r *Resolver) progress(format string, args ...any) {
	if r.Progress != nil {
		r.Progress(fmt.Sprintf(format, args...))
	}
}
