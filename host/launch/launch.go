// Package launch provisions a box, puts the runner into it, fires it and leaves.
//
// The order is the design. The prompt and the run's beginning are on the thread before there is a box, the box's name before there is a runner: whenever this
// process dies, what is left is a thread that says so, and that reconcile settles. From the moment that the runner is fired nothing hangs on the host.
//
//  1. <run>.prompt, <run>.running
//  2. the box: the one that the thread's last run had, where it lives and that is wanted, or a new one with the repository in it
//  3. <run>.sandbox
//  4. what the run needs there: the runner, the agent, the user's files, and the user's own setup
//  5. the runner, detached; its token is in its environment and nowhere else
//
// A launch that fails says so on the thread, as provisionally as all that the host says of a run, and takes its own new box away again.
package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/thread"
)

// Task is what is to be launched.
type Task struct {
	Thread string // the thread's id; it need not exist yet
	Run    string // the run's id
	Author string // of the prompt; "" for none
	Parent *thread.Parent
	Prompt string

	Harness string
	Model   string   // "" for the agent's own choice
	Args    []string // more arguments for the agent

	Resume  bool // go on with the thread's last run, in its box where that lives
	Hydrate bool // and from the thread in any case

	Box   sandbox.Options   // of a new box; the labels are added to
	Env   map[string]string // of the agent
	Files []Inline          // in the box user's home folder
	Dir   *Folder           // a folder of this machine that is worked on in the box; nil for none
	Setup Setup
}

// Inline is a small file to make in the box.
type Inline struct {
	Path      string // relative to the home folder
	Content   []byte
	Sensitive bool // for its owner alone
}

// Setup are the user's own commands, run one after the other in the working directory before the runner.
type Setup struct {
	Commands []string // for sh
	Env      map[string]string
	Timeout  time.Duration // of each; 0: 10 minutes
}

// Agent is how the agent is had in a box: the name of its program, and the npm package that has it.
type Agent struct{ Program, Package string }

// Launcher is what a launch needs of its host. All fields but Progress and Log are required.
type Launcher struct {
	Provider sandbox.Provider
	Agent    Agent
	// Client posts to and reads the thread from here.
	Client *thread.Client
	// Tokens makes the runner's tokens: to write, and to get fresh ones with.
	Tokens func(threadID, runID string) (write, renew string, err error)
	// StreamURL is where the box reaches the thread server.
	StreamURL string
	// Runner is the path of the runner's binary for an architecture ("amd64", "arm64").
	Runner func(arch string) (string, error)
	// RunnerEnv are more of the runner's own variables (ARBE_…).
	RunnerEnv map[string]string

	Progress func(step string) // is told what is being done
	Log      *slog.Logger
}

// Launched is what was launched.
type Launched struct {
	Thread  string          `json:"threadId"`
	Run     string          `json:"runId"`
	Sandbox sandbox.Ref     `json:"sandbox"`
	Process sandbox.Process `json:"process"` // of the runner, in the box
	Resume  string          `json:"resume"`  // none, continue or hydrate: what the runner was told
	WorkDir string          `json:"workDir"`

	Box sandbox.Sandbox `json:"-"`
}

// sayFor is how long the farewell of a launch that failed may take, with the thread and with the box.
const sayFor = 30 * time.Second

// Launch launches the task. An error after the thread knows of the run is on the thread, too.
func (l *Launcher) Launch(ctx context.Context, t Task) (Launched, error) {
	done := Launched{Thread: t.Thread, Run: t.Run, Resume: "none"}
	if strings.TrimSpace(t.Prompt) == "" {
		return done, errors.New("the task is empty")
	}
	before, err := l.history(ctx)
	if err != nil {
		return done, err
	}
	if err := l.announce(ctx, t); err != nil {
		return done, err
	}
	fresh := false
	box, err := l.box(ctx, t, before, &fresh, &done)
	if err == nil {
		done.Sandbox, done.WorkDir, done.Box = box.Ref(), box.WorkDir(), box
		err = l.post(ctx, l.entry(t, t.Run+".sandbox", thread.SandboxOf{
			Signal: t.signal(thread.TypeSandbox), Parent: t.Parent,
			Sandbox: thread.Box{Sandbox: thread.Sandbox{Provider: box.Ref().Provider, Ref: box.Ref().ID}, Ephemeral: t.Box.Ephemeral},
		}))
	}
	if err == nil {
		err = l.prepare(ctx, t, box)
	}
	if err == nil {
		l.progress("starting the runner")
		done.Process, err = l.fire(ctx, t, box, done.Resume)
	}
	if err != nil {
		return done, errors.Join(err, l.failed(context.WithoutCancel(ctx), t, box, fresh, err))
	}
	return done, nil
}

