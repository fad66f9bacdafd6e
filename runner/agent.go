package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/outcome"
)

// cause is the cause with which the runner itself ends the agent.
type cause struct {
	action outcome.Action
	why    string
}

func (c cause) Error() string { return c.why }

// agentPhase brings the agent to its end, from wherever an earlier worker left it, and returns what is known of it. An error says that it could not
// be started.
func (r *run) agentPhase(ctx context.Context, notStarted *NotStartedError) (outcome.Facts, *NotStartedError) {
	p := r.progress
	var facts outcome.Facts
	if p.action != nil {
		facts.Action, facts.Why = p.action.Action, p.action.Why
	}
	switch {
	case p.decided != nil:
		return facts, notStarted // there is a terminal already: the facts are in it
	case notStarted != nil:
	case p.spawned != nil:
		if p.exit != nil {
			facts.Exit = *p.exit
			r.afterwards(&facts, r.tree())
		} else {
			facts = r.adopt(ctx, facts)
		}
		r.look()
		if facts.Exit != harness.NotBegun || r.follower.summary().turn.Lines > 0 || r.Keeper == 0 {
			return facts, nil
		}
		// The worker before died when it had made the agent's process and not yet let it begin.
		facts.Exit = outcome.Exit{}
	}
	if notStarted == nil && r.Prompt == "" && r.TTY == nil {
		notStarted = r.readPrompt(ctx)
	}
	switch {
	case notStarted != nil:
	case ctx.Err() != nil:
		if facts.Action == outcome.ActionNone {
			facts.Action, facts.Why = r.cause(ctx)
		}
		return facts, nil
	default:
		var err error
		if facts, err = r.spawn(ctx); err != nil && harness.Busy(err) && ctx.Err() != nil {
			facts.Action, facts.Why = r.cause(ctx) // told to stop while it waited for room
			return facts, nil
		}
		if err != nil {
			notStarted = notStartedError(err)
		}
	}
	if notStarted != nil {
		if r.progress.notStarted == nil {
			r.noteNotStarted(notStarted)
		}
		facts = outcome.Facts{Action: outcome.ActionNotStarted, Why: r.Redact.Text(notStarted.Error()), DiskFull: noRoom(notStarted)}
	}
	return facts, notStarted
}

// noteNotStarted writes down why the agent is not started.
func (r *run) noteNotStarted(why *NotStartedError) {
	f := Fact{Fact: FactNotStarted, Why: r.Redact.Text(why.Error()), Status: why.Status}
	r.progress.notStarted = &f
	r.note(f)
}

// noRoom reports whether an error says that a disk is full or a file as large as it may be.
func noRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// spawn starts the agent and sees it to its end.
func (r *run) spawn(ctx context.Context) (outcome.Facts, error) {
	if r.binary == "" { // the worker before has looked for it, and then died
		var err error
		if r.binary, err = harness.Find(r.Spec, r.Binary, r.getenv); err != nil {
			return outcome.Facts{}, err
		}
	}
	if r.Spec.Prepare != nil {
		if err := r.Spec.Prepare(r.box()); err != nil {
			return outcome.Facts{}, err
		}
	}
	var stdout, stderr *output
	var screen *terminal
	var err error
	if r.TTY != nil {
		if screen, err = newTerminal(r.TTY, r.TTY); err != nil {
			return outcome.Facts{}, fmt.Errorf("the terminal: %w", err)
		}
		defer screen.close() // there is nobody to tell
	} else if stdout, stderr, err = r.outputs(); err != nil {
		return outcome.Facts{}, err
	}
	tree := r.tree()
	group, err := harness.NewGroup("arbe-" + r.record.Instance)
	if err != nil {
		r.Log.Debug("no cgroup for the agent", "error", err)
	}
	tree.Group, r.group = group, group

	do := r.Spec.Command(r.box(), harness.Task{Session: harness.Session{Path: r.record.Session, ID: r.record.SessionID}, Resume: r.record.From.Index > 0, Model: r.Model, Args: r.Args, Prompt: r.Prompt, Person: r.TTY != nil})
	env := agentEnv(r.Environ, do.Env, "ARBE_THREAD_ID="+r.ThreadID, "ARBE_RUN_ID="+r.RunID, harness.MarkVar+"="+r.record.Instance, "PWD="+r.Cwd)
	oom := oomKills()
	command := harness.Command{
		Path: r.binary, Args: do.Args, Env: env, Dir: r.Cwd, Stdin: do.Stdin, Group: group,
		Spawned: func(pid int) {
			st, _ := harness.ReadStat(pid) // our own child is there
			spawned := Fact{Fact: FactSpawned, PID: pid, Ticks: st.Started, OOMKills: oom, Clock: clock()}
			r.progress.spawned = &spawned
			r.note(spawned)
		},
	}
	if screen != nil {
		command.TTY = screen.agent
	} else {
		command.Stdout, command.Stderr = stdout.file, stderr.file
	}
	p, err := r.startAgent(ctx, command)
	if err != nil && screen == nil {
		err = errors.Join(err, stdout.file.Close(), stderr.file.Close())
	}
	if err != nil {
		return outcome.Facts{}, err
	}
	if screen != nil {
		if err := screen.started(); err != nil {
			r.Log.Warn("the agent's end of its terminal", "error", err)
		}
		defer start(context.WithoutCancel(ctx), screen.pass)()
	}
	r.Log.Info("the agent is running", "harness", r.Spec.Name, "pid", p.PID(), "session", cmp.Or(r.record.Session, r.record.SessionID))
	return r.attend(ctx, p, tree, outcome.Facts{}, stdout, stderr), nil
}

