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

// need is the input of the decision about a box: the facts about the box and its runs.
type need struct {
	Ephemeral bool          // neither its label nor its newest run keeps it
	Open      string        // a run of the thread that is open and uses it; "" for none
	Alive     life          // of the newest run's runner; dead if the runner itself posted the end
	Broken    bool          // the provider reports an error that the box can't recover from
	Wanted    string        // pending work that its launch asked for; "" for none
	Unsaved   string        // work that exists in the box only, or why that is unknown; "" for none
	Since     time.Duration // since the end of its newest run, or since its creation if no run names it
}

// decision is a decision about a box. Of several threads' the smallest counts.
type decision int

const (
	stay    decision = iota // keep it for good
	later                   // decide in a later pass
	keep                    // keep it for its work until reapAfter
	release                 // release it
)

// decide decides about a box, and returns the reason.
//
//	not ephemeral               stay
//	a run in it is open         later
//	broken                      release: nothing in it can be saved
//	its runner may be alive     later; the provider stops a box that never answers
//	older than reapAfter        release
//	work is pending or unsaved  keep
//	else                        release
func decide(n need, reapAfter time.Duration) (decision, string) {
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
			if b.Labels[sandbox.LabelThread] == t.id && !beingDeleted(b) {
				errs = append(errs, t.consider(ctx, v, b))
			}
		}
	}
	return errors.Join(errs...)
}

// beingDeleted reports whether a box is being deleted. The states are Daytona's.
func beingDeleted(b sandbox.Box) bool {
	return b.State == "destroyed" || b.State == "destroying" || b.State == "removing"
}

// consider decides about a box and acts on the decision.
func (t *settling) consider(ctx context.Context, v *view, b sandbox.Box) error {
	reapAfter := cmp.Or(t.r.ReapAfter, DefaultReapAfter)
	f, err := t.fateOf(ctx, v, b, reapAfter)
	if err == nil && f.what == release {
		f, err = t.shared(ctx, v, b, f, reapAfter)
	}
	if f.what != stay {
		t.pending = true
	}
	switch {
	case err != nil || f.what == stay || f.what == later:
		return err
	case f.what == keep:
		err := f.by.kept(ctx, b, f.run, f.why, reapAfter)
		if f.by != t {
			t.actions = append(t.actions, f.by.actions...)
		}
		return err
	}
	return t.release(ctx, v, b, f, reapAfter)
}

// fate is the decision about a box by one of its threads, and the newest run in it of that thread.
type fate struct {
	what decision
	why  string
	run  thread.Run
	by   *settling
}

// fateOf decides about a box by this thread alone.
func (t *settling) fateOf(ctx context.Context, v *view, b sandbox.Box, reapAfter time.Duration) (fate, error) {
	n, run, err := t.needOf(ctx, v, b, reapAfter)
	what, why := decide(n, reapAfter)
	return fate{what, why, run, t}, err
}

// shared returns the fate of a box that this thread does not need, by the other threads whose rows name the box: it
// is released when none of them needs it.
func (t *settling) shared(
	ctx context.Context, v *view, b sandbox.Box, f fate, reapAfter time.Duration,
) (fate, error) {
	row := b.Labels[sandbox.LabelRow]
	if row == "" || t.r.Rows == nil {
		return f, nil
	}
	threads, err := t.r.Rows.InBox(ctx, row)
	if err != nil {
		return f, fmt.Errorf("the threads of the sandbox %s: %w", b.Ref, err)
	}
	for _, id := range threads {
		if id == t.id {
			continue
		}
		on, err := t.pass.open(ctx, id)
		if err == nil {
			err = on.read(ctx)
		}
		if thread.NotFound(err) {
			continue // it never ran
		} else if err != nil {
			return f, err
		}
		if !on.used(b) {
			continue
		}
		other, err := on.fateOf(ctx, v, b, reapAfter)
		if err != nil {
			return f, err
		}
		if other.what < f.what {
			f = other
		}
	}
	return f, nil
}

