// Package built finds the programs that the end-to-end tests run: those of "make build", built once for all packages.
package built

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// Var names the environment variable that holds the folder of arbe and arbe-pi-runner. "make test" sets it.
const Var = "ARBE_BIN"

// Main is the TestMain of a package that drives the programs: it calls use with the absolute path of their folder, runs
// the tests m and ends the process with their status. root is as in Run.
func Main(m interface{ Run() int }, root string, use func(bin string)) {
	status, err := Run(root, func(bin string) int {
		use(bin)
		return m.Run()
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

// Run calls run with the absolute path of the folder that has both programs, and returns its result. Without
// $ARBE_BIN it builds them into a folder for temporary files first, and removes that afterwards. root is the path of
// the repository, relative to the working directory.
func Run(root string, run func(bin string) int) (status int, err error) {
	if bin := os.Getenv(Var); bin != "" {
		if !filepath.IsAbs(bin) {
			return 1, fmt.Errorf("$%s is %s: not an absolute path", Var, bin)
		}
		for _, name := range []string{"arbe", "arbe-pi-runner"} {
			if _, err := os.Stat(filepath.Join(bin, name)); errors.Is(err, fs.ErrNotExist) {
				return 1, fmt.Errorf("no %s in $%s: run make build", name, Var)
			} else if err != nil {
				return 1, err
			}
		}
		return run(bin), nil
	}
	bin, err := os.MkdirTemp("", "arbe-bin-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(bin)) }()
	if out, err := exec.Command("make", "-s", "-C", root, "build", "BIN="+bin).CombinedOutput(); err != nil {
		return 1, fmt.Errorf("make build: %w\n%s", err, out)
	}
	return run(bin), nil
}
