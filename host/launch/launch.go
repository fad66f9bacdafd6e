// Package launch provisions a box, uploads the runner, and starts it detached.
//
// The order is the design. The prompt and the run's beginning are on the thread before the box exists, and the box's
// name before the runner exists. If this process dies, the thread shows how far it came, and reconcile settles it. Once
// the runner is started the run does not depend on the host.
//
//  1. run.<k>, <run>.prompt, <run>.running: the claim to be the thread's k-th run, and the run. Only one of two
//     launches gets it.
//  2. the box: that of the thread's last run, if it is live and the task resumes, or a new one. The run holds its
//     lease.
//  3. <run>.sandbox, with the work after the run.
//  4. the content of the box: the runner, the agent, the user's files and setup. Each step is on the thread.
//  5. one question to the thread server from inside the box, by the runner and with its token. A box that can't reach
//     the server, or whose token is refused, is a launch that fails.
//  6. the runner, detached. Its token is in its environment and nowhere else.
//
// A launch that fails posts a provisional end, and deletes the box that it made, unless a runner may run in it, or the
// row of the box is live: other threads may use it then.
package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/reap"
	"arbe.0sk.ar/runner/host/resolve"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
	"arbe.0sk.ar/runner/thread/redact"
)

// Task is the run to launch.
type Task struct {
	Thread string // the thread's id; it need not exist yet
	Run    string // the run's id
	Exec   string // in place of Run: the command for which CommandBox makes a box
	Queued bool   // the task has waited in a queue, where a request to cancel could reach it
	Author string // of the prompt; "" for none
	Driver string // the author of what the agent writes; "" for Author
	Parent *thread.Parent
	Prompt string        // "" for a live run that waits for its first chat
	After  *thread.After // the work after the run; nil for none

	Harness string
	Model   string   // "" for the agent's own choice
	Args    []string // more arguments for the agent

	Resume  bool // continue the thread's last session, in its box if that is live
	Hydrate bool // with Resume: always rebuild the session from the thread

	Live bool          // the run takes chats while it lasts
	Idle time.Duration // of a live run: how long its agent waits for a chat; 0 for the runner's default

	Limit    time.Duration // the agent is ended after this time; 0: the runner's own guard
	LimitWhy string        // the reason for Limit, in the message of such an end; "" for none
	// Environment is the environment of a new box, for a launch with Rows; "" for the thread's, or its house's default.
	Environment string

	Box sandbox.Options   // of a new box; the launch adds labels. AutoStop 0: the least that the run needs
	Env map[string]string // of the agent
	// Secrets returns more variables of the agent, whose values are removed from all that is posted; nil for none. It
	// is called before a box is made, and its error ends the launch. A variable of Env outranks one of the same name.
	Secrets func(ctx context.Context) (map[string]string, error)
	Files   []File // secrets in the box user's home folder
	Dir     Tree   // a folder of this host to copy into the box; nil for none
	Setup   Setup
	Make    Make // what a new box gets first, by its environment
}

// Setup is the user's own commands. They run one after the other in the working directory, before the runner.
type Setup struct {
	Commands []string // for sh
	Env      map[string]string
}

// Agent is the name of the agent's program, and the npm package that installs it.
type Agent struct{ Program, Package string }

// Provider is the provider of a launch's boxes.
type Provider interface {
	// Create makes a box, with the repository in it. A Create that fails leaves no box.
	Create(ctx context.Context, o sandbox.Options) (sandbox.Sandbox, error)
	// Name is the provider's part of a sandbox.Ref.
	Name() string
	reap.Provider
}

// Launcher launches runs with the resources of its host. All fields but Begun and Progress are required.
type Launcher struct {
	Provider Provider
	Agent    Agent
	// Client is the host's client of the thread.
	Client *client.Client
	// Boxes returns a client of the stream with a box's lease.
	Boxes func(threadID string) *client.Client
	// Tokens signs the runner's tokens: one to write, and one to renew that. Both are bound to the thread, the run and
	// the author of its entries; "" for none.
	Tokens func(threadID, runID, author string) (write, renew string, err error)
	// StreamURL is the address of the thread server as the box reaches it.
	StreamURL string
	// Runner returns the path of the runner's binary for an architecture ("amd64", "arm64").
	Runner func(arch string) (string, error)

	// Rows resolves the box of a thread that has a row; nil for a launch without rows. Then the box is that of the
	// thread's last run, if the task resumes, or a new one.
	Rows *resolve.Resolver
	// Continued reports that this launch, which has failed, will be repeated with the same run. Then no failure is
	// posted: the run stays open, without a box, and the repeat continues it. nil for never.
	Continued func(ctx context.Context, err error) bool

	// Attached is this host's own hold of the box, for the work after the run; "" for none. The caller renews it.
	Attached string
	// WaitEvery is the interval of signals during a long step; 0: 30 s.
	WaitEvery time.Duration

	Begun    func()            // called once the run is on the thread; nil for none
	Progress func(step string) // receives each step; nil for none
}

