// Package providers_test shows that a provider of boxes is a value: one that is invented here makes boxes for launches
// and commands, is listed, and is reconciled like those that are built in.
package providers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/exec"
	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/host/provision"
	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/providers"
	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/internal/test/built"
	"arbe.0sk.ar/runner/internal/test/fakeagent"
	"arbe.0sk.ar/runner/internal/test/generated"
	"arbe.0sk.ar/runner/internal/test/surroundings"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// bin is the folder of both programs.
var bin string

func TestMain(m *testing.M) {
	if os.Getenv(fakeagent.PlanVar) != "" {
		os.Exit(fakeagent.Main())
	}
	surroundings.Enter()
	built.Main(m, "../../..", func(dir string) { bin = dir })
}

// world is a thread server, and a host with the invented provider beside those that arbe has.
type world struct {
	t     *testing.T
	key   []byte
	url   string
	cave  *cave
	kinds sandbox.Kinds
}

func newWorld(t *testing.T) *world {
	quiet := slog.New(slog.DiscardHandler)
	e, err := pebble.Open(t.TempDir(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	streams := log.New(e)
	ctx, cancel := context.WithCancel(context.Background())
	w := &world{t: t, key: bytes.Repeat([]byte("k"), token.MinSecret)}
	srv := httptest.NewServer((&server.Server{
		Log: streams, Secrets: [][]byte{w.key}, LongPoll: time.Second, Closing: ctx, Logger: quiet,
		Harnesses: session.Harnesses(),
	}).Handler())
	t.Cleanup(func() {
		cancel()
		srv.Close()
		if err := streams.Close(); err != nil {
			t.Error(err)
		}
	})
	w.url = srv.URL
	w.cave = &cave{t: t, dir: t.TempDir(), agent: t.TempDir(), boxes: map[string]*hole{}}
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, filepath.Join(w.cave.agent, "pi"))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		boxes, _ := w.cave.List(context.Background(), nil) // it never fails
		for _, b := range boxes {
			if err := w.cave.Destroy(context.Background(), b.Ref.ID); err != nil {
				t.Error(err)
			}
		}
	})
	w.kinds = append(providers.All(), w.cave.kind())
	return w
}

// client returns a client of a thread.
func (w *world) client(id string) (*client.Client, error) { return w.clientAt(w.url)(id) }

func (w *world) clientAt(base string) func(id string) (*client.Client, error) {
	return func(id string) (*client.Client, error) {
		return provision.Client(w.key, &client.Client{Base: thread.BaseURL(base)}, id), nil
	}
}

// host returns what launches runs, and runs commands, in boxes of all kinds.
func (w *world) host() *provision.Host {
	return &provision.Host{
		Client: w.client,
		Provider: func(_, name string) (provision.Provider, error) {
			kind, err := w.kinds.Named(name)
			if err != nil {
				return nil, err
			}
			return kind.Open(sandbox.Setting{Getenv: func(name string) string { return "lit " + name }})
		},
		StreamURL: func(string) (string, error) { return w.url, nil },
		Runner:    func(string) (string, error) { return filepath.Join(bin, "arbe-pi-runner"), nil },
		Remember:  func(string) error { return nil },
		Key:       w.key, Log: slog.New(slog.DiscardHandler), Runtimes: provision.Runtimes(w.kinds),
	}
}

