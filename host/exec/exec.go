// Package exec runs single commands in the box of a thread.
//
// Host.Post posts the beginning of a command on the thread. Host.Fire opens the box and starts the command there, under
// a supervisor (package runner/command), which posts the command's output and its end. From then on the command does
// not depend on this process. Follow passes on what the thread reports of a command. Run does all of it, and may be
// repeated by another host.
//
// A command holds its box until its end is on the thread. Each command gets one end: from its supervisor, from Fire if
// it could not be started, or from a reconciler if the box or the supervisor is dead.
package exec

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
	"arbe.0sk.ar/runner/thread/redact"
)

// Request is a command to run.
type Request struct {
	Thread  string
	ID      string // of the command; unique on the thread
	Author  string
	Argv    []string
	Shown   string // the command for readers; "" for Argv as a shell would take it
	Cwd     string // relative to the working directory of the box, or absolute; "" for that
	Env     map[string]string
	Secrets []string      // the names of Env whose values are secrets, whatever the names are
	Timeout time.Duration // 0: DefaultTimeout
	Stdin   []byte        // at most MostStdin; nil for an empty one
}

// Limits of a Request.
const (
	DefaultTimeout = time.Hour
	MostTimeout    = 72 * time.Hour
	MostStdin      = 16 << 20 // bytes
	mostArgv       = 64 << 10 // bytes
)

// margin is the time beyond the timeout in which the supervisor's token can be renewed: for the last entries.
const margin = 6*time.Hour + 10*time.Minute

// Host gives a command access to its host: the thread, boxes, leases, tokens. All fields but Progress are required.
type Host struct {
	// Client is the host's client of the thread.
	Client *client.Client
	// Box returns the box for a command, opened and held for this process; release ends that hold. It may make one.
	Box func(ctx context.Context, p Posted) (box sandbox.Sandbox, release func(), err error)
	// Lease returns the lease of a box.
	Lease func(ctx context.Context, box sandbox.Ref) (lease.Lease, error)
	// Tokens signs the supervisor's tokens for a command: one to write, and one to renew that for the time life. Both
	// are bound to the thread, the command and the author of its entries; "" for none.
	Tokens func(threadID, execID, author string, life time.Duration) (write, renew string, err error)
	// StreamURL returns the address of the thread server as a box of the provider reaches it.
	StreamURL func(provider string) (string, error)
	// Runner returns the path of the runner's binary for an architecture.
	Runner   func(arch string) (string, error)
	Progress func(step string) // nil for none
}

// Posted is a command whose beginning is on the thread.
type Posted struct {
	Request
	Offset string // of the thread: the command's further entries come behind it
	Again  bool   // the thread had it already
}

// BadRequestError is returned for a Request that no host runs.
type BadRequestError struct{ Why string }

func (e *BadRequestError) Error() string { return e.Why }

// Check returns a *BadRequestError for a request that no host runs.
func (r Request) Check() error {
	size := 0
	for _, a := range r.Argv {
		size += len(a) + 1
	}
	bad := func(format string, args ...any) error { return &BadRequestError{fmt.Sprintf(format, args...)} }
	switch {
	case !thread.ValidRun(r.ID):
		return bad("command id %q: want 1 to 128 characters of A-Z a-z 0-9 _ ~ -", r.ID)
	case len(r.Argv) == 0 || strings.TrimSpace(r.Argv[0]) == "":
		return bad("the command is empty")
	case size > mostArgv:
		return bad("the command has %d bytes, more than %d", size, mostArgv)
	case strings.ContainsRune(strings.Join(r.Argv, "")+r.Cwd, 0):
		return bad("the command has a zero byte in it")
	case len(r.Stdin) > MostStdin:
		return bad("stdin has more than %d bytes", MostStdin)
	case r.Timeout < 0 || r.Timeout > MostTimeout:
		return bad("timeout %v: want more than 0 and at most %v", r.Timeout, MostTimeout)
	}
	for name := range r.Env {
		if strings.HasPrefix(name, "ARBE_") {
			return bad("%s: variables that begin with ARBE_ are the runner's", name)
		}
	}
	return nil
}

