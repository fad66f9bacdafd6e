package sandbox_test

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/daytona"
	"arbe.0sk.ar/runner/host/sandbox/local"
	"arbe.0sk.ar/runner/internal/test/fakedaytona"
)

// provider has the methods that the providers of this package have in common.
type provider interface {
	sandbox.Provider
	Name() string
	Probe(ctx context.Context, id string) (sandbox.Health, string, error)
	Runs(ctx context.Context, id string, p sandbox.Process) (bool, error)
	List(ctx context.Context, labels map[string]string) ([]sandbox.Box, error)
}

// box has the methods that the boxes of both providers have in common.
type box interface {
	sandbox.Sandbox
	Alive(ctx context.Context, p sandbox.Process) (bool, error)
	Snapshot(ctx context.Context, message string) (commit string, err error)
	Stop()
}

// house is one provider to hold the contract against. Boxes of both are folders on this machine, so a test can look
// into them.
type house struct {
	provider
	repos *gitServer
	repo  string                // of the server's org/repo, as Options take it
	fake  *fakedaytona.Server   // nil for the local provider
	drop  func(sandbox.Sandbox) // takes a box away behind its back
}

func localHouse(t *testing.T) *house {
	repos := newGitServer(t)
	p := local.New(t.TempDir())
	return &house{provider: p, repos: repos, repo: repos.URL + "/org/repo.git", drop: func(b sandbox.Sandbox) {
		if err := os.RemoveAll(filepath.Dir(b.Home())); err != nil {
			t.Error(err)
		}
	}}
}

