package repository

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
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

// objects returns the objects that a state names, each once.
func (s State) objects() []string {
	all := slices.Concat(slices.Collect(maps.Values(s.Refs)), s.Stash)
	if s.Commit != "" {
		all = append(all, s.Commit)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// lines returns a reader of lines.
func lines(all []string) io.Reader { return strings.NewReader(strings.Join(append(all, ""), "\n")) }

// complete returns an error if one of the objects, or one that they need, is not in the repository.
func (r *Repo) complete(ctx context.Context, objects []string) error {
	_, err := r.do(ctx, git.Command{
		Args:  []string{"rev-list", "--objects", "--quiet", "--stdin", "--not", "--all"},
		Stdin: lines(objects),
	})
	return err
}

// staged returns the objects of the entries that the box has changed in the index.
func staged(base, box Index) (objects []string) {
	for name, e := range box {
		if e != base[name] && e.Mode != gitlink && e.Mode != unmerged && e.Mode != intent {
			objects = append(objects, e.Object)
		}
	}
	slices.Sort(objects)
	return slices.Compact(objects)
}

// Lacks returns the objects of the box's state that have to come, and commits that the repository has: what these need
// does not have to come. It returns none if the repository has all.
func (r *Repo) Lacks(ctx context.Context, base *State, box State) (wants, haves []string, err error) {
	wants = box.objects()
	if base != nil {
		wants = append(wants, staged(base.Index, box.Index)...)
	}
	if len(wants) == 0 || r.complete(ctx, wants) == nil {
		return nil, nil, nil
	}
	if base == nil {
		user, err := r.State(ctx)
		return wants, user.objects(), err
	}
	haves, err = r.reachable(ctx, base.objects())
	return wants, haves, err
}

// reachable returns those of some objects that are commits of the repository's branches. Others may be incomplete.
func (r *Repo) reachable(ctx context.Context, objects []string) (commits []string, err error) {
	types, err := r.all(ctx, lines(objects), "cat-file", "--batch-check=%(objectname) %(objecttype)")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(types)) {
		if oid, is := strings.CutSuffix(strings.TrimSpace(line), " commit"); is {
			commits = append(commits, oid)
		}
	}
	if len(commits) == 0 {
		return nil, nil
	}
	others, err := r.all(ctx, lines(commits), "rev-list", "--stdin", "--not", "--all", "HEAD")
	if err != nil { // before the first commit there is no HEAD
		if others, err = r.all(ctx, lines(commits), "rev-list", "--stdin", "--not", "--all"); err != nil {
			return nil, err
		}
	}
	other := map[string]bool{}
	for line := range strings.Lines(string(others)) {
		other[strings.TrimSpace(line)] = true
	}
	return slices.DeleteFunc(commits, func(oid string) bool { return other[oid] }), nil
}

// Add adds the pack with the objects that Lacks has named. It checks each of them, and that none is missing.
func (r *Repo) Add(ctx context.Context, pack io.Reader, wants []string) error {
	args := []string{"index-pack", "--stdin", "--strict=" + git.Historic}
	if _, err := r.do(ctx, git.Command{Args: args, Stdin: pack}); err != nil {
		return fmt.Errorf("the box's commits are damaged: %w", err)
	}
	if err := r.complete(ctx, wants); err != nil {
		return fmt.Errorf("the box's commits are incomplete: %w", err)
	}
	return nil
}