// Launched is the result of a launch.
type Launched struct {
	Thread  string          `json:"threadId"`
	Run     string          `json:"runId"`
	Sandbox sandbox.Ref     `json:"sandbox"`
	Process sandbox.Process `json:"process"` // of the runner, in the box
	Resume  string          `json:"resume"`  // none, continue or hydrate
	WorkDir string          `json:"workDir"`

	Box    sandbox.Sandbox `json:"-"`
	Lease  lease.Lease     `json:"-"` // of the box
	Offset string          `json:"-"` // of the thread: the run's entries come behind it

	Attached string `json:"-"` // the Launcher's
}

// cleanupTimeout bounds the cleanup of a launch that failed.
const cleanupTimeout = 30 * time.Second

// BusyError is returned if the thread has an open run, or another launch was first.
type BusyError struct{ Thread, Run string }

func (e *BusyError) Error() string {
	const text = "thread %s has a run that is still running (%s): wait for it, or end it with arbe cancel; " +
		"if it is dead, use arbe reconcile"
	return fmt.Sprintf(text, e.Thread, e.Run)
}

// ErrRow is returned by a launch without Rows for a thread whose box has a row.
var ErrRow = errors.New("it has a row in a database that this launch does not use: set ARBE_DATABASE or use --database")

// launching is a launch under way.
type launching struct {
	*Launcher
	Task
	server client.Health
	thread log
	steps  *steps
	row    *resolve.Box // of the thread's row; nil without rows, or before it is known
	fired  bool         // the runner may have been started: its answer is lost
	again  bool         // an earlier launch has begun the run, and not started its runner

	secrets map[string]string // what Secrets has returned

	redact *redact.Redactor // of the secrets that are known; never nil

	outputMu sync.Mutex
	outputs  [2]shown // of the command that runs
}

// Launch launches the task. An error after the run's first entry is posted on the thread, too. A *BusyError and ErrRow
// mean that the launch changed nothing. A run that an earlier launch has left open is continued, and one that has
// started, or has ended, is ErrLaunched.
func (l *Launcher) Launch(ctx context.Context, t Task) (Launched, error) {
	done := Launched{Thread: t.Thread, Run: t.Run, Resume: "none", Attached: l.Attached}
	if strings.TrimSpace(t.Prompt) == "" && !t.Live {
		return done, errors.New("the task is empty")
	}
	if _, err := t.autoStop(); err != nil {
		return done, err
	}
	g, err := l.look(ctx, t)
	if err != nil {
		return done, err
	}
	done.Offset = cmp.Or(g.thread.next, "0")
	if err := g.rowless(ctx); err != nil {
		return done, err
	}
	if err := g.begin(ctx); err != nil {
		return done, g.unbegun(ctx, err)
	}
	if l.Begun != nil {
		l.Begun()
	}
	if err := g.resolve(ctx); err != nil {
		return done, g.redact.Error(errors.Join(err, g.end(ctx, nil, false, err)))
	}
	g.steps = newSteps(g)
	box, fresh, err := g.provision(ctx, &done)
	if err != nil {
		return done, g.redact.Error(errors.Join(err, g.end(ctx, box, fresh, err)))
	}
	return done, nil
}

func (l *Launcher) launching(t Task, server client.Health) *launching {
	return &launching{Launcher: l, Task: t, server: server, redact: t.redactor()}
}

// resolve adds the secrets to the agent's variables.
func (g *launching) resolve(ctx context.Context) error {
	if g.Secrets == nil {
		return nil
	}
	secrets, err := g.Secrets(ctx)
	if err != nil {
		return fmt.Errorf("read the secrets: %w", err)
	}
	env := map[string]string{}
	maps.Copy(env, secrets)
	maps.Copy(env, g.Env)
	g.Env, g.secrets = env, secrets
	g.redact = g.redactor()
	for i := range g.Make.Repositories {
		r := &g.Make.Repositories[i]
		r.Token = cmp.Or(r.Token, secrets["GITHUB_TOKEN"])
	}
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		if strings.HasPrefix(name, "ARBE_") {
			return fmt.Errorf("the secret %s: variables that begin with ARBE_ are the runner's", name)
		}
	}
	return nil
}

