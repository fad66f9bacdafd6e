package launch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread/redact"
)

// noteSecrets adds the secrets among the files to the box's list of secret files. Programs that post output of the box
// redact the content of those. The paths of the list are absolute, or relative to the home folder. The list is written
// before the files.
func noteSecrets(ctx context.Context, box sandbox.Sandbox, files []File) error {
	var paths []string
	for _, f := range files {
		if !f.Sensitive {
			continue
		}
		file, is := strings.CutPrefix(f.Path, inHome)
		if !is {
			first, rest, _ := strings.Cut(f.Path, "/")
			at, err := within(box, first)
			if err != nil {
				return err
			}
			file = path.Join(at.WorkDir(), rest)
		}
		paths = append(paths, file)
	}
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

// content describes a box: the things that a launch does not have to bring.
type content struct {
	machine string // as uname -m names it
	runner  string // the SHA-256 of its runner; "" without one
	agent   string // the path of its agent; "" without one
}

// contentOf looks into a box, for an agent's program, too.
func contentOf(ctx context.Context, box sandbox.Sandbox, program string) (c content, err error) {
	const look = inPath + `uname -m; sha256sum "$HOME/` + runnerPath + `" 2>/dev/null | cut -c1-64; echo
command -v "$1"; echo`
	res, err := sandbox.Shell(ctx, box, sandbox.Command{Timeout: time.Minute}, look, program)
	if err != nil {
		return c, fmt.Errorf("look into the sandbox: %w", err)
	}
	var rest string
	c.machine, rest, _ = strings.Cut(string(res.Stdout), "\n")
	c.runner, rest, _ = strings.Cut(rest, "\n")
	c.agent = strings.TrimSpace(rest)
	return c, nil
}

// PutRunner uploads the runner to a box that does not have the same one. runner returns the path of its binary for an
// architecture ("amd64", "arm64").
func PutRunner(
	ctx context.Context, box sandbox.Sandbox, runner func(arch string) (string, error), progress func(step string),
) error {
	has, err := contentOf(ctx, box, "")
	if err != nil {
		return err
	}
	return has.putRunner(ctx, box, runner, progress)
}

// InRunnerPath is a script that executes the runner of a box with the script's arguments. The agents that a launch has
// installed are in its PATH.
const InRunnerPath = inPath + `exec "$HOME/` + runnerPath + `" "$@"`

// putRunner uploads the runner to a box, unless the same one is in its content.
func (c content) putRunner(
	ctx context.Context, box sandbox.Sandbox, runner func(arch string) (string, error), progress func(step string),
) error {
	arch, ok := map[string]string{"x86_64": "amd64", "aarch64": "arm64"}[c.machine]
	if !ok {
		return fmt.Errorf("the sandbox is a %q: runners exist for x86_64 and aarch64", c.machine)
	}
	file, err := runner(arch)
	if err != nil {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close() // read only: nothing to lose
	sum := sha256.New()
	size, err := io.Copy(sum, f)
	if err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) == c.runner {
		return nil
	}
	progress(fmt.Sprintf("uploading the runner (%.1f MB)", float64(size)/1e6))
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	binary := sandbox.File{Path: runnerPath, InHome: true, Content: f, Size: size, Mode: 0o755}
	if err := box.Upload(ctx, binary); err != nil {
		return fmt.Errorf("put the runner into the sandbox: %w", err)
	}
	return nil
}
