package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// everywhere are the systems that a release is for.
const everywhere = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64"

// boxes are the processors of boxes: the runner for each is in every archive, for arbe launch.
var boxes = []string{"amd64", "arm64"}

// boxRunner begins the names of the runners for boxes; the processor follows.
const boxRunner = "arbe-pi-runner-linux-"

// release has the values that all files share.
type release struct {
	version string
	commit  string
	time    time.Time
	bin     string              // the programs of this machine
	key     string              // signs SHA256SUMS; "": nobody does
	work    string              // a folder for what is built, removed at the end
	made    map[string]v1.Image // the images, by processor
	log     io.Writer
}

// file is a file in an archive.
type file struct {
	name string // in the archive's folder
	from string // on this machine
	mode os.FileMode
}

// shared returns the files of all archives: licence, documents, and the runners of boxes.
func (r *release) shared() ([]file, error) {
	var files []file
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		files = append(files, file{"share/doc/arbe/" + name, name, 0o644})
	}
	for _, arch := range boxes {
		if err := r.build("runner", "linux", arch); err != nil {
			return nil, err
		}
		files = append(files, file{"bin/" + boxRunner + arch, r.built("linux", arch, "arbe-pi-runner"), 0o755})
	}
	return files, nil
}

// built returns where build puts a program for a system.
func (r *release) built(system, arch, program string) string {
	return filepath.Join(r.work, system+"_"+arch, program)
}

// build runs make for what, arbe or runner, and a system.
func (r *release) build(what, system, arch string) error {
	cmd := exec.Command("make", "-s", what, "BIN="+r.built(system, arch, ""))
	cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "MAKEFLAGS=", "MAKELEVEL=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return nil
}

// system writes the files for a target into dir: an archive, and for Linux packages. It makes the image for images.
func (r *release) system(dir, target string, shared []file) error {
	system, arch, _ := strings.Cut(target, "/")
	if err := r.build("arbe", system, arch); err != nil {
		return err
	}
	files, err := r.files(system, arch)
	if err != nil {
		return err
	}
	files = append(files, shared...)
	docs, err := r.materials(files)
	if err != nil {
		return err
	}
	files = append(files, docs...)
	name := "arbe_" + r.version + "_" + system + "_" + arch
	if system == "windows" {
		return r.pack(filepath.Join(dir, name+".zip"), name, files, writeZip)
	}
	if err := r.pack(filepath.Join(dir, name+".tar.gz"), name, files, writeTar); err != nil || system != "linux" {
		return err
	}
	if err := r.packages(dir, arch, files); err != nil {
		return err
	}
	r.made[arch], err = r.image(arch, files)
	return err
}

// files returns the files for one system alone.
func (r *release) files(system, arch string) ([]file, error) {
	program := r.built(system, arch, "arbe")
	switch system {
	case "windows":
		return []file{{"bin/arbe.exe", program, 0o755}}, nil
	case "linux":
		runner := r.built(system, arch, "arbe-pi-runner") // for boxes
		files := []file{{"bin/arbe", program, 0o755}, {"bin/arbe-pi-runner", runner, 0o755}}
		pages, err := r.pages("arbe", "arbe-pi-runner")
		if err != nil {
			return nil, err
		}
		units, err := units()
		return slices.Concat(files, pages, units), err
	}
	pages, err := r.pages("arbe")
	return append(pages, file{"bin/arbe", program, 0o755}), err
}

// units returns the units of systemd, and what is in folders beside them.
func units() (files []file, err error) {
	const dir = "deploy/systemd"
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files = append(files, file{"lib/systemd/system" + strings.TrimPrefix(path, dir), path, 0o644})
		}
		return err
	})
	return files, err
}

// pages returns the manual pages and the completion of programs, as those of this machine print them.
func (r *release) pages(programs ...string) (files []file, err error) {
	for _, program := range programs {
		for name, args := range map[string][]string{
			"share/man/man1/" + program + ".1":                     {"manual"},
			"share/bash-completion/completions/" + program:         {"completion", "bash"},
			"share/zsh/site-functions/_" + program:                 {"completion", "zsh"},
			"share/fish/vendor_completions.d/" + program + ".fish": {"completion", "fish"},
		} {
			text, err := exec.Command(filepath.Join(r.bin, program), args...).Output()
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", program, strings.Join(args, " "), err)
			}
			from := filepath.Join(r.work, filepath.FromSlash(name))
			if err := errors.Join(os.MkdirAll(filepath.Dir(from), 0o755), os.WriteFile(from, text, 0o644)); err != nil {
				return nil, err
			}
			files = append(files, file{name, from, 0o644})
		}
	}
	return files, nil
}