func daytonaHouse(t *testing.T) *house {
	repos, fake := newGitServer(t), fakedaytona.New(t)
	p, err := daytona.New(daytona.Config{
		Key: fake.Key, URL: fake.URL, GitHub: repos.URL,
		Pace: 2 * time.Millisecond, Transport: transport(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	return &house{
		provider: p, repos: repos, repo: "org/repo", fake: fake,
		drop: func(b sandbox.Sandbox) { fake.Vanish(b.Ref().ID) },
	}
}

// Create makes a box, with the test's git server as its GitHub.
func (h *house) Create(ctx context.Context, o sandbox.Options) (sandbox.Sandbox, error) {
	o.GitHub = cmp.Or(o.GitHub, h.repos.URL)
	return h.provider.Create(ctx, o)
}

// create makes a box that goes with the test.
func (h *house) create(t *testing.T, o sandbox.Options) box {
	t.Helper()
	made, err := h.Create(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	b := made.(box)
	t.Cleanup(func() {
		if err := h.Destroy(context.Background(), b.Ref().ID); err != nil {
			t.Error("destroy:", err)
		}
	})
	return b
}

// each runs a test on both providers.
func each(t *testing.T, test func(t *testing.T, h *house)) {
	t.Parallel()
	t.Run("local", func(t *testing.T) { t.Parallel(); test(t, localHouse(t)) })
	t.Run("daytona", func(t *testing.T) { t.Parallel(); test(t, daytonaHouse(t)) })
}

// run runs a script of the shell in a box.
func run(t *testing.T, b sandbox.Sandbox, script string) sandbox.Result {
	t.Helper()
	res, err := b.Exec(t.Context(), sandbox.Command{Argv: []string{"sh", "-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// soon waits for a condition.
func soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); !is(); time.Sleep(5 * time.Millisecond) { // between two looks
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func TestCreate(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		var steps []string
		b := h.create(t, sandbox.Options{
			Labels: map[string]string{sandbox.LabelThread: "t1"}, Env: map[string]string{"GREETING": "hello world"},
			Ephemeral: true,
			AutoStop:  90 * time.Second, Progress: func(s string) { steps = append(steps, s) },
		})
		if b.Ref().Provider != h.Name() || b.Ref().ID == "" {
			t.Errorf("ref %v", b.Ref())
		}
		for _, dir := range []string{b.WorkDir(), b.Home()} {
			if fi, err := os.Stat(dir); err != nil || !fi.IsDir() || !filepath.IsAbs(dir) {
				t.Errorf("%s: %v", dir, err)
			}
		}
		res := run(t, b, `pwd; echo "$HOME"; echo "$GREETING"`)
		if got, want := string(res.Stdout), b.WorkDir()+"\n"+b.Home()+"\nhello world\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if len(steps) == 0 {
			t.Error("no step was reported")
		}
		boxes, err := h.List(t.Context(), map[string]string{sandbox.LabelThread: "t1", sandbox.LabelEphemeral: "true"})
		if err != nil || len(boxes) != 1 || boxes[0].Ref != b.Ref() ||
			time.Since(boxes[0].Created).Abs() > time.Minute || boxes[0].State == "" {
			t.Errorf("listed: %+v, %v", boxes, err)
		}
		if boxes, err := h.List(t.Context(), map[string]string{sandbox.LabelThread: "t2"}); err != nil ||
			len(boxes) > 0 {
			t.Errorf("listed: %+v, %v", boxes, err)
		}
	})
}

func TestOpen(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		b := h.create(t, sandbox.Options{Repo: h.repo, Env: map[string]string{"A": "b"}})
		again, err := h.Open(t.Context(), b.Ref().ID)
		if err != nil {
			t.Fatal(err)
		}
		if again.WorkDir() != b.WorkDir() || again.Home() != b.Home() || again.Ref() != b.Ref() {
			t.Errorf("%s %s, want %s %s", again.WorkDir(), again.Home(), b.WorkDir(), b.Home())
		}
		if res := run(t, again, "echo $A; cat README"); string(res.Stdout) != "b\nread me\n" {
			t.Errorf("printed %q, %q", res.Stdout, res.Stderr)
		}
		for _, id := range []string{"", "..", "../x", "a/b"} {
			if _, err := h.Open(t.Context(), id); err == nil {
				t.Errorf("opened %q", id)
			}
			if health, _, err := h.Probe(t.Context(), id); health != sandbox.Unknown || err == nil {
				t.Errorf("%q is %v, %v", id, health, err)
			}
		}
	})
}

// asked is how many requests Daytona has had.
func (h *house) asked() int {
	if h.fake == nil {
		return 0
	}
	return len(h.fake.Requests())
}

func read(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func TestProbeAndDestroy(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		b, other := h.create(t, sandbox.Options{}), h.create(t, sandbox.Options{})
		if health, why, err := h.Probe(t.Context(), b.Ref().ID); health != sandbox.Live || why == "" || err != nil {
			t.Errorf("%v, %s, %v", health, why, err)
		}
		// A tool of the agent's in a session of its own goes with the box, too.
		c := script(`setsid sh -c 'echo $$ >tool; sleep 1000' & sleep 1000`)
		p, err := b.Detach(t.Context(), c, "log")
		if err != nil {
			t.Fatal(err)
		}
		soon(t, "its tool runs", func() bool { return read(b.WorkDir()+"/tool") != "" })
		tool := read(b.WorkDir() + "/tool")
		if err := os.MkdirAll(b.Home()+"/cache/locked", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(b.Home()+"/cache/locked", 0o500); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := h.Destroy(t.Context(), b.Ref().ID); err != nil {
				t.Fatal(err)
			}
		}
		soon(t, "it is gone", func() bool {
			health, _, err := h.Probe(t.Context(), b.Ref().ID)
			return health == sandbox.Gone && err == nil
		})
		if living(t, tool) || syscall.Kill(p.PID, 0) == nil && living(t, tool) {
			t.Error("its tool lives")
		}
		if _, err := os.Stat(b.Home()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("its home: %v", err)
		}
		gone(t, h, b, p)
		h.drop(other)
		gone(t, h, other, p)
		if err := h.Destroy(t.Context(), other.Ref().ID); err != nil {
			t.Error(err)
		}
		if boxes, err := h.List(t.Context(), nil); err != nil || len(boxes) > 0 {
			t.Errorf("listed: %v, %v", boxes, err)
		}
	})
}

// gone checks that whatever is asked of a box that is not there any more is answered so.
func gone(t *testing.T, h *house, b box, p sandbox.Process) {
	t.Helper()
	ctx := t.Context()
	for what, do := range map[string]func() error{
		"open": func() error { _, err := h.Open(ctx, b.Ref().ID); return err },
		"exec": func() error { _, err := b.Exec(ctx, script("true")); return err },
		"exec env": func() error {
			c := script("true")
			c.Env = map[string]string{"A": "b"}
			_, err := b.Exec(ctx, c)
			return err
		},
		"detach":   func() error { _, err := b.Detach(ctx, script("true"), "log"); return err },
		"alive":    func() error { _, err := b.Alive(ctx, p); return err },
		"upload":   func() error { return b.Upload(ctx, sandbox.File{Path: "x"}) },
		"snapshot": func() error { _, err := b.Snapshot(ctx, "x"); return err },
	} {
		if err := do(); !errors.Is(err, sandbox.ErrGone) {
			t.Errorf("%s: %v, want %v", what, err, sandbox.ErrGone)
		}
	}
	if health, why, err := h.Probe(ctx, b.Ref().ID); health != sandbox.Gone || why == "" || err != nil {
		t.Errorf("probe: %v, %s, %v", health, why, err)
	}
}
