package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/thread"
)

// The silence that each kind of evidence needs. A runner that is alive and reaches the server posts every 5 s.
const (
	goneAfter = 2 * time.Minute  // its box is gone
	lostAfter = 30 * time.Second // its box is live, and its process is gone

	waitingLostAfter = 90 * time.Second // the same, where it waits for a chat and posts every 60 s
)

// Reasons of a provisional end.
const (
	reasonGone   = "box_gone"
	reasonLost   = "runner_lost"
	reasonSilent = "silent"
)

// evidence is the evidence about an open run.
type evidence struct {
	Silence  time.Duration // since its newest entry, or since the log could be written, whichever is later
	Gone     bool          // the provider has answered twice that the box is gone, and its list agrees
	Runner   life
	NoAnswer bool // the provider of its box does not answer
}

// judge returns the reason why a run is dead; "" if it may be alive.
//
//	box gone            2 min of silence      box_gone
//	runner not running  30 s of silence       runner_lost
//	runner running      any                   "": its network or its server is down
//	no evidence         orphanAfter           silent
//	no answer           2 × orphanAfter       silent
func judge(e evidence, orphanAfter time.Duration) string {
	switch {
	case e.Gone && e.Silence >= min(goneAfter, orphanAfter):
		return reasonGone
	case e.Runner == dead && e.Silence >= min(lostAfter, orphanAfter):
		return reasonLost
	case e.Runner != alive && !e.NoAnswer && e.Silence >= orphanAfter, e.NoAnswer && e.Silence >= 2*orphanAfter:
		return reasonSilent
	}
	return ""
}

// tries bounds the queries of a provider that does not answer.
const tries = 3

// silence returns the time since the run's newest entry, or since the server's log could be written, whichever is
// later.
func (t *settling) silence(run thread.Run) time.Duration {
	since := run.LastEntry
	if t.server.WritableSince.After(since) {
		since = t.server.WritableSince
	}
	return t.now.Sub(since)
}

// settle posts a provisional end for a run that is dead.
func (t *settling) settle(ctx context.Context, run thread.Run) error {
	orphanAfter := cmp.Or(t.r.OrphanAfter, DefaultOrphanAfter)
	silence := t.silence(run)
	lost := lostAfter
	if run.Waiting {
		lost = waitingLostAfter
	}
	if silence < min(lost, orphanAfter) {
		return nil
	}
	var e evidence
	var why string
	var err error
	for n := range tries { // a provider that fails once may answer the next query
		if e, why, err = t.look(ctx, run); err == nil || n == tries-1 || errors.Is(err, errProviderDown) {
			break
		}
		if !pause.For(ctx, cmp.Or(t.r.Again, 2*time.Second)) {
			return context.Cause(ctx)
		}
	}
	e.NoAnswer = err != nil
	if e.Silence = silence; judge(e, orphanAfter) == "" {
		return err
	}
	if e.Gone || e.Runner == dead {
		// Query again: a provider may lose a box for a moment.
		if !pause.For(ctx, cmp.Or(t.r.Again, 2*time.Second)) {
			return context.Cause(ctx)
		}
		again, _, aerr := t.look(ctx, run)
		e.Gone, err = e.Gone && again.Gone, errors.Join(err, aerr)
		if e.Runner != again.Runner {
			e.Runner = lifeUnknown
		}
	}
	// The run's end, or another entry of it, may have arrived meanwhile.
	if err := t.read(ctx); err != nil {
		return fmt.Errorf("read thread %s: %w", t.id, err)
	}
	now, ok := t.same(run)
	if !ok || now.Status != thread.StatusRunning {
		return nil
	}
	e.Silence = t.silence(now)
	reason := judge(e, orphanAfter)
	switch reason {
	case "":
		return err
	case reasonSilent:
		why = fmt.Sprintf("no entry for %v", e.Silence.Round(time.Second))
	}
	base := t.base(now)
	_, perr := t.post(
		ctx,
		t.client,
		t.entry(base+".orphan.0", "", death(now, reason, why, e.Silence)),
		t.entry(
			base+".orphan.1",
			"",
			thread.StatusChanged{Signal: signal(now, thread.TypeStatus), Status: thread.StatusFailed},
		),
	)
	if perr != nil && !errors.Is(perr, errTaken) {
		return errors.Join(err, perr)
	}
	if perr == nil {
		t.record(now.ID, Orphaned, reason+": "+why)
	}
	return errors.Join(err, t.read(ctx))
}

// death is the first entry of a provisional end. A run that was launched into a box and never began, as where the
// server refuses its token, is a launch that has failed.
func death(run thread.Run, reason, why string, silence time.Duration) any {
	if run.Sandbox != nil && run.Started == nil {
		return thread.Failed{
			Signal: signal(run, thread.TypeFailed), ErrorClass: outcome.ClassLaunch,
			Message: "the runner did not begin the run: " + why,
		}
	}
	return thread.Orphaned{
		Signal: signal(run, thread.TypeOrphaned), Reason: reason,
		LastEntryAt: thread.Stamp(run.LastEntry), SilentMs: silence.Milliseconds(),
	}
}

// same returns the run in its present state. A run without an id is the thread's newest one.
func (t *settling) same(run thread.Run) (thread.Run, bool) {
	if run.ID == "" {
		return t.fold.Latest()
	}
	return t.fold.Run(run.ID)
}

// base returns the prefix of the ids of a run's entries. For a run without an id, which other software writes, it is
// the run's number on the thread.
func (t *settling) base(run thread.Run) string {
	if run.ID != "" {
		return run.ID
	}
	return "~" + strconv.Itoa(len(t.fold.Runs())-1)
}

// look asks the provider of a run's box about the box and the runner in it.
func (t *settling) look(ctx context.Context, run thread.Run) (e evidence, why string, err error) {
	in := run.Box()
	if in == nil || t.views[in.Provider] == nil {
		return e, "", nil
	}
	v, id := t.views[in.Provider], in.Ref
	doing := fmt.Sprintf("ask about the sandbox %s:%s", in.Provider, id)
	var health sandbox.Health
	err = v.ask(ctx, func(ctx context.Context) (err error) {
		health, why, err = v.Probe(ctx, id)
		return err
	})
	switch {
	case errors.Is(err, sandbox.ErrForeign):
		return e, "", nil // only its own host can probe it
	case err != nil:
		return e, "", fmt.Errorf("%s: %w", doing, err)
	case health == sandbox.Gone:
		box, listed, err := v.listed(ctx, id)
		if err == nil && listed && box.Health != sandbox.Gone {
			err = fmt.Errorf("%s, and the provider's list has it as %s", why, box.State)
		}
		if err != nil {
			return e, "", fmt.Errorf("%s: %w", doing, err)
		}
		e.Gone = true
		return e, why, nil
	case health != sandbox.Live:
		return e, why, nil
	}
	if e.Runner, err = v.runner(ctx, id, run); err != nil {
		return evidence{}, "", fmt.Errorf("%s: %w", doing, err)
	}
	if run.Started == nil && e.Runner == dead {
		e.Runner = lifeUnknown // its launch may not have started the runner yet
	}
	if e.Runner == dead {
		why = fmt.Sprintf("process %d is not running in %s:%s", run.Started.PID, in.Provider, id)
	}
	return e, why, nil
}
