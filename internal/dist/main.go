// Command dist makes the files of a release: archives of the programs for each system, packages and images for Linux,
// install.sh, and SHA256SUMS with its signature.
//
//	dist -version VERSION -commit HASH -time SECONDS [-targets linux/amd64,…] [-key FILE] BIN OUT
//
// make dist calls it; dist calls make to build for each system. BIN has the programs of this machine, which print
// manual pages and completion. OUT is made anew, and stays as it is where dist fails. The bytes follow from the commit:
// each file has the time SECONDS, the commit's, and belongs to root. FILE is a key of ssh, for ssh-keygen -Y sign.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run runs the program and returns its exit status.
func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("dist", flag.ContinueOnError)
	flags.SetOutput(stderr)
	r := release{log: stdout, made: map[string]v1.Image{}}
	flags.StringVar(&r.version, "version", "", "the `version` in the files' names")
	flags.StringVar(&r.commit, "commit", "", "the `hash` of the commit")
	flags.StringVar(&r.key, "key", "", "the `file` with the key that signs")
	seconds := flags.Int64("time", 0, "the `seconds` since 1970 of all files")
	targets := flags.String("targets", everywhere, "the `systems` to build for")
	if err := flags.Parse(args); err != nil {
		return 64
	}
	if flags.NArg() != 2 || *seconds == 0 || r.version == "" || r.commit == "" {
		fmt.Fprintln(stderr, "dist: want -version, -commit, -time, BIN and OUT; run make dist")
		return 64
	}
	r.bin, r.time = flags.Arg(0), time.Unix(*seconds, 0).UTC()
	if err := r.write(flags.Arg(1), strings.Split(*targets, ",")); err != nil {
		fmt.Fprintln(stderr, "dist:", err)
		return 1
	}
	return 0
}

// write makes the files for targets in the folder out, whole or not at all.
func (r *release) write(out string, targets []string) (err error) {
	r.work, err = os.MkdirTemp("", "arbe-dist-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.work)) }()
	files := out + ".new"
	if err := errors.Join(os.RemoveAll(files), os.MkdirAll(files, 0o755)); err != nil {
		return err
	}
	shared, err := r.shared()
	if err != nil {
		return err
	}
	for _, target := range targets {
		if err := r.system(files, target, shared); err != nil {
			return fmt.Errorf("%s: %w", target, err)
		}
	}
	if err := r.finish(files); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(out), os.Rename(files, out))
}

// finish adds to dir what is for all systems, and the sums of all.
func (r *release) finish(dir string) error {
	if len(r.made) > 0 {
		if err := r.images(dir); err != nil {
			return fmt.Errorf("image: %w", err)
		}
	}
	script, err := os.ReadFile("install.sh")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "install.sh"), script, 0o755)
	}
	if err != nil {
		return err
	}
	if err := r.sums(dir); err != nil || r.key == "" {
		return err
	}
	return r.sign(dir)
}
