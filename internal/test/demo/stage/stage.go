// Package stage sets the demos up: a folder of their own, the real pi, a scripted model in place of a provider,
// and commands as a user types them. The caller ends a stage with Close, which leaves nothing behind.
package stage

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"arbe.0sk.ar/runner/internal/test/agents"
	"arbe.0sk.ar/runner/internal/test/model"
)

//go:embed script.json
var script []byte

// Task is the task that the model's script is for.
const Task = "Write a haiku about silence into haiku.txt"

// Stage is a folder with a home for pi. Its methods are for one goroutine.
type Stage struct {
	Dir   string   // has the home, the data folder and Work
	Work  string   // where commands run
	Env   []string // of commands
	Model string   // the scripted model's URL

	Script *model.Server // the scripted model

	ctx  context.Context
	bin  string         // the folder of the binaries
	ends []func() error // of what has been started, the last one first
}

// Main runs a demo until it or this program is to end, and returns the exit status.
func Main(demo func(ctx context.Context, bin string) error, bin string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := demo(ctx, bin); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
	return 0
}

// New makes a stage for the binaries in bin. Commands end with ctx.
func New(ctx context.Context, bin string) (s *Stage, err error) {
	bin, err = filepath.Abs(bin)
	if err != nil {
		return nil, err
	}
	pi, err := agents.FindPi("0.78.0")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "arbe-demo-")
	if err != nil {
		return nil, err
	}
	s = &Stage{Dir: dir, Work: filepath.Join(dir, "work"), ctx: ctx, bin: bin}
	s.AtEnd(func() error { return os.RemoveAll(dir) })
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := os.Mkdir(s.Work, 0o700); err != nil {
		return nil, err
	}
	if s.Model, err = s.serveModel(); err != nil {
		return nil, err
	}
	s.Env = append(pi.Env(dir), "ARBE_DATA="+filepath.Join(dir, "data"), "ARBE_STATE_DIR="+filepath.Join(dir, "state"),
		"COLUMNS="+os.Getenv("COLUMNS"))
	return s, pi.Home(dir, s.Model, 2000)
}

// AtEnd has Close call end, before what was given to AtEnd earlier.
func (s *Stage) AtEnd(end func() error) { s.ends = append(s.ends, end) }

// Close ends what was started, and removes the folder.
func (s *Stage) Close() (err error) {
	for _, end := range slices.Backward(s.ends) {
		err = errors.Join(err, end())
	}
	s.ends = nil
	return err
}

// serveModel starts the scripted model server and returns its URL.
func (s *Stage) serveModel() (url string, err error) {
	replies, err := model.Parse(script)
	if err != nil {
		return "", err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s.Script = &model.Server{Script: replies}
	srv := &http.Server{Handler: s.Script, ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	s.AtEnd(func() error {
		err := srv.Close()
		if served := <-done; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	})
	return "http://" + ln.Addr().String(), nil
}

// Serve starts arbe serve on a free port, with further flags, and returns its URL.
func (s *Stage) Serve(flags ...string) (url string, err error) {
	serve := s.Command("arbe", append([]string{"serve", "--addr", "127.0.0.1:0"}, flags...)...)
	if err := serve.Start(); err != nil {
		return "", err
	}
	s.AtEnd(func() error { return End(serve) })
	return waitFor(s.ctx, filepath.Join(s.Dir, "data", "address"))
}

// Command returns a command with one of the binaries.
func (s *Stage) Command(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(s.ctx, filepath.Join(s.bin, name), args...)
	cmd.Dir, cmd.Env = s.Work, s.Env
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// Output returns what a command prints on stdout.
func (s *Stage) Output(name string, args ...string) (string, error) {
	return Output(s.Command(name, args...))
}

// Output returns what a command prints on stdout, without newlines at its end.
func Output(cmd *exec.Cmd) (string, error) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		name := filepath.Base(cmd.Path)
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(cmd.Args[1:], " "), err, stderr.String())
	}
	return strings.TrimRight(string(out), "\n"), nil
}

// End asks a command to end and waits for it.
func End(cmd *exec.Cmd) error {
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() > 0 {
		return fmt.Errorf("%s: %w", filepath.Base(cmd.Path), err)
	}
	return nil
}

// waitFor returns a file's content once it is there.
func waitFor(ctx context.Context, path string) (string, error) {
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		f, err := os.Open(path)
		if err == nil {
			b, err := io.ReadAll(f)
			if text := strings.TrimSpace(string(b)); err == nil && text != "" {
				return text, f.Close()
			}
			if err := errors.Join(err, f.Close()); err != nil {
				return "", err
			}
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-limit.C:
			return "", fmt.Errorf("the server is not ready: no %s", path)
		case <-tick.C:
		}
	}
}
