package sandbox

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// gitUser is the user name sent with a token. GitHub checks the token alone, but needs a name.
const gitUser = "git"

// transfer bounds a clone or a snapshot.
const transfer = 20 * time.Minute

// clone clones the repository and checks the branch out: the remote's if it exists, else a new one from the default
// branch.
func (b *daytonaBox) clone(ctx context.Context, address string, begin Branch, token string) error {
	r := Repository{Work: begin.Name}
	if begin.Existing {
		r = Repository{Branch: begin.Name}
	}
	return b.cloneByDaemon(ctx, address, r, token)
}

// cloneByDaemon clones a branch, and makes r.Work from it.
func (b *daytonaBox) cloneByDaemon(ctx context.Context, address string, r Repository, token string) error {
	body := map[string]any{"url": address, "path": b.work}
	if r.Branch != "" {
		body["branch"] = r.Branch
	}
	if r.Depth > 0 {
		body["depth"] = r.Depth // older daemons ignore it
	}
	if token != "" {
		body["username"], body["password"] = gitUser, token
	}
	if err := b.git(ctx, "clone "+plain(address), "clone", body, transfer, token); err != nil {
		return err
	}
	return b.newBranch(ctx, r.Work)
}

// newBranch makes a branch at HEAD and checks it out; "" is none.
func (b *daytonaBox) newBranch(ctx context.Context, branch string) error {
	if branch == "" {
		return nil
	}
	body := map[string]string{"path": b.work, "name": branch}
	if err := b.git(ctx, "make the branch "+branch, "branches", body, attempt); err != nil {
		return err
	}
	body = map[string]string{"path": b.work, "branch": branch}
	return b.git(ctx, "check out "+branch, "checkout", body, attempt)
}

// git sends the daemon a git operation.
func (b *daytonaBox) git(
	ctx context.Context, doing, what string, body any, limit time.Duration, secrets ...string,
) error {
	return b.call(ctx, request{
		doing: doing, method: http.MethodPost, url: "/git/" + what, body: body, once: true,
		attempt: limit, secrets: secrets,
	})
}

// Snapshot commits everything in the working directory, even if nothing has changed, and returns the commit. It runs
// the box's git: the daemon's own can't read a branch without a commit, commits no empty tree, and adds the files of
// a nested repository as plain files.
func (b *daytonaBox) Snapshot(ctx context.Context, message string) (string, error) {
	s := sh("commit", `cd "$1" && shift && { [ -e .git ] || git init --quiet; } &&
git add --all && git "$@" && git rev-parse HEAD`, append([]string{b.work}, commitArgs(message)...)...)
	s.limit = transfer
	output, code, err := b.execute(ctx, s)
	if err != nil {
		return "", err
	}
	lines := strings.Split(strings.TrimSpace(output), "\n")
	last := lines[len(lines)-1] // git may print warnings before it
	if code != 0 || !hash.MatchString(last) {
		return "", fmt.Errorf("daytona: commit: exit %d%s", code, after(output))
	}
	return last, nil
}

var hash = regexp.MustCompile(`\A[0-9a-f]{40,64}\z`)
