package folder

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"
)

// merge applies changes of a box to the host's folder. It decides for each path by the state at that moment.
type merge struct {
	Sync
	root     *os.Root
	notes    *notes
	box      Manifest
	contents map[string]piece
	wanted   map[string]bool // the files that were fetched; one without content is no file any more

	res      *Result
	base     Manifest          // of the next Pull, changed with each path
	aside    map[string]string // path of a folder of the box -> path of its content, if the host has another file there
	reported map[string]bool   // the conflicts that res has
	modes    []dirMode         // set at the end
	clear    string            // the last folder that blocked has found free
	ready    string            // the last folder that parent has prepared
}

// dirMode is a folder whose mode is set when its content is complete.
type dirMode struct {
	path string
	mode fs.FileMode
}

// Reasons why a path is not free for the box's version.
var (
	errChanged = errors.New("changed meanwhile")
	errFull    = errors.New("the folder is not empty")
)

// run applies the changes, which are sorted by path: first deletions, from the deepest, so that a file can replace a
// folder; then the rest, folders before their content; then the modes of folders.
func (m *merge) run(ctx context.Context, changes []change) error {
	for _, c := range slices.Backward(changes) {
		if c.box.Type != Absent {
			continue
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := m.remove(c); err != nil {
			return err
		}
	}
	for _, c := range changes {
		if c.box.Type == Absent {
			continue
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if m.wanted[c.path] {
			p, ok := m.contents[c.path]
			if !ok {
				continue // no longer a file in the box: left to the next Pull
			}
			c.box = p.Entry
		}
		if err := m.put(c); err != nil {
			return err
		}
		m.base[c.path] = c.box
	}
	for _, d := range slices.Backward(m.modes) {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := m.root.Chmod(d.path, d.mode); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	slices.Sort(m.res.Conflicts)
	return m.notes.write(note{})
}

// change is called before each single change of the folder.
func (m *merge) change() error {
	if m.step != nil {
		return m.step()
	}
	return nil
}

// remove deletes a path that was deleted in the box, if Delete is set and the host has it in the state that was sent.
func (m *merge) remove(c change) error {
	if !m.Delete {
		return nil // it stays in the base, so a later Pull can delete it
	}
	host, err := version(m.root, c.path)
	if err != nil {
		return err
	}
	delete(m.base, c.path)
	switch {
	case host.Type == Absent:
		return nil
	case host != c.base:
		m.conflict(c.path)
		return nil
	}
	if err := m.change(); err != nil {
		return err
	}
	err = m.root.Remove(c.path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTEMPTY): // it has content that stays here
		return nil
	case err == nil:
		m.res.Deleted++
	}
	return err
}

// put writes the box's version of a path to its place here, or beside it.
func (m *merge) put(c change) error {
	name, base := c.path, c.base
	if to, moved := m.moved(name); moved {
		name, base = to, Entry{}
	}
	at, err := m.blocked(name)
	if err != nil {
		return err
	}
	if at != "" { // the host has no folder there any more: the content of the box's goes beside the host's version
		to, err := m.beside(at, "", Entry{Type: Dir, Mode: 0o755})
		if err != nil {
			return err
		}
		m.conflict(at)
		name, base = to+name[len(at):], Entry{}
	}
	for range looks {
		host, info, err := look(m.root, name)
		if err != nil {
			return err
		}
		switch decide(base, host, c.box) {
		case keep:
			return nil
		case conflict:
			if host.Type == Dir && c.box.Type == Dir {
				m.conflict(name) // only the mode differs, so there is no version to put beside it
				return nil
			}
		case apply:
			err := m.replace(name, c.path, info, host, c.box)
			if errors.Is(err, errChanged) {
				continue
			}
			if err == nil && c.box.Type != Dir {
				m.res.Copied++
				m.res.Bytes += c.box.Size
			}
			if !errors.Is(err, errFull) {
				return err
			}
		}
		break
	}
	if _, err = m.beside(name, c.path, c.box); err == nil {
		m.conflict(name)
	}
	return err
}

// moved returns the destination of a path, and whether that is below a folder that was put aside.
func (m *merge) moved(name string) (string, bool) {
	is := false
	for i := 0; i < len(name); i++ {
		if name[i] != '/' {
			continue
		}
		if to, ok := m.aside[name[:i]]; ok {
			name, i, is = to+name[i:], len(to), true
		}
	}
	return name, is
}

// blocked is the function of this name, with a cache of one folder.
func (m *merge) blocked(name string) (string, error) {
	dir := path.Dir(name)
	if dir == m.clear {
		return "", nil
	}
	at, err := blocked(m.root, name)
	if at == "" && err == nil {
		m.clear = dir
	}
	return at, err
}

// conflict adds a path to the conflicts.
func (m *merge) conflict(name string) {
	if !m.reported[name] {
		m.reported[name] = true
		m.res.Conflicts = append(m.res.Conflicts, name)
	}
}

// verdict is the decision about a path of the host's folder.
type verdict int

// The verdicts.
const (
	keep     verdict = iota // keep the host's version: it equals the box's, or only the host has changed it
	apply                   // replace the host's version by the box's
	conflict                // both have changed it differently: keep the host's version and put the box's beside it
)

// decide compares the three versions of a path. Folders differ in their mode only: two that were created on both sides
// are the same, with the host's mode. A new mode of a folder that the host has deleted is dropped.
func decide(base, host, box Entry) verdict {
	switch {
	case box == base, box == host:
		return keep
	case host == base, interim(host, box):
		return apply
	case box.Type == Dir && base.Type == Absent && host.Type == Dir:
		return keep
	case box.Type == Dir && base.Type == Dir && host.Type != Dir:
		return keep
	}
	return conflict
}

// interim reports whether host is the box's folder while its content is applied: with the box's mode and ownerMode.
func interim(host, box Entry) bool {
	return host.Type == Dir && box.Type == Dir && host.Mode != box.Mode && host.Mode == box.Mode|ownerMode
}

// ownerMode is the least mode of a folder while files are created in it.
const ownerMode = 0o700
