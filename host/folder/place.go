package folder

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"syscall"
	"unicode/utf8"

	"github.com/google/uuid"
)

// replace puts e at name, atomically, if the host's version is still that of info and host. It returns errChanged if
// that has changed, and errFull if it is a folder that is not empty. source is the path in the box.
func (m *merge) replace(name, source string, info fs.FileInfo, host, e Entry) error {
	if info != nil && host.Type == e.Type && (e.Type == Dir || e.Type == File && host.SHA256 == e.SHA256) {
		return m.chmod(name, e)
	}
	if err := m.parent(name); err != nil {
		return err
	}
	// Of two types of which one is a folder, neither can be renamed over the other.
	n := note{Temp: []byte(m.temp(name))}
	if host.Type == Dir {
		n.Path, n.Dir = []byte(name), host.Mode
	} else if host.Type != Absent && e.Type == Dir {
		n.Path, n.Old = []byte(name), []byte(m.temp(name))
	}
	for _, step := range []func() error{
		func() error { return m.notes.write(n) },
		m.change,
		func() error { return m.make(string(n.Temp), source, e) },
		func() error { return m.free(name, info, n) },
		m.change,
		func() error { return m.root.Rename(string(n.Temp), name) },
	} {
		if err := step(); err != nil {
			return errors.Join(err, n.undo(m.root))
		}
	}
	if e.Type == Dir {
		m.later(name, e.Mode)
	}
	if len(n.Old) == 0 {
		return nil
	}
	if err := m.change(); err != nil {
		return err
	}
	return m.root.Remove(string(n.Old))
}

// temp returns a free name beside name.
func (m *merge) temp(name string) string {
	return path.Join(path.Dir(name), ".arbe-"+uuid.NewString()[:13])
}

// free checks that the host's version is still that of info, and removes it if a rename can't replace it.
func (m *merge) free(name string, info fs.FileInfo, n note) error {
	now, err := m.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && info == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist), err == nil && info == nil:
		return errChanged
	case err != nil:
		return err
	case info.IsDir() && !os.SameFile(info, now), !info.IsDir() && !same(info, now):
		return errChanged
	case len(n.Path) == 0:
		return nil
	}
	if err := m.change(); err != nil {
		return err
	}
	if len(n.Old) > 0 {
		return m.root.Rename(name, string(n.Old))
	}
	err = m.root.Remove(name)
	if errors.Is(err, syscall.ENOTEMPTY) {
		return errFull
	}
	return err
}

// make creates e at temp, with the content that was fetched for source, or with that of the host's file if none was
// needed.
func (m *merge) make(temp, source string, e Entry) error {
	switch e.Type {
	case Link:
		return m.root.Symlink(e.Link, temp)
	case Dir:
		if err := m.root.Mkdir(temp, ownerMode); err != nil {
			return err
		}
		return m.root.Chmod(temp, e.Mode|ownerMode)
	}
	var content io.Reader
	if p, ok := m.contents[source]; ok {
		content = p.reader()
	} else {
		f, _, err := openFile(m.root, source)
		if err != nil {
			return err
		}
		defer f.Close() // read only: nothing to lose
		content = f
	}
	f, err := m.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	sum := sha256.New()
	err = m.change()
	if err == nil {
		_, err = io.Copy(io.MultiWriter(f, sum), content)
	}
	if err == nil && Sum(sum.Sum(nil)) != e.SHA256 {
		err = fmt.Errorf("%s: the content has changed meanwhile: sync again", source)
	}
	if err == nil {
		err = f.Chmod(e.Mode)
	}
	return errors.Join(err, f.Close())
}

// chmod gives name the mode of e.
func (m *merge) chmod(name string, e Entry) error {
	mode := e.Mode
	if e.Type == Dir {
		mode |= ownerMode
	}
	if err := m.change(); err != nil {
		return err
	}
	if err := m.root.Chmod(name, mode); err != nil {
		return err
	}
	if e.Type == Dir {
		m.later(name, e.Mode)
	}
	return nil
}

// later sets the mode of a folder at the end, if that mode forbids creating files in it.
func (m *merge) later(name string, mode fs.FileMode) {
	if mode&ownerMode != ownerMode {
		m.modes = append(m.modes, dirMode{name, mode})
	}
}

// parent makes the folder of name, with write permission.
func (m *merge) parent(name string) error {
	dir := path.Dir(name)
	if dir == m.ready || dir == "." {
		return nil
	}
	info, err := m.root.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err = m.change(); err == nil {
			err = m.root.MkdirAll(dir, 0o755)
		}
	case err == nil && info.IsDir() && info.Mode()&ownerMode != ownerMode:
		if err = m.change(); err == nil {
			err = m.root.Chmod(dir, info.Mode().Perm()|ownerMode)
			m.later(dir, info.Mode().Perm())
		}
	}
	if err == nil {
		m.ready = dir
	}
	return err
}

// Limits of a name beside another.
const (
	longest = 255 // bytes of a name
	besides = 100 // names to try
)

// beside puts e beside name, with the first name that is free or has it already, and returns that name. An existing
// folder is reused.
func (m *merge) beside(name, source string, e Entry) (string, error) {
	for i := range besides {
		to := besideName(name, e, i)
		if to == "" || m.box[to].Type != Absent || m.Base.Manifest[to].Type != Absent {
			continue
		}
		host, info, err := look(m.root, to)
		if err != nil {
			return "", err
		}
		switch {
		case host == e, host.Type == Dir && e.Type == Dir:
		case host.Type == Absent:
			err = m.replace(to, source, info, host, e)
			if errors.Is(err, errChanged) {
				continue
			}
		default:
			continue
		}
		if err == nil && e.Type == Dir {
			m.aside[name] = to
		}
		return to, err
	}
	return "", fmt.Errorf("%s: all names for the box's version beside it are taken: delete old .box files", name)
}

// besideName returns the i-th name to try: NAME.box, then NAME.box-HASH with a hash of the name and the content, then
// NAME.box-HASH-I. The first is "" if it is too long. The others truncate the name.
func besideName(name string, e Entry, i int) string {
	dir, base := path.Split(name)
	if i == 0 {
		if len(base)+len(".box") > longest {
			return ""
		}
		return name + ".box"
	}
	sum := sha256.Sum256([]byte(base + "\x00" + e.Link + "\x00" + string(e.SHA256[:])))
	end := fmt.Sprintf(".box-%x", sum[:6])
	if i > 1 {
		end += "-" + strconv.Itoa(i)
	}
	if n := longest - len(end); len(base) > n {
		for base = base[:n]; len(base) > 0 && !utf8.ValidString(base) && utf8.ValidString(path.Base(name)); {
			base = base[:len(base)-1]
		}
	}
	return dir + base + end
}
