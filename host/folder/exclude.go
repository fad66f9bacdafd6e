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
