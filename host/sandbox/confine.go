package sandbox

import (
	"path"
	"strings"
)

// confine is the absolute path of p, which is relative to root or absolute and below it. It goes by the words alone: a link in the box may lead elsewhere, and
// the box is what bounds that.
func confine(root, p string) (string, error) {
	abs := path.Join(root, p)
	if path.IsAbs(p) {
		abs = path.Clean(p)
	}
	if strings.ContainsRune(p, 0) || abs != root && !strings.HasPrefix(abs, strings.TrimSuffix(root, "/")+"/") {
		return "", &ConfinedError{Path: p, Root: root}
	}
	return abs, nil
}

// confineFile is confine for what is to be a file, which root itself can't be.
func confineFile(root, p string) (string, error) {
	abs, err := confine(root, p)
	if err == nil && (abs == root || strings.HasSuffix(p, "/")) {
		return "", &ConfinedError{Path: p, Root: root}
	}
	return abs, err
}

// place is where f is to be in a box with these folders.
func (f File) place(work, home string) (string, error) {
	if f.InHome {
		return confineFile(home, f.Path)
	}
	return confineFile(work, f.Path)
}
