package reap

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/thread"
)

// Life is whether a process lives.
type Life int

// The states of a process.
const (
	LifeUnknown Life = iota
	Alive
	Dead
)

// Evidence has the answers of a box's provider about it, and about one process in it.
type Evidence struct {
	Live   bool // it exists
	Frozen bool // of one that exists: its processes stand still, so that nothing in it can post. Runner is not known
	Gone   bool // there is no such box, or it has an error that it can't recover from: asked twice, and the list agrees
	Faulty bool // of one that is gone: the provider still has it, with that error
	Runner Life // of the process; asked twice where it is dead
	Why    string
}

// RunnerOf returns the process of a run's runner. The runners of other threads may be in the box, too.
func RunnerOf(run thread.Run) sandbox.Process {
	if s := run.Started; s != nil && s.PID > 0 && s.StartTicks > 0 {
		return sandbox.Process{PID: s.PID, Start: fmt.Sprint(s.StartTicks), Boot: s.BootID}
	}
	return sandbox.Process{Run: run.ID}
}

// tries bounds the queries of a provider that fails.
const tries = 3

// Evidence asks about a box and a process in it; nil for none. What seems gone or dead is asked about again after a
// moment, because a provider may lose sight of a box. An error means that the provider does not answer, or that its
// answers contradict each other. The zero Evidence is that of a box which another host alone can ask about.
func (r *Reaper) Evidence(ctx context.Context, box sandbox.Ref, p *sandbox.Process) (e Evidence, err error) {
	for n := range tries { // a provider that fails once may answer the next query
		if e, err = r.once(ctx, box, p); err == nil || n == tries-1 || errors.Is(err, ErrDown) {
			break
		}
		if !r.pause(ctx) {
			return Evidence{}, context.Cause(ctx)
		}
	}
	if err != nil || !e.Gone && e.Runner != Dead {
		return e, err
	}
	if !r.pause(ctx) {
		return Evidence{}, context.Cause(ctx)
	}
	again, err := r.once(ctx, box, p)
	if err != nil {
		return Evidence{}, err
	}
	if again.Gone, again.Faulty = again.Gone && e.Gone, again.Faulty || e.Faulty; again.Runner != e.Runner {
		again.Runner = LifeUnknown
	}
	return again, nil
}

func (r *Reaper) pause(ctx context.Context) bool {
	return pause.For(ctx, cmp.Or(r.Again, DefaultAgain))
}

// once asks once.
func (r *Reaper) once(ctx context.Context, box sandbox.Ref, p *sandbox.Process) (e Evidence, err error) {
	doing := "ask about the sandbox " + box.String()
	health, err := r.probe(ctx, box.ID, &e.Why)
	switch {
	case errors.Is(err, sandbox.ErrForeign):
		return Evidence{}, nil
	case err != nil:
		return Evidence{}, fmt.Errorf("%s: %w", doing, err)
	case health == sandbox.Gone:
		listed, is, err := r.listed(ctx, box.ID)
		if err == nil && is && listed.Health != sandbox.Gone {
			err = fmt.Errorf("%s, and the provider's list has it as %s", e.Why, listed.State)
		}
		if err != nil {
			return Evidence{}, fmt.Errorf("%s: %w", doing, err)
		}
		e.Gone, e.Faulty = true, is
		if p != nil && !is { // the process of a local box can be found without the box's folder
			e.Runner, _ = r.runner(ctx, box.ID, *p) // an error: not known
		}
		return e, nil
	}
	e.Live, e.Frozen = health.Exists(), health == sandbox.Frozen
	if !e.Live || e.Frozen || p == nil {
		return e, nil
	}
	if e.Runner, err = r.runner(ctx, box.ID, *p); err != nil {
		return Evidence{}, fmt.Errorf("%s: %w", doing, err)
	}
	if e.Runner == Dead && p.PID != 0 {
		e.Why = fmt.Sprintf("process %d is not running in %s", p.PID, box)
	}
	return e, nil
}

// probe returns the state of a box, and why.
func (r *Reaper) probe(ctx context.Context, id string, why *string) (health sandbox.Health, err error) {
	err = r.ask(ctx, func(ctx context.Context) (err error) {
		health, *why, err = r.Provider.Probe(ctx, id)
		return err
	})
	return health, err
}

// Wake thaws a frozen box if its provider freezes boxes without being asked. A person who has frozen one has a reason.
// It reports whether it did.
func (r *Reaper) Wake(ctx context.Context, id string) (bool, error) {
	w, freezes := r.Provider.(sandbox.Waker)
	if !freezes {
		return false, nil
	}
	err := r.ask(ctx, func(ctx context.Context) error { return w.Wake(ctx, id) })
	if err != nil {
		err = fmt.Errorf("wake the sandbox %s:%s: %w", r.Name, id, err)
	}
	return err == nil, err
}

// Runs asks a provider whether a process is alive in a box, which it wakes for that if the provider has frozen it.
func Runs(ctx context.Context, from Provider, id string, p sandbox.Process) (bool, error) {
	runs, err := from.Runs(ctx, id, p)
	if w, freezes := from.(sandbox.Waker); freezes && errors.Is(err, sandbox.ErrFrozen) {
		if err = w.Wake(ctx, id); err == nil {
			runs, err = from.Runs(ctx, id, p)
		}
	}
	return runs, err
}

// runner asks whether a process is alive.
func (r *Reaper) runner(ctx context.Context, id string, p sandbox.Process) (Life, error) {
	is := LifeUnknown
	err := r.ask(ctx, func(ctx context.Context) error {
		runs, err := Runs(ctx, r.Provider, id, p)
		if err == nil {
			if is = Dead; runs {
				is = Alive
			}
		}
		return err
	})
	return is, err
}

func (r *Reaper) listed(ctx context.Context, id string) (sandbox.Box, bool, error) {
	if r.Listed != nil {
		return r.Listed(ctx, id)
	}
	var boxes []sandbox.Box
	err := r.ask(ctx, func(ctx context.Context) (err error) {
		boxes, err = r.Provider.List(ctx, nil)
		return err
	})
	b, is := Find(boxes, id)
	return b, is, err
}

// Find returns the box with an id.
func Find(boxes []sandbox.Box, id string) (sandbox.Box, bool) {
	for _, b := range boxes {
		if b.Ref.ID == id {
			return b, true
		}
	}
	return sandbox.Box{}, false
}

func (r *Reaper) ask(ctx context.Context, question func(context.Context) error) error {
	if r.Ask != nil {
		return r.Ask(ctx, question)
	}
	return question(ctx)
}