// provision makes the box and its content, and starts the runner.
func (g *launching) provision(ctx context.Context, done *Launched) (box sandbox.Sandbox, fresh bool, err error) {
	if box, fresh, err = g.box(ctx, done); err != nil {
		return nil, false, err
	}
	done.Sandbox, done.WorkDir, done.Box = box.Ref(), box.WorkDir(), box
	if err := g.name(ctx, box.Ref()); err != nil {
		return box, fresh, err
	}
	if !fresh {
		if err := Outlast(ctx, box, g.longest()); err != nil {
			return box, fresh, err
		}
	}
	if err := g.prepare(ctx, box, fresh); err != nil {
		return box, fresh, err
	}
	env, err := g.environment(box)
	if err != nil {
		return box, fresh, err
	}
	// Before other threads can use the box.
	reach := func() error { return Reach(ctx, box, env) }
	if err := g.steps.do(ctx, "", "asking in the sandbox for the thread server", reach); err != nil {
		return box, fresh, err
	}
	if g.row != nil {
		if err := g.row.Ready(ctx); err != nil {
			return box, fresh, err
		}
	}
	// A reconciler may have ended a launch that was suspended for long, and released its box.
	if err := g.thread.read(ctx, g.Client); err != nil {
		return box, fresh, err
	}
	if status := g.thread.status(g.Run); status != thread.StatusRunning {
		return box, fresh, fmt.Errorf("the run was ended during its launch: it is %s", status)
	}
	if g.cancelled() {
		return box, fresh, ErrCancelled
	}
	if g.row != nil { // its provider may have called it gone for a while, and another host has replaced it
		if err := g.row.Lease.Hold(ctx, lease.OfRun(g.Thread, g.Run)); err != nil {
			return box, fresh, fmt.Errorf("hold the sandbox %s: %w", box.Ref(), err)
		}
	}
	g.progress("starting the runner")
	if done.Process, err = g.fire(ctx, box, done.Resume, env); err != nil {
		// The runner may be running although the answer is lost. Those of other threads may be in the box, too.
		runs, lerr := g.runs(context.WithoutCancel(ctx), box.Ref().ID, sandbox.Process{Run: g.Run})
		if lerr == nil && runs {
			g.progress("the runner is running although its start failed: %v", err)
			return box, fresh, nil
		}
		g.fired = lerr != nil
	}
	return box, fresh, err
}

// looks bounds the queries of a box that does not answer.
const looks = 3

// runs reports whether a process, or any runner, is alive in a box.
func (g *launching) runs(ctx context.Context, id string, p sandbox.Process) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	for n := 1; ; n++ {
		is, err := reap.Runs(ctx, g.Provider, id, p)
		if err == nil || n == looks || ctx.Err() != nil {
			return is, err
		}
		pause.For(ctx, time.Duration(n)*time.Second)
	}
}

func (g *launching) signal(typ string) thread.Signal {
	return thread.Signal{Type: typ, RunID: g.Run, Harness: g.Harness}
}

func (g *launching) entry(id string, payload any) thread.Entry {
	return thread.Entry{ID: id, TS: thread.Stamp(time.Now()), AuthorID: g.Author, Payload: thread.Marshal(payload)}
}

func (l *Launcher) post(ctx context.Context, entries ...thread.Entry) error {
	if _, err := l.Client.Append(ctx, entries); err != nil {
		return fmt.Errorf("post to the thread: %w", err)
	}
	return nil
}

func (l *Launcher) progress(format string, args ...any) {
	if l.Progress != nil {
		l.Progress(fmt.Sprintf(format, args...))
	}
}

// failed posts the failure of the launch, or its end by ErrCancelled, and deletes the box that was made for it. A box
// in which the runner may run is left to reconcile, which looks for the runner's process.
func (g *launching) failed(ctx context.Context, box sandbox.Sandbox, fresh bool, cause error) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	err := g.giveUp(ctx, box, fresh)
	if errors.Is(cause, ErrCancelled) {
		posted := g.post(ctx, g.cancelledEnd())
		return errors.Join(err, posted, g.endRow(ctx, thread.StatusCancelled, posted))
	}
	posted := g.post(ctx,
		g.entry(g.Run+".orphan.0", thread.Failed{
			Signal: g.signal(thread.TypeFailed), ErrorClass: outcome.ClassLaunch,
			Message: g.redact.Text(cause.Error()),
		}),
		g.entry(g.Run+".orphan.1", thread.StatusChanged{
			Signal: g.signal(thread.TypeStatus), Status: thread.StatusFailed,
		}))
	return errors.Join(err, posted, g.endRow(ctx, thread.StatusFailed, posted))
}
