// Package repository merges what git has recorded in a box's copy of a repository into the repository.
//
// A repository has two copies that change independently: the user's, and the one in a box. Both began as the base. What
// git has recorded is HEAD, its branch, the index and the refs; the files of the working tree are the caller's, and are
// merged before.
//
// Guarantees of Repo.Merge: HEAD, its branch and the index follow the box together or not at all, and only where the
// user's next commit then has the box's commit below it and does not undo it. What can't follow stays as the user has
// it, and the box's commit gets a name, refs/arbe/<name>. No branch loses a commit, and none is deleted. git's own lock
// of the index is held meanwhile. Killed at any moment, Merge leaves a state in which a commit of the user undoes
// nothing, and a repeat finishes. No hook and no other program runs, and no configuration is changed.
//
// Decide makes the decision. It is pure.
package repository

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"arbe.0sk.ar/runner/internal/git"
)

// State is a repository's state as git has recorded it.
type State struct {
	Head   string            `json:"head,omitempty"`   // the branch that HEAD is on, as refs/heads/main; "" for none
	Commit string            `json:"commit,omitempty"` // that HEAD is at; "" before the first one
	Refs   map[string]string `json:"refs,omitempty"`   // by their full names; without symbolic ones
	Stash  []string          `json:"stash,omitempty"`  // commits of its entries; only of a box
	Index  Index             `json:"index,omitempty"`
	Busy   string            `json:"busy,omitempty"` // a merge, rebase or the like is in progress: git's file of it

	taken map[string]bool // branches that are checked out, here or in another worktree
}

// Index is an index by the paths of its entries.
type Index map[string]Entry

// Entry is a path's entry in an index or a tree. The zero Entry is that of a path that has none.
type Entry struct {
	Mode   string // as 100644, or unmerged, or intent
	Object string
	Sparse bool // git leaves the file out of the working tree
}

// Modes of entries that are not files.
const (
	unmerged = "unmerged" // its Object has all index entries of the path, one a line
	intent   = "intent"   // of git add -N: it has no content yet
	gitlink  = "160000"   // the commit of a submodule
)

// Sections of a report, each the output of a command.
const (
	sectionHead = iota
	sectionCommit
	sectionRefs
	sectionIndex
	sectionBusy
	sectionStash
	sections
)

// Commands of the sections of a report, in this order; Operations is between the index and the stash.
var (
	HeadCommand   = []string{"symbolic-ref", "-q", "HEAD"}
	CommitCommand = []string{"rev-parse", "-q", "--verify", "HEAD"}
	RefsCommand   = []string{
		"for-each-ref", "--format=%(objectname) %(refname) " +
			"%(if)%(symref)%(then)symbolic%(end) %(if)%(worktreepath)%(then)taken%(end)",
	}
	// It looks at no file: git would run filters of the configuration for that.
	IndexCommand = []string{"ls-files", "-s", "-z", "--debug"}
)

// Operations are the files of git while something is in progress.
var Operations = []string{
	"MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply", "sequencer", "BISECT_LOG",
}

// Parse reads the sections of a report.
func Parse(parts [][]byte) (s State, err error) {
	if len(parts) != sections {
		return s, fmt.Errorf("state of a repository: %d parts", len(parts))
	}
	line := func(n int) string { return strings.TrimSpace(string(parts[n])) }
	s = State{
		Head: line(sectionHead), Commit: line(sectionCommit), Busy: line(sectionBusy),
		Refs: map[string]string{}, taken: map[string]bool{}, Stash: strings.Fields(line(sectionStash)),
	}
	for text := range strings.Lines(string(parts[sectionRefs])) {
		f := strings.Split(strings.TrimSuffix(text, "\n"), " ")
		if len(f) != 4 || !git.IsObject(f[0]) {
			return s, fmt.Errorf("refs of a repository: unexpected line %.100q", text)
		}
		if f[3] != "" {
			s.taken[f[1]] = true
		}
		if f[2] == "" && !strings.HasPrefix(f[1], ours) && f[1] != "refs/stash" {
			s.Refs[f[1]] = f[0]
		}
	}
	if s.Index, err = parseIndex(parts[sectionIndex]); err != nil {
		return s, err
	}
	for _, oid := range append([]string{s.Commit}, s.Stash...) {
		if oid != "" && !git.IsObject(oid) {
			return s, fmt.Errorf("state of a repository: %.100q is no object", oid)
		}
	}
	return s, nil
}

// Flags of entries of an index, as git prints them.
const (
	flagIntent = 1 << 29
	flagSparse = 1 << 30
)

// about is how many lines follow an entry; the last one ends with its flags.
const about = 5

// parseIndex reads the output of IndexCommand: "MODE OBJECT STAGE TAB PATH NUL" and lines about it for each entry.
func parseIndex(b []byte) (Index, error) {
	x := Index{}
	for len(b) > 0 {
		record, rest, _ := bytes.Cut(b, []byte{0})
		head, path, _ := strings.Cut(string(record), "\t")
		var last []byte
		for range about {
			last, rest, _ = bytes.Cut(rest, []byte{'\n'})
		}
		_, text, _ := bytes.Cut(last, []byte("flags: "))
		flags, err := strconv.ParseUint(string(text), 16, 64)
		f := strings.Fields(head)
		if err != nil || len(f) != 3 || path == "" || !git.IsObject(f[1]) {
			return nil, fmt.Errorf("index of a repository: unexpected entry %.100q", b[:min(len(b), 300)])
		}
		e := Entry{Mode: f[0], Object: f[1], Sparse: flags&flagSparse != 0}
		switch {
		case f[2] != "0":
			e = Entry{Mode: unmerged, Object: x[path].Object + head + "\n"}
		case flags&flagIntent != 0:
			e = Entry{Mode: intent}
		}
		x[path], b = e, rest
	}
	return x, nil
}

// MarshalJSON writes the index as compressed text: an index is large, and the same as a tree but for a few paths.
func (x Index) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	enc := json.NewEncoder(zip)
	for _, path := range slices.Sorted(maps.Keys(x)) {
		e := x[path]
		if err := enc.Encode(stored{[]byte(path), e.Mode, e.Object, e.Sparse}); err != nil {
			return nil, err
		}
	}
	if err := zip.Close(); err != nil {
		return nil, err
	}
	return json.Marshal(b.Bytes())
}

// stored is an entry as MarshalJSON writes it. A path may be no UTF-8.
type stored struct {
	Path   []byte `json:"p"`
	Mode   string `json:"m"`
	Object string `json:"o"`
	Sparse bool   `json:"s,omitempty"`
}

// UnmarshalJSON reads what MarshalJSON writes.
func (x *Index) UnmarshalJSON(b []byte) error {
	var text []byte
	if err := json.Unmarshal(b, &text); err != nil {
		return err
	}
	zip, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("read an index: %w", err)
	}
	*x = Index{}
	for dec := json.NewDecoder(zip); ; {
		var s stored
		err := dec.Decode(&s)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read an index: %w", err)
		}
		(*x)[string(s.Path)] = Entry{s.Mode, s.Object, s.Sparse}
	}
}
