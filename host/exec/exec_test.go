package exec_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/exec"
	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// machine is a box that runs nothing, its lease, and its provider.
type machine struct {
	sandbox.Sandbox
	mu      sync.Mutex
	health  sandbox.Health
	started []sandbox.Command
	fails   error // of Detach
	detach  func()
	holds   map[string]rows.Hold
	gone    bool // released
}

func newMachine() *machine { return &machine{health: sandbox.Live, holds: map[string]rows.Hold{}} }

func (m *machine) Ref() sandbox.Ref { return sandbox.Ref{Provider: "cloud", ID: "b1"} }
func (m *machine) WorkDir() string  { return "/w" }

func (m *machine) Exec(context.Context, sandbox.Command) (sandbox.Result, error) {
	return sandbox.Result{Stdout: []byte("x86_64\n\n")}, nil
}

func (m *machine) Upload(_ context.Context, files ...sandbox.File) error {
	for _, f := range files {
		if _, err := io.Copy(io.Discard, f.Content); err != nil {
			return err
		}
	}
	return nil
}

func (m *machine) Detach(_ context.Context, c sandbox.Command, _ string) (sandbox.Process, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.started = append(m.started, c); m.detach != nil {
		m.detach()
	}
	return sandbox.Process{PID: 7}, m.fails
}

func (m *machine) Open(context.Context, string) (sandbox.Sandbox, error) { return m, nil }

func (m *machine) Probe(context.Context, string) (sandbox.Health, string, error) {
	return m.health, "its state", nil
}

func (m *machine) Read(context.Context) (lease.State, error) { return lease.State{}, nil }

func (m *machine) Hold(_ context.Context, h rows.Hold) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone {
		return lease.ErrReleased
	}
	m.holds[h.Holder] = h
	return nil
}

func (m *machine) Try(ctx context.Context, h rows.Hold) (bool, error) { return true, m.Hold(ctx, h) }

func (m *machine) Drop(_ context.Context, holder string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.holds, holder)
	return nil
}

func (m *machine) Release(context.Context, string, func(lease.State) error) error { return nil }

// held are the holders of the machine.
func (m *machine) held() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.holds))
}

// newHost returns a host for a thread whose box is a machine.
func newHost(t *testing.T, m *machine) (*exec.Host, *fakethread.Server) {
	t.Helper()
	runner := filepath.Join(t.TempDir(), "runner")
	if err := os.WriteFile(runner, []byte("a runner"), 0o700); err != nil {
		t.Fatal(err)
	}
	server := fakethread.New(t, nil)
	h := &exec.Host{
		Client: server.Client(),
		Lease:  func(context.Context, sandbox.Ref) (lease.Lease, error) { return m, nil },
		Tokens: func(threadID, execID, author string, _ time.Duration) (write, renew string, err error) {
			return "write " + threadID + " " + execID + " " + author, "renew", nil
		},
		StreamURL: func(string) (string, error) { return "http://server", nil },
		Runner:    func(string) (string, error) { return runner, nil },
	}
	h.Box = func(ctx context.Context, p exec.Posted) (sandbox.Sandbox, func(), error) {
		hold := rows.Hold{Holder: "opens", ThreadID: p.Thread, TTL: lease.TTL}
		return m, lease.Keep(ctx, m, hold), m.Hold(ctx, hold)
	}
	return h, server
}

var asked = exec.Request{
	Thread: "t1", ID: "c1", Author: "me", Argv: []string{"make", "a b"}, Cwd: "sub", Timeout: time.Minute,
	Env: map[string]string{"PASS": "sesame-open-1"}, Secrets: []string{"PASS"},
}

// post posts the beginning of asked.
func post(t *testing.T, h *exec.Host) exec.Posted {
	t.Helper()
	p, err := h.Post(t.Context(), asked)
	if err != nil || p.Again {
		t.Fatalf("got %+v, %v", p, err)
	}
	return p
}