// Post posts the beginning of a command.
func (h *Host) Post(ctx context.Context, r Request) (Posted, error) {
	r.Timeout = cmp.Or(r.Timeout, DefaultTimeout)
	if err := r.Check(); err != nil {
		return Posted{}, err
	}
	r.Shown = cmp.Or(r.Shown, shown(r.Argv))
	hide := redactor(r)
	ack, err := h.Client.Append(ctx, []thread.Entry{entry(r, 0, thread.ExecStarted{
		Exec: signal(r, thread.TypeExecStarted), Command: hide.Text(r.Shown), Cwd: r.Cwd,
		TimeoutMs: r.Timeout.Milliseconds(),
	})})
	if err != nil {
		return Posted{}, fmt.Errorf("post to the thread: %w", err)
	}
	return Posted{r, ack.Next, ack.Duplicates > 0}, nil
}

// plain are the words that mean the same to a shell without quotes.
var plain = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// shown returns a command as a person would write it for a shell.
func shown(argv []string) string {
	words := make([]string, len(argv))
	for i, a := range argv {
		if words[i] = a; !plain.MatchString(a) {
			words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// redactor removes the secrets of a request's variables.
func redactor(r Request) *redact.Redactor {
	var environ []string
	for name, value := range r.Env {
		environ = append(environ, name+"="+value)
	}
	return redact.New(environ, r.Secrets)
}

func signal(r Request, typ string) thread.Exec { return thread.Exec{Type: typ, ExecID: r.ID} }

func entry(r Request, n int, payload any) thread.Entry {
	return thread.Entry{
		ID: thread.ExecID(r.ID, n), TS: thread.Stamp(time.Now()), AuthorID: r.Author, Payload: thread.Marshal(payload),
	}
}

// endTimeout bounds the post of the end of a command that could not be started.
const endTimeout = 30 * time.Second

// ErrStopped is the cause of a context that ends because this host stops. Fire leaves the end of a command that it has
// not started to a reconciler then: the thread server may be gone.
var ErrStopped = errors.New("the host was asked to stop")

// errCancelled is the cause of the end of Fire's context at a request to cancel.
var errCancelled = errors.New("cancelled before it was started")

// Fire starts a posted command in the thread's box, and returns the box. If it can't, or if the thread asks for the
// command's end before, it posts that end with the reason, and returns the reason. It returns no error if the command
// runs although the answer was lost.
func (h *Host) Fire(ctx context.Context, p Posted) (box sandbox.Ref, err error) {
	watched, stop := h.untilCancelled(ctx, p)
	opened, err := h.fire(watched, p)
	stop()
	if opened != nil {
		box = opened.Ref()
	}
	if err == nil {
		return box, nil
	}
	end := thread.ExecFinished{Exec: signal(p.Request, thread.TypeExecFinished)}
	switch cause := context.Cause(watched); {
	case errors.Is(cause, ErrStopped):
		return box, err
	case errors.Is(cause, errCancelled):
		err, end.Cancelled = errCancelled, true
	case ctx.Err() != nil:
		err = fmt.Errorf("interrupted before it was started: %w", err)
	}
	end.Error = redactor(p.Request).Text(err.Error())
	life, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	// The supervisor takes this number when it begins. Only one of the two gets it.
	_, perr := h.Client.Append(life, []thread.Entry{entry(p.Request, 1, end)})
	if client.Taken(perr) {
		return box, nil
	}
	if opened != nil {
		h.Ended(life, box, p.Request)
	}
	return box, errors.Join(err, perr)
}

// untilCancelled returns a context that ends when the thread asks for the end of a command, with errCancelled as its
// cause. stop ends it, too, and the watch.
func (h *Host) untilCancelled(ctx context.Context, p Posted) (watched context.Context, stop func()) {
	watched, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	from := cmp.Or(p.Offset, "0")
	go func() {
		defer close(done)
		// A watch that fails is left to the supervisor, which reads the thread from the same offset.
		_ = h.Client.Only(thread.TypeExecCancel).Follow(watched, from, func(e thread.Entry) error {
			var c thread.ExecCancel
			if json.Unmarshal(e.Payload, &c) == nil && c.Type == thread.TypeExecCancel && c.ExecID == p.ID {
				cancel(errCancelled)
				return client.ErrStop
			}
			return nil
		}, nil)
	}()
	return watched, func() {
		cancel(nil)
		<-done
	}
}

// fire returns the box also with an error, if it has one.
func (h *Host) fire(ctx context.Context, p Posted) (sandbox.Sandbox, error) {
	box, release, err := h.Box(ctx, p)
	if err != nil {
		return nil, err
	}
	defer release()
	hold := lease.OfCommand(p.Thread, p.ID)
	l, err := h.Lease(ctx, box.Ref())
	if err == nil {
		err = l.Hold(ctx, hold)
	}
	if err != nil {
		return box, fmt.Errorf("hold the sandbox %s: %w", box.Ref(), err)
	}
	if err := launch.PutRunner(ctx, box, h.Runner, h.progress); err != nil {
		return box, err
	}
	if err := launch.Outlast(ctx, box, p.Timeout); err != nil {
		return box, err
	}
	env, err := h.environment(box, p)
	if err != nil {
		return box, err
	}
	if err := launch.Reach(ctx, box, env); err != nil {
		return box, err
	}
	cwd := p.Cwd
	if !path.IsAbs(cwd) {
		cwd = path.Join(box.WorkDir(), cwd)
	}
	argv := []string{
		"sh", "-c", launch.InRunnerPath, "sh",
		"exec", "--id", p.ID, "--cwd", cwd, "--timeout", p.Timeout.String(),
	}
	if p.Offset != "" {
		argv = append(argv, "--from", p.Offset)
	}
	if p.Stdin != nil {
		file := sandbox.File{
			Path: ".arbe/exec/" + p.ID + ".stdin", InHome: true, Content: bytes.NewReader(p.Stdin),
			Size: int64(len(p.Stdin)), Mode: 0o600,
		}
		if err := box.Upload(ctx, file); err != nil {
			return box, fmt.Errorf("put stdin into %s: %w", box.Ref(), err)
		}
		argv = append(argv, "--stdin", path.Join(box.Home(), file.Path))
	}
	argv = append(append(argv, "--"), p.Argv...)
	log := launch.CommandLogs + "/" + p.ID + ".log"
	if _, err := box.Detach(ctx, sandbox.Command{Argv: argv, Env: env}, log); err != nil {
		return box, fmt.Errorf("start the command in %s: %w", box.Ref(), err)
	}
	return box, nil
}

// environment returns the variables of a command and the settings of its supervisor.
func (h *Host) environment(box sandbox.Sandbox, p Posted) (map[string]string, error) {
	url, err := h.StreamURL(box.Ref().Provider)
	if err != nil {
		return nil, err
	}
	write, renew, err := h.Tokens(p.Thread, p.ID, p.Author, p.Timeout+margin)
	if err != nil {
		return nil, err
	}
	env := map[string]string{}
	maps.Copy(env, p.Env)
	maps.Copy(env, map[string]string{
		"ARBE_THREAD_ID": p.Thread, "ARBE_SANDBOX": box.Ref().String(), "ARBE_STREAM_URL": url,
		"ARBE_STREAM_TOKEN": write, "ARBE_STREAM_RENEW_TOKEN": renew,
	})
	if len(p.Secrets) > 0 {
		env["ARBE_REDACT"] = strings.Join(slices.Sorted(slices.Values(p.Secrets)), ",")
	}
	if p.Author != "" {
		env["ARBE_AUTHOR_ID"] = p.Author
	}
	return env, nil
}

func (h *Host) progress(step string) {
	if h.Progress != nil {
		h.Progress(step)
	}
}

// NoCommandError is returned by Cancel for a command that is not open.
type NoCommandError struct {
	Thread, ID string
	Ended      bool // the thread has its end
}

func (e *NoCommandError) Error() string {
	if e.Ended {
		return fmt.Sprintf("thread %s has the end of command %s already", e.Thread, e.ID)
	}
	return fmt.Sprintf("thread %s has no command %s", e.Thread, e.ID)
}

// Cancel asks for the end of a command. It returns a *NoCommandError if the thread has none that is open.
func Cancel(ctx context.Context, cl *client.Client, execID, author, reason string) error {
	_, open, known, err := find(ctx, cl, execID)
	switch {
	case err != nil:
		return err
	case !open:
		return &NoCommandError{cl.Thread, execID, known}
	}
	return Ask(ctx, cl, execID, author, reason)
}

// Ask posts a request to end a command, whether it is open or not.
func Ask(ctx context.Context, cl *client.Client, execID, author, reason string) error {
	_, err := cl.Append(ctx, []thread.Entry{{
		ID: uuid.NewString(), TS: thread.Stamp(time.Now()), AuthorID: author,
		Payload: thread.Marshal(thread.ExecCancel{
			Exec: thread.Exec{Type: thread.TypeExecCancel, ExecID: execID}, Reason: reason,
		}),
	}})
	return err
}

// Ended drops the hold of a command in box whose end is on the thread. The hold is void by then: a failure is ignored.
func (h *Host) Ended(ctx context.Context, box sandbox.Ref, r Request) {
	if l, err := h.Lease(ctx, box); err == nil {
		_ = l.Drop(ctx, lease.OfCommand(r.Thread, r.ID).Holder)
	}
}
