package repository

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// ours is the prefix of the refs that name what could not follow.
const ours = "refs/arbe/"

// Facts answer Decide's questions about commits and files.
type Facts struct {
	// Contains reports whether a commit is another one, or descends from it.
	Contains func(commit, other string) bool
	// Has reports whether a ref of the user, or HEAD, contains an object.
	Has func(object string) bool
	// Changed returns the paths in which two commits differ, with their entries in the second one. The commit "" has
	// none.
	Changed func(from, to string) map[string]Entry
	// Own reports whether the file at a path is the user's own version, and not what the box's change has made of it.
	// e is the entry that the path's is to become.
	Own func(path string, e Entry) bool
}

// Plan has the changes to make in the user's repository.
type Plan struct {
	Moves  bool   // HEAD moves, to Commit on Head
	Head   string // "" for a commit alone
	Commit string

	Index  map[string]Entry // entries to set; the zero Entry removes one
	Refs   []Ref            // other refs to make or move
	Stored []Stored         // what gets a name of its own
}

// Ref is a ref to make or to move.
type Ref struct {
	Name     string
	Old, New string // Old is "" for a new ref
}

// Stored is an object of the box that gets a name below refs/arbe, because it could not follow to where the box has it.
type Stored struct {
	Of     string // where the box has it: a ref, "HEAD" or "stash"
	Object string
	Why    string
}

// Decide decides what follows the box. base is the first state of both, or the box's after the last Merge; nil for
// an unknown one, and then nothing follows.
//
//	HEAD in the box          HEAD of the user    the user's HEAD
//	as it was                any                 stays
//	moved                    at the box's        stays
//	moved                    moved               stays; the box's commit gets a name
//	ahead on its branch      as it was           follows, with the branch and the index
//	on another branch        as it was           follows, if that branch is new, or can follow as any other ref
//	anywhere else            as it was           stays; the box's commit gets a name
//
// It also stays where the index or a file that would have to follow is the user's own, and while a merge or the like is
// in progress. The index follows path by path, all of what the box has changed in it or nothing.
func Decide(base *State, user, box State, f Facts) Plan {
	var p Plan
	switch {
	case base == nil:
		p.store("HEAD", box.Commit, "what it was copied from is not known", f)
	case box.Head == base.Head && box.Commit == base.Commit, box.Head == user.Head && box.Commit == user.Commit:
		if user.Busy == "" && box.Busy == "" {
			p.Index, _ = follow(base.Index, user.Index, box.Index, nil, f)
		}
	default:
		why := stays(*base, user, box, f)
		if why == "" {
			p.Index, why = follow(base.Index, user.Index, box.Index, f.Changed(user.Commit, box.Commit), f)
		}
		if why != "" {
			p.Index = nil
			p.store("HEAD", box.Commit, why, f)
			break
		}
		p.Moves, p.Head, p.Commit = true, box.Head, box.Commit
	}
	p.refs(base, user, box, f)
	return p
}

// stays returns why HEAD does not follow; "" where it may.
func stays(base, user, box State, f Facts) string {
	switch {
	case user.Busy != "":
		return "here is " + doing(user.Busy)
	case box.Busy != "":
		return "in the box is " + doing(box.Busy)
	case user.Head != base.Head:
		return "another branch is checked out here"
	case user.Commit != base.Commit:
		return branch(user.Head) + " has moved here"
	case box.Commit == "":
		return "the box has no commit"
	case box.Head == "" && base.Head != "":
		return "the box has no branch checked out"
	case box.Head == base.Head && !f.Contains(box.Commit, user.Commit):
		return "the box has rewritten commits of " + branch(user.Head)
	case box.Head == base.Head || box.Head == "":
		return ""
	case !strings.HasPrefix(box.Head, "refs/heads/"):
		return "the box has no branch checked out"
	case user.taken[box.Head]:
		return branch(box.Head) + " is checked out in another worktree"
	}
	_, why := moves(box.Head, base.Refs[box.Head], user, box, user.Head, f)
	return why
}

// doing names what git's file of an operation stands for.
func doing(file string) string {
	switch file {
	case lockName:
		return "another git command in progress"
	case "MERGE_HEAD":
		return "a merge in progress"
	case "CHERRY_PICK_HEAD", "sequencer":
		return "a cherry-pick in progress"
	case "REVERT_HEAD":
		return "a revert in progress"
	case "BISECT_LOG":
		return "a bisection in progress"
	}
	return "a rebase in progress"
}

