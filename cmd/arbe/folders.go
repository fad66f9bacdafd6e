package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/folder"
	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/internal/durable"
	"arbe.0sk.ar/runner/thread"
)

// folders is the path of the notes of which folder of this host was copied into which box. A folder for each box holds
// the note and the manifest of the last common state of box and folder.
type folders string

func foldersOf(d daemon.Data) folders { return folders(filepath.Join(string(d), "folders")) }

// copied is the note of one copy.
type copied struct {
	Thread  string   `json:"threadId"`
	Path    string   `json:"path"`
	Exclude []string `json:"exclude,omitempty"`
	At      string   `json:"at,omitempty"` // its path below the box's workspace; "" for the working directory
}

const (
	copiedFile   = "folder.json"
	manifestFile = "manifest"
)

// of returns the folder of a box's notes about the folder at a path of its workspace.
func (f folders) of(box sandbox.Ref, at string) string {
	sum := sha256.Sum256([]byte(box.String()))
	dir := filepath.Join(string(f), hex.EncodeToString(sum[:12]))
	if at != "" {
		sum = sha256.Sum256([]byte(at))
		dir += "-" + hex.EncodeToString(sum[:6])
	}
	return dir
}

// state returns the folder for the temporary files of syncs of path: one for each path, so that two syncs never work on
// it at the same time.
func (f folders) state(path string) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(string(f), "sync-"+hex.EncodeToString(sum[:12]))
}

// note records that a folder was copied into a box.
func (f folders) note(box sandbox.Ref, n copied, b folder.Base) error {
	dir := f.of(box, n.At)
	if err := durable.MkdirAll(dir); err != nil {
		return err
	}
	if err := b.Save(filepath.Join(dir, manifestFile)); err != nil {
		return err
	}
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	// Last, because it makes the note valid.
	return durable.WriteFile(filepath.Join(dir, copiedFile), append(text, '\n'))
}

// all returns the notes of a box: of the folder in its working directory, and of those of its environment.
func (f folders) all(box sandbox.Ref) (notes []copied, err error) {
	plain := filepath.Base(f.of(box, ""))
	dirs, err := os.ReadDir(string(f)) // by name: the working directory's comes first
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, dir := range dirs {
		if dir.Name() != plain && !strings.HasPrefix(dir.Name(), plain+"-") {
			continue
		}
		n, ok, err := readNote(filepath.Join(string(f), dir.Name()), box)
		if err != nil {
			return nil, err
		}
		if ok {
			notes = append(notes, n)
		}
	}
	return notes, nil
}

// paths lists the folders of notes.
func paths(notes []copied) string {
	var all []string
	for _, n := range notes {
		all = append(all, n.Path)
	}
	return strings.Join(all, ", ")
}

// readNote returns the note in dir about a box; false if there is none.
func readNote(dir string, box sandbox.Ref) (n copied, ok bool, err error) {
	b, err := os.ReadFile(filepath.Join(dir, copiedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return n, false, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &n)
	}
	if err != nil {
		err = fmt.Errorf("note of the folder in %s: %w", box, err)
	}
	return n, err == nil, err
}

// pull copies the changes of a box back, into each folder. mine is false if this host has no folder of the box.
func (f folders) pull(ctx context.Context, box sandbox.Sandbox, deletes bool) (result thread.Synced, mine bool) {
	notes, err := f.all(box.Ref())
	if err != nil {
		return thread.Synced{Error: err.Error()}, true
	}
	for _, n := range notes {
		one := f.pullOne(ctx, box, n, deletes)
		result.Copied += one.Copied
		result.Bytes += one.Bytes
		result.Deleted += one.Deleted
		result.Conflicts = capped(append(result.Conflicts, below(n.At, one.Conflicts)...))
		result.Skipped = capped(append(result.Skipped, below(n.At, one.Skipped)...))
		result.Stored = append(result.Stored, one.Stored...)
		result.Stored = result.Stored[:min(len(result.Stored), mostPaths)]
		if result.Error == "" {
			result.Error = one.Error
		}
	}
	return result, len(notes) > 0
}

// below returns paths below a folder; the paths themselves for the folder "".
func below(dir string, paths []string) (all []string) {
	for _, p := range paths {
		all = append(all, path.Join(dir, p))
	}
	return all
}

