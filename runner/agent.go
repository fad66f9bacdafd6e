package runner

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner/runfolder"
)

// cause is why the runner ends the agent: the cause of the agent's context.
type cause struct {
	action outcome.Action
	why    string
}

func (c cause) Error() string { return c.why }

// step is a worker's next step with the agent.
type step string

const (
	stepNone   step = "none"   // the verdict is decided: the agent's end is in it
	stepFail   step = "fail"   // record why the agent can't be started
	stepAdopt  step = "adopt"  // see the agent of an earlier worker to its end
	stepSettle step = "settle" // the agent has ended under an earlier worker: look at what it left behind
	stepCancel step = "cancel" // the run was stopped before the agent began
	stepSpawn  step = "spawn"  // start the agent and see it to its end
)

// next returns the step that follows p. notStarted: the agent can't be started. stopped: the run has the order to
// stop. A process that did not become the agent counts as not spawned.
func next(p runfolder.Progress, notStarted, stopped bool) step {
	switch {
	case p.Decided != nil:
		return stepNone
	case notStarted:
		return stepFail
	case p.Spawned != nil && p.Exit == nil:
		return stepAdopt
	case p.Spawned != nil:
		return stepSettle
	case stopped || p.Action != nil:
		return stepCancel
	}
	return stepSpawn
}

// agentPhase brings the agent to its end from the state in which an earlier worker left the run. It returns the facts
// for the verdict, and why the agent could not be started, if so.
func (r *run) agentPhase(ctx context.Context, notStarted *NotStartedError) (outcome.Facts, *NotStartedError) {
	var facts outcome.Facts
	if a := r.progress.Action; a != nil {
		facts.Action, facts.Why = a.Action, a.Why
	}
	for {
		switch next(r.progress, notStarted != nil, ctx.Err() != nil) {
		case stepNone:
			return facts, notStarted
		case stepFail:
			return r.failStart(notStarted), notStarted
		case stepCancel:
			if facts.Action == outcome.ActionNone {
				facts.Action, facts.Why = r.actionOf(ctx)
			}
			return facts, nil
		case stepAdopt:
			facts = r.adopt(ctx, facts)
			if r.begun(facts.Exit) {
				return facts, nil
			}
			facts.Exit = outcome.Exit{}
		case stepSettle:
			facts.Exit = *r.progress.Exit
			r.inspect(&facts, r.tree())
			if r.begun(facts.Exit) {
				return facts, nil
			}
			facts.Exit = outcome.Exit{}
		case stepSpawn:
			if notStarted = r.ensurePrompt(ctx); notStarted != nil || ctx.Err() != nil {
				continue
			}
			spawned, err := r.spawn(ctx)
			switch {
			case err == nil:
				return spawned, nil
			case harness.Busy(err) && ctx.Err() != nil:
				r.progress.Spawned = nil // stopped while it waited for room: no process became the agent
			default:
				notStarted = notStartedError(err)
			}
		}
	}
}

// begun reports whether an agent of an earlier worker with this exit has begun. Where that worker died before it let
// its process become the agent, begun resets the progress, so that the agent is started after all.
func (r *run) begun(exit outcome.Exit) bool {
	r.look()
	if exit != harness.NotBegun || r.follower.summary().turn.Lines > 0 || r.Keeper == 0 {
		return true
	}
	r.progress.Spawned, r.progress.Exit = nil, nil
	return false
}

// ensurePrompt reads the prompt from the thread if the run has none and needs one.
func (r *run) ensurePrompt(ctx context.Context) *NotStartedError {
	if r.Prompt != "" || r.TTY != nil || r.Live { // a live run waits for its first chat
		return nil
	}
	return r.readPrompt(ctx)
}

// failStart records why the agent is not started, and returns the facts for the verdict.
func (r *run) failStart(why *NotStartedError) outcome.Facts {
	if r.progress.NotStarted == nil {
		r.noteNotStarted(why)
	}
	return outcome.Facts{
		Action: outcome.ActionNotStarted, Why: r.Redact.Text(why.Error()), DiskFull: runfolder.NoRoom(why),
	}
}

// noteNotStarted records why the agent is not started.
func (r *run) noteNotStarted(why *NotStartedError) {
	f := runfolder.Fact{Fact: runfolder.FactNotStarted, Why: r.Redact.Text(why.Error()), Status: why.Status}
	r.progress.NotStarted = &f
	r.note(f)
}

// adopt sees an agent to its end that an earlier worker has started.
func (r *run) adopt(ctx context.Context, facts outcome.Facts) outcome.Facts {
	spawned, tree := r.progress.Spawned, r.tree()
	p, err := harness.Adopt(spawned.PID, spawned.Ticks, r.learnExit)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			r.Log.Warn("adopt agent", "pid", spawned.PID, "error", err)
		}
		facts.Exit, _ = r.learnExit()
		r.inspect(&facts, tree)
		return facts
	}
	outputs, err := r.openOutputs()
	if err != nil {
		r.Log.Warn("open agent output; it is not capped", "error", err)
	}
	r.adopted = true
	r.Log.Info("agent still running", "pid", p.PID())
	return r.attend(ctx, p, tree, facts, outputs)
}

// Bounds of the wait for the keeper's record of the agent's exit.
const (
	learnTries = 150
	learnEvery = 20 * time.Millisecond
)

// learnExit reads how the agent ended from the facts, where the keeper records it. The keeper needs a moment. false:
// the exit is unknown, because there is no keeper or it died, too.
func (r *run) learnExit() (outcome.Exit, bool) {
	for range learnTries {
		facts, err := r.Folder.Facts()
		if p := runfolder.Replay(facts); err == nil && p.Exit != nil {
			return *p.Exit, true
		}
		if r.Keeper == 0 || os.Getppid() != r.Keeper {
			break
		}
		time.Sleep(learnEvery) // between two reads of a file that another process writes
	}
	return outcome.Exit{}, false
}
