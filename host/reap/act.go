package reap

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// Settle decides whether a box is needed, and acts on the verdict. The verdict of an error is void. New reports that
// the act is new: another host may have done it before.
func (r *Reaper) Settle(ctx context.Context, b Box) (v Verdict, err error) {
	if v, is := r.known(b); is {
		return v, nil
	}
	return r.act(ctx, b, Sweep)
}

// Remove deletes a box by hand, if nothing in it is alive or would be lost. Else the verdict is Wait, and has all that
// stands against it.
func (r *Reaper) Remove(ctx context.Context, b Box) (Verdict, error) { return r.act(ctx, b, Remove) }

// mostLooks bounds the looks at a box whose holders change meanwhile.
const mostLooks = 20

// act decides about a box, and acts.
func (r *Reaper) act(ctx context.Context, b Box, purpose Purpose) (v Verdict, err error) {
	b, leases, err := r.find(ctx, b)
	if err != nil {
		return v, err
	}
	for range mostLooks {
		s, err := leases.Read(ctx)
		if err != nil {
			return v, err
		}
		l, err := r.look(ctx, b, purpose, rows.Hold{}, s)
		if err != nil {
			return v, err
		}
		v = Decide(l.facts)
		switch done := true; v.What {
		case Keep:
			return v, l.keep(ctx, &v)
		case Condemn:
			if done, err = l.condemn(ctx); done || err != nil {
				return v, err
			}
		case Release:
			if !l.facts.Stray {
				done, err = l.release(ctx, leases)
			}
			if err == nil && done {
				err = l.delete(ctx, v.Why)
			}
			if done || err != nil {
				return v, err
			}
		default:
			return v, nil
		}
	}
	const why = "its holders change all the time"
	return Verdict{What: Wait, Why: why, Against: []string{why}}, nil
}

// release records the release of a box, unless its holders have changed since the look.
func (l *look) release(ctx context.Context, leases lease.Lease) (done bool, err error) {
	if l.lease.Released {
		return true, nil
	}
	if l.row.ID != "" {
		done, err = l.Rows.Release(ctx, l.row.ID, l.lease.Holds, l.judged())
	} else {
		errOther := errors.New("its holders have changed")
		err = leases.(lease.OnStream).Release(ctx, lease.NewHolder("reap"), func(now lease.State) error {
			if !slices.Equal(now.Holds, l.lease.Holds) {
				return errOther
			}
			return nil
		})
		if done = err == nil; errors.Is(err, errOther) {
			err = nil
		}
	}
	if err != nil {
		err = fmt.Errorf("release the sandbox %s: %w", l.box.Ref, err)
	}
	return done, err
}

// judged returns the threads on the row whose logs the look has read.
func (l *look) judged() []string {
	ids := make([]string, len(l.row.Threads))
	for i, t := range l.row.Threads {
		ids[i] = t.ID
	}
	return ids
}

// keep posts once, on the thread that needs it, that a box is kept after its run.
func (l *look) keep(ctx context.Context, v *Verdict) error {
	for _, n := range l.facts.Needs {
		run := n.run
		if n.Thread != v.Thread || n.Run != v.Run || run.ID == "" || run.Kept != nil {
			continue
		}
		fresh, err := l.post(ctx, v.Thread, run.ID+".kept.0", thread.SandboxKept{
			Signal:  thread.Signal{Type: thread.TypeSandboxKept, RunID: run.ID, Harness: run.Harness},
			Sandbox: boxRef(l.box.Ref), Reason: v.Why, Until: thread.Stamp(v.Until),
		})
		v.New = fresh
		return err
	}
	return nil
}

// condemn declares the row of a box dead, unless its holders have changed since the look. A box without a row has
// nothing to condemn: its thread gets another one.
func (l *look) condemn(ctx context.Context) (done bool, err error) {
	if l.row.ID == "" {
		return true, nil
	}
	if done = l.row.Dead; !done {
		done, err = l.Rows.Condemn(ctx, l.row.ID, l.lease.Holds, l.judged())
	}
	if err == nil && done && l.facts.Answer == Gone {
		err = l.Rows.Gone(ctx, l.row.ID)
	}
	if err != nil {
		err = fmt.Errorf("condemn the sandbox %s: %w", l.box.Ref, err)
	}
	return done, err
}

// delete posts on the threads of a box why it is deleted, and deletes it.
func (l *look) delete(ctx context.Context, why string) error {
	if l.box.Ref.ID != "" { // else its machine was never made
		if err := l.announce(ctx, l.box.Ref, l.facts.Threads, why); err != nil {
			return err
		}
		if err := l.destroy(ctx, l.box.Ref); err != nil {
			return err
		}
	}
	if l.row.ID == "" || l.row.Ref != "" && l.row.Ref != l.box.Ref.ID {
		return nil
	}
	return l.Rows.Gone(ctx, l.row.ID)
}

