package fakedaytona

import (
	"bytes"
	"errors"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// execute runs a command to its end: that of the shell, and of all that holds its output. The command is on the
// shell's standard input, where its children can read it. The time limit is the process group's; what has left the
// group, and holds the output, keeps the client waiting.
func (d *daemon) execute(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Command string
		Cwd     string
		Envs    map[string]string
		Timeout *uint32 // seconds
	}
	if !ask(w, r, &q) {
		return
	}
	if q.Command == "" {
		complain(w, r, toolError{http.StatusBadRequest, "BAD_REQUEST", "bad request: command is required"})
		return
	}
	var env []string
	for k, v := range q.Envs {
		if !envName.MatchString(k) {
			complain(
				w,
				r,
				toolError{http.StatusBadRequest, "BAD_REQUEST", "bad request: invalid environment variable name: " + k},
			)
			return
		}
		env = append(env, k+"="+v)
	}
	cmd := d.command(q.Cwd, env, shell())
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(q.Command), &out, &out
	if err := d.start(cmd); err != nil {
		reply(w, http.StatusOK, map[string]any{"exitCode": -1, "result": err.Error()})
		return
	}
	var late atomic.Bool
	if q.Timeout != nil && *q.Timeout > 0 {
		timer := time.AfterFunc(time.Duration(*q.Timeout)*time.Second, func() {
			late.Store(true)
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the group may have ended
		})
		defer timer.Stop()
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case late.Load():
		complain(
			w,
			r,
			toolError{http.StatusRequestTimeout, "REQUEST_TIMEOUT", "request timeout: command execution timeout"},
		)
	case err != nil && !errors.As(err, &exit):
		complain(w, r, err)
	default: // a command that was killed has -1
		reply(w, http.StatusOK, map[string]any{"exitCode": cmd.ProcessState.ExitCode(), "result": out.String()})
	}
}

// start starts a command, which a dead daemon doesn't.
func (d *daemon) start(cmd *exec.Cmd) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isDead() {
		return errors.New("the daemon is dead")
	}
	return cmd.Start()
}
