package daytona

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

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/kit"
)

// daytonaBox is a box at Daytona.
type box struct {
	kit.Running

	p       *Provider
	id      string
	toolbox string // the address of the daemon in the box
	home    string
	work    string
}

func (b *box) Ref() sandbox.Ref { return sandbox.Ref{Provider: Name, ID: b.id} }
func (b *box) WorkDir() string  { return b.work }
func (b *box) Home() string     { return b.home }

// workspace returns the folder that the working directory is in.
func (b *box) workspace() string { return path.Join(b.home, "workspace") }

// Outlast has the box stay for at least d without a call to it. Daytona counts calls, and not what works in the box.
func (b *box) Outlast(ctx context.Context, d time.Duration) error {
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
func (b *box) call(ctx context.Context, q request) error {
	q.url = b.toolbox + q.url
	return b.judge(ctx, b.p.do(ctx, q))
}

// judge asks the control plane what an error of the toolbox means. The proxy answers 401 for a deleted box, 400 for a
// stopped one, 404 for an archived one, and 502 if the daemon is dead.
func (b *box) judge(ctx context.Context, err error) error {
	if !answered(err, http.StatusBadRequest, http.StatusUnauthorized, http.StatusNotFound, http.StatusBadGateway) {
		return err
	}
	i, lerr := b.p.look(ctx, b.id)
	switch {
	case notFound(lerr, b.id):
		return fmt.Errorf("%w (%w)", sandbox.ErrGone, err)
	case lerr != nil:
		return errors.Join(err, lerr)
	case i.gone():
		return fmt.Errorf("%w: %s (%w)", sandbox.ErrGone, i.why(), err)
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
func (b *box) execute(ctx context.Context, s script) (output string, code int, err error) {
	line, err := sandbox.ShellQuote(s.argv)
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
		secrets: kit.SecretValues(s.env),
	})
	return answer.Result, answer.ExitCode, err
}

// Detach does not use a session of the daemon: deleting a session kills all processes that were ever started from it.
func (b *box) Detach(ctx context.Context, c sandbox.Command, log string) (sandbox.Process, error) {
	dir, err := c.Check(b.work)
	if err != nil {
		return sandbox.Process{}, err
	}
	file, err := sandbox.ConfineFile(b.home, log)
	if err != nil {
		return sandbox.Process{}, err
	}
	s := sh("detach "+c.Argv[0], kit.DetachScript, append([]string{dir, file}, c.Argv...)...)
	s.env = c.Env
	output, _, err := b.execute(ctx, s)
	if err != nil {
		return sandbox.Process{}, err
	}
	p, err := kit.ParseDetached(output)
	if err != nil {
		err := fmt.Errorf("daytona: detach %s: %w", c.Argv[0], err)
		return sandbox.Process{}, kit.Redacted(err, kit.SecretValues(c.Env)...)
	}
	return p, nil
}

// ask runs a script that only looks. It does not count as use of the box.
func (b *box) ask(ctx context.Context, doing, text string, args ...string) (output string, code int, err error) {
	s := sh(doing, text, args...)
	s.quiet, s.limit = true, 10*time.Second
	err = b.p.bounded(ctx, func(ctx context.Context) (err error) {
		output, code, err = b.execute(ctx, s)
		return err
	})
	return output, code, err
}

// folder makes a folder and those above it.
func (b *box) folder(ctx context.Context, dir string, mode uint32) error {
	query := url.Values{"path": {dir}, "mode": {fmt.Sprintf("%04o", mode)}}
	return b.call(ctx, request{
		doing: "make the folder " + dir, method: http.MethodPost, url: "/files/folder?" + query.Encode(),
	})
}

// Runs reports whether the process is alive in the box with the id; with PID 0, whether the runner of the process's Run
// is, or, without a Run, any runner. The box is not started, and the query does not count as use. In a stopped box
// nothing runs. What runs in one with a fault is not known: ErrGone.
func (p *Provider) Runs(ctx context.Context, id string, proc sandbox.Process) (bool, error) {
	i, err := p.look(ctx, id)
	switch {
	case notFound(err, id):
		return false, fmt.Errorf("look into the box %s: %w", id, sandbox.ErrGone)
	case err != nil:
		return false, err
	case i.gone():
		return false, fmt.Errorf("look into the box %s, which is %s: %w", id, i.why(), sandbox.ErrGone)
	case i.asleep():
		return false, nil
	case i.health() == sandbox.Frozen:
		return false, fmt.Errorf("look into the box %s, which is %s: %w", id, i.why(), sandbox.ErrFrozen)
	case i.State != "started":
		return false, fmt.Errorf("daytona: look into the box %s: it is %s", id, i.State)
	}
	b, err := p.toolboxOf(ctx, i)
	if err != nil {
		return false, err
	}
	runs, err := kit.Ask(b.ask).Runs(ctx, proc)
	if _, asleep := errors.AsType[*asleepError](err); asleep {
		return false, nil
	}
	return runs, err
}

// toolboxOf returns the box with the address of its daemon, without its folders.
func (p *Provider) toolboxOf(ctx context.Context, i info) (*box, error) {
	if i.Toolbox == "" {
		var answer struct{ URL string }
		if err := p.do(ctx, request{
			doing: "find the box's toolbox", method: http.MethodGet, url: p.boxURL(i.ID) + "/toolbox-proxy-url",
			into: &answer,
		}); err != nil {
			return nil, err
		}
		i.Toolbox = answer.URL
	}
	return &box{p: p, id: i.ID, toolbox: strings.TrimRight(i.Toolbox, "/") + "/" + i.ID}, nil
}

// Alive reports whether a process that Detach started is running. The query does not count as use of the box. In a
// stopped box no process runs.
func (b *box) Alive(ctx context.Context, p sandbox.Process) (bool, error) {
	alive, err := kit.Ask(b.ask).Alive(ctx, p)
	if _, asleep := errors.AsType[*asleepError](err); asleep {
		return false, nil
	}
	return alive, err
}
