package sandbox

import (
	"errors"
	"path"
	"strings"
)

// confine returns the absolute path of p, which must be relative to root, or absolute and below it. It compares the
// paths as text: a link in the box may lead elsewhere in the box.
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

// confineFile is confine for the path of a file, which can't be root itself.
func confineFile(root, p string) (string, error) {
	abs, err := confine(root, p)
	if err == nil && (abs == root || strings.HasSuffix(p, "/")) {
		return "", &ConfinedError{Path: p, Root: root}
	}
	return abs, err
}

// check returns the command's directory in a box with a working directory, or why no box runs the command.
func (c Command) check(work string) (dir string, err error) {
	if len(c.Argv) == 0 {
		return "", errors.New("empty argv")
	}
	if err := checkEnv(c.Env); err != nil {
		return "", err
	}
	return confine(work, c.Dir)
}

// checkWork returns o.Work, which must be below the workspace or "".
func (o Options) checkWork() (string, error) {
	const workspace = "/workspace"
	if o.Work == "" {
		return "", nil
	}
	if _, err := confineFile(workspace, o.Work); err != nil || path.IsAbs(o.Work) {
		return "", &ConfinedError{Path: o.Work, Root: "the workspace"}
	}
	return o.Work, nil
}

// place returns the absolute path of f in a box with these folders.
func (f File) place(work, home string) (string, error) {
	if f.InHome {
		return confineFile(home, f.Path)
	}
	return confineFile(work, f.Path)
}
