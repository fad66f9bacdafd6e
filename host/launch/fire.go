package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/recipe"
	"arbe.0sk.ar/runner/host/sandbox"
)

// environment returns the environment of the runner in a box: the agent's, and its own settings and tokens, which only
// the box's own user can read.
func (g *launching) environment(box sandbox.Sandbox) (map[string]string, error) {
	t := g.Task
	author := cmp.Or(t.Driver, t.Author, t.Env["ARBE_AUTHOR_ID"])
	write, renew, err := g.Tokens(t.Thread, t.Run, author)
	if err != nil {
		return nil, err
	}
	env := map[string]string{}
	maps.Copy(env, t.Env)
	maps.Copy(env, map[string]string{
		"ARBE_THREAD_ID": t.Thread, "ARBE_RUN_ID": t.Run, "ARBE_SANDBOX": box.Ref().String(),
		"ARBE_STREAM_URL": g.StreamURL, "ARBE_STREAM_TOKEN": write, "ARBE_STREAM_RENEW_TOKEN": renew,
	})
	if t.Limit > 0 {
		env[variableLimit] = t.Limit.String()
	}
	if t.LimitWhy != "" {
		env[variableLimitWhy] = t.LimitWhy
	}
	if len(g.secrets) > 0 {
		names := slices.Sorted(maps.Keys(g.secrets))
		env["ARBE_REDACT"] = strings.Trim(t.Env["ARBE_REDACT"]+","+strings.Join(names, ","), ",")
	}
	if author != "" {
		env["ARBE_AUTHOR_ID"] = author
	}
	return env, nil
}

// reachFor bounds Reach. The runner's own tries take less.
const reachFor = 2 * time.Minute

// Reach has the runner in a box ask whether it reaches the thread server, and whether that takes the token, with the
// environment that it is going to have. A box without a way to the server would work unnoticed.
func Reach(ctx context.Context, box sandbox.Sandbox, env map[string]string) error {
	_, err := sandbox.Shell(ctx, box, sandbox.Command{Env: env, Timeout: reachFor}, InRunnerPath, "reach")
	if failed, is := errors.AsType[*sandbox.ExitError](err); is && failed.Output != "" {
		err = errors.New(strings.TrimPrefix(failed.Last(), "arbe-pi-runner: "))
	}
	if err != nil {
		return fmt.Errorf("the sandbox %s: %w", box.Ref(), err)
	}
	return nil
}

// fire starts the runner with an environment.
func (g *launching) fire(
	ctx context.Context, box sandbox.Sandbox, resume string, env map[string]string,
) (sandbox.Process, error) {
	t := g.Task
	argv := []string{
		"sh", "-c", InRunnerPath, "sh",
		"run", "--harness", t.Harness, "--cwd", box.WorkDir(),
	}
	if t.Model != "" {
		argv = append(argv, "--model", t.Model)
	}
	if resume != "none" {
		argv = append(argv, "--resume")
	}
	if resume == "hydrate" {
		argv = append(argv, "--hydrate")
	}
	if t.Live {
		argv = append(argv, "--live")
	}
	if t.Idle > 0 {
		argv = append(argv, "--idle", t.Idle.String())
	}
	for _, a := range t.Args {
		argv = append(argv, "--agent-arg", a)
	}
	p, err := box.Detach(ctx, sandbox.Command{Argv: argv, Env: env}, sandbox.RunnerLog)
	if err != nil {
		return p, fmt.Errorf("start the runner: %w", err)
	}
	return p, nil
}

// The runner's variables with the limit of its run, and the reason for that.
const (
	variableLimit    = "ARBE_PI_TIMEOUT"
	variableLimitWhy = "ARBE_PI_TIMEOUT_REASON"
)

// Within bounds how long the task's run may last. The end of one that this bound ends has the reason.
func (t *Task) Within(most time.Duration, why string) {
	if t.Limit = t.longest(); most < t.Limit {
		t.Limit, t.LimitWhy = most, why
	}
}

// longest returns how long the task's run may last.
func (t Task) longest() time.Duration {
	if t.Limit > 0 {
		return t.Limit
	}
	if d, err := time.ParseDuration(t.Env[variableLimit]); err == nil && d > 0 {
		return d
	}
	return recipe.MaxRun
}

// autoStop returns the AutoStop of the task's box. One that could end the run is an error.
func (t Task) autoStop() (time.Duration, error) {
	least := recipe.LeastAutoStop(t.longest())
	switch {
	case t.Box.AutoStop == 0:
		return least, nil
	case t.Box.AutoStop < least:
		return 0, fmt.Errorf("limits.autostop %v: want at least %v: the run may last %v", t.Box.AutoStop, least,
			t.longest())
	}
	return t.Box.AutoStop, nil
}

// outlaster is a box that its provider may stop while a run or a command works in it.
type outlaster interface {
	// Outlast has the box stay for at least d without a call to it.
	Outlast(ctx context.Context, d time.Duration) error
}

// Outlast has a box that was made for another run or command stay for one that may last for the time d.
func Outlast(ctx context.Context, box sandbox.Sandbox, d time.Duration) error {
	o, is := box.(outlaster)
	if !is {
		return nil
	}
	if err := o.Outlast(ctx, recipe.LeastAutoStop(d)); err != nil {
		return fmt.Errorf("have the sandbox %s stay for %v: %w", box.Ref(), d, err)
	}
	return nil
}