// pullOne copies the changes of one folder back.
func (f folders) pullOne(ctx context.Context, box sandbox.Sandbox, n copied, deletes bool) (result thread.Synced) {
	manifest := filepath.Join(f.of(box.Ref(), n.At), manifestFile)
	base, err := folder.Load(manifest)
	if err == nil {
		box, err = placeIn(box, n.At)
	}
	if err != nil {
		return thread.Synced{Error: err.Error()}
	}
	s := folder.Sync{
		Folder: folder.Folder{Path: n.Path, Exclude: n.Exclude},
		Base:   base,
		State:  f.state(n.Path),
		Name:   n.Thread,
		Delete: deletes,
	}
	out, err := s.Pull(ctx, box)
	result = thread.Synced{
		Copied:    out.Copied,
		Bytes:     out.Bytes,
		Deleted:   out.Deleted,
		Conflicts: out.Conflicts,
		Skipped:   out.Skipped,
	}
	for _, s := range out.Stored {
		result.Stored = append(result.Stored, thread.Stored{
			Path: path.Join(n.At, s.Path), Ref: s.Ref, Of: s.Of, Commit: s.Object, Reason: s.Why,
		})
	}
	err = errors.Join(err, out.Base.Save(manifest))
	if err != nil {
		result.Error = err.Error()
	}
	return result
}

// mostPaths bounds the paths in an entry.
const mostPaths = 200

func capped(paths []string) []string { return paths[:min(len(paths), mostPaths)] }

// report prints the conflicts, the skipped paths and the named commits of a copy back.
func report(w io.Writer, r thread.Synced) {
	for _, path := range r.Conflicts {
		fmt.Fprintf(w, "%s changed on both sides: merge the box's version, which stands beside it\n", path)
	}
	for _, path := range r.Skipped {
		fmt.Fprintf(w, "%s changed in the box and was skipped: files of its kind are never copied back\n", path)
	}
	for _, s := range r.Stored {
		where, next := "", ""
		if s.Path != "" {
			where = s.Path + ": "
		}
		if s.Of == "HEAD" {
			next = ": git merge " + s.Ref
		}
		fmt.Fprintf(w, "%s%s does not follow the box's commit %.12s: %s; it is %s%s\n",
			where, s.Of, s.Commit, s.Reason, s.Ref, next)
	}
}

// forget removes the notes of a thread that is settled.
func (f folders) forget(threadID string) {
	dirs, err := os.ReadDir(string(f))
	if err != nil {
		return // no folder was copied yet
	}
	for _, d := range dirs {
		dir := filepath.Join(string(f), d.Name())
		if n, ok, _ := readNote(dir, sandbox.Ref{}); ok && n.Thread == threadID { // one that can't be read stays
			_ = os.RemoveAll(dir) // the next call removes what is left
		}
	}
}

// tree is a folder of this host that a launch copies into its box.
type tree struct {
	folders folders
	copied
	noted bool // its changes may be copied back
}

// tree returns the folder that a note names, by its absolute path. place names where a person wrote it, for errors.
func (f folders) tree(place string, n copied, noted bool) (_ launch.Tree, err error) {
	if n.Path, err = filepath.Abs(n.Path); err != nil {
		return nil, err
	}
	if err := (folder.Folder{Path: n.Path, Exclude: n.Exclude}).Check(); err != nil {
		return nil, cmdline.Unread(place, err)
	}
	return tree{f, n, noted}, nil
}

func (t tree) String() string { return t.Path }

// CopyIn copies the folder into a fresh box. A box of an earlier run has the folder already, with the agent's changes.
func (t tree) CopyIn(ctx context.Context, box sandbox.Sandbox, fresh bool) error {
	if !fresh {
		n, ok, err := readNote(t.folders.of(box.Ref(), t.At), box.Ref())
		if err == nil && (!ok || n.Path != t.Path) {
			err = fmt.Errorf("the sandbox %s was made without this folder: leave --dir out", box.Ref())
		}
		return err
	}
	m, err := folder.Folder{Path: t.Path, Exclude: t.Exclude}.CopyIn(ctx, box)
	if err != nil || !t.noted {
		return err
	}
	return t.folders.note(box.Ref(), t.copied, m)
}
