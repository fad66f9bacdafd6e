package reconcile_test

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
)

// boxes is a provider whose boxes the test sets.
type boxes struct {
	mu     sync.Mutex
	health map[string]sandbox.Health
	runs   map[string]bool // whether the runner is alive, where the box is asked
	broken error           // of every question
	hang   bool            // no question is answered
	labels map[string]map[string]string
	states map[string]string
	age    time.Duration // of all of them
	gone   []string      // those that were released
	opened []string
	probes atomic.Int64
	lists  atomic.Int64
	most   atomic.Int64 // questions at the same time
	now    atomic.Int64
	asked  func(id string) // while a question is on its way

	deleted func(id string) // before a box is deleted; nil for nothing
	says    string          // the log of each runner
	unread  error           // of the log
}

// hold makes every question from here on fail with err; nil for none.
func (b *boxes) hold(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken = err
}

func (b *boxes) Open(_ context.Context, id string) (sandbox.Sandbox, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opened = append(b.opened, id)
	return &box{id: id, boxes: b}, nil
}

func (b *boxes) Probe(ctx context.Context, id string) (sandbox.Health, string, error) {
	b.probes.Add(1)
	b.most.Store(max(b.most.Load(), b.now.Add(1)))
	defer b.now.Add(-1)
	if b.asked != nil {
		b.asked(id)
	}
	if b.hang {
		<-ctx.Done()
		return sandbox.Unknown, "", context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.states[id] == "error" {
		return sandbox.Gone, "error", b.broken
	}
	health := b.health[id]
	if b.states[id] == "stopped" {
		health = sandbox.Asleep
	}
	return health, cmp.Or(b.states[id], "started"), b.broken
}

func (b *boxes) Runs(_ context.Context, id string, _ sandbox.Process) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.health[id] == sandbox.Gone {
		return false, sandbox.ErrGone
	}
	return b.runs[id], b.broken
}

func (b *boxes) Destroy(_ context.Context, id string) error {
	if b.deleted != nil {
		b.deleted(id)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone = append(b.gone, id)
	delete(b.labels, id)
	return nil
}

func (b *boxes) List(ctx context.Context, labels map[string]string) (all []sandbox.Box, err error) {
	b.lists.Add(1)
	if b.hang {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, has := range b.labels {
		fits := true
		for k, v := range labels {
			fits = fits && has[k] == v
		}
		if fits {
			one := sandbox.Box{
				Ref: sandbox.Ref{
					Provider: "boxes",
					ID:       id,
				}, Labels: has, State: cmp.Or(b.states[id], "started"), Health: sandbox.Live,
				Created: time.Now().Add(-b.age),
			}
			if one.State == "error" {
				one.Health = sandbox.Gone
			}
			all = append(all, one)
		}
	}
	return all, b.broken
}

// box is one of them.
type box struct {
	sandbox.Sandbox
	id    string
	boxes *boxes
}

// Exec runs the script that reads the runner's log, in a home folder with that log.
func (b *box) Exec(ctx context.Context, c sandbox.Command) (sandbox.Result, error) {
	if b.boxes.unread != nil {
		return sandbox.Result{ExitCode: -1}, b.boxes.unread
	}
	home, err := os.MkdirTemp("", "")
	if err != nil {
		return sandbox.Result{}, err
	}
	defer os.RemoveAll(home)
	log := filepath.Join(home, sandbox.RunnerLog)
	err = errors.Join(os.MkdirAll(filepath.Dir(log), 0o700), os.WriteFile(log, []byte(b.boxes.says), 0o600))
	if err != nil {
		return sandbox.Result{}, err
	}
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
	out, err := cmd.Output()
	return sandbox.Result{Stdout: out}, err
}
