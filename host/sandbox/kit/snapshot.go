package kit

import (
	"context"
	"fmt"
	"path"
	"strings"

	"arbe.0sk.ar/runner/host/sandbox"
)

const snapshotScript = `[ -e .git ] || git init --quiet && git add --all && git "$@" && git rev-parse HEAD`

// Snapshot commits with the author arbe. It uses no identity, signature or hook of the repository: the agent may have
// broken those.
func Snapshot(ctx context.Context, box sandbox.Sandbox, message string) (string, error) {
	c := sandbox.Command{
		Timeout: TransferTimeout, Env: map[string]string{"GIT_CEILING_DIRECTORIES": path.Dir(box.WorkDir())},
	}
	res, err := sandbox.Shell(ctx, box, c, snapshotScript,
		"-c", "user.name=arbe", "-c", "user.email=arbe@localhost", "-c", "commit.gpgSign=false",
		"commit", "--quiet", "--allow-empty", "--allow-empty-message", "--no-verify", "--message="+message)
	if err != nil {
		return "", fmt.Errorf("snapshot: %w", err)
	}
	return strings.TrimSpace(string(res.Stdout)), nil
}
