package recipe

import (
	"path"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"arbe.0sk.ar/runner/host/rows"
)

// Bounds of an environment.
const (
	mostItems   = 100
	mostCommand = 64 << 10
	mostCores   = 1024
	mostGiB     = 1 << 20
	mostDepth   = 1 << 30

	// MaxRun is the longest limit of a run. A runner's tokens live for as long and a margin.
	MaxRun  = 72 * time.Hour
	maxIdle = 72 * time.Hour
	maxStop = 30 * 24 * time.Hour
	maxStep = 24 * time.Hour

	// ending is the time that a box stays after the limit of its run: for the run's last entries, and its push.
	ending = 30 * time.Minute
)

const (
	wantPath  = "want a path below the workspace: names of letters, digits and . _ @ + - with / between"
	wantImage = "want the name of an image: letters, digits and . _ / : @ -"
	wantRepo  = "want org/repo, or an address that begins with https://, http:// or ssh:// and has no password"
)

// recipe reads the whole.
func (d *decoder) recipe(n *yaml.Node, r *Recipe) {
	d.object(n, "", map[string]field{
		"name":         d.text(&r.Name, matches(namePattern, "want 1 to 100 characters in one line")),
		"runtime":      d.text(&r.Runtime, oneOf(d.runtimes.names()...)),
		"image":        d.text(&r.Image, matches(imagePattern, wantImage)),
		"snapshot":     d.text(&r.Snapshot, matches(imagePattern, wantImage)),
		"target":       d.text(&r.Target, matches(wordPattern, "want the name of a region")),
		"resources":    d.resources(&r.Resources),
		"repositories": list(d, &r.Repositories, mostItems, d.repository),
		"folders":      list(d, &r.Folders, mostItems, d.folder),
		"files":        list(d, &r.Files, mostItems, d.file),
		"setup":        list(d, &r.Setup, mostItems, d.command),
		"env":          d.variables(&r.Env),
		"secrets":      list(d, &r.Secrets, mostItems, d.secret),
		"limits":       d.limits(&r.Limits),
		"volumes":      list(d, &r.Volumes, mostItems, d.volume),
	})
}

func (d *decoder) resources(to **Resources) field {
	return func(n *yaml.Node, at string) {
		var r Resources
		d.object(n, at, map[string]field{
			"cpu":    d.number(&r.CPU, mostCores),
			"memory": d.number(&r.Memory, mostGiB),
			"disk":   d.number(&r.Disk, mostGiB),
		})
		if r != (Resources{}) {
			*to = &r
		}
	}
}

func (d *decoder) limits(to **Limits) field {
	return func(n *yaml.Node, at string) {
		var l Limits
		d.object(n, at, map[string]field{
			"run":      d.span(&l.Run, time.Minute, MaxRun),
			"idle":     d.span(&l.Idle, time.Second, maxIdle),
			"autostop": d.span(&l.AutoStop, time.Minute, maxStop),
		})
		if l != (Limits{}) {
			*to = &l
		}
	}
}

func (d *decoder) repository(n *yaml.Node, at string) (r Repository) {
	d.object(n, at, map[string]field{
		"repo":   d.text(&r.Repo, matches(repoPattern, wantRepo), d.hostPath),
		"branch": d.text(&r.Branch, matches(refPattern, "want the name of a branch")),
		"tag":    d.text(&r.Tag, matches(refPattern, "want the name of a tag")),
		"commit": d.text(&r.Commit, matches(commitPattern, "want all 40 or 64 digits of the commit")),
		"depth":  d.number(&r.Depth, mostDepth),
		"path":   d.text(&r.Path, matches(pathPattern, wantPath)),
	}, "repo")
	if r.Path == "" && r.Repo != "" {
		r.Path = strings.TrimSuffix(path.Base(r.Repo), ".git")
		if !pathPattern.MatchString(r.Path) && !d.has(below(at, "path")) {
			d.refuse(n, below(at, "path"), "missing: the repository's own name can't be the name of its folder")
		}
	}
	return r
}

// hostPath is the rule that a text is no path of this host, where such are refused.
func (d *decoder) hostPath(text string) string {
	if strings.HasPrefix(text, "/") && !d.host {
		return houseHasNoHost
	}
	return ""
}

// houseHasNoHost refuses a path of a host.
const houseHasNoHost = "a house's environment can't name a path of a host: use arbe launch --environment-file"

// onlyHost is the rule that a path of this host may stand here at all.
func (d *decoder) onlyHost(string) string {
	if !d.host {
		return houseHasNoHost
	}
	return ""
}

func (d *decoder) folder(n *yaml.Node, at string) (f Folder) {
	f.Access = AccessReadOnly
	d.object(n, at, map[string]field{
		"host":    d.text(&f.Host, notEmpty, withoutNUL, d.onlyHost),
		"path":    d.text(&f.Path, matches(pathPattern, wantPath)),
		"access":  d.text(&f.Access, oneOf(AccessReadOnly, AccessSync)),
		"exclude": list(d, &f.Exclude, mostItems, d.item(notEmpty, withoutNUL)),
	}, "host", "path")
	return f
}

func (d *decoder) file(n *yaml.Node, at string) (f File) {
	var content string
	d.object(n, at, map[string]field{
		"path":    d.text(&f.Path, matches(filePattern, wantPath+", or ~/ and a path below the home folder")),
		"content": d.text(&content, withoutNUL),
		"host":    d.text(&f.Host, notEmpty, withoutNUL, d.onlyHost),
		"mode":    d.text(&f.Mode, matches(modePattern, `want octal digits in quotes, such as "0600"`)),

		"sensitive": d.truth(&f.Sensitive),
	}, "path")
	has := d.has(below(at, "content"))
	if n.Kind == yaml.MappingNode && has == d.has(below(at, "host")) {
		d.refuse(n, at, "want either content or host")
	}
	if has {
		f.Content = &content
	}
	if f.Mode == "" {
		f.Mode = "0644"
		if strings.HasPrefix(f.Path, "~/") {
			f.Mode = "0600"
		}
	}
	return f
}

func (d *decoder) command(n *yaml.Node, at string) (c Command) {
	d.object(n, at, map[string]field{
		"run":     d.text(&c.Run, notEmpty, withoutNUL, longest(mostCommand)),
		"env":     d.variables(&c.Env),
		"secrets": list(d, &c.Secrets, mostItems, d.item(variableName)),
		"timeout": d.span(&c.Timeout, time.Second, maxStep),
	}, "run")
	return c
}

func (d *decoder) secret(n *yaml.Node, at string) (s rows.Binding) {
	s.Required = true
	d.object(n, at, map[string]field{
		"name":     d.text(&s.Name, variableName),
		"required": d.truth(&s.Required),
	}, "name")
	return s
}

func (d *decoder) volume(n *yaml.Node, at string) (v Volume) {
	d.object(n, at, map[string]field{
		"name": d.text(&v.Name, matches(wordPattern, "want the name or the id of a volume")),
		"path": d.text(&v.Path, matches(mountPattern, "want an absolute path of plain names"), notSystem),
	}, "name", "path")
	return v
}
