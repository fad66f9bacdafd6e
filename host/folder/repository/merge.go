package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"arbe.0sk.ar/runner/internal/git"
)

// Merge merges the box's state into the repository, whose files have been merged, and returns what it has named. Base
// is the state that both began with; nil for an unknown one. own reports whether the file at a path is the user's own
// version, and not what the box's change has made of it. The objects of box must have come (Lacks, Add).
func (r *Repo) Merge(
	ctx context.Context, base *State, box State, own func(path string) (bool, error),
) (names []Name, err error) {
	unlock, err := r.lock(ctx)
	locked := errors.Is(err, errLocked)
	if err != nil && !locked {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	user, err := r.State(ctx)
	if err != nil {
		return nil, err
	}
	if locked {
		user.Busy = lockName
	}
	f := facts{r: r, ctx: ctx, user: user, own: own}
	for name, oid := range box.Refs {
		if base != nil && oid == user.Refs[name] && oid != base.Refs[name] {
			f.moved = append(f.moved, name)
		}
	}
	plan := Decide(base, user, box, Facts{Contains: f.contains, Has: f.has, Changed: f.changed, Own: f.isOwn})
	if f.err != nil {
		return nil, f.err
	}
	return r.apply(ctx, user, plan)
}

// Name is an object of the box that has got a name.
type Name struct {
	Ref string // below refs/arbe/
	Stored
}

// facts answers what Decide asks. err is its first error.
type facts struct {
	r    *Repo
	ctx  context.Context
	user State
	own  func(path string) (bool, error)
	// moved are refs that are at the box's already, mostly since a Merge that was killed.
	moved []string
	err   error
}

// failed keeps an error.
func (f *facts) failed(err error) bool {
	if err != nil && f.err == nil {
		f.err = err
	}
	return err != nil
}

func (f *facts) contains(commit, other string) bool {
	if other == "" || commit == other {
		return true
	}
	_, err := f.r.run(f.ctx, "merge-base", "--is-ancestor", other, commit)
	if git.Status(err) == 1 {
		return false
	}
	return !f.failed(err)
}

func (f *facts) has(object string) bool {
	args := []string{"rev-list", "--objects", "--max-count=1", object, "--not", "--exclude=" + ours + "*"}
	for _, name := range f.moved {
		args = append(args, "--exclude="+name)
	}
	args = append(args, "--all")
	if f.user.Commit != "" {
		args = append(args, f.user.Commit)
	}
	out, err := f.r.run(f.ctx, args...)
	return !f.failed(err) && out == ""
}

func (f *facts) changed(from, to string) map[string]Entry {
	if from == "" {
		out, err := f.r.run(f.ctx, "hash-object", "-t", "tree", "--stdin")
		if f.failed(err) {
			return nil
		}
		from = strings.TrimSpace(out) // the empty tree
	}
	out, err := f.r.all(f.ctx, nil, "diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", from, to)
	if f.failed(err) {
		return nil
	}
	all := map[string]Entry{}
	for records := strings.Split(string(out), "\x00"); len(records) > 1; records = records[2:] {
		d := strings.Fields(strings.TrimPrefix(records[0], ":")) // MODE MODE OBJECT OBJECT STATUS
		if len(d) != 5 {
			f.failed(fmt.Errorf("differences of commits: unexpected record %.100q", records[0]))
			return nil
		}
		e := Entry{Mode: d[1], Object: d[3]}
		if d[4] == "D" {
			e = Entry{}
		}
		all[records[1]] = e
	}
	return all
}

func (f *facts) isOwn(path string, e Entry) bool {
	if e.Mode == gitlink {
		is, err := f.r.moduleAt(f.ctx, path, e.Object)
		return f.failed(err) || !is
	}
	own, err := f.own(path)
	return f.failed(err) || own
}

// moduleAt reports whether a submodule has a commit checked out. One that is not there is not in the way.
func (r *Repo) moduleAt(ctx context.Context, path, commit string) (bool, error) {
	dir := filepath.Join(r.dir, filepath.FromSlash(path))
	if _, err := os.Lstat(filepath.Join(dir, ".git")); errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	module := Repo{dir: dir, git: filepath.Join(dir, ".git"), empty: r.empty}
	out, err := module.maybe(ctx, CommitCommand...)
	return strings.TrimSpace(string(out)) == commit, err
}

// message is the reflog message of a change.
const message = "arbe: what the box has done"

// apply makes the changes of a plan. A branch that can't be moved after all gets a name. The index is first: with it
// alone, the user's next commit has what the box has done.
func (r *Repo) apply(ctx context.Context, user State, p Plan) ([]Name, error) {
	restore := func() error { return nil }
	if len(p.Index) > 0 {
		var err error
		if restore, err = r.writeIndex(ctx, p.Index, zero(user, p)); err != nil {
			return nil, err
		}
	}
	if p.Moves {
		if err := r.moveHead(ctx, user, p); err != nil {
			if err := errors.Join(restore(), context.Cause(ctx)); err != nil {
				return nil, err
			}
			p.Stored = append(p.Stored, Stored{"HEAD", p.Commit, "git refuses to move it: " + complaint(err)})
		}
	}
	if err := r.moveRefs(ctx, user, &p); err != nil {
		return nil, err
	}
	stored, err := r.kept(ctx, p.Stored)
	if err != nil {
		return nil, err
	}
	var names []Name
	for _, n := range stored {
		if err := r.update(ctx, "--create-reflog", n.Ref, n.Object); err != nil {
			return names, err
		}
		names = append(names, n)
	}
	return names, nil
}

// kept returns what gets a name, with its name. What had such a name before keeps one, unless the new one contains it.
func (r *Repo) kept(ctx context.Context, all []Stored) (names []Name, err error) {
	f := facts{r: r, ctx: ctx}
	for _, s := range all {
		n := Name{r.refOf(s), s}
		out, err := r.maybe(ctx, "rev-parse", "-q", "--verify", n.Ref)
		if err != nil {
			return nil, err
		}
		if was := strings.TrimSpace(string(out)); was != "" && !f.contains(s.Object, was) {
			const why = "the box has another commit now"
			names = append(names, Name{ours + r.name + ".refs/was/" + was[:12], Stored{n.Ref, was, why}})
		}
		names = append(names, n)
	}
	return names, f.err
}

// refOf returns the name that an object gets.
func (r *Repo) refOf(s Stored) string {
	switch s.Of {
	case "HEAD":
		return ours + r.name
	case "stash":
		return ours + r.name + ".refs/stash/" + s.Object[:12]
	}
	return ours + r.name + ".refs/" + strings.TrimPrefix(s.Of, "refs/")
}

// update changes one ref. args are options, the ref, its new object and the old one.
func (r *Repo) update(ctx context.Context, args ...string) error {
	if err := r.step(); err != nil {
		return err
	}
	_, err := r.run(ctx, append([]string{"update-ref", "-m", message}, args...)...)
	return err
}

// moveHead moves HEAD and its branch.
func (r *Repo) moveHead(ctx context.Context, user State, p Plan) error {
	switch p.Head {
	case "":
		return r.update(ctx, "--no-deref", "HEAD", p.Commit, user.Commit)
	case user.Head:
		return r.update(ctx, p.Head, p.Commit, user.Commit)
	}
	if old := user.Refs[p.Head]; old != p.Commit {
		if err := r.update(ctx, p.Head, p.Commit, old); err != nil {
			return err
		}
	}
	if err := r.step(); err != nil {
		return err
	}
	_, err := r.run(ctx, "symbolic-ref", "-m", message, "HEAD", p.Head)
	return err
}

// moveRefs moves the other refs, at once if that is possible. Those that can't be moved get a name.
func (r *Repo) moveRefs(ctx context.Context, user State, p *Plan) error {
	if len(p.Refs) == 0 {
		return nil
	}
	if err := r.step(); err != nil {
		return err
	}
	var orders strings.Builder
	for _, ref := range p.Refs {
		old := cmp.Or(ref.Old, zero(user, *p))
		fmt.Fprintf(&orders, "update %s\x00%s\x00%s\x00", ref.Name, ref.New, old)
	}
	_, err := r.do(ctx, git.Command{
		Args: []string{"update-ref", "-m", message, "-z", "--stdin"}, Stdin: strings.NewReader(orders.String()),
	})
	if err == nil {
		return nil
	}
	for _, ref := range p.Refs {
		if err := r.update(ctx, ref.Name, ref.New, ref.Old); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			p.Stored = append(p.Stored, Stored{ref.Name, ref.New, "git refuses to move it: " + complaint(err)})
		}
	}
	return nil
}

// complaint returns what git has printed, of an error of it.
func complaint(err error) string {
	text := strings.TrimSpace(err.Error())
	if at := strings.LastIndex(text, "fatal: "); at >= 0 {
		text = text[at+len("fatal: "):]
	}
	return strings.ReplaceAll(text, "\n", " ")
}

// zero returns the name of no object, as long as the names of the repository are.
func zero(user State, p Plan) string {
	for _, oid := range append(slices.Collect(maps.Values(user.Refs)), user.Commit, p.Commit) {
		if oid != "" {
			return strings.Repeat("0", len(oid))
		}
	}
	return strings.Repeat("0", 40)
}
