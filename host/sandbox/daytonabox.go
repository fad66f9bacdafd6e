package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"arbe.0sk.ar/runner/internal/procfs"
)

// daytonaBox is a box at Daytona.
type daytonaBox struct {
	running

	p       *Daytona
	id      string
	toolbox string // the address of the daemon in the box
	home    string
	work    string
}

func (b *daytonaBox) Ref() Ref        { return Ref{DaytonaName, b.id} }
func (b *daytonaBox) WorkDir() string { return b.work }
func (b *daytonaBox) Home() string    { return b.home }

// workspace returns the folder that the working directory is in.
func (b *daytonaBox) workspace() string { return path.Join(b.home, "workspace") }

// Outlast has the box stay for at least d without a call to it. Daytona counts calls, and not what works in the box.
func (b *daytonaBox) Outlast(ctx context.Context, d time.Duration) error {
	i, err := b.p.look(ctx, b.id)
	if err != nil {
		return err
	}
	want := wholeMinutes(d)
	if i.AutoStop != nil && (*i.AutoStop == 0 || *i.AutoStop >= want) {
		return nil
	}
	return b.p.do(ctx, request{
		doing: "let the box " + b.id + " stay", method: http.MethodPost,
		url: fmt.Sprintf("%s/autostop/%d", b.p.boxURL(b.id), want),
	})
}

// wholeMinutes returns d in minutes, rounded up.
func wholeMinutes(d time.Duration) int { return int((d + time.Minute - 1) / time.Minute) }

// call sends a request to the daemon in the box; q.url is relative to the daemon's address.
func (b *daytonaBox) call(ctx context.Context, q request) error {
	q.url = b.toolbox + q.url
	return b.judge(ctx, b.p.do(ctx, q))
}

// judge asks the control plane what an error of the toolbox means. The proxy answers 401 for a deleted box, 400 for a
// stopped one, 404 for an archived one, and 502 if the daemon is dead.
func (b *daytonaBox) judge(ctx context.Context, err error) error {
	if !answered(err, http.StatusBadRequest, http.StatusUnauthorized, http.StatusNotFound, http.StatusBadGateway) {
		return err
	}
	i, lerr := b.p.look(ctx, b.id)
	switch {
	case notFound(lerr, b.id):
		return fmt.Errorf("%w (%w)", ErrGone, err)
	case lerr != nil:
		return errors.Join(err, lerr)
	case i.gone():
		return fmt.Errorf("%w: %s (%w)", ErrGone, i.why(), err)
	case i.asleep():
		return &asleepError{i.why(), err}
	}
	return err
}

// asleepError is returned for a box that exists and does not run.
type asleepError struct {
	why string
	err error
}

func (e *asleepError) Error() string { return "the box is " + e.why + ": " + e.err.Error() }
func (e *asleepError) Unwrap() error { return e.err }

// script is a short command in a box. Its two outputs arrive as one, when it has ended.
type script struct {
	doing string
	argv  []string
	env   map[string]string
	limit time.Duration
	quiet bool
}

// sh returns a script that runs text in sh.
func sh(doing, text string, args ...string) script {
	return script{doing: doing, argv: append([]string{"sh", "-c", text, "sh"}, args...)}
}

// execute runs a script.
func (b *daytonaBox) execute(ctx context.Context, s script) (output string, code int, err error) {
	line, err := ShellQuote(s.argv)
	if err != nil {
		return "", -1, fmt.Errorf("daytona: %s: %w", s.doing, err)
	}
	s.limit = cmp.Or(s.limit, attempt)
	body := map[string]any{
		// The daemon's shell reads its commands from its input: a command that reads it, too, would swallow the rest.
		"command": line + " </dev/null",
		"timeout": int(s.limit / time.Second),
	}
	if len(s.env) > 0 {
		body["envs"] = s.env // never in a command line; the daemon ignores a field named env
	}
	var answer struct {
		ExitCode int    `json:"exitCode"`
		Result   string `json:"result"`
	}
	err = b.call(ctx, request{
		doing: s.doing, method: http.MethodPost, url: "/process/execute", body: body, into: &answer,
		once: true, quiet: s.quiet,
		// The daemon's limit does not end a command of which a process has left the group and keeps the output open.
		attempt: s.limit + attempt,
		secrets: secretValues(s.env),
	})
	return answer.Result, answer.ExitCode, err
}

// Detach does not use a session of the daemon: deleting a session kills all processes that were ever started from it.
func (b *daytonaBox) Detach(ctx context.Context, c Command, log string) (Process, error) {
	dir, err := c.check(b.work)
	if err != nil {
		return Process{}, err
	}
	file, err := confineFile(b.home, log)
	if err != nil {
		return Process{}, err
	}
	s := sh("detach "+c.Argv[0], detachScript, append([]string{dir, file}, c.Argv...)...)
	s.env = c.Env
	output, _, err := b.execute(ctx, s)
	if err != nil {
		return Process{}, err
	}
	p, err := parseDetached(output)
	if err != nil {
		return Process{}, redacted(fmt.Errorf("daytona: detach %s: %w", c.Argv[0], err), secretValues(c.Env)...)
	}
	return p, nil
}

// ask runs a script that only looks. It does not count as use of the box.
func (b *daytonaBox) ask(ctx context.Context, doing, text string, args ...string) (output string, code int, err error) {
	s := sh(doing, text, args...)
	s.quiet, s.limit = true, 10*time.Second
	err = b.p.bounded(ctx, func(ctx context.Context) (err error) {
		output, code, err = b.execute(ctx, s)
		return err
	})
	return output, code, err
}

// Alive reports whether a process that Detach started is running. The query does not count as use of the box. In a
// stopped box no process runs.
func (b *daytonaBox) Alive(ctx context.Context, p Process) (bool, error) {
	output, code, err := b.ask(ctx, "look at a process", aliveScript, fmt.Sprint(p.PID))
	if _, asleep := errors.AsType[*asleepError](err); asleep {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	boot, line, _ := strings.Cut(output, "\n")
	if boot = strings.TrimPrefix(boot, "boot "); p.Boot != "" && boot != "" && boot != p.Boot && code == 0 {
		return false, nil
	}
	if code == 0 && strings.TrimSpace(line) == "gone" {
		return false, nil
	}
	st, err := procfs.Parse(line)
	if err != nil {
		return false, fmt.Errorf("daytona: look at a process: exit %d: %w", code, err)
	}
	return runs(st, p), nil
}

// aliveScript prints the boot id, if it can be read, and the stat of the process $1.
const aliveScript = `echo "boot $(cat /proc/sys/kernel/random/boot_id 2>/dev/null)"
cat "/proc/$1/stat" 2>/dev/null || echo gone`

// folder makes a folder and those above it.
func (b *daytonaBox) folder(ctx context.Context, dir string, mode uint32) error {
	query := url.Values{"path": {dir}, "mode": {fmt.Sprintf("%04o", mode)}}
	return b.call(ctx, request{
		doing: "make the folder " + dir, method: http.MethodPost, url: "/files/folder?" + query.Encode(),
	})
}
