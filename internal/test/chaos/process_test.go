package chaos_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"

	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// runnerSum is the digest of the runner that the boxes have: it is never uploaded.
var runnerSum = hex.EncodeToString(func() []byte { s := sha256.Sum256([]byte("runner")); return s[:] }())

// process is an arbe that may be killed.
type process struct {
	w      *world
	name   string
	ctx    context.Context
	cancel context.CancelFunc
	mu     sync.Mutex
	steps  int
	killAt int // 0: never
	killed bool

	hand  bool // it removes boxes by hand: what is unsaved stays, however old
	force bool // it may delete whatever there is
}

func (w *world) process(name string, killAt int) *process {
	p := &process{w: w, name: name, killAt: killAt}
	p.ctx, p.cancel = context.WithCancel(w.ctx)
	return p
}

// step counts a call that leaves the process. At one of them it is killed, with the call carried out or not.
func (p *process) step() (dies, applied bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.steps++; p.killed || p.killAt == 0 || p.steps != p.killAt {
		return false, false
	}
	p.killed = true
	p.cancel()
	return true, p.w.rand(2) == 0
}

func (p *process) dead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}

// killAt draws the step at which a process is killed; often it is not.
func (w *world) killAt(most int) int {
	if w.rand(3) == 0 {
		return 0
	}
	return 1 + w.rand(most)
}

// launch is arbe launch, or arbe run where it is attached.
func (w *world) launch(p *process, task launch.Task, attached bool) {
	key := task.Thread + "/" + task.Run
	w.set(func() { w.launching[key] = p })
	holder := ""
	if attached {
		holder = lease.NewHolder(lease.KindWatches)
	}
	l := w.launcher(p, task.Thread)
	l.Attached = holder
	done, err := l.Launch(p.ctx, task)
	w.set(func() { delete(w.launching, key) })
	w.note("%s: launched %s: %v", p.name, task.Run, err)
	if err != nil || !attached {
		return
	}
	hold := lease.OnStream{Client: w.client(p, lease.Stream(done.Sandbox))}
	// A killed process drops nothing: it has no network.
	defer lease.Keep(p.ctx, hold, rows.Hold{Holder: holder, ThreadID: task.Thread, RunID: task.Run, TTL: lease.TTL})()
	for p.ctx.Err() == nil {
		var fold thread.Fold
		_, err := l.Client.Read(p.ctx, "0", false, func(e thread.Entry) error { fold.Add(e); return nil })
		for _, r := range fold.Runs() {
			if err == nil && r.ID == task.Run && r.Status != thread.StatusRunning {
				_, err := w.reconciler(p).After(p.ctx, task.Thread, task.Run, holder)
				w.note("%s: after %s: %v", p.name, task.Run, err)
				return
			}
		}
		sleepIn(p.ctx, time.Minute)
	}
}

// launcher returns what launches on a thread.
func (w *world) launcher(p *process, id string) *launch.Launcher {
	return &launch.Launcher{
		Provider: view{w.cloud, p}, Client: w.client(p, id), StreamURL: "http://threads.test",
		Boxes:  func(id string) *client.Client { return w.client(p, id) },
		Agent:  launch.Agent{Program: "pi", Package: "pi"},
		Tokens: func(string, string, string) (string, string, error) { return "w", "r", nil },
		Runner: func(string) (string, error) { return w.runner, nil },
	}
}

func (w *world) reconciler(p *process) *reconcile.Reconciler {
	return &reconcile.Reconciler{
		Rows:      w.rowsOf(p),
		Client:    func(id string) (*client.Client, error) { return w.client(p, id), nil },
		Providers: map[string]reconcile.Provider{"cloud": view{w.cloud, p}},
		Host: reconcile.Host{
			Push: func(ctx context.Context, box sandbox.Sandbox, _ string, run thread.Run, _ string) thread.Pushed {
				out := thread.Pushed{Branch: run.After.Push.Branch, Error: "the remote fails"}
				_ = view{w.cloud, p}.call(ctx, func() error {
					time.Sleep(time.Duration(w.rand(int(5 * time.Minute))))
					w.set(func() { w.pushed[out.Branch] = true })
					box.(*room).m.change(func(c *condition) { c.unsaved = false })
					out.Pushed, out.Error = true, ""
					return nil
				})
				return out
			},
			Unsaved: unsaved,
		},
	}
}

// unsaved describes work in a box that is nowhere else.
func unsaved(_ context.Context, box sandbox.Sandbox, _ sandbox.Box) (string, error) {
	if box.(*room).m.look().unsaved {
		return "changes", nil
	}
	return "", nil
}