// task is a run on a thread, whose agent follows a plan.
func (w *world) task(id string, plan ...string) launch.Task {
	w.t.Helper()
	file := filepath.Join(w.t.TempDir(), "plan")
	if err := os.WriteFile(file, []byte(strings.Join(plan, "\n")), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return launch.Task{
		Thread: id, Run: "r1", Prompt: "dig", Harness: "pi", Env: map[string]string{fakeagent.PlanVar: file},
		Box: sandbox.Options{Ephemeral: true},
	}
}

func (w *world) launch(t launch.Task) (launch.Launched, error) {
	h := w.host()
	in, err := h.Provider("--sandbox", "cave")
	if err != nil {
		return launch.Launched{}, err
	}
	cl, _ := w.client(t.Thread) // it never fails
	l, err := h.Launcher(t, rows.Place{}, in, cl, func(string) {})
	if err != nil {
		return launch.Launched{}, err
	}
	return l.Launch(w.t.Context(), t)
}

// fold returns the state of a thread.
func (w *world) fold(id string) *thread.Fold {
	w.t.Helper()
	fold := &thread.Fold{}
	cl, _ := w.client(id) // it never fails
	_, err := cl.Read(w.t.Context(), "0", false, func(e thread.Entry) error { fold.Add(e); return nil })
	if err != nil {
		w.t.Fatal(err)
	}
	return fold
}

// until waits for a condition.
func (w *world) until(what string, is func() bool) {
	w.t.Helper()
	for end := time.Now().Add(5 * time.Minute); !is(); time.Sleep(5 * time.Millisecond) { // between two looks
		if time.Now().After(end) {
			w.t.Fatalf("waited in vain: %s", what)
		}
	}
}

// reconciler returns one whose thread server has a clock that is ahead.
func (w *world) reconciler(ahead time.Duration) *reconcile.Reconciler {
	w.t.Helper()
	to, err := url.Parse(w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	later := httputil.NewSingleHostReverseProxy(to)
	later.ModifyResponse = func(resp *http.Response) error {
		resp.Header.Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
		return nil
	}
	srv := httptest.NewServer(later)
	w.t.Cleanup(srv.Close)
	return &reconcile.Reconciler{
		Client: w.clientAt(srv.URL), Providers: map[string]reconcile.Provider{"cave": w.cave}, Again: time.Millisecond,
		Harnesses: session.Harnesses(),
	}
}

// A run in a box of an invented provider is launched, survives that its box is frozen for an hour, takes a command
// beside it, ends once, and its box is released.
func TestInvented(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	going := filepath.Join(t.TempDir(), "go")
	done, err := w.launch(w.task("t1", "prompt", "wait "+going, "say five metres"))
	if err != nil || done.Sandbox.Provider != "cave" {
		t.Fatalf("launched %+v, %v", done, err)
	}
	w.until("the run works", func() bool {
		run, _ := w.fold("t1").Run("r1")
		return run.Started != nil
	})

	// A frozen box is woken, and nothing is decided on its silence.
	w.cave.freeze(done.Sandbox.ID)
	state, err := w.reconciler(time.Hour).Thread(t.Context(), "t1")
	if err != nil || state.Status != thread.StatusRunning || w.cave.wakes() != 1 {
		t.Errorf("frozen: %+v, %v; woken %d times", state, err, w.cave.wakes())
	}

	cl, _ := w.client("t1")
	request := exec.Request{Thread: "t1", ID: "x1", Argv: []string{"sh", "-c", "echo in $PWD"}}
	var said strings.Builder
	end, err := exec.Run(t.Context(), cl, request, func(ctx context.Context, r *exec.Request) (*exec.Host, error) {
		x, _, err := w.host().Command(ctx, cl, r, "", nil)
		return x, err
	}, func(o thread.ExecOutput) { said.WriteString(o.Text) })
	if err != nil || end.ExitCode == nil || *end.ExitCode != 0 || said.String() != "in "+done.WorkDir+"\n" {
		t.Errorf("the command ended with %+v, %v, and printed %q", end, err, said.String())
	}

	if err := os.WriteFile(going, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.until("the run ends", func() bool { return w.fold("t1").Status() != thread.StatusRunning })
	fold := w.fold("t1")
	if run, _ := fold.Run("r1"); run.Status != thread.StatusCompleted || run.Provisional || len(fold.Runs()) != 1 {
		t.Errorf("the run is %+v of %d", run, len(fold.Runs()))
	}
	w.until("its box is released", func() bool {
		state, err = w.reconciler(0).Thread(t.Context(), "t1")
		if err != nil {
			t.Fatal(err)
		}
		return len(state.Actions) > 0
	})
	if boxes, _ := w.cave.List(t.Context(), nil); state.Actions[0].Did != reconcile.Reaped || len(boxes) > 0 {
		t.Errorf("settled %+v, boxes %+v", state, boxes)
	}
}

// A box that waits frozen for a chat is left alone: it costs nothing, and nothing in it is dead.
func TestInventedWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	heard := filepath.Join(t.TempDir(), "heard")
	task := w.task("t1", "converse "+heard)
	task.Live = true
	done, err := w.launch(task)
	if err != nil {
		t.Fatal(err)
	}
	w.until("the run waits", func() bool {
		run, _ := w.fold("t1").Run("r1")
		return run.Waiting
	})
	w.cave.freeze(done.Sandbox.ID)
	state, err := w.reconciler(5*time.Hour).Thread(t.Context(), "t1")
	if err != nil || state.Status != thread.StatusRunning || w.cave.wakes() != 0 {
		t.Errorf("frozen: %+v, %v; woken %d times", state, err, w.cave.wakes())
	}
}

// A box that is gone ends its run by evidence.
func TestInventedGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	done, err := w.launch(w.task("t1", "prompt", "wait "+filepath.Join(t.TempDir(), "never")))
	if err != nil {
		t.Fatal(err)
	}
	w.until("the run works", func() bool {
		run, _ := w.fold("t1").Run("r1")
		return run.Started != nil
	})
	if err := w.cave.Destroy(t.Context(), done.Sandbox.ID); err != nil {
		t.Fatal(err)
	}
	state, err := w.reconciler(time.Hour).Thread(t.Context(), "t1")
	run, _ := w.fold("t1").Run("r1")
	if err != nil || state.Status != thread.StatusFailed || run.Orphaned == nil || run.Orphaned.Reason != "box_gone" {
		t.Errorf("settled %+v, %v: %+v", state, err, run.Orphaned)
	}
}

// What a provider's boxes can't do is refused with a sentence, before or on the thread; nothing panics.
func TestInventedLacks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, tt := range []struct {
		name   string
		change func(*launch.Task)
		want   string
	}{
		{
			"an image", func(t *launch.Task) { t.Box.Image = "node:22" },
			"image: a cave box has none: it is a hole in a rock",
		},
		{
			"a repository", func(t *launch.Task) {
				t.Make.Repositories = []launch.Repository{{Repository: sandbox.Repository{Repo: "a/b"}, Path: "b"}}
			}, "repository a/b: the sandbox cave:hole-1 has no workspace",
		},
	} {
		task := w.task(strings.ReplaceAll(tt.name, " ", "-"), "prompt", "say no")
		tt.change(&task)
		_, err := w.launch(task)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
		if status := w.fold(task.Thread).Status(); status != thread.StatusFailed {
			t.Errorf("%s: the thread is %s", tt.name, status)
		}
	}
	if boxes, _ := w.cave.List(t.Context(), nil); len(boxes) > 0 {
		t.Errorf("left: %+v", boxes)
	}
}