// branch returns the short name of HEAD's branch.
func branch(head string) string {
	if head == "" {
		return "HEAD"
	}
	return strings.TrimPrefix(head, "refs/heads/")
}

// store adds an object that gets a name, if none of the user's refs has it.
func (p *Plan) store(of, object, why string, f Facts) {
	if object != "" && !f.Has(object) {
		p.Stored = append(p.Stored, Stored{of, object, why})
	}
}

// refs decides about all refs but the branch that HEAD is on in the box, and about the stash.
func (p *Plan) refs(base *State, user, box State, f Facts) {
	was := State{}
	if base != nil {
		was = *base
	}
	head := user.Head
	if p.Moves {
		head = p.Head
	}
	for _, name := range slices.Sorted(maps.Keys(box.Refs)) {
		x, h := box.Refs[name], user.Refs[name]
		if name == box.Head || x == was.Refs[name] || x == h {
			continue
		}
		if base == nil {
			p.store(name, x, "what it was copied from is not known", f)
		} else if to, why := moves(name, was.Refs[name], user, box, head, f); to {
			p.Refs = append(p.Refs, Ref{name, h, x})
		} else {
			p.store(name, x, why, f)
		}
	}
	for _, commit := range box.Stash {
		if !slices.Contains(was.Stash, commit) {
			p.store("stash", commit, "entries of a stash are not merged", f)
		}
	}
}

// moves reports whether a ref of the user, which was at b, follows the box's; else why it does not. head is the branch
// that HEAD is on.
func moves(name, b string, user, box State, head string, f Facts) (bool, string) {
	x, h := box.Refs[name], user.Refs[name]
	switch kind := strings.Join(strings.SplitN(name, "/", 3)[:min(2, strings.Count(name, "/")+1)], "/"); {
	case x == h:
		return true, ""
	case kind != "refs/heads" && kind != "refs/tags" && kind != "refs/notes" && kind != "refs/remotes":
		return false, "refs of its kind stay in the box"
	case name == head, user.taken[name] && name != user.Head:
		return false, branch(name) + " is checked out here"
	case h == "" && b == "":
		return true, ""
	case h == "":
		return false, branch(name) + " was deleted here"
	case h != b:
		return false, branch(name) + " has moved here"
	case kind == "refs/remotes", kind != "refs/tags" && f.Contains(x, h):
		return true, ""
	}
	return false, "the box has rewritten " + branch(name)
}

// follow returns the entries of the user's index that become the box's, or why they can't: all those that the box has
// changed. changed are the paths that the commit has changed, whose files have to follow, too.
func follow(base, user, box Index, changed map[string]Entry, f Facts) (set map[string]Entry, why string) {
	set = map[string]Entry{}
	want := map[string]Entry{}
	maps.Copy(want, changed)
	for _, name := range union(base, box) {
		b, h, x := base[name], user[name], box[name]
		switch {
		case x == b || x == h || x.Mode == intent:
			continue
		case h != b, x.Mode == unmerged, b.Mode == unmerged:
			return nil, "the index has another " + name + " here"
		case x.Sparse || h.Sparse:
			return nil, name + " is outside of the sparse checkout"
		}
		set[name], want[name] = x, x
	}
	for name := range changed {
		if _, sets := set[name]; !sets && user[name] != box[name] {
			return nil, "the index has another " + name + " here"
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if f.Own(name, want[name]) {
			return nil, name + " is another one here"
		}
	}
	if name := clash(user, set); name != "" {
		return nil, "the index has another " + name + " here"
	}
	return set, ""
}

// clash returns a path that would be a file and a folder in the index once entries are set; "" for none.
func clash(user Index, set map[string]Entry) string {
	files, folders := map[string]bool{}, map[string]bool{}
	for _, name := range union(user, set) {
		e, is := set[name]
		if !is {
			e = user[name]
		}
		if e == (Entry{}) {
			continue
		}
		files[name] = true
		for dir := path.Dir(name); dir != "." && !folders[dir]; dir = path.Dir(dir) {
			folders[dir] = true
		}
	}
	for name := range set {
		for dir := name; dir != "."; dir = path.Dir(dir) {
			if files[dir] && folders[dir] {
				return dir
			}
		}
	}
	return ""
}

// union returns the sorted paths of two indexes.
func union(a, b map[string]Entry) []string {
	all := map[string]Entry{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}
