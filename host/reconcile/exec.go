package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"arbe.0sk.ar/runner/host/reap"
	"arbe.0sk.ar/runner/thread"
)

// startAfter is the time from a command's beginning to its supervisor's first entry, in which its host opens the box
// and uploads the runner. Then the command is ended; a supervisor that comes later finds that, and starts nothing.
const startAfter = 10 * time.Minute

// execEvidence is the evidence about a command without an end.
type execEvidence struct {
	Age           time.Duration // since its beginning
	Silence       time.Duration // since its newest entry, or since the log could be written, whichever is later
	Begun         bool          // its supervisor has posted its first entry
	Timeout       time.Duration // of the command
	reap.Evidence               // of the supervisor
	// GoneFor is how long this reconciler has found the box gone at each look. A command posts nothing while it prints
	// nothing, so its silence alone confirms no answer of a provider.
	GoneFor time.Duration
}

// judgeExec returns why a command is dead; "" if it may be alive.
//
//	box frozen                  never: nothing in it can post
//	no supervisor yet           10 min or orphanAfter of silence
//	supervisor not running      30 s of silence
//	box gone                    2 min of silence, in which it was gone at each look; or orphanAfter
//	supervisor running          never: its network or its server is down
//	no evidence                 orphanAfter of silence after its timeout
func judgeExec(e execEvidence, orphanAfter time.Duration) string {
	lost := e.Runner == reap.Dead && e.Silence >= min(lostAfter, orphanAfter)
	gone := min(e.Silence, e.GoneFor) >= reap.DefaultGoneAfter || e.Silence >= orphanAfter
	switch {
	case e.Frozen:
		return ""
	case !e.Begun && e.Silence >= min(startAfter, orphanAfter):
		return "it was not started: its host died, or could not reach the sandbox"
	case !e.Begun:
	case e.Gone && e.Runner != reap.Alive && (lost || gone):
		return "its sandbox is gone"
	case lost:
		return "its supervisor was killed; how the command ended is not known"
	case e.Runner != reap.Alive && e.Age >= e.Timeout+orphanAfter && e.Silence >= orphanAfter:
		return fmt.Sprintf("no entry for %v, and it should have ended before", e.Silence.Round(time.Second))
	}
	return ""
}

// settleExecs posts an end for the thread's commands that are dead.
func (t *settling) settleExecs(ctx context.Context) (err error) {
	for _, x := range t.fold.OpenExecs() {
		err = errors.Join(err, t.settleExec(ctx, x))
	}
	t.pending = t.pending || len(t.fold.OpenExecs()) > 0
	return err
}

func (t *settling) settleExec(ctx context.Context, x thread.OpenExec) error {
	orphanAfter := cmp.Or(t.r.OrphanAfter, DefaultOrphanAfter)
	e := t.execEvidence(x)
	if e.Silence < min(lostAfter, orphanAfter) {
		return nil
	}
	if !e.Begun {
		return t.endExec(ctx, x, judgeExec(e, orphanAfter))
	}
	// look asks about a run. Of that it takes the box and the process.
	like := thread.Run{Sandbox: x.Running.Sandbox, Started: &thread.Started{
		PID: x.Running.PID, StartTicks: x.Running.StartTicks, BootID: x.Running.BootID,
	}}
	seen, err := t.look(ctx, like)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// Its end, or another entry of it, may have arrived meanwhile.
	if rerr := t.read(ctx); rerr != nil {
		return errors.Join(err, fmt.Errorf("read thread %s: %w", t.id, rerr))
	}
	x, open := t.fold.OpenExec(x.ID)
	if !open {
		return err
	}
	e = t.execEvidence(x)
	e.Evidence, e.GoneFor = seen, t.goneFor(x.ID, err == nil && seen.Gone)
	return errors.Join(err, t.endExec(ctx, x, judgeExec(e, orphanAfter)))
}

// goneFor returns how long the box of a command was gone at each look of this reconciler.
func (t *settling) goneFor(id string, gone bool) time.Duration {
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	key := t.id + "." + id
	if !gone {
		delete(t.r.goneSince, key)
		return 0
	}
	if t.r.goneSince == nil {
		t.r.goneSince = map[string]time.Time{}
	}
	since, is := t.r.goneSince[key]
	if !is {
		since = time.Now()
		t.r.goneSince[key] = since
	}
	return time.Since(since)
}

// execEvidence returns the evidence that is on the thread.
func (t *settling) execEvidence(x thread.OpenExec) execEvidence {
	return execEvidence{
		Age: t.now.Sub(x.Began), Silence: t.state().Silence(x.Last), Begun: x.Running != nil, Timeout: x.Timeout,
	}
}

// endExec posts a command's end under the number of its next entry. If another entry has got that, the command was not
// dead, or another reconciler has ended it.
func (t *settling) endExec(ctx context.Context, x thread.OpenExec, why string) error {
	if why == "" {
		return nil
	}
	fresh, err := t.post(ctx, t.client, t.entry(thread.ExecID(x.ID, x.Next), thread.ExecFinished{
		Exec:  thread.Exec{Type: thread.TypeExecFinished, ExecID: x.ID},
		Error: why, DurationMs: x.Last.Sub(x.Began).Milliseconds(),
	}))
	if errors.Is(err, errTaken) {
		return nil
	}
	if err == nil && fresh {
		t.record(x.ID, Ended, why)
	}
	t.goneFor(x.ID, false)
	return errors.Join(err, t.read(ctx))
}
