package rows_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"arbe.0sk.ar/runner/internal/test/scene"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/internal/test/fakedaytona"
	"arbe.0sk.ar/runner/thread"
)

// Three tasks are delegated at the same time from one thread. Each gets a box and a tree of its own, or works in the
// parent's box, and the results of all three come to the thread. No box of a task's own is left.
func TestFullDelegate(t *testing.T)          { delegateThree(t, "local", false) }
func TestFullDelegateShared(t *testing.T)    { delegateThree(t, "local", true) }
func TestFullDelegateDaytona(t *testing.T)   { delegateThree(t, "daytona", false) }
func TestFullDelegateInDaytona(t *testing.T) { delegateThree(t, "daytona", true) }

func delegateThree(t *testing.T, provider string, shared bool) {
	t.Parallel()
	h := scene.NewHost(t)
	d := daytona(h)
	parent := h.Arbe("thread", "new")
	withTasks(h, parent, provider, h.BoxOfPi())
	in, want := []string{"--environment", "tasks1"}, 3
	if shared {
		in, want = []string{"--in", "parent"}, 1
		h.Model.More(scene.Say("Here."))
		first, _ := h.Launch("--sandbox", provider, "--keep", "--thread", parent, "--", "make a box")
		h.Ends(first.ThreadID)
	}
	gate := filepath.Join(h.Dir, "gate")
	work := scene.Bash("echo line >> made.txt; until [ -e " + gate + " ]; do sleep 0.01; done")
	h.Model.More(work, work, work, scene.Say("Result."), scene.Say("Result."), scene.Say("Result."))
	before := len(h.Model.Requests())

	children := delegate(h, 3, append([]string{parent}, in...)...)
	provision(h, "--launches", "3")
	scene.Until(t, "all three agents at work", func() bool { return len(h.Model.Requests()) == before+3 })
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	trees, lines := map[string]bool{}, 0
	for _, child := range children {
		h.Ends(child)
		cwd := workDir(h, child)
		if !trees[cwd] {
			b, err := os.ReadFile(filepath.Join(cwd, "made.txt"))
			if err != nil {
				t.Error(err)
			}
			lines += strings.Count(string(b), "line\n")
		}
		trees[cwd] = true
	}
	if len(trees) != want || lines != 3 {
		t.Errorf("%d trees with %d lines, want %d", len(trees), lines, want)
	}
	if boxes := boxes(h, d); len(boxes) != want {
		t.Errorf("%d boxes, want %d: %v", len(boxes), want, boxes)
	}
	reconcile := func() {
		t.Helper()
		if out, err := h.Try("reconcile", "--all"); err != nil {
			t.Fatalf("reconcile: %v\n%s", err, out)
		}
	}
	scene.Until(t, "boxes that are released", func() bool {
		reconcile()
		return shared || len(boxes(h, d)) == 0
	})
	reconcile() // posts nothing
	results(h, parent, children)
}

// Daytona makes no box for a task: the result on the thread that has delegated it is a failure, with the cause.
func TestFullDelegateFails(t *testing.T) {
	for name, tt := range map[string]struct {
		config, cause string
		fault         func(*http.Request) fakedaytona.Fault
	}{
		"no quota": {`{}`, "Total CPU limit exceeded", func(r *http.Request) fakedaytona.Fault {
			if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/sandbox") {
				return fakedaytona.Fault{}
			}
			return fakedaytona.Fault{
				Status: http.StatusBadRequest, Body: `{"message":["Total CPU limit exceeded.","Maximum allowed: 4"]}`,
			}
		}},
		"a wrong image": {`{"image": "none:1"}`, "build_failed: pull access denied for none:1", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := scene.NewHost(t)
			d := daytona(h)
			d.Set(func(d *fakedaytona.Server) { d.Fault = tt.fault })
			parent := h.Arbe("thread", "new")
			withTasks(h, parent, "daytona", tt.config)
			child := delegate(h, 1, parent, "--environment", "tasks1")[0]
			provision(h)
			h.Thread = child
			e := h.End()
			if e.Status != thread.StatusFailed || e.Cause.ErrorClass != "launch" ||
				!strings.Contains(e.Cause.Message, tt.cause) {
				t.Errorf("the run is %+v, want %s", e, tt.cause)
			}
			scene.Until(t, "a result", func() bool { // once the end has stood for a while
				out, err := h.Try("reconcile", "--notify-after", "1ms", child)
				if err != nil {
					t.Fatalf("reconcile: %v\n%s", err, out)
				}
				return len(of(h, parent)) >= 3
			})
			told := scene.TextOf(of(h, parent))
			for _, want := range []string{
				thread.TypeChildFinished, `"status":"failed"`, "The task on thread " + child + " has failed", tt.cause,
			} {
				if !strings.Contains(told, want) {
					t.Errorf("the parent has no %s: %s", want, told)
				}
			}
			if n := len(of(h, parent)); n != 3 || len(boxes(h, d)) > 0 || len(h.Model.Requests()) > 0 {
				t.Errorf("the parent has %d entries, boxes %v, and the model was asked %d times", n, boxes(h, d),
					len(h.Model.Requests()))
			}
		})
	}
}

