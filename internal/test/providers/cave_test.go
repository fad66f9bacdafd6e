package providers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/kit"
	"arbe.0sk.ar/runner/internal/procfs"
	"arbe.0sk.ar/runner/internal/test/surroundings"
)

// cave is the invented provider. Its boxes are folders, their labels are plain strings, and it freezes them without
// being asked. They have one folder, and no workspace around it.
type cave struct {
	t     *testing.T
	dir   string
	agent string // the folder of the agent's program

	mu    sync.Mutex
	boxes map[string]*hole
	woken int
}

// hole is one of its boxes.
type hole struct {
	cave   *cave
	id     string
	labels []string
	born   time.Time

	frozen   bool // guarded by the cave's mu, as detached is
	detached []sandbox.Process
}

// caveVariable is the variable that the provider needs.
const caveVariable = "CAVE_TORCH"

// kind returns the kind of its boxes.
func (c *cave) kind() sandbox.Kind {
	return sandbox.Kind{
		Name: "cave", Summary: "a hole in a rock", Traits: c.Traits(),
		Takes: []sandbox.Option{sandbox.OptionVolumes},
		Needs: []sandbox.Variable{{Name: caveVariable, Meaning: "a light", Required: true, Secret: true}},
		Open: func(on sandbox.Setting) (sandbox.Provider, error) {
			if on.Getenv(caveVariable) == "" {
				return nil, errors.New("it is dark: set " + caveVariable)
			}
			return c, nil
		},
	}
}

func (c *cave) Name() string { return "cave" }

func (c *cave) Traits() sandbox.Traits {
	return sandbox.Traits{Isolated: true, Wakes: true, Survives: true}
}

func (c *cave) Check(o sandbox.Options) error { return c.kind().Refuse(o) }

func (c *cave) Works(context.Context) (string, error) { return "cave 1", nil }

func (c *cave) Create(_ context.Context, o sandbox.Options) (sandbox.Sandbox, error) {
	if err := c.Check(o); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	b := &hole{cave: c, id: fmt.Sprintf("hole-%d", len(c.boxes)+1), born: time.Now()}
	for name, value := range o.AllLabels() {
		b.labels = append(b.labels, name+"="+value)
	}
	c.boxes[b.id] = b
	return b, errors.Join(os.MkdirAll(b.WorkDir(), 0o755), os.MkdirAll(b.Home(), 0o755))
}

func (c *cave) at(id string) (*hole, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.boxes[id]
	if b == nil {
		return nil, fmt.Errorf("open the hole %s: %w", id, sandbox.ErrGone)
	}
	return b, nil
}

func (c *cave) Open(ctx context.Context, id string) (sandbox.Sandbox, error) {
	b, err := c.at(id)
	if err == nil {
		err = c.Wake(ctx, id)
	}
	return b, err
}

func (c *cave) Destroy(_ context.Context, id string) error {
	b, err := c.at(id)
	if err != nil {
		return nil
	}
	b.signal(syscall.SIGKILL)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.boxes, id)
	return os.RemoveAll(filepath.Join(c.dir, id))
}

func (c *cave) Probe(_ context.Context, id string) (sandbox.Health, string, error) {
	b, err := c.at(id)
	switch {
	case err != nil:
		return sandbox.Gone, "fallen in", nil
	case b.cold():
		return sandbox.Frozen, "frozen", nil
	}
	return sandbox.Live, "warm", nil
}

func (c *cave) Runs(ctx context.Context, id string, p sandbox.Process) (bool, error) {
	b, err := c.at(id)
	switch {
	case err != nil:
		return false, err
	case b.cold():
		return false, fmt.Errorf("look into the hole %s: %w", id, sandbox.ErrFrozen)
	}
	return kit.Ask(b.ask).Runs(ctx, p)
}

func (c *cave) List(_ context.Context, labels map[string]string) (all []sandbox.Box, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.boxes {
		own := map[string]string{}
		for _, text := range b.labels {
			name, value, _ := strings.Cut(text, "=")
			own[name] = value
		}
		if sandbox.Matches(own, labels) {
			box := sandbox.Box{Ref: b.Ref(), State: "warm", Health: sandbox.Live, Labels: own, Created: b.born}
			if b.frozen {
				box.State, box.Health = "frozen", sandbox.Frozen
			}
			all = append(all, box)
		}
	}
	return all, nil
}

// freeze stops all that runs in a box.
func (c *cave) freeze(id string) {
	b, err := c.at(id)
	if err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	b.frozen = true
	c.mu.Unlock()
	b.signal(syscall.SIGSTOP)
}

