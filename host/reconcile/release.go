package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
)

// need is what is known of a box and of the runs in it when its release is decided.
type need struct {
	Ephemeral bool          // neither its label nor its newest run keeps it
	Open      string        // a run of the thread that is open and uses it; "" for none
	Alive     life          // of the newest run's runner; dead where the runner itself posted the end
	Broken    bool          // the provider reports an error that it won't recover from
	Wanted    string        // work that its launch wanted done and that is not done; "" for none
	Unsaved   string        // work that is nowhere else, or why that isn't known; "" for none
	Since     time.Duration // since the end of its newest run, or since it was made where no run names it
}

// verdict on a box.
type fate int

const (
	stay    fate = iota // nothing is to be done, now or later
	later               // look again
	keep                // kept for its work: look again when that time is over
	release             // nobody needs it
)

// decide decides on a box, and gives the reason.
//
//	not ephemeral               stays
//	a run on it is open         later
//	its runner may be alive     later; the provider's own clock ends a box that never answers
//	broken                      released: nothing in it can be saved
//	work is wanted or unsaved   kept for reapAfter
//	else                        released
func decide(n need, reapAfter time.Duration) (fate, string) {
	switch {
	case !n.Ephemeral:
		return stay, ""
	case n.Open != "":
		return later, "run " + n.Open + " is open"
	case n.Broken:
		return release, "the sandbox has an error"
	case n.Alive == alive:
		return later, "its runner is alive"
	case n.Alive == lifeUnknown:
		return later, "its runner may be alive"
	case n.Since >= reapAfter:
		return release, "kept for " + reapAfter.String()
	case n.Wanted != "":
		return keep, n.Wanted
	case n.Unsaved != "":
		return keep, n.Unsaved
	}
	return release, "nothing in it is needed"
}

// reap releases those of the thread's boxes that nobody needs. Only boxes of this installation are its boxes.
func (t *settling) reap(ctx context.Context) error {
	// The providers of its runs first: another one may hang.
	var views []*view
	mine := map[string]bool{}
	for _, run := range t.fold.Runs() {
		if run.Sandbox != nil {
			mine[run.Sandbox.Provider] = true
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
			if b.Labels[sandbox.LabelThread] == t.id && !leaving(b) {
				errs = append(errs, t.consider(ctx, v, b))
			}
		}
	}
	return errors.Join(errs...)
}

// leaving reports whether a box is being deleted. The words are Daytona's.
func leaving(b sandbox.Box) bool {
	return b.State == "destroyed" || b.State == "destroying" || b.State == "removing"
}

// consider releases a box where nobody needs it.
func (t *settling) consider(ctx context.Context, v *view, b sandbox.Box) error {
	reapAfter := cmp.Or(t.r.ReapAfter, DefaultReapAfter)
	n, run, err := t.needOf(ctx, v, b, reapAfter)
	what, why := decide(n, reapAfter)
	if what != stay {
		t.pending = true
	}
	switch {
	case err != nil || what == stay || what == later:
		return err
	case what == keep:
		return t.kept(ctx, b, run, why, reapAfter)
	}
	return t.release(ctx, v, b, run.ID, why)
}

// needOf gathers what is known of a box. The box is asked only where the answer matters.
func (t *settling) needOf(
	ctx context.Context,
	v *view,
	b sandbox.Box,
	reapAfter time.Duration,
) (n need, run thread.Run, err error) {
	ephemeral, _ := strconv.ParseBool(b.Labels[sandbox.LabelEphemeral]) // a box without the label is kept
	n = need{Ephemeral: ephemeral, Alive: dead, Broken: b.Health == sandbox.Gone, Since: t.now.Sub(b.Created)}
	named := false
	for _, r := range t.fold.Runs() {
		if r.Sandbox != nil && r.Sandbox.Provider == b.Ref.Provider && r.Sandbox.Ref == b.Ref.ID ||
			r.ID != "" && r.ID == b.Labels[sandbox.LabelRun] {
			if run, named = r, true; r.Status == thread.StatusRunning {
				n.Open = r.ID
			}
		}
	}
	switch {
	case !named:
		// Its launch posts the run before it makes the box, so the thread has been deleted.
		if n.Since < reapAfter {
			n.Wanted = "its thread has no run of it"
		}
		return n, run, nil
	case run.Sandbox != nil && run.Sandbox.Ref == b.Ref.ID && !run.Ephemeral:
		n.Ephemeral = false
	}
	n.Since = t.now.Sub(run.Ended)
	if !n.Ephemeral || n.Open != "" || n.Broken {
		return n, run, nil
	}
	if run.Provisional {
		// The host gave the run up. Unless the runner is known to be dead, it may be at work behind a network that is down.
		if n.Alive, err = v.runner(ctx, b.Ref.ID, run); err != nil {
			return n, run, fmt.Errorf("ask about the runner in %s: %w", b.Ref, err)
		}
	}
	if n.Alive != dead || n.Since >= reapAfter {
		return n, run, nil
	}
	if wantsPush(run) {
		n.Wanted = "its work is not pushed"
	} else if wantsSync(run) {
		n.Wanted = "its folder is not copied back"
	}
	saved := run.Push != nil && (run.Push.Pushed || run.Push.Nothing) || run.Sync != nil && run.Sync.Error == ""
	if n.Wanted == "" && !saved {
		n.Unsaved, err = t.unsaved(ctx, v, b, run)
	}
	return n, run, err
}

