package launch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
)

// Where things are in a box, below the home folder of its user, who need not be root.
const (
	runnerPath = ".arbe/bin/arbe-pi-runner"
	npmPrefix  = ".npm-global" // where the agent is installed, where the box has none
)

// inPath makes what is installed in a box known to a shell there.
const inPath = `PATH="$HOME/` + npmPrefix + `/bin:$PATH"; export PATH; `

// installFor is how long the agent may take to install.
const installFor = 10 * time.Minute

// look asks a box all that is to be known of it before anything is put there, in one command.
const look = inPath + `uname -m; sha256sum "$HOME/` + runnerPath + `" 2>/dev/null | cut -c1-64; echo; command -v "$1"; echo`

// prepare puts into the box what the run needs there, as far as it is not there yet.
func (l *Launcher) prepare(ctx context.Context, t Task, box sandbox.Sandbox) error {
	out, err := l.sh(ctx, box, sandbox.Command{Timeout: time.Minute}, look, l.Agent.Program)
	if err != nil {
		return fmt.Errorf("look at the sandbox: %w", err)
	}
	machine, rest, _ := strings.Cut(out, "\n")
	has, rest, _ := strings.Cut(rest, "\n")
	agent := strings.TrimSpace(rest)
	if err := l.putRunner(ctx, box, machine, has); err != nil {
		return err
	}
	var files []sandbox.File // first: npm may need its configuration
	for _, f := range t.Files {
		mode := fs.FileMode(0o644)
		if f.Sensitive {
			mode = 0o600
		}
		files = append(files, sandbox.File{Path: f.Path, InHome: true, Content: bytes.NewReader(f.Content), Size: int64(len(f.Content)), Mode: mode})
	}
	if len(files) > 0 {
		if err := box.Upload(ctx, files...); err != nil {
			return fmt.Errorf("put files into the sandbox: %w", err)
		}
	}
	if agent == "" {
		l.progress("installing %s", l.Agent.Package)
		install := `npm install --global --no-audit --no-fund --loglevel=error --prefix "$HOME/` + npmPrefix + `" "$1"`
		if _, err := l.sh(ctx, box, sandbox.Command{Timeout: installFor, Output: l.said}, install, l.Agent.Package); err != nil {
			return fmt.Errorf("install %s in the sandbox: %w", l.Agent.Package, err)
		}
	}
	if t.Dir != nil {
		l.progress("copying %s", t.Dir.Path)
		if err := l.copyIn(ctx, box, *t.Dir); err != nil {
			return fmt.Errorf("copy %s into the sandbox: %w", t.Dir.Path, err)
		}
	}
	for _, command := range t.Setup.Commands {
		l.progress("setup: %s", command)
		c := sandbox.Command{Env: t.Setup.Env, Timeout: t.Setup.Timeout, Output: l.said}
		if _, err := l.sh(ctx, box, c, inPath+command); err != nil {
			return fmt.Errorf("setup command %q: %w", command, err)
		}
	}
	return nil
}

// putRunner puts the runner into a box that has another one, or none.
func (l *Launcher) putRunner(ctx context.Context, box sandbox.Sandbox, machine, has string) error {
	arch, ok := map[string]string{"x86_64": "amd64", "aarch64": "arm64"}[machine]
	if !ok {
		return fmt.Errorf("the sandbox is a %q: there is no runner for that", machine)
	}
	path, err := l.Runner(arch)
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() // read only: nothing to lose
	sum := sha256.New()
	size, err := io.Copy(sum, f)
	if err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) == has {
		return nil
	}
	l.progress("uploading the runner (%.1f MB)", float64(size)/1e6)
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := box.Upload(ctx, sandbox.File{Path: runnerPath, InHome: true, Content: f, Size: size, Mode: 0o755}); err != nil {
		return fmt.Errorf("put the runner into the sandbox: %w", err)
	}
	return nil
}

// said passes what a command in the box says on to whoever watches.
func (l *Launcher) said(_ sandbox.Stream, b []byte) {
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" {
			l.progress("  %s", line)
		}
	}
}

// sh runs a script in the box's working directory, and returns what it prints. One that fails is an error that has its last words.
func (l *Launcher) sh(ctx context.Context, box sandbox.Sandbox, c sandbox.Command, script string, args ...string) (string, error) {
	c.Argv = append([]string{"sh", "-c", script, "sh"}, args...)
	res, err := box.Exec(ctx, c)
	switch {
	case err != nil:
		return "", err
	case res.TimedOut:
		return "", fmt.Errorf("not done after %v", res.Duration.Round(time.Second))
	case res.ExitCode != 0:
		words := strings.TrimSpace(string(res.Stderr))
		if words == "" {
			words = strings.TrimSpace(string(res.Stdout))
		}
		if i := strings.LastIndexByte(words, '\n'); i >= 0 && len(words) > 2000 {
			words = words[len(words)-2000:]
		}
		return "", fmt.Errorf("exit status %d: %s", res.ExitCode, words)
	}
	return string(res.Stdout), nil
}

// fire starts the runner. What it needs to know is in its environment: nobody reads that but the box's own user.
func (l *Launcher) fire(ctx context.Context, t Task, box sandbox.Sandbox, resume string) (sandbox.Process, error) {
	write, renew, err := l.Tokens(t.Thread, t.Run)
	if err != nil {
		return sandbox.Process{}, err
	}
	env := map[string]string{}
	maps.Copy(env, t.Env)
	maps.Copy(env, l.RunnerEnv)
	maps.Copy(env, map[string]string{
		"ARBE_THREAD_ID": t.Thread, "ARBE_RUN_ID": t.Run, "ARBE_STREAM_URL": l.StreamURL, "ARBE_STREAM_TOKEN": write, "ARBE_STREAM_RENEW_TOKEN": renew,
		"ARBE_SANDBOX": box.Ref().String(),
	})
	if t.Author != "" {
		env["ARBE_AUTHOR_ID"] = t.Author
	}
	argv := []string{"sh", "-c", inPath + `exec "$HOME/` + runnerPath + `" "$@"`, "sh", "run", "--harness", t.Harness, "--cwd", box.WorkDir()}
	if t.Model != "" {
		argv = append(argv, "--model", t.Model)
	}
	if resume != "none" {
		argv = append(argv, "--resume")
	}
	if resume == "hydrate" {
		argv = append(argv, "--hydrate")
	}
	for _, a := range t.Args {
		argv = append(argv, "--agent-arg", a)
	}
	p, err := box.Detach(ctx, sandbox.Command{Argv: argv, Env: env}, ".arbe/runner.log")
	if err != nil {
		return p, fmt.Errorf("start the runner: %w", err)
	}
	return p, nil
}
