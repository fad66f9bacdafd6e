package kit

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// lookTimeout bounds the query of a remote repository for a branch.
const lookTimeout = time.Minute

// HasBranch reports whether a remote repository has a branch. git asks the remote from this machine, without the
// machine's credentials and its user's configuration.
func HasBranch(ctx context.Context, address, branch, token string) (bool, error) {
	if branch == "" || address == "" {
		return false, nil
	}
	env, err := Credential(address, token)
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
	cmd.WaitDelay = OutputGrace
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		err = fmt.Errorf("look for the branch %s of %s: %w%s", branch, Plain(address), err, After(stderr.String()))
		err = errors.Join(err, ctx.Err())
		return false, Redacted(err, token)
	}
	for line := range strings.Lines(out.String()) { // git also lists a/refs/heads/BRANCH
		if _, name, _ := strings.Cut(strings.TrimSpace(line), "\t"); name == ref {
			return true, nil
		}
	}
	return false, nil
}

// Credential returns the environment with which git sends the token to the host of repo, and to no other. In a command
// line, or in an address and so in the clone's configuration, other users could read the token.
func Credential(repo, token string) (map[string]string, error) {
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

// Plain returns a repository's address without user and password.
func Plain(repo string) string {
	if u, err := url.Parse(repo); err == nil && u.User != nil {
		u.User = nil
		return u.String()
	}
	return repo
}
