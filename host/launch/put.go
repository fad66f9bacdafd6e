package launch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread/redact"
)

// noteSecrets adds files to the box's list of those that hold secrets, for who posts what is printed in the box. Paths
// are absolute, or relative to the home folder. It comes before the files.
func noteSecrets(ctx context.Context, box sandbox.Sandbox, paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	// Other launches may be at work in the box: a line is appended by one write, and no line is replaced.
	const script = `umask 077; list="$HOME/` + redact.Files + `"; mkdir -p "${list%/*}" && touch "$list" || exit
for path; do grep -qxF -e "$path" "$list" || printf '%s\n' "$path" >>"$list" || exit; done`
	_, err := sandbox.Shell(ctx, box, sandbox.Command{Timeout: time.Minute}, script, paths...)
	if err != nil {
		return fmt.Errorf("note the files with secrets: %w", err)
	}
	return nil
}

// lookRunner prints the box's machine and the SHA-256 of its runner.
const lookRunner = `uname -m; sha256sum "$HOME/` + runnerPath + `" 2>/dev/null | cut -c1-64; echo`

// PutRunner uploads the runner to a box that does not have the same one. runner returns the path of its binary for an
// architecture ("amd64", "arm64").
func PutRunner(
	ctx context.Context, box sandbox.Sandbox, runner func(arch string) (string, error), progress func(step string),
) error {
	l := &Launcher{Progress: progress}
	out, err := sandbox.Shell(ctx, box, sandbox.Command{Timeout: time.Minute}, lookRunner)
	if err != nil {
		return fmt.Errorf("look into the sandbox: %w", err)
	}
	machine, rest, _ := strings.Cut(string(out.Stdout), "\n")
	has, _, _ := strings.Cut(rest, "\n")
	return uploadRunner(ctx, box, machine, has, runner, l.progress)
}

// InRunnerPath is a script that executes the runner of a box with the script's arguments. The agents that a launch has
// installed are in its PATH.
const InRunnerPath = inPath + `exec "$HOME/` + runnerPath + `" "$@"`

// uploadRunner uploads the runner for a machine, as uname -m names it, unless its SHA-256 is has.
func uploadRunner(
	ctx context.Context,
	box sandbox.Sandbox,
	machine, has string,
	runner func(arch string) (string, error),
	progress func(format string, args ...any),
) error {
	arch, ok := map[string]string{"x86_64": "amd64", "aarch64": "arm64"}[machine]
	if !ok {
		return fmt.Errorf("the sandbox is a %q: runners exist for x86_64 and aarch64", machine)
	}
	path, err := runner(arch)
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
	progress("uploading the runner (%.1f MB)", float64(size)/1e6)
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	file := sandbox.File{Path: runnerPath, InHome: true, Content: f, Size: size, Mode: 0o755}
	if err := box.Upload(ctx, file); err != nil {
		return fmt.Errorf("put the runner into the sandbox: %w", err)
	}
	return nil
}
