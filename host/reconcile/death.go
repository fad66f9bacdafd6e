package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/reap"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/thread"
)

// The silence that each kind of evidence needs. A runner that is alive and reaches the server posts every 5 s.
const (
	lostAfter = 30 * time.Second // its process is gone; for a box that is gone see package reap

	waitingLostAfter = 90 * time.Second // the same, where it waits for a chat and posts every 60 s
	unbegunAfter     = 5 * time.Minute  // its runner is alive, and has never reached the server
)

// Reasons of a provisional end.
const (
	reasonGone    = "box_gone"
	reasonLost    = "runner_lost"
	reasonSilent  = "silent"
	reasonUnbegun = "not_begun" // on the thread it is a launch that has failed
)

// evidence is the evidence about an open run.
type evidence struct {
	reap.Evidence
	Silence  time.Duration // since its newest entry, or since the log could be written, whichever is later
	NoAnswer bool          // the provider of its box does not answer
	Unbegun  bool          // its runner has posted nothing
}

// judge returns the reason why a run is dead; "" if it may be alive.
//
//	runner not running  30 s of silence       runner_lost; box_gone where its box is gone, too
//	box gone            2 min of silence      box_gone
//	box frozen          any                   "": nothing in it can post
//	runner running      any                   "": its network or its server is down
//	  and never began   5 min                 not_begun: it works on, and its own end replaces this one
//	no evidence         orphanAfter           silent
//	no answer           2 × orphanAfter       silent
func judge(e evidence, orphanAfter time.Duration) string {
	lost := e.Runner == reap.Dead && e.Silence >= min(lostAfter, orphanAfter)
	switch {
	case e.Frozen:
		return ""
	case e.Gone && e.Runner != reap.Alive && (lost || e.Silence >= min(reap.DefaultGoneAfter, orphanAfter)):
		return reasonGone
	case lost:
		return reasonLost
	case e.Unbegun && e.Runner == reap.Alive && e.Silence >= min(unbegunAfter, orphanAfter):
		return reasonUnbegun
	case e.Runner != reap.Alive && !e.NoAnswer && e.Silence >= orphanAfter,
		e.NoAnswer && e.Silence >= 2*orphanAfter:
		return reasonSilent
	}
	return ""
}

// settle posts a provisional end for a run that is dead.
func (t *settling) settle(ctx context.Context, run thread.Run) error {
	orphanAfter := cmp.Or(t.r.OrphanAfter, DefaultOrphanAfter)
	silence, lost := t.state().Silence(run.LastEntry), lostAfter
	if run.Waiting {
		lost = waitingLostAfter
	}
	if silence < min(lost, orphanAfter) {
		return nil
	}
	seen, err := t.look(ctx, run)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	e := evidence{Evidence: seen, Silence: silence, NoAnswer: err != nil, Unbegun: run.Started == nil}
	if judge(e, orphanAfter) == "" {
		return err
	}
	// The run's end, or another entry of it, may have arrived meanwhile.
	if err := t.read(ctx); err != nil {
		return fmt.Errorf("read thread %s: %w", t.id, err)
	}
	now, ok := t.same(run)
	if !ok || now.Status != thread.StatusRunning {
		return nil
	}
	e.Silence, e.Unbegun = t.state().Silence(now.LastEntry), now.Started == nil
	why, log := e.Why, ""
	reason := judge(e, orphanAfter)
	switch reason {
	case "":
		return err
	case reasonSilent:
		why = fmt.Sprintf("no entry for %v", e.Silence.Round(time.Second))
	case reasonUnbegun:
		const lives = "it is running in %s, and has posted nothing for %v"
		why = fmt.Sprintf(lives, boxOf(now), e.Silence.Round(time.Second))
		log = t.runnerLog(ctx, now)
	}
	base := t.base(now)
	failed := thread.StatusChanged{Signal: signal(now, thread.TypeStatus), Status: thread.StatusFailed}
	_, perr := t.post(ctx, t.client, t.entry(base+".orphan.0", death(now, reason, why, log, e.Silence)),
		t.entry(base+".orphan.1", failed))
	if perr != nil && !errors.Is(perr, errTaken) {
		return errors.Join(err, perr)
	}
	if perr == nil {
		t.record(now.ID, Orphaned, reason+": "+why)
	}
	return errors.Join(err, t.read(ctx))
}

// death is the first entry of a provisional end. A run that was launched into a box and never began, as where the
// server refuses its token, is a launch that has failed. log is the end of its runner's; "" for none.
func death(run thread.Run, reason, why, log string, silence time.Duration) any {
	if run.Sandbox != nil && run.Started == nil {
		return thread.Failed{
			Signal: signal(run, thread.TypeFailed), ErrorClass: outcome.ClassLaunch,
			Message: "the runner did not begin the run: " + why, StderrTail: log,
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

// look asks the provider of a run's box about the box and the runner in it. The zero Evidence is that of a run whose
// box is not known, or not this host's to ask about.
func (t *settling) look(ctx context.Context, run thread.Run) (reap.Evidence, error) {
	in := run.Box()
	if in == nil || t.views[in.Provider] == nil {
		return reap.Evidence{}, nil
	}
	ref := boxOf(run)
	p := reap.RunnerOf(run)
	r := t.reaper(t.views[ref.Provider])
	e, err := r.Evidence(ctx, ref, &p)
	if err == nil && e.Frozen && !run.Waiting { // it should work. A run that waits lets its box freeze
		var woken bool
		if woken, err = r.Wake(ctx, ref.ID); woken {
			e, err = r.Evidence(ctx, ref, &p)
		}
	}
	if run.Started == nil && e.Runner == reap.Dead {
		e.Runner = reap.LifeUnknown // its launch may not have started the runner yet
	}
	if err == nil && e.Gone {
		t.gone = append(t.gone, ref)
	}
	return e, err
}

// boxOf returns the box of a run that has one.
func boxOf(run thread.Run) sandbox.Ref {
	in := run.Box()
	return sandbox.Ref{Provider: in.Provider, ID: in.Ref}
}

// lastLog prints the end of the runner's log without the lines of other runs than $1.
const lastLog = `sed "/ run=/{/ run=$1\( \|\$\)/!d;}" "$HOME/` + sandbox.RunnerLog + `" | tail -n 20 | tail -c 4000`

// runnerLog returns the end of the log of a run's runner, which a person would read next; "" if it can't be
// read.
func (t *settling) runnerLog(ctx context.Context, run thread.Run) string {
	ref, text := boxOf(run), ""
	v := t.views[ref.Provider]
	err := v.ask(ctx, func(ctx context.Context) error {
		box, err := v.Open(ctx, ref.ID)
		if err != nil {
			return err
		}
		res, err := box.Exec(ctx, sandbox.Command{
			Argv: []string{"sh", "-c", lastLog, "sh", run.ID}, Timeout: callTimeout / 2,
		})
		text = strings.ToValidUTF8(strings.TrimSpace(string(res.Stdout)), "\uFFFD")
		return err
	})
	if err != nil && t.r.Log != nil {
		t.r.Log.Warn("read the runner's log", "thread", t.id, "run", run.ID, "error", err)
	}
	return text
}
