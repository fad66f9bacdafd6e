package repository

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"arbe.0sk.ar/runner/internal/git"
)

// Repo is a repository of this machine.
type Repo struct {
	dir   string // of the working tree
	git   string // of what git has recorded
	empty string // an empty folder, which stands for the working tree: git runs filters for files that it looks at
	state string // the folder of the caller's state: what it names in the repository is its own
	name  string // of the refs below refs/arbe/

	LockWait time.Duration // for another git; 0: 10 s

	// Step is called before each change of the repository, only in tests: an error simulates a kill.
	Step func() error
}

// ErrLinked is returned for a repository whose records are elsewhere: a linked worktree, or one of which the records
// are outside of the folder.
var ErrLinked = errors.New("its records are not in the folder")

// Open opens the repository whose working tree is dir. Its records must be below root. state is the caller's own
// folder, and name that of the refs that Merge makes: refs/arbe/<name>.
func Open(ctx context.Context, root, dir, state, name string) (*Repo, error) {
	r := &Repo{
		dir: dir, git: filepath.Join(dir, ".git"), empty: filepath.Join(state, "empty"), state: state, name: name,
	}
	if err := os.MkdirAll(r.empty, 0o700); err != nil {
		return nil, err
	}
	out, err := r.run(ctx, "rev-parse", "--absolute-git-dir", "--git-common-dir")
	if err != nil {
		return nil, err
	}
	records, common, _ := strings.Cut(strings.TrimSuffix(out, "\n"), "\n")
	if !filepath.IsAbs(common) {
		common = filepath.Join(r.empty, common)
	}
	real := func(path string) (string, error) { return filepath.EvalSymlinks(path) }
	var errs [3]error
	records, errs[0] = real(records)
	common, errs[1] = real(common)
	root, errs[2] = real(root)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	if rel, err := filepath.Rel(root, records); err != nil || !filepath.IsLocal(rel) || common != records {
		return nil, fmt.Errorf("repository %s: %w", dir, ErrLinked)
	}
	r.git = records
	return r, nil
}

// run runs git in the repository.
func (r *Repo) run(ctx context.Context, args ...string) (string, error) {
	return r.do(ctx, git.Command{Args: args})
}

// do runs git in the repository. Its configuration may include files of the working tree, which are the agent's: it
// gets nothing to run, and no way to another server.
func (r *Repo) do(ctx context.Context, c git.Command) (string, error) {
	c.Dir, c.Args = r.empty, append(git.Safe(), c.Args...)
	c.Env = append([]string{
		"GIT_DIR=" + r.git, "GIT_WORK_TREE=" + r.empty, "HOME=" + os.DevNull, "XDG_CONFIG_HOME=" + os.DevNull,
		"GIT_OPTIONAL_LOCKS=0", "GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=none", "GIT_LITERAL_PATHSPECS=1",
		"GIT_COMMITTER_NAME=arbe", "GIT_COMMITTER_EMAIL=arbe@localhost",
	}, c.Env...)
	out, err := git.Run(ctx, c)
	if err != nil {
		err = fmt.Errorf("repository %s: %w", r.dir, err)
	}
	return out, err
}

// all runs git in the repository and returns all of its output.
func (r *Repo) all(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	var out bytes.Buffer
	_, err := r.do(ctx, git.Command{Args: args, Stdin: stdin, Stdout: &out})
	return out.Bytes(), err
}

// maybe is all for a command whose exit status 1 means "none": it returns nil then.
func (r *Repo) maybe(ctx context.Context, args ...string) ([]byte, error) {
	out, err := r.all(ctx, nil, args...)
	if git.Status(err) == 1 {
		return nil, nil
	}
	return out, err
}

// State returns what git has recorded.
func (r *Repo) State(ctx context.Context) (State, error) {
	parts := make([][]byte, sections)
	var errs [4]error
	parts[sectionHead], errs[0] = r.maybe(ctx, HeadCommand...)
	parts[sectionCommit], errs[1] = r.maybe(ctx, CommitCommand...)
	parts[sectionRefs], errs[2] = r.all(ctx, nil, RefsCommand...)
	parts[sectionIndex], errs[3] = r.all(ctx, nil, IndexCommand...)
	if err := errors.Join(errs[:]...); err != nil {
		return State{}, err
	}
	for _, name := range Operations {
		if _, err := os.Lstat(filepath.Join(r.git, name)); err == nil {
			parts[sectionBusy] = []byte(name)
			break
		}
	}
	return Parse(parts)
}
