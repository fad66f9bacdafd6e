package sandbox

import (
	"errors"
	"path"
	"strings"
)

// Confine returns the absolute path of p, which must be relative to root, or absolute and below it. It compares the
// paths as text: a link in the box may lead elsewhere in the box.
func Confine(root, p string) (string, error) {
	abs := path.Join(root, p)
	if path.IsAbs(p) {
		abs = path.Clean(p)
	}
	if strings.ContainsRune(p, 0) || abs != root && !strings.HasPrefix(abs, strings.TrimSuffix(root, "/")+"/") {
		return "", &ConfinedError{Path: p, Root: root}
	}
	return abs, nil
}

// ConfineFile is confine for the path of a file, which can't be root itself.
func ConfineFile(root, p string) (string, error) {
	abs, err := Confine(root, p)
	if err == nil && (abs == root || strings.HasSuffix(p, "/")) {
		return "", &ConfinedError{Path: p, Root: root}
	}
	return abs, err
}

// Check returns the command's directory in a box with a working directory, or why no box runs the command.
func (c Command) Check(work string) (dir string, err error) {
	if len(c.Argv) == 0 {
		return "", errors.New("empty argv")
	}
	if err := CheckEnv(c.Env); err != nil {
		return "", err
	}
	return Confine(work, c.Dir)
}

// Place returns the absolute path of f in a box with these folders.
func (f File) Place(work, home string) (string, error) {
	if f.InHome {
		return ConfineFile(home, f.Path)
	}
	return ConfineFile(work, f.Path)
}
