package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/kit"
)

// Snapshot commits everything in the working directory, even if nothing has changed, and returns the commit.
func (b *box) Snapshot(ctx context.Context, message string) (string, error) {
	return kit.Snapshot(ctx, b, message)
}

// At returns the box with another working directory, path below the workspace. The directory need not exist.
func (b *box) At(path string) (sandbox.Sandbox, error) {
	if _, err := sandbox.ConfineFile(b.workspace(), path); err != nil || filepath.IsAbs(path) {
		return nil, &sandbox.ConfinedError{Path: path, Root: b.workspace()}
	}
	at := &box{id: b.id, dir: b.dir, rec: b.rec}
	at.rec.Work = path
	return at, nil
}

// Clone clones a repository into the working directory, which is made if it is missing, and else has to be empty.
func (b *box) Clone(ctx context.Context, r sandbox.Repository) error {
	address, token, err := r.Source(sandbox.GitHub)
	if err != nil {
		return err
	}
	if err := b.there(); err != nil {
		return err
	}
	if err := kit.Begin(ctx, &r, address, token); err != nil {
		return err
	}
	if err := os.MkdirAll(b.WorkDir(), 0o755); err != nil {
		return err
	}
	if filepath.IsAbs(address) && r.Depth > 0 {
		address = "file://" + address // git ignores a depth for a plain path
	}
	if err := kit.Clone(ctx, b, r, address, token); err != nil || r.Work == "" {
		return err
	}
	if _, err := b.git(ctx, nil, "checkout", "--quiet", "--no-track", "-B", r.Work); err != nil {
		return fmt.Errorf("make the branch %s: %w", r.Work, err)
	}
	return nil
}

// clone clones the box's repository and checks a branch out: the remote's if that is there, or a new one from the
// default branch.
func (b *box) clone(ctx context.Context, branch string, there bool, token string) error {
	env, err := kit.Credential(b.rec.Repo, token)
	if err != nil {
		return err
	}
	if _, err := b.git(ctx, env, "clone", "--quiet", "--", b.rec.Repo, "."); err != nil {
		return fmt.Errorf("clone %s: %w", kit.Plain(b.rec.Repo), kit.Redacted(err, token))
	}
	args := []string{"checkout", "--quiet", "--no-track", "-B", branch}
	switch {
	case branch == "":
		return nil
	case there:
		args = []string{"checkout", "--quiet", "--track", "-B", branch, "refs/remotes/origin/" + branch}
	}
	if _, err := b.git(ctx, nil, args...); err != nil {
		return fmt.Errorf("check out the branch %s: %w", branch, err)
	}
	return nil
}

// git runs git in the working directory. It never prompts for a password.
func (b *box) git(ctx context.Context, env map[string]string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "credential.helper="}, args...)...)
	cmd.Dir = b.WorkDir()
	cmd.Env = append(b.env(env), "GIT_TERMINAL_PROMPT=0", "GIT_CEILING_DIRECTORIES="+b.dir)
	cmd.WaitDelay = kit.OutputGrace
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return "", errors.Join(fmt.Errorf("git: %w%s", err, kit.After(stderr.String())), ctx.Err())
	}
	return out.String(), nil
}
