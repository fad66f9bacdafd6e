package provision

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// Runners are the places of the runner's binaries.
type Runners struct {
	Set      string // a file that is named, and then the only place; "" for none
	Beside   string // the folder of arbe itself; "" where it is not known
	Packaged string // the folder in which a package has them: what is in /usr/bin is for people
}

// For returns the path of the binary for an architecture, of the first place that has it.
func (r Runners) For(arch string) (string, error) {
	var tried []string
	for _, path := range r.paths(arch) {
		is, err := elfArch(path)
		if err == nil && is == arch {
			return path, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			tried = append(tried, fmt.Sprintf("%s is for %s", path, is))
		}
	}
	var found string
	if len(tried) > 0 {
		found = " (" + strings.Join(tried, ", ") + ")"
	}
	const want = "no runner for %s%s: put arbe-pi-runner-linux-%[1]s beside arbe or into %[3]s, or set ARBE_RUNNER_BIN"
	return "", fmt.Errorf(want, arch, found, r.Packaged)
}

// paths returns where the binary may be.
func (r Runners) paths(arch string) (paths []string) {
	if r.Set != "" {
		return []string{r.Set}
	}
	name := "arbe-pi-runner-linux-" + arch
	if r.Beside != "" {
		paths = []string{filepath.Join(r.Beside, name), filepath.Join(r.Beside, "arbe-pi-runner")}
	}
	return append(paths, filepath.Join(r.Packaged, name))
}

// elfArch returns the architecture of a program.
func elfArch(path string) (string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return "no Linux program", err
	}
	defer f.Close() // read only: nothing to lose
	switch f.Machine {
	case elf.EM_X86_64:
		return "amd64", nil
	case elf.EM_AARCH64:
		return "arm64", nil
	}
	return f.Machine.String(), nil
}
