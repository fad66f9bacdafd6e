package sandbox

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// gitUser goes with a token. GitHub looks at the token alone, and wants some name.
const gitUser = "git"

// transfer is how long a clone or a snapshot may take.
const transfer = 20 * time.Minute

// clone clones the repository: the branch, where the repository has it, else the default branch, in which the branch
// is made.
func (b *daytonaBox) clone(ctx context.Context, address string, begin Branch, token string) error {
	branch := begin.Name
	body := map[string]string{"url": address, "path": b.work}
	if begin.Existing {
		body["branch"], branch = branch, ""
	}
	if token != "" {
		body["username"], body["password"] = gitUser, token
	}
	if err := b.git(ctx, "clone "+address, "clone", body, transfer, token); err != nil {
		return err
	}
	if branch == "" {
		return nil
	}
	body = map[string]string{"path": b.work, "name": branch}
	if err := b.git(ctx, "make the branch "+branch, "branches", body, attempt); err != nil {
		return err
	}
	body = map[string]string{"path": b.work, "branch": branch}
	return b.git(ctx, "check out "+branch, "checkout", body, attempt)
}

// git sends the daemon something to do with git.
func (b *daytonaBox) git(
	ctx context.Context, doing, what string, body any, limit time.Duration, secrets ...string,
) error {
	return b.call(ctx, request{
		doing: doing, method: http.MethodPost, url: "/git/" + what, body: body, once: true,
		attempt: limit, secrets: secrets,
	})
}

// Snapshot has git itself commit. The daemon's own git can't look at a branch without a commit, commits no empty
// tree, and adds the files of a nested repository as plain files.
func (b *daytonaBox) Snapshot(ctx context.Context, message string) (string, error) {
	s := sh("commit", `cd "$1" && shift && { [ -e .git ] || git init --quiet; } &&
git add --all && git "$@" && git rev-parse HEAD`, append([]string{b.work}, commitArgs(message)...)...)
	s.limit = transfer
	said, code, err := b.execute(ctx, s)
	if err != nil {
		return "", err
	}
	lines := strings.Split(strings.TrimSpace(said), "\n")
	last := lines[len(lines)-1] // before it git may have warned of something
	if code != 0 || !hash.MatchString(last) {
		return "", fmt.Errorf("daytona: commit: exit %d: %s", code, clip(said))
	}
	return last, nil
}

var hash = regexp.MustCompile(`\A[0-9a-f]{40,64}\z`)