// destroy deletes a box.
func (r *Reaper) destroy(ctx context.Context, box sandbox.Ref) error {
	err := r.ask(ctx, func(context.Context) error { return r.Provider.Destroy(ctx, box.ID) })
	if err != nil {
		err = fmt.Errorf("delete the sandbox %s: %w", box, err)
	}
	return err
}

// announce posts on threads that a box is deleted next.
func (r *Reaper) announce(ctx context.Context, box sandbox.Ref, threads []string, why string) error {
	var errs []error
	for _, id := range threads {
		_, err := r.post(ctx, id, thread.ReleasedID(boxRef(box)), thread.SandboxReleased{
			Type: thread.TypeSandboxReleased, Sandbox: boxRef(box), Reason: why,
		})
		if !full(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// full reports whether a thread takes no further entry: a box is not kept for ever to report that it is deleted.
func full(err error) bool {
	var se *client.StatusError
	if !errors.As(err, &se) {
		return false
	}
	return se.Status == http.StatusInsufficientStorage || se.Status == http.StatusGone
}

// post posts an entry. fresh is false if the thread has one with the id already.
func (r *Reaper) post(ctx context.Context, id, entry string, payload any) (fresh bool, err error) {
	cl, err := r.Client(id)
	if err != nil {
		return false, err
	}
	ack, err := cl.Append(ctx, []thread.Entry{thread.NewEntry(entry, r.Author, payload)})
	switch {
	case client.Taken(err):
		return false, nil // another host was first
	case err != nil:
		return false, fmt.Errorf("post to thread %s: %w", id, err)
	}
	return ack.Duplicates == 0, nil
}

// DoubtError is returned for a box that its caller can't use, and that is not known to be gone.
type DoubtError struct {
	Box sandbox.Ref
	Why string
}

func (e *DoubtError) Error() string {
	return fmt.Sprintf("the sandbox %s can't be used now, and is not replaced: %s; a reconciler looks at it within 5s "+
		"(arbe serve does), or use arbe reconcile --all, and try again", e.Box, e.Why)
}

// Replace decides about a box that the caller, whose hold is by, could not use. It reports whether the box is gone for
// its threads: then its row is dead, and the caller gets another box. If it reports false without an error the box
// lives: the caller may try again. A *DoubtError means that neither is known.
func (r *Reaper) Replace(ctx context.Context, b Box, by rows.Hold) (gone bool, err error) {
	b, leases, err := r.find(ctx, b)
	if err != nil {
		return false, err
	}
	why := "its holders change all the time"
	for range mostLooks {
		s, err := leases.Read(ctx)
		if err != nil || s.Released {
			return s.Released, err
		}
		l, err := r.look(ctx, b, Replace, by, s)
		if err != nil {
			return false, err
		}
		switch v := Decide(l.facts); v.What {
		case Stay:
			return false, nil
		case Condemn:
			if done, err := l.condemn(ctx); done || err != nil {
				return done, err
			}
			continue
		default:
			why = v.Why
		}
		break
	}
	return false, r.Doubt(ctx, b, why)
}

// Doubt marks a box that the caller could not use for the next look of a reconciler, and returns a *DoubtError. A box
// without a row has no mark.
func (r *Reaper) Doubt(ctx context.Context, b Box, why string) error {
	if b.Row != "" {
		if err := r.Rows.Doubt(ctx, b.Row, why); err != nil {
			return err
		}
	}
	return &DoubtError{Box: b.Ref, Why: why}
}

// lastWords bounds the report of a deletion that does not wait for it.
const lastWords = 10 * time.Second

// Discard deletes a machine that its maker gives up: nobody has ever used it. Its id is "" if none was made. row is the
// row that it was made for, if that dies with it; "" for none. A thread that takes no entry does not keep the machine.
func (r *Reaper) Discard(ctx context.Context, box sandbox.Ref, row, threadID, why string) error {
	if box.ID != "" {
		limited, cancel := context.WithTimeout(ctx, lastWords)
		_ = r.announce(limited, box, []string{threadID}, why)
		cancel()
		if err := r.destroy(ctx, box); err != nil {
			return err // a reconciler deletes it
		}
	}
	if row == "" {
		return nil
	}
	return r.Rows.Gone(ctx, row)
}

// Force deletes a box at once, with all that runs and all that is in it. It reports that on the threads if they take it
// within lastWords.
func (r *Reaper) Force(ctx context.Context, b Box) error {
	limited, cancel := context.WithTimeout(ctx, lastWords)
	defer cancel()
	known, leases, err := r.find(limited, b)
	if err == nil {
		var l *look
		if l, err = r.look(limited, known, Remove, rows.Hold{}, lease.State{Released: true}); err == nil {
			_ = r.announce(limited, b.Ref, l.facts.Threads, "removed by hand, with all that was in it")
		}
		if stream, is := leases.(lease.OnStream); is {
			_ = stream.Release(limited, lease.NewHolder("force"), func(lease.State) error { return nil })
		}
	}
	if err := r.destroy(ctx, b.Ref); err != nil || known.Row == "" || r.Rows == nil {
		return err
	}
	return r.Rows.Gone(ctx, known.Row)
}
