package sandbox

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// gitUser goes with a token. GitHub looks at the token alone, and wants some name.
const gitUser = "git"

// transfer is how long a clone or a push may take.
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
	if err := b.git(ctx, "clone "+address, "clone", body, nil, transfer, token); err != nil {
		return err
	}
	if branch == "" {
		return nil
	}
	if s, err := b.status(ctx); err != nil || s.Branch == branch { // the default branch itself
		return err
	}
	if err := b.git(ctx, "make the branch "+branch, "branches", map[string]string{"path": b.work, "name": branch}, nil, attempt); err != nil {
		return err
	}
	return b.git(ctx, "check out "+branch, "checkout", map[string]string{"path": b.work, "branch": branch}, nil, attempt)
}

// git sends the daemon something to do with git.
func (b *daytonaBox) git(ctx context.Context, doing, what string, body, into any, limit time.Duration, secrets ...string) error {
	return b.call(ctx, request{
		doing: doing, method: http.MethodPost, url: "/git/" + what, body: body, into: into, once: true, attempt: limit, secrets: secrets,
	})
}

// gitStatus is the daemon's view of the working directory.
type gitStatus struct {
	Branch string `json:"currentBranch"`
}

func (b *daytonaBox) status(ctx context.Context) (s gitStatus, err error) {
	query := url.Values{"path": {b.work}}
	err = b.call(ctx, request{
		doing: "look at the working directory", method: http.MethodGet, url: "/git/status?" + query.Encode(), into: &s, attempt: transfer,
	})
	return s, err
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

// Push pushes the branch that is checked out: the daemon knows no other.
func (b *daytonaBox) Push(ctx context.Context, branch, token string) error {
	if err := checkBranch(branch); err != nil {
		return err
	}
	s, err := b.status(ctx)
	if err != nil {
		return err
	}
	if s.Branch != branch {
		return fmt.Errorf("daytona: push %s: the branch in the working directory is %s", branch, s.Branch)
	}
	body := map[string]string{"path": b.work}
	if token != "" {
		body["username"], body["password"] = gitUser, token
	}
	return b.git(ctx, "push "+branch, "push", body, nil, transfer, token)
}
