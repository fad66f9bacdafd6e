package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"syscall"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/thread/client"
)

// Recover finishes the runs of cfg's thread that a dead runner left on this machine, the oldest first: it ends an
// agent that still runs, posts the session's lines, decides the verdict and delivers the terminal. It skips a run
// whose runner lives, and removes one that never began. cfg needs ThreadID, State, Client, Redact and Log; the rest
// comes from the runs' folders. Recover calls done for each run that it has finished. Its error joins those of all
// others.
func Recover(ctx context.Context, cfg Config, done func(runfolder.Known, outcome.Verdict)) error {
	cfg.defaults()
	runs, _ := runfolder.List(cfg.State) // of other threads too, which may share a session
	_, err := runfolder.ListThread(cfg.State, cfg.ThreadID)
	errs := []error{err} // a folder of another thread is no business of this one
	for _, k := range slices.Backward(runs) {
		if k.Thread != cfg.ThreadID || !k.Left() {
			continue
		}
		v := outcome.Verdict{}
		folder, err := runfolder.New(cfg.State, k.Thread, k.Run) // an error: another runner has it
		if err == nil {
			v, err = finishRun(ctx, cfg, k, untilOf(runs, k), folder)
		}
		switch {
		case errors.Is(err, errNeverBegan):
			cfg.Log.Info("removed a run that the server had refused", "run", k.Run)
		case err != nil:
			errs = append(errs, fmt.Errorf("run %s: %w", k.Run, err))
		default:
			done(k, v)
		}
	}
	return errors.Join(errs...)
}

// finishLost finishes the lost runs of the run's thread before it begins, as Recover does: their lines come before its
// own, and their agents must not work beside its agent. A server that does not answer costs at most Timeout. all
// reports that none is left.
func (r *run) finishLost(ctx context.Context) (all bool) {
	runs, err := runfolder.ListThread(r.State, r.ThreadID)
	if err != nil {
		r.Log.Warn("list run folders", "error", err)
	}
	all = err == nil
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	cfg := Config{
		Version: r.Version, ThreadID: r.ThreadID, Author: r.Author, Environ: r.Environ, State: r.State,
		Heartbeat: r.Heartbeat, Timeout: r.Timeout, Client: r.Client, Redact: r.Redact, Log: r.Log, passing: true,
	}
	for _, k := range slices.Backward(runs) {
		if k.Run == r.RunID || !k.Left() {
			continue
		}
		folder, err := runfolder.Open(k.Path, nil) // this run has the thread's lock
		if err == nil {
			_, err = finishRun(ctx, cfg, k, untilOf(runs, k), folder)
		}
		switch {
		case errors.Is(err, errNeverBegan):
			r.Log.Info("removed a run that the server had refused", "refused_run", k.Run)
		case err != nil:
			r.Log.Warn("finish lost run; arbe-pi-runner recover retries", "lost_run", k.Run, "error", err)
			all = false
		default:
			r.Log.Info("finished lost run", "lost_run", k.Run)
		}
	}
	return all
}

// untilOf is the index of the first line of the run after k in the same session; 0: no such run.
func untilOf(runs []runfolder.Known, k runfolder.Known) (until int) {
	for _, n := range runs {
		later := n.Started.After(k.Started)
		if n.Boot == k.Boot {
			later = n.Clock > k.Clock // the wall clock may have been set
		}
		from := n.BeganFrom.Index
		if n.Began == k.Session && k.Session != "" && later && from >= k.From.Index && (until == 0 || from < until) {
			until = from
		}
	}
	return until
}

// errNeverBegan: the run's folder is removed, because the thread has no such run.
var errNeverBegan = errors.New("the run never began")

// removeRefused removes the folder of a run that the server refused, and returns errNeverBegan. The folder stays where
// the thread has the run: it was posted, the answer was lost, and the next one was a refusal.
func removeRefused(ctx context.Context, cl *client.Client, k runfolder.Known) error {
	switch _, begun, err := cl.Entry(ctx, startedID(k.Run)); {
	case begun:
		return nil
	case err != nil && !client.NoThread(err):
		return fmt.Errorf("ask the thread whether the run began: %w", err)
	}
	if err := os.RemoveAll(k.Path); err != nil {
		return err
	}
	return errNeverBegan
}

// finishRun finishes the lost run k, whose lines end before the index until, and closes its folder.
func finishRun(
	ctx context.Context, cfg Config, k runfolder.Known, until int, folder *runfolder.Folder,
) (outcome.Verdict, error) {
	cfg.RunID, cfg.Folder, cfg.Log, cfg.Cwd, cfg.Session = k.Run, folder, cfg.Log.With("run", k.Run), k.Cwd, k.Session
	cfg.until = until
	if err := cfg.takeUp(ctx, k); err != nil {
		return outcome.Verdict{}, errors.Join(err, folder.Close())
	}
	res, err := Run(ctx, ctx, cfg)
	return res.Verdict, err
}

// takeUp prepares cfg and the folder of the lost run k for its last worker, and ends an agent that still runs.
func (c *Config) takeUp(ctx context.Context, k runfolder.Known) (err error) {
	if k.State == runfolder.StateRefused {
		if err := removeRefused(ctx, c.Client, k); err != nil {
			return err
		}
	}
	if c.Spec, err = harness.Lookup(k.Harness); err != nil {
		return err
	}
	rec, err := c.Folder.Record()
	if err != nil {
		return err
	}
	endAgent(rec, c.Folder, nil, c.Log)
	facts, err := c.Folder.Facts()
	if err != nil {
		return err
	}
	c.Restarts = maxRestarts + 1 + len(facts) // so that its heartbeats get new numbers
	p := runfolder.Replay(facts)
	if p.Spawned != nil || p.NotStarted != nil || p.Decided != nil {
		return nil
	}
	// Its runner died before it started the agent. Nobody starts it now.
	why := "the runner died before it could start the agent"
	if p.TurnedAway {
		why = "the thread server refused the run before its agent was started"
	}
	return c.Folder.Note(runfolder.Fact{Fact: runfolder.FactNotStarted, Why: why, Status: StatusNotStarted})
}

// stopAdopted ends an agent that is not a child of this process. One that KILL does not end counts as ended with an
// unknown exit.
func stopAdopted(a *harness.Process, stop syscall.Signal, note func(runfolder.Fact)) {
	ended := a.Stop(context.Background(), stop, grace, func(sig syscall.Signal) {
		note(runfolder.Fact{Fact: runfolder.FactSignalled, Signal: outcome.SignalName(int(sig))})
	})
	if !ended {
		note(runfolder.Fact{Fact: runfolder.FactExited, Exit: &outcome.Exit{}})
	}
}

// endTree ends the processes that are left of a run.
func endTree(tree harness.Tree, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), sweepFor)
	defer cancel()
	if found, left := tree.End(ctx, sweepGrace); found > 0 {
		log.Info("ended leftover processes", "found", found, "left", left)
	}
}

// Exit statuses of a runner whose agent was not started.
const (
	statusUsage      = 64 // no prompt
	StatusNoSession  = 65 // the named file is no session file
	StatusNotStarted = 69 // the agent can't be started
	StatusConfig     = 78 // the server refuses the token, or redirects
)

// NotStartedError is why the agent was not started.
type NotStartedError struct {
	Status int // one of the Status constants
	Err    error
}

func (e *NotStartedError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *NotStartedError) Unwrap() error { return e.Err }

// notStartedError adds the exit status to err.
func notStartedError(err error) *NotStartedError {
	status := StatusNotStarted
	if errors.Is(err, ErrNoSession) {
		status = StatusNoSession
	}
	return &NotStartedError{status, err}
}
