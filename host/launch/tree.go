package launch

import (
	"context"
	"fmt"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
)

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
