package repository_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/folder/repository"
)

// The states of the table. A commit is named by those before it: ab descends from a. refs are "NAME=COMMIT", a file of
// an index is "NAME=CONTENT".
func state(head, commit, refs, index string) repository.State {
	s := repository.State{Head: head, Commit: commit, Refs: map[string]string{}, Index: repository.Index{}}
	for _, r := range strings.Fields(refs) {
		name, oid, _ := strings.Cut(r, "=")
		s.Refs["refs/"+name] = oid
	}
	for _, f := range strings.Fields(index) {
		name, oid, _ := strings.Cut(f, "=")
		s.Index[name] = entry(oid)
	}
	return s
}

// on is the state of the branch main at a commit, with the other refs as they are in the base.
func on(commit, index string) repository.State {
	return state(main, commit, "heads/main="+commit+" heads/side=a tags/v=a", index)
}

func entry(oid string) repository.Entry {
	if oid == "" {
		return repository.Entry{}
	}
	return repository.Entry{Mode: "100644", Object: oid}
}

func busy(s repository.State, with string) repository.State {
	s.Busy = with
	return s
}

const (
	main    = "refs/heads/main"
	feature = "refs/heads/feature"
)

// TestDecide has a row for each case. The files that commits differ in are f and g; those named in own are the user's.
func TestDecide(t *testing.T) {
	base := on("a", "f=1 g=1")
	for _, tt := range []struct {
		name      string
		from      string // the base: "" for base, unknown, or user
		user, box repository.State
		own       string
		want      string // what follows, is moved and is named
	}{
		{"nothing", "", base, base, "", ""},
		{
			"a commit", "", base, on("ab", "f=2 g=1"), "",
			"HEAD refs/heads/main ab; f=2",
		},
		{
			"a commit, and the user has staged", "", on("a", "f=1 g=1 u=1"),
			on("ab", "f=2"), "", "HEAD refs/heads/main ab; f=2 g=",
		},
		{
			"the user has staged the same", "", on("a", "f=2 g=1"),
			on("ab", "f=2 g=1"), "", "HEAD refs/heads/main ab;",
		},
		{
			"the user has staged another", "", on("a", "f=3 g=1"),
			on("ab", "f=2 g=1"), "",
			"HEAD as ab: the index has another f here",
		},
		{
			"the user has staged what the box has committed, not staged", "",
			on("a", "f=3 g=1"),
			on("ab", "f=1 g=1"), "",
			"HEAD as ab: the index has another f here",
		},
		{
			"a file is the user's", "", base, on("ab", "f=2 g=1"), "f",
			"HEAD as ab: f is another one here",
		},
		{
			"the user has committed", "", on("ac", "f=1 g=3"),
			on("ab", "f=2 g=1"), "", "HEAD as ab: main has moved here",
		},
		{
			"the user has it already", "", on("abc", "f=2 g=3"),
			on("ab", "f=2 g=1"), "", "",
		},
		{
			"the user is at it already", "", on("ab", "f=1 g=1"),
			on("ab", "f=2 g=1"), "", "f=2",
		},
		{
			"the user is elsewhere", "", state("refs/heads/side", "a", "heads/main=a heads/side=a tags/v=a", "f=1 g=1"),
			on("ab", "f=2 g=1"), "",
			"HEAD as ab: another branch is checked out here",
		},
		{
			"an amended commit of the user's", "", base, on("x", "f=2 g=1"),
			"", "HEAD as x: the box has rewritten commits of main",
		},
		{
			"a reset", "user", state(main, "ab", "heads/main=ab", "f=1"), state(main, "a", "heads/main=a", "f=1"),
			"", "",
		},
		{
			"a new branch", "", base,
			state(feature, "ab", "heads/main=a heads/side=a tags/v=a heads/feature=ab", "f=2 g=1"), "",
			"HEAD refs/heads/feature ab; f=2",
		},
		{
			"a new branch that the user has, too", "",
			state(main, "a", "heads/main=a heads/side=a tags/v=a heads/feature=ac", "f=1 g=1"),
			state(feature, "ab", "heads/main=a heads/side=a tags/v=a heads/feature=ab", "f=2 g=1"), "",
			"HEAD as ab: feature has moved here",
		},
		{
			"both branches have moved", "", base,
			state(feature, "abc", "heads/main=ab heads/side=a tags/v=a heads/feature=abc", "f=2 g=1"), "",
			"HEAD refs/heads/feature abc; f=2; main ab",
		},
		{
			"no branch", "", base, state("", "ab", "heads/main=a heads/side=a tags/v=a", "f=2 g=1"), "",
			"HEAD as ab: the box has no branch checked out",
		},
		{
			"no branch, as the user", "", state("", "a", "heads/main=a", "f=1"),
			state("", "ab", "heads/main=a", "f=2"), "",
			"HEAD as ab: another branch is checked out here",
		},
		{
			"a merge here", "", busy(base, "MERGE_HEAD"), on("ab", "f=2 g=1"),
			"", "HEAD as ab: here is a merge in progress",
		},
		{
			"a merge in the box", "", base, busy(on("ab", "f=2 g=1"),
				"MERGE_HEAD"), "", "HEAD as ab: in the box is a merge in progress",
		},
		{
			"another git at work", "", busy(base, "index.lock"),
			state(main, "ab", "heads/main=ab tags/v=a", "f=2 g=1"), "",
			"HEAD as ab: here is another git command in progress",
		},
		{"staged alone", "", base, on("a", "f=2 g=1"), "", "f=2"},
		{
			"staged alone, of a file that the user has changed", "", base,
			on("a", "f=2 g=1"), "f", "",
		},
		{
			"a file becomes a folder in the index", "",
			on("a", "f=1 g=1 n=1"),
			on("ab", "f=1 g=1 n/m=1"), "",
			"HEAD as ab: the index has another n here",
		},
		{
			"other refs", "", state(main, "a", "heads/main=a heads/side=ac tags/v=a remotes/o/x=a", "f=1 g=1"),
			state(main, "a", "heads/main=a heads/side=ab tags/v=x tags/w=a remotes/o/x=y replace/z=q", "f=1 g=1"), "",
			"tags/w a; refs/heads/side as ab: side has moved here; " +
				"refs/remotes/o/x as y: refs/remotes/o/x has moved here; " +
				"refs/replace/z as q: refs of its kind stay in the box; " +
				"refs/tags/v as x: the box has rewritten refs/tags/v",
		},
		{
			"a branch that the user has deleted", "", state(main, "a", "heads/main=a tags/v=a", "f=1 g=1"),
			state(main, "a", "heads/main=a heads/side=ab tags/v=a", "f=1 g=1"), "",
			"refs/heads/side as ab: side was deleted here",
		},
		{"a branch that the box has deleted", "", base, state(main, "a", "heads/main=a", "f=1 g=1"), "", ""},
		{
			"an unknown base", "unknown", base,
			state(main, "ab", "heads/main=ab heads/side=ab tags/v=a", "f=2 g=1"), "",
			"HEAD as ab: what it was copied from is not known; " +
				"refs/heads/side as ab: what it was copied from is not known",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			from := map[string]*repository.State{"": &base, "user": &tt.user}[tt.from]
			contains := strings.HasPrefix
			p := repository.Decide(from, tt.user, tt.box, repository.Facts{
				Contains: contains,
				Has: func(object string) bool {
					all := append(slices.Collect(maps.Values(tt.user.Refs)), tt.user.Commit)
					return slices.ContainsFunc(all, func(has string) bool { return contains(has, object) })
				},
				Changed: func(string, string) map[string]repository.Entry {
					return map[string]repository.Entry{"f": tt.box.Index["f"]}
				},
				Own: func(path string, _ repository.Entry) bool { return path == tt.own },
			})
			var got []string
			if p.Moves {
				got = append(got, "HEAD "+p.Head+" "+p.Commit)
			}
			var index []string
			for _, name := range slices.Sorted(maps.Keys(p.Index)) {
				index = append(index, name+"="+p.Index[name].Object)
			}
			if index != nil || p.Moves {
				got = append(got, strings.Join(index, " "))
			}
			for _, r := range p.Refs {
				got = append(got, strings.TrimPrefix(strings.TrimPrefix(r.Name, "refs/heads/"), "refs/")+" "+r.New)
			}
			for _, s := range p.Stored {
				got = append(got, s.Of+" as "+s.Object+": "+s.Why)
			}
			if diff := cmp.Diff(strings.TrimSpace(tt.want), strings.TrimSpace(strings.Join(got, "; "))); diff != "" {
				t.Error(diff)
			}
		})
	}
}
