// Package dockerd runs a real Docker engine for tests: Debian's, which "make debian" unpacks into the cache folder. It
// has a Unix socket of its own, and a folder of its own for its images and containers.
//
// It has no network of its own and reaches no registry: images are loaded or imported, and containers run with
// --network none or host. The engine and its containers have a mount and a PID namespace of their own: nothing of them
// outlives the process that started it, not even a killed one.
package dockerd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"arbe.0sk.ar/runner/internal/test/debian"
)

// Engine is a running Docker engine. Its methods may run concurrently.
type Engine struct {
	dir     string // has the socket, images and containers
	root    debian.Root
	process *os.Process
	ended   chan struct{} // closed when the engine and all of its containers have ended
	err     error         // of the process, once ended is closed
}

// MissingError is why no engine can run on this machine. A test skips with its text.
type MissingError struct{ Cause error }

func (e *MissingError) Error() string { return "a Docker engine can't run here: " + e.Cause.Error() }

func (e *MissingError) Unwrap() error { return e.Cause }

// wait bounds each step of an engine's life.
const wait = 5 * time.Minute

// start makes what the engine needs in its namespaces: mounts that nobody else sees, and a /proc of its PIDs.
const start = `mount --make-rprivate / && mount -t proc proc /proc && exec "$0" "$@"`

// Start starts an engine and returns once it answers. The caller ends it with Stop. The error is a *MissingError where
// the machine lacks what an engine needs.
func Start() (e *Engine, err error) {
	root, err := debian.Find("dockerd")
	if err != nil {
		return nil, &MissingError{err}
	}
	if err := namespaces().Run(); err != nil {
		return nil, &MissingError{fmt.Errorf("no namespaces: %w", err)}
	}
	dir, err := os.MkdirTemp("", "arbe-docker-") // the path of a socket has at most 107 bytes
	if err != nil {
		return nil, err
	}
	e = &Engine{dir: dir, root: root, ended: make(chan struct{})}
	if err := e.start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return e, nil
}

// namespaces returns a command that runs another in the namespaces of an engine; without one it does nothing.
func namespaces(args ...string) *exec.Cmd {
	if len(args) == 0 {
		args = []string{"true"}
	}
	cmd := exec.Command("sh", append([]string{"-c", start}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Setpgid: true, Pdeathsig: syscall.SIGKILL,
	}
	return cmd
}

// Socket returns the path of the Unix socket that the engine serves its API on.
func (e *Engine) Socket() string { return filepath.Join(e.dir, "docker.sock") }

// Command returns a command of the docker program, for this engine.
func (e *Engine) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, e.root.Program("docker"), args...)
	cmd.Env = append(e.root.Env(), "DOCKER_HOST=unix://"+e.Socket(), "DOCKER_CONFIG="+filepath.Join(e.dir, "config"))
	return cmd
}

func (e *Engine) start() error {
	log, err := os.Create(filepath.Join(e.dir, "log"))
	if err != nil {
		return err
	}
	cmd := namespaces(
		e.root.Program("dockerd"), "-H", "unix://"+e.Socket(), "--data-root", filepath.Join(e.dir, "data"),
		"--exec-root", filepath.Join(e.dir, "exec"), "-p", filepath.Join(e.dir, "pid"), "--cgroup-parent", "/"+e.name(),
		"--exec-opt", "native.cgroupdriver=cgroupfs", "--bridge=none",
		"--iptables=false", "--ip-forward=false", "--ip-masq=false",
	)
	cmd.Env, cmd.Stdout, cmd.Stderr = e.root.Env(), log, log
	started := make(chan error, 1)
	go func() {
		// The kernel sends the death signal when the thread that started the process ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(e.ended)
		err := cmd.Start()
		e.process = cmd.Process
		started <- err
		if err == nil {
			e.err = cmd.Wait()
		}
	}()
	if err := errors.Join(<-started, log.Close()); err != nil {
		return fmt.Errorf("start dockerd: %w", err)
	}
	if err := e.ready(); err != nil {
		return errors.Join(err, e.kill())
	}
	return nil
}

// ready waits until the engine answers.
func (e *Engine) ready() error {
	client := http.Client{Timeout: wait, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", e.Socket())
		},
	}}
	late := time.NewTimer(wait)
	defer late.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		answer, err := client.Get("http://docker/_ping")
		if err == nil {
			err = answer.Body.Close()
		}
		if err == nil && answer.StatusCode == http.StatusOK {
			return nil
		}
		select {
		case <-tick.C:
		case <-e.ended:
			return fmt.Errorf("dockerd ended at its start: %w\n%s", e.err, e.Log())
		case <-late.C:
			return fmt.Errorf("dockerd does not answer: %w\n%s", err, e.Log())
		}
	}
}

// Log returns what the engine has logged.
func (e *Engine) Log() string {
	b, err := os.ReadFile(filepath.Join(e.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// kill ends the engine, and with its PID namespace all containers.
func (e *Engine) kill() error {
	if err := e.process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case <-e.ended:
		return nil
	case <-late.C:
		return fmt.Errorf("dockerd runs %s after KILL\n%s", wait, e.Log())
	}
}

// Stop ends the engine with its containers, and removes its folder.
func (e *Engine) Stop() error { return errors.Join(e.kill(), e.removeCgroups(), os.RemoveAll(e.dir)) }

// name names the engine on this machine.
func (e *Engine) name() string { return filepath.Base(e.dir) }

// removeCgroups removes the cgroups of the containers, which no process is in any more.
func (e *Engine) removeCgroups() (err error) {
	const top = "/sys/fs/cgroup"
	for _, pattern := range []string{top + "/", top + "/*/"} { // v2, v1
		dirs, _ := filepath.Glob(pattern + e.name()) // only a bad pattern is an error
		for _, dir := range dirs {
			below, globErr := filepath.Glob(filepath.Join(dir, "*", "cgroup.procs"))
			err = errors.Join(err, globErr)
			for _, procs := range below {
				err = errors.Join(err, os.Remove(filepath.Dir(procs)))
			}
			err = errors.Join(err, os.Remove(dir))
		}
	}
	return err
}