// How long the agent's start is tried again on a machine that has no room for it, and with what waits between.
const (
	startFor     = 3 * time.Minute
	firstStart   = 50 * time.Millisecond
	slowestStart = 5 * time.Second
)

// startAgent starts the agent, again and again where the machine lacks processes, memory or open files.
func (r *run) startAgent(ctx context.Context, command harness.Command) (*harness.Process, error) {
	began := clock()
	for wait := firstStart; ; wait = min(2*wait, slowestStart) {
		p, err := harness.Start(command)
		if errors.Is(err, harness.ErrNotReady) {
			r.note(Fact{Fact: FactExited, Exit: &harness.NotBegun})
		}
		if err == nil || !harness.Busy(err) || clock()-began > startFor {
			return p, err
		}
		if wait == firstStart {
			r.Log.Warn("no room to start the agent; trying again", "for", startFor, "error", err)
		}
		again := time.NewTimer(wait)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return nil, err
		}
	}
}

// adopt sees an agent to its end that an earlier worker has started.
func (r *run) adopt(ctx context.Context, facts outcome.Facts) outcome.Facts {
	spawned := r.progress.spawned
	tree := r.tree()
	p, err := harness.Adopt(spawned.PID, spawned.Ticks, r.learnExit)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			r.Log.Warn("the agent can't be watched", "pid", spawned.PID, "error", err)
		}
		facts.Exit, _ = r.learnExit()
		r.afterwards(&facts, tree)
		return facts
	}
	stdout, stderr, err := r.outputs()
	if err != nil {
		r.Log.Warn("the agent's output can't be looked after", "error", err)
	}
	r.Log.Info("the agent is still running", "pid", p.PID())
	return r.attend(ctx, p, tree, facts, stdout, stderr)
}

// outputs are the files that the agent's output goes to.
func (r *run) outputs() (stdout, stderr *output, err error) {
	if stdout, err = newOutput(r.folder.Path, "stdout"); err != nil {
		return nil, nil, err
	}
	if stderr, err = newOutput(r.folder.Path, "stderr"); err != nil {
		return nil, nil, errors.Join(err, stdout.file.Close())
	}
	r.trimmer = newTrimmer(stdout, stderr)
	return stdout, stderr, nil
}

// learnExit asks the keeper's notes how the agent ended. The keeper needs a moment, and may be dead itself: then nobody knows.
func (r *run) learnExit() (outcome.Exit, bool) {
	for range 150 {
		facts, err := readFacts(r.folder.Path)
		if p := replay(facts); err == nil && p.exit != nil {
			return *p.exit, true
		}
		if r.Keeper == 0 || os.Getppid() != r.Keeper {
			break
		}
		time.Sleep(20 * time.Millisecond) // between two looks at a file that another process writes
	}
	return outcome.Exit{}, false
}

