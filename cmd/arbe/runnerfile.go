package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// runnerFor returns the path of the runner's binary for an architecture.
func runnerFor(arch string) (string, error) {
	var tried []string
	for _, path := range runnerPaths(arch) {
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
	const want = "no runner for %s%s: put arbe-pi-runner-linux-%[1]s beside arbe, or set ARBE_RUNNER_BIN"
	return "", fmt.Errorf(want, arch, found)
}

func runnerPaths(arch string) []string {
	if path := os.Getenv("ARBE_RUNNER_BIN"); path != "" {
		return []string{path}
	}
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	dir := filepath.Dir(self)
	return []string{filepath.Join(dir, "arbe-pi-runner-linux-"+arch), filepath.Join(dir, "arbe-pi-runner")}
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