// endOf returns the end of a command on a thread; false for none.
func endOf(t *testing.T, s *fakethread.Server) (end thread.ExecFinished, is bool) {
	t.Helper()
	for _, e := range s.Entries() {
		if strings.Contains(string(e.Payload), thread.TypeExecFinished) {
			if err := json.Unmarshal(e.Payload, &end); err != nil || e.ID != thread.ExecID("c1", 1) || is {
				t.Errorf("entry %s, %v", e.ID, err)
			}
			is = true
		}
	}
	return end, is
}

// A command is started under a supervisor, which has the tokens in its environment. The command holds the box then, and
// its host does not.
func TestFire(t *testing.T) {
	t.Parallel()
	m := newMachine()
	h, s := newHost(t, m)
	p := post(t, h)
	box, err := h.Fire(t.Context(), p)
	if err != nil || box != m.Ref() || len(m.started) != 1 {
		t.Fatalf("got %v, %v, %d starts", box, err, len(m.started))
	}
	argv := strings.Join(m.started[0].Argv[4:], " ")
	want := "exec --id c1 --cwd /w/sub --timeout 1m0s --from " + p.Offset + " -- make a b"
	if argv != want {
		t.Errorf("argv %s, want %s", argv, want)
	}
	env := m.started[0].Env
	if env["ARBE_STREAM_TOKEN"] != "write t1 c1 me" || env["PASS"] != "sesame-open-1" || env["ARBE_REDACT"] != "PASS" ||
		env["ARBE_AUTHOR_ID"] != "me" || env["ARBE_SANDBOX"] != "cloud:b1" {
		t.Errorf("environment %v", env)
	}
	if held := m.held(); !slices.Equal(held, []string{"exec:t1/c1"}) {
		t.Errorf("held by %q", held)
	}
	if end, is := endOf(t, s); is {
		t.Errorf("the thread has the end %+v", end)
	}
	h.Ended(t.Context(), box, p.Request)
	if held := m.held(); len(held) > 0 {
		t.Errorf("then held by %q", held)
	}
	again, err := h.Post(t.Context(), asked)
	if err != nil || !again.Again {
		t.Errorf("posted again: %+v, %v", again, err)
	}
	s.Allow(thread.ExecID("c1", 0))
	other := asked
	other.Argv = []string{"other"}
	var se *client.StatusError
	if _, err := h.Post(t.Context(), other); !errors.As(err, &se) || se.Status != http.StatusConflict {
		t.Errorf("another command with the id: %v", err)
	}
}

// A command that can't be started has one end, with the cause and without the secrets, and holds nothing.
func TestFireFails(t *testing.T) {
	t.Parallel()
	cause := errors.New("no room for sesame-open-1")
	for _, tt := range []struct {
		name string
		set  func(*exec.Host, *machine)
	}{
		{"no box", func(h *exec.Host, _ *machine) {
			h.Box = func(context.Context, exec.Posted) (sandbox.Sandbox, func(), error) { return nil, nil, cause }
		}},
		{"no runner", func(h *exec.Host, _ *machine) {
			h.Runner = func(string) (string, error) { return "", cause }
		}},
		{"no start", func(_ *exec.Host, m *machine) { m.fails = cause }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine()
			h, s := newHost(t, m)
			tt.set(h, m)
			if _, err := h.Fire(t.Context(), post(t, h)); !errors.Is(err, cause) {
				t.Errorf("got %v", err)
			}
			end, is := endOf(t, s)
			if !is || !strings.Contains(end.Error, "no room for [redacted:PASS]") || end.Cancelled {
				t.Errorf("the end is %+v", end)
			}
			if held := m.held(); len(held) > 0 {
				t.Errorf("held by %q", held)
			}
		})
	}
}