// unsaved describes work in a box that is nowhere else. A box that is asleep is not started for that, and kept. An
// error means that nothing is known now.
func (t *settling) unsaved(ctx context.Context, v *view, b sandbox.Box, run thread.Run) (what string, err error) {
	switch {
	case run.Kept != nil && run.Kept.Sandbox.Ref == b.Ref.ID:
		return run.Kept.Reason, nil // known already: the box is left asleep
	case b.Labels[sandbox.LabelTree] == "" || t.r.Hands.Unsaved == nil:
		return "", nil // nothing was put there to work on
	}
	var health sandbox.Health
	var why string
	if err := v.ask(ctx, func(ctx context.Context) (err error) {
		health, why, err = v.Probe(ctx, b.Ref.ID)
		return err
	}); err != nil {
		return "", fmt.Errorf("ask about the sandbox %s: %w", b.Ref, err)
	}
	if health != sandbox.Live || why != "started" && b.Ref.Provider != sandbox.LocalName {
		return "what is in it is not known: it is " + why, nil
	}
	box, err := v.Open(ctx, b.Ref.ID)
	if err == nil {
		what, err = t.r.Hands.Unsaved(ctx, box, b)
	}
	if err != nil {
		return "", fmt.Errorf("look into the sandbox %s: %w", b.Ref, err)
	}
	return what, nil
}

// kept posts, once, that a box outlives its run.
func (t *settling) kept(
	ctx context.Context,
	b sandbox.Box,
	run thread.Run,
	why string,
	reapAfter time.Duration,
) error {
	if run.ID == "" || run.Kept != nil {
		return nil
	}
	until := thread.Stamp(run.Ended.Add(reapAfter))
	fresh, err := t.post(ctx, t.client, t.entry(run.ID+".kept.0", "", thread.SandboxKept{
		Signal: signal(
			run,
			thread.TypeSandboxKept,
		), Sandbox: thread.Sandbox{Provider: b.Ref.Provider, Ref: b.Ref.ID}, Reason: why, Until: until,
	}))
	if err == nil && fresh {
		t.did(run.ID, Kept, b.Ref.String()+" until "+until+": "+why)
	}
	if errors.Is(err, errTaken) {
		err = nil
	}
	return err
}

// errNeeded is returned where somebody needs the box after all.
var errNeeded = errors.New("the sandbox is needed")

// release records the release of a box on its lease, and deletes the box. Between the two readings of the thread
// nobody can have taken the box without a record on the lease, which would refuse this one.
func (t *settling) release(ctx context.Context, v *view, b sandbox.Box, run, why string) error {
	l, err := t.lease(&thread.Sandbox{Provider: b.Ref.Provider, Ref: b.Ref.ID})
	if err != nil {
		return err
	}
	err = l.Release(ctx, "reconcile:"+run, func(s lease.State) error {
		if err := t.read(ctx); err != nil && !thread.NotFound(err) {
			return err
		}
		var rerr error
		_, held := s.Held(func(h lease.Hold) bool {
			open, err := t.openRun(ctx, h)
			rerr = errors.Join(rerr, err)
			return open
		})
		if rerr == nil && held {
			rerr = errNeeded
		}
		return rerr
	})
	if errors.Is(err, errNeeded) {
		return nil
	}
	if err == nil {
		err = v.ask(ctx, func(context.Context) error { return v.Destroy(ctx, b.Ref.ID) })
	}
	if err != nil {
		return fmt.Errorf("release the sandbox %s: %w", b.Ref, err)
	}
	t.did(run, Reaped, b.Ref.String()+" "+why)
	return nil
}

// openRun reports whether the run of a hold is open: on this thread as it was just read, or on another one.
func (t *settling) openRun(ctx context.Context, h lease.Hold) (bool, error) {
	on := t
	if h.ThreadID != t.id {
		var err error
		if on, err = t.pass.open(ctx, h.ThreadID); thread.NotFound(err) {
			return false, nil
		} else if err != nil {
			return true, err
		}
	}
	return on.run(h.RunID).Status == thread.StatusRunning, nil
}
