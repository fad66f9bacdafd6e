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

// author is who a snapshot is by.
const (
	authorName  = "arbe"
	authorEmail = "arbe@localhost"
)

// Snapshot asks for no identity, no signature and no hook: those are the repository's, and whoever works in it may have broken them.
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

// commitArgs are git's arguments for a commit of what is staged, be it nothing.
func commitArgs(message string) []string {
	return []string{
		"-c", "user.name=" + authorName, "-c", "user.email=" + authorEmail, "-c", "commit.gpgSign=false",
		"commit", "--quiet", "--allow-empty", "--allow-empty-message", "--no-verify", "--message=" + message,
	}
}

// clone clones the box's repository, and checks its branch out, where one is wanted: at the remote's, or in the
// default branch.
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

// git runs git in the working directory, with nobody to ask for a password.
func (b *localBox) git(ctx context.Context, env map[string]string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "credential.helper="}, args...)...)
	cmd.Dir = b.WorkDir()
	cmd.Env = append(b.env(env), "GIT_TERMINAL_PROMPT=0", "GIT_CEILING_DIRECTORIES="+b.dir)
	cmd.WaitDelay = lingering
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return "", errors.Join(fmt.Errorf("git: %w: %s", err, clip(said.String())), ctx.Err())
	}
	return out.String(), nil
}

// credential is the environment that lets git use the token, with the host that repo is on and with no other. In a command line or an address, and so in the
// clone's configuration, others could read it.
func credential(repo, token string) (map[string]string, error) {
	u, err := url.Parse(repo)
	if token == "" || err != nil || u.Scheme != "https" && u.Scheme != "http" {
		return nil, nil // a folder or ssh, which has its own ways
	}
	if strings.ContainsAny(token, "\x00\r\n") {
		return nil, errors.New("the token is no token: it holds control characters")
	}
	basic := base64.StdEncoding.EncodeToString([]byte("git:" + token))
	return map[string]string{
		"GIT_CONFIG_COUNT":   "1",
		"GIT_CONFIG_KEY_0":   "http." + u.Scheme + "://" + u.Host + "/.extraHeader",
		"GIT_CONFIG_VALUE_0": "Authorization: Basic " + basic,
	}, nil
}

// plain is a repository's address without a user and a password in it.
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

// redacted is err without the secret in its text.
func redacted(err error, secrets ...string) error {
	text := redact(err.Error(), secrets...)
	if text == err.Error() {
		return err
	}
	return &redactedError{err, text}
}

// secretValues are the values of env that are removed from errors. Short ones, numbers and booleans are no secrets:
// to remove each 1 makes an error unreadable.
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