// Wake makes it a sandbox.Waker.
func (c *cave) Wake(_ context.Context, id string) error {
	b, err := c.at(id)
	if err != nil {
		return err
	}
	c.mu.Lock()
	was := b.frozen
	if b.frozen = false; was {
		c.woken++
	}
	c.mu.Unlock()
	if was {
		b.signal(syscall.SIGCONT)
	}
	return nil
}

func (c *cave) wakes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.woken
}

func (b *hole) cold() bool {
	b.cave.mu.Lock()
	defer b.cave.mu.Unlock()
	return b.frozen
}

// all returns the processes that Detach has started in the box, and those below them.
func (b *hole) all() (pids []int) {
	b.cave.mu.Lock()
	defer b.cave.mu.Unlock()
	for _, p := range b.detached {
		if s, err := procfs.Read(p.PID); err != nil || !kit.Is(s, p) {
			continue
		}
		pids = append(pids, p.PID)
		for _, below := range surroundings.Descendants(p.PID) {
			pids = append(pids, below.PID)
		}
	}
	return pids
}

// signal sends a signal to all that runs in the box, until a look finds no process that has not got it.
func (b *hole) signal(sig syscall.Signal) {
	sent := map[int]bool{}
	for fresh := true; fresh; {
		fresh = false
		for _, pid := range b.all() {
			if !sent[pid] {
				sent[pid], fresh = true, true
				_ = syscall.Kill(pid, sig) // it may have ended
			}
		}
	}
}

func (b *hole) Ref() sandbox.Ref { return sandbox.Ref{Provider: "cave", ID: b.id} }
func (b *hole) WorkDir() string  { return filepath.Join(b.cave.dir, b.id, "floor") }
func (b *hole) Home() string     { return filepath.Join(b.cave.dir, b.id, "bed") }

func (b *hole) command(ctx context.Context, c sandbox.Command, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdin = b.WorkDir(), c.Stdin
	cmd.Env = []string{"HOME=" + b.Home(), "PATH=" + b.cave.agent + ":" + os.Getenv("PATH")}
	for name, value := range c.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

func (b *hole) Exec(ctx context.Context, c sandbox.Command) (sandbox.Result, error) {
	out := kit.NewCapture(c)
	cmd := b.command(ctx, c, c.Argv...)
	cmd.Stdout, cmd.Stderr = stream{out, sandbox.Stdout}, stream{out, sandbox.Stderr}
	err := cmd.Run()
	res := sandbox.Result{}
	out.Fill(&res)
	if ended, is := errors.AsType[*exec.ExitError](err); is {
		res.ExitCode, err = ended.ExitCode(), nil
	}
	return res, err
}

// stream is one output of a command.
type stream struct {
	to *kit.Capture
	of sandbox.Stream
}

func (s stream) Write(b []byte) (int, error) {
	s.to.Add(s.of, b)
	return len(b), nil
}

func (b *hole) Detach(ctx context.Context, c sandbox.Command, log string) (sandbox.Process, error) {
	argv := append([]string{
		"sh", "-c", kit.DetachScript, "sh", b.WorkDir(), filepath.Join(b.Home(), log),
	}, c.Argv...)
	output, err := b.command(ctx, c, argv...).CombinedOutput()
	if err != nil {
		return sandbox.Process{}, fmt.Errorf("detach: %w: %s", err, output)
	}
	p, err := kit.ParseDetached(string(output))
	b.cave.mu.Lock()
	b.detached = append(b.detached, p)
	b.cave.mu.Unlock()
	return p, err
}

func (b *hole) ask(ctx context.Context, doing, script string, args ...string) (string, int, error) {
	res, err := b.Exec(ctx, sandbox.Command{Argv: append([]string{"sh", "-c", script, "sh"}, args...)})
	if err != nil {
		return "", -1, fmt.Errorf("%s: %w", doing, err)
	}
	return string(res.Stdout) + string(res.Stderr), res.ExitCode, nil
}

func (b *hole) Upload(_ context.Context, files ...sandbox.File) error {
	for _, f := range files {
		place, err := f.Place(b.WorkDir(), b.Home())
		if err != nil {
			return err
		}
		content, err := io.ReadAll(f.Reader())
		if err == nil {
			err = os.MkdirAll(filepath.Dir(place), 0o755)
		}
		temp := kit.TempName(place)
		if err == nil {
			syscall.ForkLock.RLock() // a child that is forked meanwhile would have the program open for writing
			err = os.WriteFile(temp, content, f.Perm())
			syscall.ForkLock.RUnlock()
		}
		if err == nil {
			err = os.Rename(temp, place)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *hole) Download(_ context.Context, path string, w io.Writer) error {
	data, err := os.ReadFile(filepath.Join(b.Home(), path))
	if err == nil {
		_, err = w.Write(data)
	}
	return err
}