// Where the answer to the start is lost, the supervisor's own entry is the proof that the command runs.
func TestFireAnswerLost(t *testing.T) {
	t.Parallel()
	m := newMachine()
	h, s := newHost(t, m)
	s.Allow(thread.ExecID("c1", 1))
	m.fails = errors.New("no answer")
	m.detach = func() {
		s.Put(thread.Entry{
			ID: thread.ExecID("c1", 1), TS: thread.Stamp(time.Now()), Payload: thread.Marshal(thread.ExecRunning{
				Exec: thread.Exec{Type: thread.TypeExecRunning, ExecID: "c1"}, PID: 7,
			}),
		})
	}
	if _, err := h.Fire(t.Context(), post(t, h)); err != nil {
		t.Errorf("got %v", err)
	}
	if held := m.held(); !slices.Equal(held, []string{"exec:t1/c1"}) {
		t.Errorf("held by %q", held)
	}
}

// waiting lets a host wait for its box until its context ends.
func waiting(h *exec.Host) (there chan struct{}) {
	there = make(chan struct{})
	h.Box = func(ctx context.Context, _ exec.Posted) (sandbox.Sandbox, func(), error) {
		close(there)
		<-ctx.Done()
		return nil, nil, fmt.Errorf("make the box: %w", context.Cause(ctx))
	}
	return there
}

// A request to cancel ends a start, too.
func TestFireCancelled(t *testing.T) {
	t.Parallel()
	h, s := newHost(t, newMachine())
	there := waiting(h)
	p := post(t, h)
	failed := make(chan error, 1)
	go func() {
		<-there
		failed <- exec.Cancel(context.WithoutCancel(t.Context()), h.Client, "c1", "me", "")
	}()
	_, err := h.Fire(t.Context(), p)
	if err := <-failed; err != nil {
		t.Error(err)
	}
	end, is := endOf(t, s)
	if err == nil || !is || !end.Cancelled || end.Error != "cancelled before it was started" {
		t.Errorf("got %v, the end %+v", err, end)
	}
	var none *exec.NoCommandError
	if err := exec.Cancel(t.Context(), h.Client, "c1", "", ""); !errors.As(err, &none) || !none.Ended {
		t.Errorf("cancelled again: %v", err)
	}
	if err := exec.Cancel(t.Context(), h.Client, "c9", "", ""); !errors.As(err, &none) || none.Ended {
		t.Errorf("another one: %v", err)
	}
}

// A group that is stopped waits for its starts, and leaves the ends of their commands to a reconciler.
func TestGroup(t *testing.T) {
	t.Parallel()
	h, s := newHost(t, newMachine())
	there := waiting(h)
	p := post(t, h)
	g := exec.NewGroup(2)
	start, _, err := g.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	_, free, err := g.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := g.Reserve(); !errors.Is(err, exec.ErrFull) {
		t.Errorf("a third one: %v", err)
	}
	free()
	fired := make(chan error, 1)
	start(func(ctx context.Context) {
		_, err := h.Fire(ctx, p)
		fired <- err
	})
	<-there
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := g.Run(ctx); err != nil {
		t.Error(err)
	}
	select {
	case err := <-fired:
		if !errors.Is(err, exec.ErrStopped) {
			t.Errorf("got %v", err)
		}
	default:
		t.Error("the group does not wait")
	}
	if end, is := endOf(t, s); is {
		t.Errorf("the thread has the end %+v", end)
	}
	if _, _, err := g.Reserve(); !errors.Is(err, exec.ErrEnding) {
		t.Errorf("after the stop: %v", err)
	}
}

// What no host runs is refused before it is posted.
func TestCheck(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*exec.Request){
		func(r *exec.Request) { r.ID = "a.b" },
		func(r *exec.Request) { r.Argv = nil },
		func(r *exec.Request) { r.Argv = []string{" "} },
		func(r *exec.Request) { r.Argv = []string{"a", "\x00"} },
		func(r *exec.Request) { r.Argv = []string{strings.Repeat("a", 64<<10)} },
		func(r *exec.Request) { r.Timeout = -1 },
		func(r *exec.Request) { r.Timeout = 73 * time.Hour },
		func(r *exec.Request) { r.Env = map[string]string{"ARBE_STREAM_TOKEN": "x"} },
	} {
		r := asked
		change(&r)
		var bad *exec.BadRequestError
		if err := r.Check(); !errors.As(err, &bad) {
			t.Errorf("%.80v: %v", r, err)
		}
	}
}
