package launch

import (
	"context"
	"fmt"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
)

// Paths in a box, relative to the home folder of its user, who need not be root.
const (
	runnerPath = sandbox.RunnerPath
	npmPrefix  = ".npm-global" // of the agent, if the box has none
)

// CommandLogs is the folder of the logs of commands in a box, relative to the home folder of its user.
const CommandLogs = ".arbe/exec"

// inPath adds the agents that a launch has installed to the PATH of a shell.
const inPath = `PATH="$HOME/` + npmPrefix + `/bin:$PATH"; export PATH; `

// installFor bounds the installation of the agent.
const installFor = 10 * time.Minute

// prepare uploads and installs everything that the run needs and the box does not have.
func (g *launching) prepare(ctx context.Context, box sandbox.Sandbox, fresh bool) error {
	if fresh {
		if err := g.Make.Fill(ctx, box, g.steps.do); err != nil {
			return err
		}
	}
	var has content
	if err := g.steps.do(ctx, "", "looking into the sandbox", func() (err error) {
		has, err = contentOf(ctx, box, g.Agent.Program)
		return err
	}); err != nil {
		return err
	}
	progress := func(step string) { g.progress("%s", step) }
	put := func() error { return has.putRunner(ctx, box, g.Runner, progress) }
	if err := g.steps.do(ctx, "", "uploading the runner", put); err != nil {
		return err
	}
	if err := noteSecrets(ctx, box, g.Files); err != nil {
		return err
	}
	for _, f := range g.Files { // first: npm may need its configuration
		name := strings.TrimPrefix(f.Path, inHome)
		if err := g.steps.do(ctx, thread.StepFile, name, func() error {
			if err := f.put(ctx, box); err != nil {
				return fmt.Errorf("put %s into the sandbox: %w", name, err)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	if has.agent == "" {
		g.progress("installing %s", g.Agent.Package)
		install := func() error { return g.install(ctx, box) }
		if err := g.steps.do(ctx, thread.StepAgent, g.Agent.Package, install); err != nil {
			return err
		}
	}
	if g.Dir != nil {
		g.progress("copying %s", g.Dir)
		copyIn := func() error { return g.Dir.CopyIn(ctx, box, fresh) }
		if err := g.steps.do(ctx, thread.StepFolder, g.Dir.String(), copyIn); err != nil {
			return fmt.Errorf("copy %s into the sandbox: %w", g.Dir, err)
		}
	}
	if fresh {
		if err := g.Make.SetUp(ctx, box, g.secrets, g.steps.do, g.output); err != nil {
			return err
		}
	}
	for _, command := range g.Setup.Commands {
		g.progress("setup: %s", command)
		c := sandbox.Command{Env: g.Setup.Env, Output: g.output}
		if err := setUp(ctx, box, command, c, g.steps.do); err != nil {
			return err
		}
	}
	if (g.Dir != nil || len(g.Make.Folders) > 0) && fresh {
		return g.mark(ctx, box)
	}
	return nil
}

// install installs the agent in the box.
func (g *launching) install(ctx context.Context, box sandbox.Sandbox) error {
	install := `npm install --global --no-audit --no-fund --loglevel=error --prefix "$HOME/` + npmPrefix + `" "$1"`
	c := sandbox.Command{Timeout: installFor, Output: g.output}
	if _, err := sandbox.Shell(ctx, box, c, install, g.Agent.Package); err != nil {
		return fmt.Errorf("install %s in the sandbox: %w", g.Agent.Package, err)
	}
	return nil
}

// Tree is a folder of this host that a launch copies into the box.
type Tree interface {
	fmt.Stringer
	// CopyIn copies the folder into the box's working directory. fresh is set if the box was made for this run.
	CopyIn(ctx context.Context, box sandbox.Sandbox, fresh bool) error
}

// copiedMark is a file in the box's home folder. Its time is the end of the copy and the setup.
const copiedMark = ".arbe/copied"

// mark creates copiedMark: later changes are the agent's.
func (g *launching) mark(ctx context.Context, box sandbox.Sandbox) error {
	const script = `mkdir -p "$HOME/.arbe" && : >"$HOME/` + copiedMark + `"`
	_, err := sandbox.Shell(ctx, box, sandbox.Command{Timeout: time.Minute}, script)
	return err
}

// FolderChanged reports whether any file in the working directory of a box has changed since the launch copied a folder
// there. It compares change times; a deletion changes that of the folder. Without the mark of a copy it may have.
func FolderChanged(ctx context.Context, box sandbox.Sandbox) (bool, error) {
	const script = `[ -e "$HOME/` + copiedMark + `" ] || { echo unmarked; exit; }
find . -cnewer "$HOME/` + copiedMark + `" -print | head -n 1`
	return prints(ctx, box, "look for changes in the folder", script)
}

// Worked reports whether a runner or a command was ever started in a box. In any other box nobody has left work.
func Worked(ctx context.Context, box sandbox.Sandbox) (bool, error) {
	const script = `ls -d "$HOME/` + sandbox.RunnerLog + `" "$HOME/` + CommandLogs + `" 2>/dev/null || :`
	return prints(ctx, box, "look for a runner's traces", script)
}

// prints reports whether a script in a box, which does something, prints anything. A script that fails, or complains,
// is a *sandbox.ExitError.
func prints(ctx context.Context, box sandbox.Sandbox, doing, script string) (bool, error) {
	res, err := sandbox.Shell(ctx, box, sandbox.Command{Timeout: 5 * time.Minute, MaxOutput: 4 << 10}, script)
	if err == nil && len(res.Stderr) > 0 {
		err = &sandbox.ExitError{Output: strings.TrimSpace(string(res.Stderr))}
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", doing, err)
	}
	return len(res.Stdout) > 0, nil
}
