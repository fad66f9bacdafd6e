package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// NotFoundError: the agent's binary does not exist or can't be executed.
type NotFoundError struct {
	Spec Spec
	Err  error
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("%s is not installed here: %v", e.Spec.Name, e.Err)
}
func (e *NotFoundError) Unwrap() error { return e.Err }

// Find returns the path of the agent's binary: of bin if that is not empty, else from PATH, else from npm's usual
// prefixes. For a script of npm it returns the program that the script starts. Its error is a *NotFoundError.
func Find(s Spec, bin string, getenv func(string) string) (string, error) {
	name := bin
	if name == "" {
		name = s.Binary
	}
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err == nil {
		return s.native(path), nil
	}
	if bin == "" {
		home := filepath.Join(getenv("HOME"), ".npm-global")
		for _, prefix := range []string{getenv("NPM_CONFIG_PREFIX"), home, "/usr/local", "/usr"} {
			if path := s.below(filepath.Join(prefix, "lib", "node_modules")); prefix != "" && path != "" {
				return path, nil
			}
		}
	}
	var inner *exec.Error
	if errors.As(err, &inner) {
		err = fmt.Errorf("%s: %w", inner.Name, inner.Err)
	}
	return "", &NotFoundError{Spec: s, Err: err}
}

// native returns the program that an npm package's script at path starts; path itself if it is no such script.
func (s Spec) native(path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil || program(real) {
		return path
	}
	for dir := filepath.Dir(real); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		// npm puts the platform's package beside the script's package, or into its node_modules.
		for _, modules := range []string{filepath.Join(dir, "node_modules"), dir} {
			if found := s.below(modules); found != "" {
				return found
			}
		}
		if filepath.Base(dir) == "node_modules" {
			break
		}
	}
	return path
}

// below returns the path of the program in a node_modules folder; "" if there is none.
func (s Spec) below(modules string) string {
	for _, place := range s.Native {
		for _, pattern := range []string{place, filepath.Join("@*", "*", "node_modules", place)} {
			for _, path := range glob(modules, pattern) {
				if program(path) {
					return path
				}
			}
		}
	}
	return ""
}

// arch is this machine's architecture as in the names of npm's packages.
func arch() string {
	if runtime.GOARCH == "amd64" {
		return "x64"
	}
	return runtime.GOARCH
}

// program reports whether a file is an ELF program.
func program(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close() // read only: nothing to lose
	magic := make([]byte, 4)
	_, err = io.ReadFull(f, magic)
	return err == nil && string(magic) == "\x7fELF"
}

// npmVersion is the version of the npm package that binary, mostly a link, belongs to; "" if that package has none of
// the names, as the package of a wrapper.
func npmVersion(binary string, names ...string) string {
	path, err := filepath.EvalSymlinks(binary)
	if err != nil {
		return ""
	}
	for dir := filepath.Dir(path); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		b, err := os.ReadFile(filepath.Join(dir, "package.json"))
		if err != nil {
			continue
		}
		var pkg struct{ Name, Version string }
		if json.Unmarshal(b, &pkg) != nil {
			return ""
		}
		for _, name := range names {
			if pkg.Name == name || strings.HasPrefix(pkg.Name, name+"-linux-") {
				version, _, _ := strings.Cut(pkg.Version, "-linux-") // of a platform's package
				return version
			}
		}
		return ""
	}
	return ""
}
