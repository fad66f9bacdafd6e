// Command demo shows one run: a real pi, asked for a file, in a folder of its own; its thread on a server on this
// machine; and a scripted model in place of a provider. "make demo" calls it with both binaries built and pi
// installed. It leaves nothing behind.
package main

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
	"strings"
	"syscall"
	"time"

	"arbe.0sk.ar/runner/internal/test/agents"
	"arbe.0sk.ar/runner/internal/test/model"
)

//go:embed script.json
var script []byte

const task = "Write a haiku about silence into haiku.txt"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: demo BIN: the folder that has arbe and arbe-pi-runner")
		os.Exit(64)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := demo(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func demo(ctx context.Context, bin string) (err error) {
	bin, err = filepath.Abs(bin)
	if err != nil {
		return err
	}
	pi, err := agents.FindPi("0.78.0")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "arbe-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		return err
	}

	provider, stopModel, err := serveModel()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopModel()) }()
	if err := pi.Home(dir, provider, 2000); err != nil {
		return err
	}

	env := append(pi.Env(dir), "ARBE_DATA="+filepath.Join(dir, "data"), "ARBE_STATE_DIR="+filepath.Join(dir, "state"),
		"COLUMNS="+os.Getenv("COLUMNS"))
	d := &shell{ctx: ctx, dir: work, env: env, path: bin}
	serve := d.command("arbe", "serve", "--addr", "127.0.0.1:0")
	fmt.Println("$ arbe serve &")
	if err := serve.Start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end(serve)) }()
	url, err := waitFor(ctx, filepath.Join(dir, "data", "address"))
	if err != nil {
		return err
	}

	threadID, err := d.output("arbe", "thread", "new")
	if err != nil {
		return err
	}
	token, err := d.output("arbe", "token", "mint", "--thread", threadID)
	if err != nil {
		return err
	}
	fmt.Println("$ export ARBE_THREAD_ID=$(arbe thread new) ARBE_STREAM_URL=" + url)
	fmt.Println("$ export ARBE_STREAM_TOKEN=$(arbe token mint --thread $ARBE_THREAD_ID)")
	fmt.Printf("$ arbe-pi-runner run -- %q &\n", task)
	fmt.Println("$ arbe thread tail $ARBE_THREAD_ID")
	d.env = append(
		d.env,
		"ARBE_THREAD_ID="+threadID,
		"ARBE_STREAM_URL="+url,
		"ARBE_STREAM_TOKEN="+token,
		"ARBE_HEARTBEAT=1s",
		"ARBE_AUTHOR_ID=you",
	)
	run := d.command("arbe-pi-runner", "run", "--", task)
	var log strings.Builder
	run.Stderr = &log
	if err := run.Start(); err != nil {
		return err
	}
	tail := d.command("arbe", "thread", "tail", threadID)
	tail.Stdout, tail.Stderr = os.Stdout, os.Stderr
	tailErr := tail.Run()
	if tailErr != nil {
		tailErr = errors.Join(fmt.Errorf("arbe thread tail: %w", tailErr), end(run))
	}
	if err := run.Wait(); err != nil {
		return errors.Join(tailErr, fmt.Errorf("arbe-pi-runner: %w\n%s", err, log.String()))
	}
	if tailErr != nil {
		return tailErr
	}
	haiku, err := os.ReadFile(filepath.Join(work, "haiku.txt"))
	fmt.Printf("\n$ cat haiku.txt\n%s", haiku)
	return err
}

// serveModel starts the scripted model server and returns its URL.
func serveModel() (url string, stop func() error, err error) {
	replies, err := model.Parse(script)
	if err != nil {
		return "", nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	srv := &http.Server{Handler: &model.Server{Script: replies}, ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	return "http://" + ln.Addr().String(), func() error {
		err := srv.Close()
		if served := <-done; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	}, nil
}

// shell starts commands as a user would.
type shell struct {
	ctx  context.Context
	dir  string
	env  []string
	path string // the folder of the binaries
}

func (s *shell) command(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(s.ctx, filepath.Join(s.path, name), args...)
	cmd.Dir, cmd.Env = s.dir, s.env
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

func (s *shell) output(name string, args ...string) (string, error) {
	var stderr strings.Builder
	cmd := s.command(name, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// end asks a command to end and waits for it.
func end(cmd *exec.Cmd) error {
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
	limit := time.NewTimer(10 * time.Second)
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
