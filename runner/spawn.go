package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/internal/procfs"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/runner/stdio"
)

// ends are the agent's input and output: a terminal or files.
type ends struct {
	input   *os.File        // the agent's end of its input; nil where the run is not live
	screen  *stdio.Terminal // a person's terminal; nil where the agent has files
	outputs []*stdio.Output // stdout and stderr; nil where the agent has a terminal
}

// spawn starts the agent and sees it to its end.
func (r *run) spawn(ctx context.Context) (outcome.Facts, error) {
	if err := r.prepareAgent(); err != nil {
		return outcome.Facts{}, err
	}
	io, err := r.openEnds()
	if err != nil {
		return outcome.Facts{}, err
	}
	if r.group, err = harness.NewGroup("arbe-" + r.record.Instance); err != nil {
		r.Log.Debug("make cgroup for agent", "error", err)
	}
	tree := r.tree()
	tree.Group = r.group
	p, err := r.startAgent(ctx, r.command(io))
	if err != nil {
		return outcome.Facts{}, errors.Join(err, io.close())
	}
	if io.input != nil {
		_ = io.input.Close() // the agent has its own
	}
	r.Log.Info("agent started", "harness", r.Spec.Name, "version", r.Spec.Version(r.binary), "pid", p.PID(),
		"session", cmp.Or(r.record.Session, r.record.SessionID))

	stopPass := r.passTerminal(ctx, io.screen)
	facts := r.attend(ctx, p, tree, outcome.Facts{}, io.outputs)
	stopPass() // the agent's last output is on the person's terminal before that is restored
	if io.screen != nil {
		if err := io.screen.Close(); err != nil {
			r.Log.Warn("restore terminal", "error", err)
		}
	}
	return facts, nil
}

// prepareAgent finds the agent's binary, if no earlier step did, and makes what the agent needs in the box.
func (r *run) prepareAgent() (err error) {
	if r.binary == "" {
		if r.binary, err = harness.Find(r.Spec, r.Binary, r.getenv); err != nil {
			return err
		}
	}
	if r.Spec.Prepare != nil {
		return r.Spec.Prepare(r.box())
	}
	return nil
}

func (r *run) openEnds() (ends, error) {
	if r.TTY == nil {
		outputs, err := r.openOutputs()
		if err != nil || !r.Live {
			return ends{outputs: outputs}, err
		}
		input, err := r.live.newAgent()
		if err != nil {
			return ends{}, errors.Join(err, ends{outputs: outputs}.close())
		}
		return ends{input: input, outputs: outputs}, nil
	}
	screen, err := stdio.NewTerminal(r.TTY)
	if err != nil {
		return ends{}, fmt.Errorf("make pseudo-terminal: %w", err)
	}
	return ends{screen: screen}, nil
}

// close closes the files of an agent that was not started, and restores the person's terminal.
func (s ends) close() (err error) {
	if s.screen != nil {
		err = s.screen.Close()
	}
	if s.input != nil {
		err = errors.Join(err, s.input.Close())
	}
	for _, o := range s.outputs {
		err = errors.Join(err, o.File.Close())
	}
	return err
}

// openOutputs opens the files of the agent's stdout and stderr.
func (r *run) openOutputs() ([]*stdio.Output, error) {
	stdout, err := stdio.NewOutput(r.Folder.Path, "stdout")
	if err != nil {
		return nil, err
	}
	stderr, err := stdio.NewOutput(r.Folder.Path, "stderr")
	if err != nil {
		return nil, errors.Join(err, stdout.File.Close())
	}
	r.trimmer = stdio.NewTrimmer(stdout, stderr)
	return []*stdio.Output{stdout, stderr}, nil
}

// passTerminal passes bytes between the person's terminal and the agent's until the returned func is called.
func (r *run) passTerminal(ctx context.Context, screen *stdio.Terminal) (stop func()) {
	if screen == nil {
		return func() {}
	}
	if err := screen.Started(); err != nil {
		r.Log.Warn("close the agent's end of the pseudo-terminal", "error", err)
	}
	return start(context.WithoutCancel(ctx), screen.Pass)
}

// command is the command that starts the agent.
func (r *run) command(io ends) harness.Command {
	task := r.task()
	do := harness.Invocation{}
	if r.Live {
		do = r.Spec.Live.Command(r.box(), task)
	} else {
		task.Prompt = r.earlier.turn(r.Prompt)
		do = r.Spec.Command(r.box(), task)
	}
	oom := harness.OOMKills()
	command := harness.Command{
		Path: r.binary, Args: do.Args, Dir: r.Cwd, Stdin: do.Stdin, Input: io.input, Group: r.group,
		Env: agentEnv(r.Environ, do.Env, "ARBE_THREAD_ID="+r.ThreadID, "ARBE_RUN_ID="+r.RunID,
			harness.MarkVar+"="+r.record.Instance, "PWD="+r.Cwd),
		Spawned: func(pid int) {
			st, _ := procfs.Read(pid) // a child that is not reaped has one
			spawned := runfolder.Fact{
				Fact: runfolder.FactSpawned, PID: pid, Ticks: st.Started, OOMKills: oom,
				Clock: runfolder.Clock(),
			}
			r.progress.Spawned = &spawned
			r.note(spawned)
		},
	}
	if io.screen != nil {
		command.TTY = io.screen.Agent
	} else {
		command.Stdout, command.Stderr = io.outputs[0].File, io.outputs[1].File
	}
	return command
}

// task is the agent's work, without a prompt.
func (r *run) task() harness.Task {
	return harness.Task{
		Session: harness.Session{Path: r.record.Session, ID: r.record.SessionID},
		Resume:  r.record.From.Index > 0, Model: r.Model, Args: r.Args, Person: r.TTY != nil,
	}
}

// How long a start is retried on a machine without room for the agent, and the waits between two tries.
const (
	startFor     = 3 * time.Minute
	firstStart   = 50 * time.Millisecond
	slowestStart = 5 * time.Second
)

// startAgent starts the agent. It retries while the machine lacks processes, memory or open files.
func (r *run) startAgent(ctx context.Context, command harness.Command) (*harness.Process, error) {
	began := runfolder.Clock()
	for wait := firstStart; ; wait = min(2*wait, slowestStart) {
		p, err := harness.Start(command)
		if errors.Is(err, harness.ErrNotReady) {
			r.note(runfolder.Fact{Fact: runfolder.FactExited, Exit: &harness.NotBegun})
		}
		if err == nil || !harness.Busy(err) || runfolder.Clock()-began > startFor {
			return p, err
		}
		if wait == firstStart {
			r.Log.Warn("start agent: no room, retrying", "for", startFor, "error", err)
		}
		pause.For(ctx, wait)
		if ctx.Err() != nil {
			return nil, err
		}
	}
}

// agentEnv is the agent's environment: the variables in always, then those of environ that the agent may see, then
// those of add that neither sets.
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
	// The runner's own, and those of the providers of boxes.
	hidden := []string{"ARBE_", "DAYTONA_", "SPRITES_", "DOCKER_"}
	return name != "DURABLE_STREAMS_SECRET" &&
		!slices.ContainsFunc(hidden, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
