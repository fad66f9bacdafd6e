package recipe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// check refuses values that do not go together.
func (d *decoder) check(r *Recipe) {
	if d.has("image") && d.has("snapshot") {
		d.refuseKey("snapshot", "image and snapshot exclude each other")
	}
	d.checkRuntime(r)
	for i, p := range r.Repositories {
		at := key("repositories", i)
		refs := 0
		for _, ref := range []string{p.Branch, p.Tag, p.Commit} {
			if ref != "" {
				refs++
			}
		}
		if refs > 1 {
			d.refuseKey(at, "branch, tag and commit exclude each other")
		}
	}
	d.checkPaths(r)
	d.checkSecrets(r)
	if l := r.Limits; l != nil && l.AutoStop != 0 {
		if least := LeastAutoStop(time.Duration(l.Run)); time.Duration(l.AutoStop) < least {
			d.refuseKey("limits.autostop", wantAutoStop, least, ending)
		}
	}
	seen := map[string]bool{}
	for i, v := range r.Volumes {
		if seen[v.Path] {
			d.refuseKey(key("volumes", i)+".path", "another volume has this path")
		}
		seen[v.Path] = true
	}
}

// LeastAutoStop returns the least autostop of a box whose run may last for the time run; 0 stands for MaxRun. A
// provider counts the time since the last call to the box, whatever works in it.
func LeastAutoStop(run time.Duration) time.Duration { return cmp.Or(run, MaxRun) + ending }

const wantAutoStop = "want at least %v, limits.run (or 72h) and %v: a stop ends the run"

// has reports whether a key is there.
func (d *decoder) has(key string) bool { return d.at[key] != nil }

// checkPaths refuses repositories and folders that share a path.
func (d *decoder) checkPaths(r *Recipe) {
	type place struct{ at, path string }
	var places []place
	for i, p := range r.Repositories {
		places = append(places, place{key("repositories", i), p.Path})
	}
	for i, f := range r.Folders {
		places = append(places, place{key("folders", i), f.Path})
	}
	for i, b := range places {
		for _, a := range places[:i] {
			if a.path == b.path || strings.HasPrefix(a.path, b.path+"/") || strings.HasPrefix(b.path, a.path+"/") {
				d.refuseKey(b.at, "its path %s and that of %s, %s, are not apart", b.path, a.at, a.path)
			}
		}
	}
	seen := map[string]bool{}
	for i, f := range r.Files {
		if seen[f.Path] {
			d.refuseKey(key("files", i)+".path", "another file has this path")
		}
		seen[f.Path] = true
	}
}

// checkSecrets refuses secrets that are there twice, or that a command names and the environment does not.
func (d *decoder) checkSecrets(r *Recipe) {
	bound := map[string]bool{}
	for i, s := range r.Secrets {
		at := key("secrets", i) + ".name"
		switch _, plain := r.Env[s.Name]; {
		case bound[s.Name]:
			d.refuseKey(at, "another secret has this name")
		case plain:
			d.refuseKey(at, "env has a variable of this name")
		}
		bound[s.Name] = true
	}
	for i, c := range r.Setup {
		for k, name := range c.Secrets {
			if !bound[name] {
				d.refuseKey(key(key("setup", i)+".secrets", k), "secrets has none of this name")
			}
		}
	}
}

// Problem is something in an environment that is refused.
type Problem struct {
	Line, Column int    // from 1; 0 for a problem of no place
	Key          string // such as repositories[0].depth; "" for the whole
	Text         string // such as: want a whole number above 0
}

func (p Problem) String() string {
	text := p.Text
	if p.Key != "" {
		text = p.Key + ": " + text
	}
	if p.Line == 0 {
		return text
	}
	return fmt.Sprintf("%d:%d: %s", p.Line, p.Column, text)
}

// Error has all problems of an environment, in the order of their places.
type Error struct {
	File     string // is printed before each place; "" for none
	Problems []Problem
}

func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
		if e.File != "" && p.Line > 0 {
			lines[i] = e.File + ":" + lines[i]
		} else if e.File != "" {
			lines[i] = e.File + ": " + lines[i]
		}
	}
	return strings.Join(lines, "\n")
}

// in sorts problems by their places, and returns the error of them; nil for none.
func in(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return &Error{Problems: problems}
}

// key returns the path of the key of an item in a list.
func key(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }
