package recipe

import (
	"cmp"
	"strings"
	"time"
)

// check refuses values that do not go together.
func (d *decoder) check(r *Recipe) {
	switch {
	case d.has("image") && d.has("snapshot"):
		d.refuseKey("snapshot", "image and snapshot exclude each other")
	case d.has("resources") && !d.has("image"):
		d.refuseKey("resources", "want an image: a snapshot has resources of its own")
	}
	d.checkLocal(r)
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

// checkLocal refuses what no local box has.
func (d *decoder) checkLocal(r *Recipe) {
	if r.Runtime != RuntimeLocal {
		return
	}
	for _, name := range []string{"image", "snapshot", "resources", "target", "volumes"} {
		if d.has(name) {
			d.refuseKey(name, "a local box has none: it is a folder of the host")
		}
	}
}

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
