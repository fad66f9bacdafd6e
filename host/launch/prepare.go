package launch

import (
	"bytes"
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

// look prints the box's machine, the SHA-256 of its runner and the path of its agent, in one command.
const look = inPath + `uname -m; sha256sum "$HOME/` + runnerPath + `" 2>/dev/null | cut -c1-64; echo
command -v "$1"; echo`

// prepare uploads and installs everything that the run needs and the box does not have.
func (g *launching) prepare(ctx context.Context, box sandbox.Sandbox, fresh bool) error {
	if fresh {
		if err := g.Make.Fill(ctx, box, g.steps.do); err != nil {
			return err
		}
	}
	machine, has, agent := "", "", ""
	if err := g.steps.do(ctx, "", "looking into the sandbox", func() error {
		out, err := sandbox.Shell(ctx, box, sandbox.Command{Timeout: time.Minute}, look, g.Agent.Program)
		if err != nil {
			return fmt.Errorf("look into the sandbox: %w", err)
		}
		var rest string
		machine, rest, _ = strings.Cut(string(out.Stdout), "\n")
		has, rest, _ = strings.Cut(rest, "\n")
		agent = strings.TrimSpace(rest)
		return nil
	}); err != nil {
		return err
	}
	put := func() error { return g.putRunner(ctx, box, machine, has) }
	if err := g.steps.do(ctx, "", "uploading the runner", put); err != nil {
		return err
	}
	var secret []string
	for _, f := range g.Files {
		secret = append(secret, f.Path)
	}
	if err := noteSecrets(ctx, box, secret); err != nil {
		return err
	}
	for _, f := range g.Files { // first: npm may need its configuration
		if err := g.steps.do(ctx, thread.StepFile, f.Path, func() error { return g.putFile(ctx, box, f) }); err != nil {
			return err
		}
	}
	if agent == "" {
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
		c := sandbox.Command{Env: g.Setup.Env, Timeout: g.Setup.Timeout, Output: g.output}
		if err := g.steps.do(ctx, thread.StepCommand, command, func() error {
			_, err := sandbox.Shell(ctx, box, c, inPath+command)
			return err
		}); err != nil {
			return fmt.Errorf("setup command %q: %w", command, err)
		}
	}
	if (g.Dir != nil || len(g.Make.Folders) > 0) && fresh {
		return g.mark(ctx, box)
	}
	return nil
}

// putFile uploads one of the user's files, with mode 0600.
func (g *launching) putFile(ctx context.Context, box sandbox.Sandbox, f Inline) error {
	err := box.Upload(ctx, sandbox.File{
		Path: f.Path, InHome: true, Content: bytes.NewReader(f.Content), Size: int64(len(f.Content)), Mode: 0o600,
	})
	if err != nil {
		return fmt.Errorf("put %s into the sandbox: %w", f.Path, err)
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

// putRunner uploads the runner unless the box has the same one.
func (l *Launcher) putRunner(ctx context.Context, box sandbox.Sandbox, machine, has string) error {
	return uploadRunner(ctx, box, machine, has, l.Runner, l.progress)
}
