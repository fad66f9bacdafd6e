package repository

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"arbe.0sk.ar/runner/internal/git"
)

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

// historic are faults of objects in old public repositories, which servers accept.
const historic = "zeroPaddedFilemode=ignore,missingSpaceBeforeDate=ignore,badTimezone=ignore"

// Add adds the pack with the objects that Lacks has named. It checks each of them, and that none is missing.
func (r *Repo) Add(ctx context.Context, pack io.Reader, wants []string) error {
	args := []string{"index-pack", "--stdin", "--strict=" + historic}
	if _, err := r.do(ctx, git.Command{Args: args, Stdin: pack}); err != nil {
		return fmt.Errorf("the box's commits are damaged: %w", err)
	}
	if err := r.complete(ctx, wants); err != nil {
		return fmt.Errorf("the box's commits are incomplete: %w", err)
	}
	return nil
}
