// Command stress runs the tests of packages again and again, in random order, beside busy loops: two for two cores.
//
//	stress [-race] [-run REGEXP] [-commit COMMIT] COUNT PACKAGE...
//
// It prints a row of a table for each package, and what a failed round has printed. It exits with 1 where a round
// failed. The loops are threads of its own, so that none is left of it, whatever ends it.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	// go run does not pass on the signal that it dies of.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGTERM), 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "stress: end with the parent:", err)
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout))
}

// run stresses the packages and returns the exit status.
func run(ctx context.Context, args []string, w io.Writer) int {
	flags := flag.NewFlagSet("stress", flag.ContinueOnError)
	race := flags.Bool("race", false, "with the race detector")
	commit := flags.String("commit", "", "what is tested, for the table")
	only := flags.String("run", "", "tests to run, else all but TestFull and TestLarge")
	if flags.Parse(args) != nil {
		return 64
	}
	count, err := strconv.Atoi(flags.Arg(0))
	if err != nil || count < 1 || flags.NArg() < 2 {
		fmt.Fprintln(w, "usage: stress [-race] [-run REGEXP] [-commit COMMIT] COUNT PACKAGE...")
		return 64
	}
	dir, err := os.MkdirTemp("", "arbe-stress-")
	if err != nil {
		fmt.Fprintln(w, "stress:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is among temporary files
	s := stress{dir: dir, race: *race, count: count, commit: *commit, w: w}
	s.tests = []string{"-test.skip=^Test(Full|Large)"}
	if *only != "" {
		s.tests = []string{"-test.run=" + *only}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	loops := runtime.NumCPU()
	runtime.GOMAXPROCS(loops + 2) // beside them this program has its own work
	for range loops {
		go spin(ctx)
	}
	fmt.Fprintf(w, "| package | rounds | failed | race detector | load | commit |\n|---|---|---|---|---|---|\n")
	packages, err := s.list(ctx, flags.Args()[1:])
	failed := 0
	for _, p := range packages {
		n, errPackage := s.stress(ctx, p[0], p[1])
		failed += n
		err = errors.Join(err, errPackage)
		if ctx.Err() != nil {
			break
		}
	}
	if err := cmp.Or(err, ctx.Err()); err != nil {
		fmt.Fprintln(w, "stress:", err)
		return 1
	}
	return min(failed, 1)
}

func spin(ctx context.Context) {
	for ctx.Err() == nil { // without a pause: it takes all of a core
	}
}

type stress struct {
	dir    string // of the test programs
	race   bool
	count  int
	commit string
	tests  []string // which tests the programs run
	w      io.Writer
}

// list returns the path and the folder of each package that has tests.
func (s *stress) list(ctx context.Context, patterns []string) (packages [][2]string, err error) {
	const format = "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}"
	out, err := s.command(ctx, "", "go", append([]string{"list", "-f", format}, patterns...)...).Output()
	for line := range strings.Lines(string(out)) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		packages = append(packages, [2]string{path, dir})
	}
	if err != nil {
		err = fmt.Errorf("go list: %w", err)
	}
	return packages, err
}

// stress runs the tests of a package, and returns how many rounds failed.
func (s *stress) stress(ctx context.Context, path, dir string) (failed int, err error) {
	program := filepath.Join(s.dir, strings.ReplaceAll(path, "/", "_")+".test")
	build := []string{"test", "-c", "-vet=off", "-trimpath", "-o", program}
	if s.race {
		build = append(build, "-race")
	}
	if out, err := s.command(ctx, dir, "go", append(build, ".")...).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build the tests of %s: %w\n%s", path, err, out)
	}
	load := 0.0
	for i := range s.count {
		args := append([]string{"-test.shuffle=on", "-test.timeout=20m"}, s.tests...)
		out, err := s.command(ctx, dir, program, args...).CombinedOutput()
		if ctx.Err() != nil {
			return failed, ctx.Err()
		}
		if err != nil {
			failed++
			fmt.Fprintf(s.w, "%s, round %d: %v\n%s", path, i+1, err, out)
		}
		load = max(load, loadAverage())
	}
	fmt.Fprintf(s.w, "| `%s` | %d | %d | %s | %.0f | %s |\n", strings.TrimPrefix(path, module), s.count, failed,
		map[bool]string{true: "yes", false: "no"}[s.race], load, s.commit)
	return failed, nil
}

// module begins the names of this module's packages.
const module = "arbe.0sk.ar/runner/"

// command returns a command that ends with this program, and all of its group when that is interrupted.
func (s *stress) command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = time.Minute
	return cmd
}

// loadAverage is the load of the last minute, 0 where it can't be read.
func loadAverage() (load float64) {
	b, _ := os.ReadFile("/proc/loadavg")
	_, _ = fmt.Sscan(string(b), &load)
	return load
}
