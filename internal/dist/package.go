package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

// packaging is the folder with the scripts of packages, and the files of /etc/arbe.
const packaging = "deploy/package"

// format is one kind of package.
type format struct {
	name       string
	packager   nfpm.Packager
	depends    []string
	recommends []string
	moved      map[string]string // folders that the distributions have elsewhere
	license    string            // where they look for it
}

var formats = []format{
	{
		name: "deb", packager: deb.Default, depends: []string{"passwd"}, recommends: []string{"ca-certificates", "git"},
		moved:   map[string]string{"/usr/share/zsh/site-functions/": "/usr/share/zsh/vendor-completions/"},
		license: "/usr/share/doc/arbe/copyright",
	},
	{
		name: "rpm", packager: rpm.DefaultRPM, depends: []string{"/usr/sbin/useradd"},
		recommends: []string{"ca-certificates", "git-core"}, license: "/usr/share/licenses/arbe/LICENSE",
	},
}

// description is that of packages and of the image; its first line is a summary.
const description = `Durable threads for coding agents
 Runs coding agents in throw-away machines and mirrors their sessions onto
 durable threads, so that everybody who waits knows whether an agent works,
 is done, or is dead.`

// packages writes the packages for a processor into dir, with files of its archive.
func (r *release) packages(dir, arch string, archived []file) error {
	for _, f := range formats {
		contents, err := r.contents(f, arch, archived)
		if err != nil {
			return err
		}
		// The packagers change the Info that they get.
		info := &nfpm.Info{
			Name: "arbe", Arch: arch, Platform: "linux", Version: r.version, VersionSchema: "semver",
			Section: "devel", Priority: "optional", Maintainer: "The developers of the Arbe runner",
			Description: description, License: "Apache-2.0", MTime: r.time, DisableGlobbing: true,
			Overridables: nfpm.Overridables{
				Depends: f.depends, Recommends: f.recommends, Contents: contents,
				Scripts: nfpm.Scripts{
					PostInstall: packaging + "/postinst",
					PreRemove:   packaging + "/prerm", PostRemove: packaging + "/postrm",
				},
				RPM: nfpm.RPM{BuildHost: "localhost"}, // this machine's name would change the bytes
			},
		}
		path := filepath.Join(dir, f.packager.ConventionalFileName(nfpm.WithDefaults(info)))
		if err := writeFile(path, func(w *os.File) error { return f.packager.Package(info, w) }); err != nil {
			return err
		}
	}
	return nil
}

// writeFile makes a file at path by write.
func writeFile(path string, write func(*os.File) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// installed returns the path of an archive's file where a package or an image puts it.
func installed(name string) string {
	if base, is := strings.CutPrefix(name, "bin/"); is && strings.HasPrefix(base, boxRunner) {
		return "/usr/lib/arbe/" + base
	}
	return "/usr/" + name
}

// contents returns what a package of a format has: files of the archive, those of /etc/arbe, and its own folders.
func (r *release) contents(f format, arch string, archived []file) (all files.Contents, err error) {
	for _, a := range archived {
		c, err := r.content(f, arch, a)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	for _, dir := range []string{"/etc/arbe", "/usr/lib/arbe", "/usr/share/doc/arbe", filepath.Dir(f.license)} {
		if !all.ContainsDestination(dir) {
			all = append(all, &files.Content{
				Destination: dir, Type: files.TypeDir, FileInfo: &files.ContentFileInfo{Mode: 0o755, MTime: r.time},
			})
		}
	}
	for _, name := range []string{"serve.env", "host.env", "proxy.env"} {
		all = append(all, &files.Content{
			Source: filepath.Join(packaging, name), Destination: "/etc/arbe/" + name, Type: files.TypeConfigNoReplace,
			FileInfo: &files.ContentFileInfo{Mode: 0o600, MTime: r.time},
		})
	}
	return append(all, &files.Content{
		Source: "LICENSE", Destination: f.license, FileInfo: &files.ContentFileInfo{Mode: 0o644, MTime: r.time},
	}), nil
}

// content returns what a package has for one file of the archive.
func (r *release) content(f format, arch string, a file) (*files.Content, error) {
	c := &files.Content{
		Source: a.from, Destination: installed(a.name),
		FileInfo: &files.ContentFileInfo{Mode: a.mode, MTime: r.time},
	}
	for from, to := range f.moved {
		if base, is := strings.CutPrefix(c.Destination, from); is {
			c.Destination = to + base
		}
	}
	switch {
	case a.name == "bin/"+boxRunner+arch: // the same program
		c.Type, c.Source = files.TypeSymlink, "../../bin/arbe-pi-runner"
	case strings.HasPrefix(a.name, "share/man/"):
		c.Destination += ".gz"
		return c, r.changed(c, compressed)
	case strings.HasSuffix(a.name, ".service"):
		return c, r.changed(c, unit)
	case filepath.Base(a.name) == dropIn:
		c.Destination = "/usr/lib/arbe/" + dropIn
		return c, r.changed(c, func(text []byte) ([]byte, error) {
			return bytes.ReplaceAll(text, []byte("deploy/systemd/"), []byte("/usr/lib/arbe/")), nil
		})
	}
	return c, nil
}

// dropIn is the drop-in for the units of hosts with local boxes.
const dropIn = "local-boxes.conf"

// changed makes change's result the source of c.
func (r *release) changed(c *files.Content, change func([]byte) ([]byte, error)) error {
	text, err := os.ReadFile(c.Source)
	if err == nil {
		text, err = change(text)
	}
	if err != nil {
		return err
	}
	c.Source = filepath.Join(r.work, "changed", c.Destination)
	return errors.Join(os.MkdirAll(filepath.Dir(c.Source), 0o755), os.WriteFile(c.Source, text, 0o644))
}

// unit returns a unit as packages have it: for /usr/bin, and without the commands of its header, which install it.
func unit(text []byte) ([]byte, error) {
	header, body, _ := bytes.Cut(text, []byte("\n\n"))
	var kept []string
	for line := range strings.Lines(string(header) + "\n") {
		repeated := line == "#\n" && len(kept) > 0 && kept[len(kept)-1] == line
		if !strings.HasPrefix(line, "#   ") && !repeated {
			kept = append(kept, line)
		}
	}
	text = slices.Concat([]byte(strings.Join(kept, "")+"\n"), body)
	return bytes.ReplaceAll(text, []byte("/usr/local/bin/"), []byte("/usr/bin/")), nil
}

// compressed returns a manual page as distributions have it.
func compressed(text []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(text)
	err = errors.Join(err, w.Close())
	return out.Bytes(), err
}
