package folder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"arbe.0sk.ar/runner/host/folder/repository"
)

// gitMerge merges the repositories of a folder, beside its files: what git has recorded is no file like others. A .git
// that the folder here does not have comes with its files.
type gitMerge struct {
	Sync
	root   *os.Root
	remote *remote
	match  matcher

	states map[string]repository.State // of the box
	why    map[string]string           // of the box's repositories that can't be read
	dirs   []string                    // the repositories to merge, the deepest first
	repos  map[string]*repository.Repo
	paths  []change        // changes of the box below a .git that the merge stands for
	left   map[string]bool // the repositories that have changed in the box, and could not be merged
	unread error           // why
}

// look reads the state of each repository that the box had.
func (g *gitMerge) look(ctx context.Context) error {
	g.states, g.why, g.left = map[string]repository.State{}, map[string]string{}, map[string]bool{}
	for _, dir := range repositories(g.Base.Manifest) {
		if err := g.lookAt(ctx, dir); err != nil {
			return err
		}
	}
	return nil
}

func (g *gitMerge) lookAt(ctx context.Context, dir string) error {
	s, why, err := g.remote.records(ctx, dir)
	if s != nil {
		g.states[dir] = *s
	} else if why != "" {
		g.why[dir] = why
	}
	return err
}

// take returns the changes of the box without those below a .git that the folder here has, or had. If there are any, it
// brings the objects that the repositories here lack.
func (g *gitMerge) take(ctx context.Context, listed Manifest, changes []change) (rest []change, err error) {
	here := map[string]bool{}
	all := repositories(g.Base.Manifest, listed)
	for _, dir := range all {
		_, err := g.root.Lstat(path.Join(dir, ".git"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		there := g.Base.Manifest[path.Join(dir, ".git")].Type != Absent
		here[dir] = err == nil || there
		if !there { // for this merge its base is not known: it is read for the next one
			if err := g.lookAt(ctx, dir); err != nil {
				return nil, err
			}
		}
	}
	for _, c := range changes {
		if dir, is := repositoryOf(c.path); is && here[dir] && !stored(c) {
			g.paths = append(g.paths, c)
		} else {
			rest = append(rest, c)
		}
	}
	if len(g.paths) == 0 {
		return rest, nil
	}
	for _, dir := range all {
		if here[dir] {
			if err := g.bring(ctx, dir, listed); err != nil {
				return nil, err
			}
		}
	}
	return rest, nil
}

// stored reports whether a new file below a .git is an object that git itself does not know: that of an extension.
func stored(c change) bool {
	_, below, _ := strings.Cut("/"+c.path, "/.git/")
	for _, prefix := range []string{"lfs", "lfs/objects", "annex", "annex/objects"} {
		if below == prefix || strings.HasPrefix(below, prefix+"/") && strings.HasSuffix(prefix, "/objects") {
			return c.base.Type == Absent && c.box.Type != Absent
		}
	}
	return false
}

// bring prepares the merge of one repository: its objects come.
func (g *gitMerge) bring(ctx context.Context, dir string, listed Manifest) error {
	git := path.Join(dir, ".git")
	box, read := g.states[dir]
	changed := g.changed(dir)
	_, err := g.root.Lstat(git)
	switch {
	case listed[git].Type == Absent:
		return nil // it was removed in the box
	case errors.Is(err, fs.ErrNotExist):
		if changed {
			const gone = "the repository %s was removed here: the box's commits stay in the box"
			g.leave(dir, fmt.Errorf(gone, shown(dir)))
		}
		return nil
	case !read:
		if why := g.why[dir]; why != "" && changed {
			g.leave(dir, fmt.Errorf("the box's repository %s can't be read: %s", shown(dir), why))
		}
		return nil
	}
	if at, err := blocked(g.root, git); err != nil || at != "" {
		return err // below a link
	}
	repo, err := repository.Open(ctx, g.Path, filepath.Join(g.Path, filepath.FromSlash(dir)), g.State, g.Name)
	if errors.Is(err, repository.ErrLinked) {
		return nil
	}
	var wants, haves []string
	if err == nil {
		repo.Step, repo.LockWait = g.step, g.lockWait
		wants, haves, err = repo.Lacks(ctx, g.base(dir), box)
	}
	var refused error
	if err == nil && len(wants) > 0 {
		if refused, err = g.remote.objects(ctx, dir, repo, wants, haves); err != nil {
			return err // the box fails: nothing is merged
		}
	}
	switch err = errors.Join(err, refused); {
	case context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case err != nil: // the files come
		g.leave(dir, err)
		return nil
	}
	if g.repos == nil {
		g.repos = map[string]*repository.Repo{}
	}
	g.dirs, g.repos[dir] = append(g.dirs, dir), repo
	return nil
}

// leave notes that a repository is not merged.
func (g *gitMerge) leave(dir string, why error) {
	g.left[dir] = true
	g.unread = errors.Join(g.unread, why)
}

// changed reports whether the box has changed anything below a .git that may be work.
func (g *gitMerge) changed(dir string) bool {
	for _, c := range g.paths {
		if of, _ := repositoryOf(c.path); of == dir {
			return true
		}
	}
	return false
}

// base returns the state that a repository and its copy began with; nil for an unknown one.
func (g *gitMerge) base(dir string) *repository.State {
	if s, is := g.Base.Repositories[dir]; is {
		return &s
	}
	return nil
}

// merge merges the repositories, once the files are merged. after is the base of the next Pull, which gets the changes
// that the merge stands for.
func (g *gitMerge) merge(ctx context.Context, listed, after Manifest) (all []Stored, err error) {
	for _, dir := range g.dirs {
		own := func(name string) (bool, error) { return g.own(path.Join(dir, name), listed, after) }
		names, err := g.repos[dir].Merge(ctx, g.base(dir), g.states[dir], own)
		for _, n := range names {
			all = append(all, Stored{dir, n})
		}
		if err != nil {
			return all, err
		}
	}
	for _, c := range g.paths {
		if dir, _ := repositoryOf(c.path); g.left[dir] {
			continue
		}
		if after[c.path] = c.box; c.box.Type == Absent {
			delete(after, c.path)
		}
	}
	return all, nil
}

// after returns the states of the repositories for the next Pull.
func (g *gitMerge) after() map[string]repository.State {
	for dir, s := range g.Base.Repositories {
		if _, read := g.states[dir]; !read || g.left[dir] {
			g.states[dir] = s
		}
	}
	return g.states
}

// own reports whether a file here is not the box's: the user's next commit would undo what the box has committed of it.
// One that was deleted in the box and stays here, as it was sent, is in no commit.
func (g *gitMerge) own(name string, listed, after Manifest) (bool, error) {
	if g.match.hides(name, false) {
		return true, nil
	}
	host, err := version(g.root, name)
	if err != nil {
		return false, err
	}
	switch base, box := g.Base.Manifest[name], listed[name]; {
	case box.Type == Absent:
		return host.Type != Absent && host != base, nil
	case box == base:
		return host != base, nil
	default: // after has what has come: the file may have changed since it was listed
		return host != after[name] || after[name] == base, nil
	}
}
