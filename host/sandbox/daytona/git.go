package daytona

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/kit"
)

// Snapshot commits everything in the working directory, even if nothing has changed, and returns the commit. It runs
// the box's git: the daemon's own can't read a branch without a commit, commits no empty tree, and adds the files of
// a nested repository as plain files.
func (b *box) Snapshot(ctx context.Context, message string) (string, error) {
	return kit.Snapshot(ctx, b, message)
}

// At returns the box with another working directory, path below the workspace. The directory need not exist.
func (b *box) At(path string) (sandbox.Sandbox, error) {
	work, err := sandbox.ConfineFile(b.workspace(), path)
	if err != nil || filepath.IsAbs(path) {
		return nil, &sandbox.ConfinedError{Path: path, Root: b.workspace()}
	}
	return &box{p: b.p, id: b.id, toolbox: b.toolbox, home: b.home, work: work}, nil
}

// Clone clones a repository into the working directory, which is made if it is missing, and else has to be empty. The
// daemon clones branches, so that the box needs no git for those. It knows no tags, and no commit that the default
// branch lacks.
func (b *box) Clone(ctx context.Context, r sandbox.Repository) error {
	if filepath.IsAbs(r.Repo) {
		return fmt.Errorf("%s is a folder of this host, which a box at Daytona can't reach", r.Repo)
	}
	address, token, err := r.Source(b.p.conf.GitHub)
	if err != nil {
		return err
	}
	if err := kit.Begin(ctx, &r, address, token); err != nil {
		return err
	}
	if r.Tag == "" && r.Commit == "" {
		return b.cloneByDaemon(ctx, address, r, token)
	}
	if err := b.folder(ctx, b.work, 0o755); err != nil {
		return err
	}
	if err := kit.Clone(ctx, b, r, address, token); err != nil {
		return err
	}
	return b.newBranch(ctx, r.Work)
}

// cloneByDaemon clones a branch, and makes r.Work from it.
func (b *box) cloneByDaemon(ctx context.Context, address string, r sandbox.Repository, token string) error {
	body := map[string]any{"url": address, "path": b.work}
	if r.Branch != "" {
		body["branch"] = r.Branch
	}
	if r.Depth > 0 {
		body["depth"] = r.Depth // older daemons ignore it
	}
	if token != "" {
		body["username"], body["password"] = "git", token // GitHub checks the token alone, but needs a name
	}
	if err := b.git(ctx, "clone "+kit.Plain(address), "clone", body, kit.TransferTimeout, token); err != nil {
		return err
	}
	return b.newBranch(ctx, r.Work)
}

// newBranch makes a branch at HEAD and checks it out. An empty name means no branch.
func (b *box) newBranch(ctx context.Context, branch string) error {
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
func (b *box) git(
	ctx context.Context, doing, what string, body any, limit time.Duration, secrets ...string,
) error {
	return b.call(ctx, request{
		doing: doing, method: http.MethodPost, url: "/git/" + what, body: body, once: true,
		attempt: limit, secrets: secrets,
	})
}