// A kind whose provider is not configured names what to set, and an unknown name is refused with those that are known.
func TestKinds(t *testing.T) {
	w := newWorld(t)
	dark := sandbox.Setting{Getenv: func(string) string { return "" }}
	kind, err := w.kinds.Named("cave")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kind.Open(dark); err == nil || err.Error() != "it is dark: set "+caveVariable {
		t.Errorf("got %v", err)
	}
	if _, err := w.kinds.Named("palace"); err == nil || !strings.HasSuffix(err.Error(), " or cave") {
		t.Errorf("got %v", err)
	}
	config := rows.Recipe{Name: "x", Runtime: "cave", Config: []byte(`{"snapshot": "s", "volumes": []}`)}
	err = provision.Runtimes(w.kinds).Check(&config)
	if err == nil || err.Error() != "snapshot: a cave box has none: it is a hole in a rock" {
		t.Errorf("got %v", err)
	}
	if _, err := w.host().Provider("x", "none"); err == nil || errors.Is(err, sandbox.ErrGone) {
		t.Errorf("got %v", err)
	}
}

// The page about providers has each method that a provider implements, and each trait and option of a kind. The
// published schema and the list have the same names.
func TestAddAProvider(t *testing.T) {
	page := read(t, "ADD-A-PROVIDER.md")
	var words []string
	provider := reflect.TypeFor[sandbox.Provider]()
	for i := range provider.NumMethod() {
		words = append(words, provider.Method(i).Name)
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[sandbox.Kind](), reflect.TypeFor[sandbox.Traits]()} {
		for i := range typ.NumField() {
			words = append(words, typ.Field(i).Name)
		}
	}
	for _, o := range sandbox.AllOptions() {
		words = append(words, string(o))
	}
	for _, word := range words {
		if !strings.Contains(page, "`"+word+"`") {
			t.Errorf("docs/ADD-A-PROVIDER.md lacks `%s`", word)
		}
	}
	var schema struct {
		Properties struct{ Runtime struct{ Enum []string } }
	}
	if err := json.Unmarshal([]byte(read(t, "environment.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	if want := providers.All().Names(); !slices.Equal(schema.Properties.Runtime.Enum, want) {
		t.Errorf("docs/environment.schema.json has the runtimes %v, want %v", schema.Properties.Runtime.Enum, want)
	}
}

func read(t *testing.T, doc string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../../docs", doc))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var update = flag.Bool("update", false, "write the table of docs/PROVIDERS.md")

// The published table of providers is that of their kinds.
func TestTable(t *testing.T) {
	var b strings.Builder
	b.WriteString("| provider | a box is | wall | this machine | idle timer | wakes | survives a stop | relabels | " +
		"takes | reads |\n|---|---|---|---|---|---|---|---|---|---|\n")
	yes := func(is bool) string { return map[bool]string{true: "yes", false: "no"}[is] }
	for _, k := range providers.All() {
		var takes, reads []string
		for _, o := range k.Takes {
			text := "`" + string(o) + "`"
			if k.ByImage && o == sandbox.OptionResources {
				text += " with an image"
			}
			takes = append(takes, text)
		}
		for _, v := range k.Needs {
			text := "`" + v.Name + "`"
			if v.Required {
				text += " (required)"
			}
			reads = append(reads, text)
		}
		is := k.Traits
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", k.Name, k.Summary, yes(is.Isolated),
			yes(is.SameMachine), yes(is.IdleTimer), yes(is.Wakes), yes(is.Survives), yes(is.Relabels),
			strings.Join(takes, ", "), strings.Join(reads, ", "))
	}
	generated.Hold(t, "../../../docs", "providers", b.String(), *update)
}
