package sandbox

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"time"
)

// GitPrelude is the beginning of every script that runs git in a box, as g. Configuration of the box that decides the
// content of a commit (identity, filters, ignored files) stays in force; any that runs other programs or hides work is
// overridden. The working directory must be the repository: a repository of a folder above it is not the box's.
const GitPrelude = `
export LC_ALL=C GIT_TERMINAL_PROMPT=0 GIT_EDITOR=: GIT_NO_REPLACE_OBJECTS=1 GIT_CEILING_DIRECTORIES="${PWD%/*}"
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_NAMESPACE GIT_COMMON_DIR GIT_PREFIX
g() {
	git --no-pager -c core.hooksPath=/dev/null -c core.fsmonitor=false -c commit.gpgSign=false \
		-c gc.auto=0 -c maintenance.auto=false -c status.showUntrackedFiles=normal -c diff.ignoreSubmodules=none "$@"
}
`

// lookTimeout bounds the query of a remote repository for a branch.
const lookTimeout = time.Minute

// hasBranch reports whether a remote repository has a branch. git asks the remote from this machine, without the
// machine's credentials and its user's configuration.
func hasBranch(ctx context.Context, address, branch, token string) (bool, error) {
	if branch == "" || address == "" {
		return false, nil
	}
	env, err := credential(address, token)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	ref := "refs/heads/" + branch
	cmd := exec.CommandContext(ctx, "git", "-c", "credential.helper=", "ls-remote", "--", address, ref)
	cmd.Dir = "/"
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "GIT_") })
	cmd.Env = append(cmd.Env, "GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_GLOBAL="+os.DevNull,
		"GIT_CEILING_DIRECTORIES=/", "LC_ALL=C")
	for key, value := range env {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	cmd.WaitDelay = outputGrace
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		err = fmt.Errorf("look for the branch %s of %s: %w%s", branch, plain(address), err, after(stderr.String()))
		err = errors.Join(err, ctx.Err())
		return false, redacted(err, token)
	}
	for line := range strings.Lines(out.String()) { // git also lists a/refs/heads/BRANCH
		if _, name, _ := strings.Cut(strings.TrimSpace(line), "\t"); name == ref {
			return true, nil
		}
	}
	return false, nil
}

// credential returns the environment with which git sends the token to the host of repo, and to no other. In a command
// line, or in an address and so in the clone's configuration, other users could read the token.
func credential(repo, token string) (map[string]string, error) {
	u, err := url.Parse(repo)
	if token == "" || err != nil || u.Scheme != "https" && u.Scheme != "http" {
		return nil, nil // a folder, or ssh, which has its own credentials
	}
	if strings.ContainsAny(token, "\x00\r\n") {
		return nil, errors.New("the token holds control characters: check GITHUB_TOKEN")
	}
	basic := base64.StdEncoding.EncodeToString([]byte("git:" + token))
	return map[string]string{
		"GIT_CONFIG_COUNT":   "1",
		"GIT_CONFIG_KEY_0":   "http." + u.Scheme + "://" + u.Host + "/.extraHeader",
		"GIT_CONFIG_VALUE_0": "Authorization: Basic " + basic,
	}, nil
}

// plain returns a repository's address without user and password.
func plain(repo string) string {
	if u, err := url.Parse(repo); err == nil && u.User != nil {
		u.User = nil
		return u.String()
	}
	return repo
}

// Snapshot commits everything in the working directory, even if nothing has changed, and returns the commit.
func (b *localBox) Snapshot(ctx context.Context, message string) (string, error) {
	return snapshot(ctx, b, message)
}

// Snapshot commits everything in the working directory, even if nothing has changed, and returns the commit. It runs
// the box's git: the daemon's own can't read a branch without a commit, commits no empty tree, and adds the files of
// a nested repository as plain files.
func (b *daytonaBox) Snapshot(ctx context.Context, message string) (string, error) {
	return snapshot(ctx, b, message)
}

const snapshotScript = `[ -e .git ] || git init --quiet && git add --all && git "$@" && git rev-parse HEAD`

// snapshot commits with the author arbe. It uses no identity, signature or hook of the repository: the agent may have
// broken those.
func snapshot(ctx context.Context, box Sandbox, message string) (string, error) {
	c := Command{Timeout: transfer, Env: map[string]string{"GIT_CEILING_DIRECTORIES": path.Dir(box.WorkDir())}}
	res, err := Shell(ctx, box, c, snapshotScript,
		"-c", "user.name=arbe", "-c", "user.email=arbe@localhost", "-c", "commit.gpgSign=false",
		"commit", "--quiet", "--allow-empty", "--allow-empty-message", "--no-verify", "--message="+message)
	if err != nil {
		return "", fmt.Errorf("snapshot: %w", err)
	}
	return strings.TrimSpace(string(res.Stdout)), nil
}