// daytona gives the host a Daytona.
func daytona(h *scene.Host) *fakedaytona.Server {
	d := fakedaytona.New(h.T)
	h.Env = append(h.Env, "DAYTONA_API_KEY="+d.Key, "DAYTONA_API_URL="+d.URL, "ARBE_BOX_STREAM_URL="+scene.Server)
	return d
}

// boxes returns the boxes of the host that are there.
func boxes(h *scene.Host, d *fakedaytona.Server) (all []string) {
	h.T.Helper()
	local, err := filepath.Glob(filepath.Join(h.Data, "boxes", "*"))
	if err != nil {
		h.T.Fatal(err)
	}
	for _, b := range d.Boxes() {
		if b.State != "destroyed" && b.State != "destroying" {
			all = append(all, b.ID)
		}
	}
	return append(all, local...)
}

// provision launches the tasks that wait.
func provision(h *scene.Host, args ...string) {
	h.T.Helper()
	all := append([]string{"provision", "--once"}, args...)
	if out, err := h.Try(append(all, h.With("", nil)[3:]...)...); err != nil {
		h.T.Fatalf("provision: %v\n%s", err, out)
	}
}

// withTasks gives the host a database with a house, a bot, an environment of boxes and a thread.
func withTasks(h *scene.Host, parent, provider, config string) {
	h.T.Helper()
	onDatabase(h, withRows(h), func(c *pgx.Conn) error {
		for _, sql := range []string{
			`insert into agents (id, kind, runtime) values ('00000000-0000-4000-8000-000000000001', 'bot', 'pi')
				on conflict do nothing`,
			`insert into members (house_id, agent_id, role) select 'house1', id, 'member' from agents
				on conflict do nothing`,
			"insert into environments (id, house_id, name, runtime, config) values ('tasks1', 'house1', 'tasks', '" +
				provider + "', '" + config + "')",
			`insert into threads (id, stream_id, house_id, environment_id, agent_id, status)
				select '` + parent + `', '` + parent + `', 'house1', 'tasks1', id, 'idle' from agents where id = '00000000-0000-4000-8000-000000000001'`,
		} {
			if _, err := c.Exec(context.WithoutCancel(h.T.Context()), sql); err != nil {
				return err
			}
		}
		return nil
	})
}

// delegate delegates n tasks at the same time, and returns their threads.
func delegate(h *scene.Host, n int, args ...string) []string {
	h.T.Helper()
	children := make([]string, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			cmd := h.Command(append(append([]string{"delegate"}, args...), "--", "a task")...)
			out, err := cmd.Output()
			if err != nil {
				h.T.Errorf("delegate: %v\n%s", err, out)
			}
			children[i] = strings.TrimSpace(string(out))
		})
	}
	all.Wait()
	return children
}

// workDir returns the working directory of a thread's run.
func workDir(h *scene.Host, id string) string {
	h.T.Helper()
	for _, e := range of(h, id) {
		var p thread.Started
		if json.Unmarshal(e.Payload, &p) == nil && p.Type == thread.TypeStarted {
			return p.Cwd
		}
	}
	h.T.Fatalf("thread %s has no run", id)
	return ""
}

// of returns the entries of a thread.
func of(h *scene.Host, id string) []thread.Entry {
	h.T.Helper()
	h.Thread = id
	return h.Entries()
}

// results checks that a thread has the announcement and the result of each child, once.
func results(h *scene.Host, parent string, children []string) {
	h.T.Helper()
	spawned, finished, chats := map[string]int{}, map[string]int{}, map[string]int{}
	for _, e := range of(h, parent) {
		f, err := thread.Scan(e.Payload)
		if err != nil {
			h.T.Fatal(err)
		}
		switch f.Type {
		case thread.TypeAgentSpawn:
			var p thread.AgentSpawn
			if err := json.Unmarshal(e.Payload, &p); err != nil {
				h.T.Error(err)
			}
			spawned[p.ChildThreadID]++
		case thread.TypeChildFinished:
			var p thread.ChildFinished
			if err := json.Unmarshal(e.Payload, &p); err != nil || p.Status != thread.StatusCompleted {
				h.T.Errorf("%s: %v", e.Payload, err)
			}
			finished[p.ChildThreadID]++
		case thread.TypeChat:
			if child, _, is := strings.Cut(e.ID, "."); is && strings.HasSuffix(e.ID, ".result") {
				chats[child]++
				if !strings.Contains(string(e.Payload), "Result.") ||
					e.AuthorID != "00000000-0000-4000-8000-000000000001" {
					h.T.Errorf("the result of %s by %q: %s", child, e.AuthorID, e.Payload)
				}
			}
		}
	}
	for _, child := range children {
		if spawned[child] != 1 || finished[child] != 1 || chats[child] != 1 {
			h.T.Errorf("%s is announced %d times, finished %d times, with %d results", child, spawned[child],
				finished[child], chats[child])
		}
	}
	if len(spawned) != len(children) || len(finished) != len(children) {
		h.T.Errorf("%d are announced, %d finished", len(spawned), len(finished))
	}
}
