package built

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"arbe.0sk.ar/runner/internal/test/agents"
)

// ErrNoCommit is the error of a commit that is not in the checkout: a shallow clone has few, a source archive none.
var ErrNoCommit = errors.New("is not in this checkout")

// Git is a git command in the repository at root, which may be another user's: tests have no configuration of their
// user's that would allow that.
func Git(root string, args ...string) *exec.Cmd {
	return exec.Command("git", append([]string{"-c", "safe.directory=*", "-C", root}, args...)...)
}

// LastRelease returns the tag of the last release before the current commit of the repository at root; "" for none.
func LastRelease(root string) string {
	out, err := Git(root, "describe", "--tags", "--abbrev=0", "--match=v[0-9]*", "HEAD^").Output()
	if err != nil { // no tag, or no repository
		return ""
	}
	return strings.TrimSpace(string(out))
}

// Commit returns the full name of a commit of the repository at root. It returns ErrNoCommit.
func Commit(root, ref string) (string, error) {
	out, err := Git(root, "rev-parse", "--verify", "--quiet", ref+"^{commit}").Output()
	if err != nil {
		return "", fmt.Errorf("commit %s %w", ref, ErrNoCommit)
	}
	return strings.TrimSpace(string(out)), nil
}

// OfCommit returns the folder of both programs of a commit, by its full name, as its own make build makes them. They
// are kept in the cache folder, and built where they are not there.
func OfCommit(root, commit string) (bin string, err error) {
	cache, err := agents.Cache()
	if err != nil {
		return "", err
	}
	bin = filepath.Join(cache, "programs", commit+"-"+runtime.Version())
	if _, err := os.Stat(bin); err == nil {
		return bin, nil
	}
	if err := os.MkdirAll(filepath.Dir(bin), 0o755); err != nil {
		return "", err
	}
	source, err := os.MkdirTemp("", "arbe-source-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(source)) }()
	fresh, err := os.MkdirTemp(filepath.Dir(bin), "new-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(fresh)) }() // it has another name once it is whole
	archive := filepath.Join(source, "source.tar")
	// Commits without a file VERSION print the variable.
	for _, cmd := range []*exec.Cmd{
		Git(root, "archive", "--format=tar", "--output="+archive, commit),
		exec.Command("tar", "-xf", archive, "-C", source),
		exec.Command("make", "-s", "-C", source, "build", "BIN="+fresh, "VERSION="+commit[:12]),
	} {
		cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build commit %s: %s: %w\n%s", commit, filepath.Base(cmd.Path), err, out)
		}
	}
	if err := os.Rename(fresh, bin); err != nil {
		if _, there := os.Stat(bin); there != nil { // another process has built them meanwhile
			return "", err
		}
	}
	return bin, nil
}

// Overlaid builds both programs into the folder bin from the source at root with some files replaced or added: their
// content by their paths below root.
func Overlaid(root, bin string, files map[string]string) (err error) {
	dir, err := os.MkdirTemp("", "arbe-overlay-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if root, err = filepath.Abs(root); err != nil {
		return err
	}
	replace := map[string]string{}
	for path, content := range files {
		at := filepath.Join(dir, fmt.Sprint(len(replace)))
		if err := os.WriteFile(at, []byte(content), 0o600); err != nil {
			return err
		}
		replace[filepath.Join(root, path)] = at
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		return err
	}
	out, err := exec.Command("make", "-s", "-C", root, "build", "BIN="+bin, "OVERLAY="+overlay).CombinedOutput()
	if err != nil {
		return fmt.Errorf("make build: %w\n%s", err, bytes.TrimSpace(out))
	}
	return nil
}
