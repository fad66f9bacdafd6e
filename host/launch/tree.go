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
	_, err := sh(
		ctx,
		box,
		sandbox.Command{Timeout: time.Minute},
		`mkdir -p "$HOME/.arbe" && : >"$HOME/`+copiedMark+`"`,
	)
	return err
}

// FolderChanged reports whether any file in the working directory of a box has changed since the launch copied a folder
// there. It compares change times; a deletion changes that of the folder.
func FolderChanged(ctx context.Context, box sandbox.Sandbox) (bool, error) {
	res, err := box.Exec(ctx, sandbox.Command{
		Argv:    []string{"sh", "-c", `find . -cnewer "$HOME/` + copiedMark + `" -print | head -n 1`},
		Timeout: 5 * time.Minute, MaxOutput: 4 << 10,
	})
	switch {
	case err != nil:
	case res.TimedOut:
		err = fmt.Errorf("timed out after %v", res.Duration.Round(time.Second))
	case res.ExitCode != 0 || len(res.Stderr) > 0:
		err = fmt.Errorf("exit status %d: %s", res.ExitCode, strings.TrimSpace(string(res.Stderr)))
	}
	if err != nil {
		return false, fmt.Errorf("look for changes in the folder: %w", err)
	}
	return len(res.Stdout) > 0, nil
}