// history is what the thread's runs so far came to.
func (l *Launcher) history(ctx context.Context) (*thread.Fold, error) {
	var fold thread.Fold
	_, err := l.Client.Read(ctx, "0", false, func(e thread.Entry) error { fold.Add(e); return nil })
	if err != nil && !thread.NotFound(err) {
		return nil, fmt.Errorf("read the thread: %w", err)
	}
	if r, ok := fold.Latest(); ok && r.Status == thread.StatusRunning {
		return nil, fmt.Errorf("thread %s has a run that is still running (%s): wait for it, arbe cancel it, or arbe reconcile it where it is dead", l.Client.Thread, r.ID)
	}
	return &fold, nil
}

// announce tells the thread of the run. An entry that is there already was delivered before.
func (l *Launcher) announce(ctx context.Context, t Task) error {
	for _, e := range []thread.Entry{
		l.entry(t, t.Run+".prompt", thread.Chat{Type: thread.TypeChat, Text: t.Prompt, RunID: t.Run}),
		l.entry(t, t.Run+".running", thread.StatusChanged{Signal: t.signal(thread.TypeStatus), Status: thread.StatusRunning}),
	} {
		if err := l.post(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

func (t Task) signal(typ string) thread.Signal {
	return thread.Signal{Type: typ, RunID: t.Run, Harness: t.Harness}
}

func (l *Launcher) entry(t Task, id string, payload any) thread.Entry {
	return thread.Entry{ID: id, TS: thread.Stamp(time.Now()), AuthorID: t.Author, Payload: thread.Marshal(payload)}
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

// box is the box of the run.
func (l *Launcher) box(ctx context.Context, t Task, before *thread.Fold, fresh *bool, done *Launched) (sandbox.Sandbox, error) {
	if t.Resume {
		if done.Resume = "hydrate"; !t.Hydrate {
			done.Resume = "continue"
		}
		if box := l.former(ctx, before); box != nil {
			return box, nil
		}
		done.Resume = "hydrate" // a new box has nothing but the thread
	}
	l.progress("making a %s sandbox", l.Provider.Name())
	o := t.Box
	o.Labels = map[string]string{sandbox.LabelThread: t.Thread}
	if o.Ephemeral {
		o.Labels[sandbox.LabelEphemeral] = "true"
	}
	maps.Copy(o.Labels, t.Box.Labels)
	o.Progress = func(step string) { l.progress("%s", step) }
	box, err := l.Provider.Create(ctx, o)
	*fresh = err == nil
	if err != nil {
		return nil, fmt.Errorf("make a sandbox: %w", err)
	}
	return box, nil
}

// former is the box of the thread's last run that had one, where it lives; nil where a new one is needed.
func (l *Launcher) former(ctx context.Context, before *thread.Fold) sandbox.Sandbox {
	runs := before.Runs()
	for i := len(runs) - 1; i >= 0; i-- {
		ref := runs[i].Sandbox
		if ref == nil {
			continue
		}
		if ref.Provider != l.Provider.Name() {
			l.progress("the thread's sandbox is %s:%s; making another one", ref.Provider, ref.Ref)
			return nil
		}
		health, why, err := l.Provider.Probe(ctx, ref.Ref)
		if err == nil && health == sandbox.Live {
			var box sandbox.Sandbox
			if box, err = l.Provider.Open(ctx, ref.Ref); err == nil {
				l.progress("going on in the sandbox %s", box.Ref())
				return box
			}
		}
		if err != nil {
			why = err.Error()
		}
		l.progress("the sandbox %s:%s is %s (%s); making another one", ref.Provider, ref.Ref, health, why)
		return nil
	}
	return nil
}

// redactor knows what was handed to the box and must not be on the thread: a command may have printed it.
func (t Task) redactor() *thread.Redactor {
	environ := []string{"GITHUB_TOKEN=" + t.Box.Token}
	var names []string
	for _, env := range []map[string]string{t.Env, t.Setup.Env} {
		for name, value := range env {
			environ, names = append(environ, name+"="+value), append(names, name)
		}
	}
	return thread.NewRedactor(environ, names)
}

// failed tells the thread that the launch has failed, and takes the box away that was made for it.
func (l *Launcher) failed(ctx context.Context, t Task, box sandbox.Sandbox, fresh bool, cause error) error {
	ctx, cancel := context.WithTimeout(ctx, sayFor)
	defer cancel()
	var err error
	if fresh {
		err = box.Destroy(ctx)
	}
	said := l.post(ctx,
		l.entry(t, t.Run+".orphan.0", thread.Failed{Signal: t.signal(thread.TypeFailed), ErrorClass: outcome.ClassLaunch, Message: t.redactor().Text(cause.Error())}),
		l.entry(t, t.Run+".orphan.1", thread.StatusChanged{Signal: t.signal(thread.TypeStatus), Status: thread.StatusFailed}))
	return errors.Join(err, said)
}
