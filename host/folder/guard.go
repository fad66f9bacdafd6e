package folder

import "strings"

// guard finds the changes in a box that are never copied back, because git on this machine would execute them: files
// that make git run commands, and files that make git look for those elsewhere. That is, in each .git, its
// configuration, its hooks, the commands of a rebase and every link; a .git that is no folder; and the same of a bare
// repository. A .git that was sent and was deleted or changed its type in the box stays here with its content.
type guard struct{ base, box Manifest }

// holds returns the part of a changed path that is never copied back; "" for a path that may be. It compares git's
// names without case, as some filesystems do.
func (g guard) holds(name string) string {
	e := g.box[name]
	parts := strings.Split(name, "/")
	to := func(n int) string { return strings.Join(parts[:n], "/") }
	for i, part := range parts {
		if !strings.EqualFold(part, ".git") {
			continue
		}
		repo, below := to(i+1), parts[i+1:]
		was, is := g.base[repo].Type, g.box[repo].Type
		switch {
		case was != Absent && was != is, is != Dir && is != Absent:
			return repo
		case len(below) > 0 && e.Type == Link:
			return name
		}
		if n := obeyed(below); n > 0 {
			return to(i + 1 + n)
		}
		return ""
	}
	for i, part := range parts {
		if hot(part) && g.bare(to(i)) {
			return to(i + 1)
		}
	}
	return ""
}

// bare reports whether git recognizes a folder as a repository.
func (g guard) bare(dir string) bool {
	if dir != "" {
		dir += "/"
	}
	for _, name := range []string{"HEAD", "objects", "refs"} {
		if g.base[dir+name].Type == Absent && g.box[dir+name].Type == Absent {
			return false
		}
	}
	return true
}

// obeyed returns the number of leading parts of a path below a .git that name a file that git obeys; 0 if it has
// none. A submodule or worktree has the same files further down. Below refs, logs and objects names are free, and git
// obeys no file.
func obeyed(below []string) int {
	for i, part := range below {
		switch strings.ToLower(part) {
		case "refs", "logs", "objects":
			if i == 0 {
				return 0
			}
		}
		if hot(part) {
			return i + 1
		}
	}
	return 0
}

// hot reports whether git obeys a file or folder of this name in a repository.
func hot(part string) bool {
	switch strings.ToLower(part) {
	case "config", "config.worktree", "hooks", "commondir", "git-rebase-todo":
		return true
	}
	return false
}
