package sandbox

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The author of a snapshot.
const (
	authorName  = "arbe"
	authorEmail = "arbe@localhost"
)

// Snapshot commits everything in the working directory, even if nothing has changed, and returns the commit. It uses no
// identity, signature or hook of the repository: the agent may have broken those.
func (b *localBox) Snapshot(ctx context.Context, message string) (string, error) {
	if err := b.there(); err != nil {
		return "", err
	}
	if _, err := os.Lstat(filepath.Join(b.WorkDir(), ".git")); errors.Is(err, fs.ErrNotExist) {
		if _, err := b.git(ctx, nil, "init", "--quiet"); err != nil {
			return "", fmt.Errorf("snapshot: %w", err)
		}
	}
	if _, err := b.git(ctx, nil, "add", "--all"); err != nil {
		return "", fmt.Errorf("snapshot: %w", err)
	}
	if _, err := b.git(ctx, nil, commitArgs(message)...); err != nil {
		return "", fmt.Errorf("snapshot: %w", err)
	}
	out, err := b.git(ctx, nil, "rev-parse", "HEAD")
	if err != nil {
		return "", fmt.Errorf("snapshot: %w", err)
	}
	return strings.TrimSpace(out), nil
}

// commitArgs returns git's arguments for a commit of what is staged, even if that is nothing.
func commitArgs(message string) []string {
	return []string{
		"-c", "user.name=" + authorName, "-c", "user.email=" + authorEmail, "-c", "commit.gpgSign=false",
		"commit", "--quiet", "--allow-empty", "--allow-empty-message", "--no-verify", "--message=" + message,
	}
}

// clone clones the box's repository and checks its branch out: the remote's, or a new one from the default branch.
func (b *localBox) clone(ctx context.Context, token string) error {
	env, err := credential(b.rec.Repo, token)
	if err != nil {
		return err
	}
	if _, err := b.git(ctx, env, "clone", "--quiet", "--", b.rec.Repo, "."); err != nil {
		return fmt.Errorf("clone %s: %w", plain(b.rec.Repo), redacted(err, token))
	}
	args := []string{"checkout", "--quiet", "--no-track", "-B", b.branch.Name}
	switch {
	case b.branch.Name == "":
		return nil
	case b.branch.Existing:
		args = []string{"checkout", "--quiet", "--track", "-B", b.branch.Name, "refs/remotes/origin/" + b.branch.Name}
	}
	if _, err := b.git(ctx, nil, args...); err != nil {
		return fmt.Errorf("check out the branch %s: %w", b.branch.Name, err)
	}
	return nil
}

// git runs git in the working directory. It never prompts for a password.
func (b *localBox) git(ctx context.Context, env map[string]string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "credential.helper="}, args...)...)
	cmd.Dir = b.WorkDir()
	cmd.Env = append(b.env(env), "GIT_TERMINAL_PROMPT=0", "GIT_CEILING_DIRECTORIES="+b.dir)
	cmd.WaitDelay = outputGrace
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return "", errors.Join(fmt.Errorf("git: %w%s", err, after(stderr.String())), ctx.Err())
	}
	return out.String(), nil
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

// redactedError is an error whose text held a secret.
type redactedError struct {
	err  error
	text string
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.err }

// redacted returns err without the secrets in its text.
func redacted(err error, secrets ...string) error {
	text := redact(err.Error(), secrets...)
	if text == err.Error() {
		return err
	}
	return &redactedError{err, text}
}

// secretValues returns the values of env to remove from errors: those of 8 bytes or more that are no numbers and no
// booleans. Removing each 1 would make an error unreadable.
func secretValues(env map[string]string) []string {
	var secrets []string
	for _, value := range env {
		_, number := strconv.ParseFloat(value, 64)
		_, boolean := strconv.ParseBool(value)
		if len(value) >= 8 && number != nil && boolean != nil {
			secrets = append(secrets, value)
		}
	}
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) }) // one may hold another
	return secrets
}

func redact(text string, secrets ...string) string {
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, "[redacted]")
		}
	}
	return text
}
