package folder

import (
	"fmt"
	"path"
	"strings"
)

// matcher decides which paths are excluded. As in .gitignore, the last pattern that matches a path decides, a pattern
// that begins with ! includes a path again, and all paths below an excluded folder are excluded.
type matcher []pattern

// pattern is one line of a matcher.
type pattern struct {
	segments []string // for path.Match, "**" for any number of folders; a pattern for a name anywhere begins with "**"
	folder   bool     // only folders match
	negated  bool
}

// newMatcher compiles patterns. An empty one, one for the folder itself and a malformed one are errors.
func newMatcher(patterns []string) (matcher, error) {
	var m matcher
	for _, text := range patterns {
		var p pattern
		rest, negated := strings.CutPrefix(text, "!")
		p.negated = negated
		rest, dotted := strings.CutPrefix(rest, "./")
		rest, rooted := strings.CutPrefix(rest, "/")
		rest, p.folder = strings.CutSuffix(rest, "/")
		if !dotted && !rooted && !strings.Contains(rest, "/") {
			p.segments = []string{"**"}
		}
		for s := range strings.SplitSeq(rest, "/") {
			s = strings.ReplaceAll(s, "[!", "[^")
			if s == "" || s == "." || s == ".." {
				return nil, fmt.Errorf("exclude %q: want a name or a path below the folder", text)
			}
			if _, err := path.Match(s, ""); err != nil {
				return nil, fmt.Errorf("exclude %q: %w", text, err)
			}
			p.segments = append(p.segments, s)
		}
		m = append(m, p)
	}
	return m, nil
}

// excludes reports whether a pattern excludes the path, of a folder or not. It does not look at the folders above it.
func (m matcher) excludes(name string, folder bool) bool {
	for i := len(m) - 1; i >= 0; i-- {
		if (folder || !m[i].folder) && match(m[i].segments, strings.Split(name, "/")) {
			return !m[i].negated
		}
	}
	return false
}

// hides reports whether the path or a folder above it is excluded.
func (m matcher) hides(name string, folder bool) bool {
	if len(m) == 0 {
		return false
	}
	for i := range len(name) {
		if name[i] == '/' && m.excludes(name[:i], true) {
			return true
		}
	}
	return m.excludes(name, folder)
}

// match matches the segments of a pattern and of a path.
func match(pattern, name []string) bool {
	for len(pattern) > 0 {
		if pattern[0] == "**" {
			if len(pattern) == 1 {
				return len(name) > 0 // the content of a folder, and not the folder
			}
			for i := range name {
				if match(pattern[1:], name[i:]) {
					return true
				}
			}
			return false
		}
		if len(name) == 0 {
			return false
		}
		if ok, _ := path.Match(pattern[0], name[0]); !ok { // newMatcher has checked the pattern
			return false
		}
		pattern, name = pattern[1:], name[1:]
	}
	return len(name) == 0
}

// prune returns arguments for find that skip a subset of the excluded paths, so that the box does not hash them.
func (m matcher) prune() []string {
	var args []string
	for _, p := range m {
		if p.negated {
			return nil
		}
		var test []string
		switch name := p.segments[len(p.segments)-1]; {
		case strings.ContainsAny(name, `*?[\`):
			continue
		case len(p.segments) == 1:
			test = []string{"-path", "./" + name}
		case len(p.segments) == 2 && p.segments[0] == "**":
			test = []string{"-name", name}
		default:
			continue
		}
		if p.folder {
			test = append(test, "-type", "d")
		}
		if args != nil {
			args = append(args, "-o")
		}
		args = append(args, test...)
	}
	if args == nil {
		return nil
	}
	return append(append([]string{"("}, args...), ")", "-prune", "-o")
}

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