// attend watches a running agent until it has ended, by itself or because ctx says so, and then over what it left.
func (r *run) attend(ctx context.Context, p *harness.Process, tree harness.Tree, facts outcome.Facts, stdout, stderr *output) outcome.Facts {
	r.agent.Store(p)
	tree.Roots = append(tree.Roots, p.PID())
	var outputs []*output
	if stdout != nil {
		outputs = []*output{stdout, stderr}
		defer func() {
			if err := errors.Join(stdout.settle(), stderr.settle()); err != nil {
				r.Log.Warn("the agent's output was not put in order", "error", err)
			}
		}()
		defer start(context.WithoutCancel(ctx), func(ctx context.Context) error {
			err := r.trimmer.run(ctx)
			if err != nil {
				r.Log.Warn("trim agent output", "error", err)
			}
			return err
		})()
	}
	defer start(context.WithoutCancel(ctx), r.locate)()
	stopWatch := start(context.WithoutCancel(ctx), func(ctx context.Context) error { return r.watch(ctx, tree, outputs) })
	defer stopWatch()
	if r.ByHand && stdout != nil {
		defer show(context.WithoutCancel(ctx), stdout.path, r.Stdout)()
		defer show(context.WithoutCancel(ctx), stderr.path, r.Stderr)()
	}
	if facts.Action != outcome.ActionNone { // the worker before was about to end it
		r.end(cause{facts.Action, facts.Why})
	}
	ended := true
	select {
	case <-p.Done():
	case <-ctx.Done():
		if facts.Action == outcome.ActionNone {
			facts.Action, facts.Why = r.cause(ctx)
			r.note(Fact{Fact: FactAction, Action: facts.Action, Why: facts.Why})
		}
		r.Log.Info("ending the agent", "because", facts.Why)
		ended = p.Stop(context.WithoutCancel(ctx), r.Spec.Stop, grace, func(sig syscall.Signal) {
			r.note(Fact{Fact: FactSignalled, Signal: outcome.SignalName(int(sig))})
		})
	}
	facts.Exit = p.Exit()
	if ended {
		r.note(Fact{Fact: FactExited, Exit: &facts.Exit})
		p.Release()
		r.Log.Info("the agent has ended", "how", facts.Exit.String())
	} else { // a frozen cgroup, a dead mount: the run ends without it
		r.Log.Error("the agent did not end after KILL; its exit is unknown", "pid", p.PID())
	}
	r.afterwards(&facts, tree)
	return facts
}

// cause is what ctx was ended for, as a cause of the runner's.
func (r *run) cause(ctx context.Context) (outcome.Action, string) {
	var c cause
	if errors.As(context.Cause(ctx), &c) {
		return c.action, r.Redact.Text(c.why)
	}
	return outcome.ActionCancel, r.Redact.Text(context.Cause(ctx).Error())
}

// afterwards looks at what the agent has left when it is gone: processes, and traces of what it died of.
func (r *run) afterwards(facts *outcome.Facts, tree harness.Tree) {
	ended := facts.Action != outcome.ActionNone && facts.Action != outcome.ActionLinger
	if ended || r.KillLeftovers {
		endTree(tree, r.Log)
	}
	r.leftovers = len(tree.Members())
	if s := r.progress.spawned; s != nil && s.OOMKills != nil {
		if now := oomKills(); now != nil && *now > *s.OOMKills {
			facts.OOM = true
		}
	}
	facts.DiskFull = full(r.record.Cwd) || full(r.folder.Path)
	if path, _ := r.session(); path != "" {
		facts.DiskFull = facts.DiskFull || full(filepath.Dir(path)) || atLimit(path)
	}
}

// oomKills is the cgroup's count of processes that were killed for memory; nil where it can't be known.
func oomKills() *int64 {
	n, ok := harness.OOMKills()
	if !ok {
		return nil
	}
	return &n
}

// fullBelow is the room in bytes below which a disk counts as full.
const fullBelow = 64 << 10

// full reports whether the file system of dir has no room left.
func full(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Blocks > 0 && st.Bavail*uint64(st.Bsize) < fullBelow
}

// atLimit reports whether a file is as large as files may be here.
func atLimit(path string) bool {
	var limit unix.Rlimit
	st, err := os.Stat(path)
	return err == nil && unix.Getrlimit(unix.RLIMIT_FSIZE, &limit) == nil && uint64(st.Size()) >= limit.Cur
}

// tree are the traces of the run's processes, as far as they are known before the agent is.
func (r *run) tree() harness.Tree {
	t := harness.Tree{Mark: r.record.Instance, Except: []int{os.Getpid()}}
	if r.Keeper != 0 {
		t.Roots, t.Except = []int{r.Keeper}, append(t.Except, r.Keeper)
	}
	return t
}

// agentEnv is the agent's environment: the runner's own, without what is none of the agent's business, with what its Spec adds where the user
// has not said otherwise, and with what is so in any case.
func agentEnv(environ, add []string, always ...string) []string {
	taken := map[string]bool{}
	for _, kv := range always {
		name, _, _ := strings.Cut(kv, "=")
		taken[name] = true
	}
	env := always
	for _, kv := range append(slices.Clone(environ), add...) {
		name, _, _ := strings.Cut(kv, "=")
		if taken[name] || !AgentMaySee(name) {
			continue
		}
		taken[name] = true
		env = append(env, kv)
	}
	return env
}

// AgentMaySee reports whether the variable name of the runner's environment may reach the agent.
func AgentMaySee(name string) bool {
	return !strings.HasPrefix(name, "ARBE_") && !strings.HasPrefix(name, "DAYTONA_") && name != "DURABLE_STREAMS_SECRET"
}
