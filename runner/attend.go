package runner

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/runner/stdio"
)

// attend waits for the end of the running agent p, and ends it if ctx is done. It adds to facts how the agent ended and
// what it left behind. outputs are its stdout and stderr, which attend closes; nil where it has a terminal.
func (r *run) attend(
	ctx context.Context, p *harness.Process, tree harness.Tree, facts outcome.Facts, outputs []*stdio.Output,
) outcome.Facts {
	life := context.WithoutCancel(ctx) // what attends the agent outlives the order to stop it
	r.agent.Store(p)
	tree.Roots = append(tree.Roots, p.PID())

	stopTrim := r.startTrim(life, outputs)
	stopLocate := start(life, r.locate)
	stopWatch := start(life, func(ctx context.Context) error { return r.watch(ctx, tree, outputs) })
	stopShow := r.startShow(life, outputs)
	stopLive := r.startLive(life, outputs)

	if facts.Action != outcome.ActionNone { // an earlier worker died while it ended the agent
		r.resumeEnd(facts)
	}
	r.await(ctx, p, &facts) // 1. the agent ends
	r.inspect(&facts, tree) // 2. what it left behind is ended or counted

	stopLive()            // 3. nothing is written to the agent any more; its last output is read
	stopShow()            // 4. a person gets the rest of the output while the files still have all of it
	stopWatch()           // 5. nothing looks at the processes any more
	stopLocate()          // 6. a session that the agent made at the last moment is found
	stopTrim()            // 7. the outputs are trimmed no more,
	r.cutOutputs(outputs) // 8. so that they can be cut to their final size
	return facts
}

// await waits for the agent's end, or ends the agent when ctx is done. It records both as they happen.
func (r *run) await(ctx context.Context, p *harness.Process, facts *outcome.Facts) {
	ended := true
	select {
	case <-p.Done():
		if facts.Action == outcome.ActionNone {
			facts.Action, facts.Why = r.live.endedBy()
		}
	case <-ctx.Done():
		if facts.Action == outcome.ActionNone {
			facts.Action, facts.Why = r.live.endedBy()
		}
		if facts.Action == outcome.ActionNone {
			facts.Action, facts.Why = r.actionOf(ctx)
			r.note(runfolder.Fact{Fact: runfolder.FactAction, Action: facts.Action, Why: facts.Why})
		}
		r.Log.Info("stopping the agent", "action", facts.Action, "why", facts.Why)
		grace := r.intervals.grace - r.live.abort(p)
		ended = p.Stop(context.WithoutCancel(ctx), r.record.Stop(r.Spec), grace, func(sig syscall.Signal) {
			r.note(runfolder.Fact{Fact: runfolder.FactSignalled, Signal: outcome.SignalName(int(sig))})
		})
	}
	facts.Exit = p.Exit()
	if !ended { // a frozen cgroup, a dead mount: the run ends without it
		r.Log.Error("agent did not end after KILL; its exit is unknown", "pid", p.PID())
		return
	}
	r.note(runfolder.Fact{Fact: runfolder.FactExited, Exit: &facts.Exit})
	p.Release()
	r.Log.Info("agent ended", "exit", facts.Exit.String())
}

// startTrim keeps the outputs within their bounds until the returned func is called.
func (r *run) startTrim(ctx context.Context, outputs []*stdio.Output) (stop func()) {
	if outputs == nil {
		return func() {}
	}
	return start(ctx, func(ctx context.Context) error {
		err := r.trimmer.Run(ctx)
		if err != nil {
			r.Log.Warn("trim agent output", "error", err)
		}
		return err
	})
}

// startShow copies the outputs to the person who watches, until the returned func is called. Of an agent that prints
// JSON on stdout it shows the answers.
func (r *run) startShow(ctx context.Context, outputs []*stdio.Output) (stop func()) {
	if !r.ByHand || outputs == nil {
		return func() {}
	}
	stopStdout := r.showStdout(ctx, outputs[0])
	stopStderr := stdio.Show(ctx, func(ctx context.Context, done *atomic.Int64) error {
		return stdio.Copy(ctx, outputs[1].Path, r.Stderr, done)
	})
	return func() {
		stopStderr()
		stopStdout()
	}
}

// showStdout copies stdout to the person who watches, until the returned func is called.
func (r *run) showStdout(ctx context.Context, stdout *stdio.Output) (stop func()) {
	answer := r.Spec.Answer
	if r.Live {
		answer = r.Spec.Live.Answer
	}
	return stdio.Show(ctx, func(ctx context.Context, done *atomic.Int64) error {
		if answer != nil {
			return stdio.CopyAnswers(ctx, stdout.Path, r.Stdout, answer, done)
		}
		return stdio.Copy(ctx, stdout.Path, r.Stdout, done)
	})
}

// cutOutputs cuts the outputs of an agent that is gone to their final size, and closes them.
func (r *run) cutOutputs(outputs []*stdio.Output) {
	for _, o := range outputs {
		if err := o.Settle(); err != nil {
			r.Log.Warn("cut agent output", "file", o.Path, "error", err)
		}
	}
}

// actionOf is the runner's action for which ctx was cancelled, and why, without secrets.
func (r *run) actionOf(ctx context.Context) (outcome.Action, string) {
	var c cause
	if errors.As(context.Cause(ctx), &c) {
		return c.action, r.Redact.Text(c.why)
	}
	return outcome.ActionCancel, r.Redact.Text(context.Cause(ctx).Error())
}

// inspect looks at what an agent that is gone has left behind: its processes, and the traces of an OOM kill or a full
// disk. It ends the processes where the runner ended the agent.
func (r *run) inspect(facts *outcome.Facts, tree harness.Tree) {
	ended := facts.Action != outcome.ActionNone && facts.Action != outcome.ActionLinger &&
		facts.Action != outcome.ActionEnd
	if ended || r.KillLeftovers {
		endTree(tree, r.Log)
	}
	r.leftovers = len(tree.Members())
	if s := r.progress.Spawned; s != nil && s.OOMKills != nil {
		if now := harness.OOMKills(); now != nil && *now > *s.OOMKills {
			facts.OOM = true
		}
	}
	facts.DiskFull = full(r.record.Cwd) || full(r.Folder.Path)
	if path := r.session(); path != "" {
		facts.DiskFull = facts.DiskFull || full(filepath.Dir(path)) || atLimit(path)
	}
}

// fullBelow is the free space in bytes below which a disk counts as full.
const fullBelow = 64 << 10

// full reports whether the file system of dir is full.
func full(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Blocks > 0 && st.Bavail*uint64(st.Bsize) < fullBelow
}

// atLimit reports whether a file has reached this process's limit on file sizes.
func atLimit(path string) bool {
	var limit unix.Rlimit
	st, err := os.Stat(path)
	return err == nil && unix.Getrlimit(unix.RLIMIT_FSIZE, &limit) == nil && uint64(st.Size()) >= limit.Cur
}

// tree is the run's processes, by all traces that exist before the agent's pid is known.
func (r *run) tree() harness.Tree {
	t := harness.Tree{Mark: r.record.Instance, Except: []int{os.Getpid()}}
	if r.Keeper != 0 {
		t.Roots, t.Except = []int{r.Keeper}, append(t.Except, r.Keeper)
	}
	return t
}