// used reports whether a run of the thread has used a box.
func (t *settling) used(b sandbox.Box) bool {
	return slices.ContainsFunc(t.fold.Runs(), func(r thread.Run) bool { return usedBy(b, r) })
}

// usedBy reports whether a run has used a box, or it was made for the run.
func usedBy(b sandbox.Box, r thread.Run) bool {
	in := r.Box()
	return in != nil && in.Provider == b.Ref.Provider && in.Ref == b.Ref.ID ||
		r.ID != "" && r.ID == b.Labels[sandbox.LabelRun]
}

// needOf gathers the facts about a box. It queries the box only if the answer matters.
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
		if usedBy(b, r) {
			if run, named = r, true; r.Status == thread.StatusRunning {
				n.Open = r.ID
			}
		}
	}
	switch {
	case !named:
		// A launch posts its run before it makes the box, so the thread was deleted.
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
		// A host ended the run. Unless the runner is known to be dead, it may still run behind a network that is down.
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
	if rest, any := unsavedTrees(b, run); n.Wanted == "" && any {
		n.Unsaved, err = t.unsaved(ctx, v, rest, run)
	}
	return n, run, err
}

// unsaved describes work that exists in a box only. A stopped box is not started for that, but kept. An error means
// that the answer is unknown now.
func (t *settling) unsaved(ctx context.Context, v *view, b sandbox.Box, run thread.Run) (what string, err error) {
	switch {
	case run.Kept != nil && run.Kept.Sandbox.Ref == b.Ref.ID:
		return run.Kept.Reason, nil // known already: a stopped box stays stopped
	case b.Labels[sandbox.LabelTree] == "" || t.r.Host.Unsaved == nil:
		return "", nil // its working directory was empty
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
		what, err = t.r.Host.Unsaved(ctx, box, b)
	}
	if err != nil {
		return "", fmt.Errorf("look into the sandbox %s: %w", b.Ref, err)
	}
	return what, nil
}

// kept posts once that a box is kept after its run.
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
		t.record(run.ID, Kept, b.Ref.String()+" until "+until+": "+why)
	}
	if errors.Is(err, errTaken) {
		err = nil
	}
	return err
}

// errNeeded is returned if the lease has a hold on the box after all.
var errNeeded = errors.New("the sandbox is needed")

// release records the release of a box on its lease, and deletes the box. A launch that takes the box meanwhile
// writes a record on the lease, and then this one is refused.
func (t *settling) release(
	ctx context.Context, v *view, b sandbox.Box, f fate, reapAfter time.Duration,
) error {
	run := f.run.ID
	row := b.Labels[sandbox.LabelRow]
	l, err := t.lease(ctx, b.Ref, row)
	if err != nil {
		return fmt.Errorf("release the sandbox: %w", err)
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
		if rerr != nil {
			return rerr
		}
		now, err := t.shared(ctx, v, b, f, reapAfter) // a run of another thread may have ended since
		if err == nil && now.what != release {
			err = errNeeded
		}
		return err
	})
	if errors.Is(err, errNeeded) || errors.Is(err, lease.ErrUsed) {
		return nil
	}
	if err == nil {
		err = v.ask(ctx, func(context.Context) error { return v.Destroy(ctx, b.Ref.ID) })
	}
	if err == nil && row != "" {
		err = t.r.Rows.Gone(ctx, row)
	}
	if err != nil {
		return fmt.Errorf("release the sandbox %s: %w", b.Ref, err)
	}
	t.record(run, Reaped, b.Ref.String()+" "+f.why)
	return nil
}

// openRun reports whether the run, or the command, of a hold is open: on this thread as it was just read, or on another
// one.
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
	_, exec := on.fold.OpenExec(h.RunID)
	return exec || on.run(h.RunID).Status == thread.StatusRunning, nil
}
