package e2e_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

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
	h := newHost(t)
	d := h.daytona()
	parent := h.arbe("thread", "new")
	h.withTasks(parent, provider, h.boxOfPi())
	in, want := []string{"--environment", "tasks1"}, 3
	if shared {
		in, want = []string{"--in", "parent"}, 1
		h.model.More(say("Here."))
		first, _ := h.launch("--sandbox", provider, "--keep", "--thread", parent, "--", "make a box")
		h.ends(first.ThreadID)
	}
	gate := filepath.Join(h.dir, "gate")
	work := bash("echo line >> made.txt; until [ -e " + gate + " ]; do sleep 0.01; done")
	h.model.More(work, work, work, say("Result."), say("Result."), say("Result."))
	before := len(h.model.Requests())

	children := h.delegate(3, append([]string{parent}, in...)...)
	h.provision("--launches", "3")
	until(t, "all three agents at work", func() bool { return len(h.model.Requests()) == before+3 })
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	trees, lines := map[string]bool{}, 0
	for _, child := range children {
		h.ends(child)
		cwd := h.workDir(child)
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
	if boxes := h.boxes(d); len(boxes) != want {
		t.Errorf("%d boxes, want %d: %v", len(boxes), want, boxes)
	}
	reconcile := func() {
		t.Helper()
		if out, err := h.try("reconcile", "--all"); err != nil {
			t.Fatalf("reconcile: %v\n%s", err, out)
		}
	}
	until(t, "boxes that are released", func() bool {
		reconcile()
		return shared || len(h.boxes(d)) == 0
	})
	reconcile() // posts nothing
	h.results(parent, children)
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
			h := newHost(t)
			d := h.daytona()
			d.Set(func(d *fakedaytona.Server) { d.Fault = tt.fault })
			parent := h.arbe("thread", "new")
			h.withTasks(parent, "daytona", tt.config)
			child := h.delegate(1, parent, "--environment", "tasks1")[0]
			h.provision()
			h.thread = child
			e := h.end()
			if e.Status != thread.StatusFailed || e.Cause.ErrorClass != "launch" ||
				!strings.Contains(e.Cause.Message, tt.cause) {
				t.Errorf("the run is %+v, want %s", e, tt.cause)
			}
			until(t, "a result", func() bool { // once the end has stood for a while
				out, err := h.try("reconcile", "--notify-after", "1ms", child)
				if err != nil {
					t.Fatalf("reconcile: %v\n%s", err, out)
				}
				return len(h.of(parent)) >= 3
			})
			told := textOf(h.of(parent))
			for _, want := range []string{
				thread.TypeChildFinished, `"status":"failed"`, "The task on thread " + child + " has failed", tt.cause,
			} {
				if !strings.Contains(told, want) {
					t.Errorf("the parent has no %s: %s", want, told)
				}
			}
			if n := len(h.of(parent)); n != 3 || len(h.boxes(d)) > 0 || len(h.model.Requests()) > 0 {
				t.Errorf("the parent has %d entries, boxes %v, and the model was asked %d times", n, h.boxes(d),
					len(h.model.Requests()))
			}
		})
	}
}

// daytona gives the host a Daytona.
func (h *host) daytona() *fakedaytona.Server {
	d := fakedaytona.New(h.t)
	h.env = append(h.env, "DAYTONA_API_KEY="+d.Key, "DAYTONA_API_URL="+d.URL, "ARBE_BOX_STREAM_URL="+server)
	return d
}

// boxes returns the boxes of the host that are there.
func (h *host) boxes(d *fakedaytona.Server) (all []string) {
	h.t.Helper()
	local, err := filepath.Glob(filepath.Join(h.data, "boxes", "*"))
	if err != nil {
		h.t.Fatal(err)
	}
	for _, b := range d.Boxes() {
		if b.State != "destroyed" && b.State != "destroying" {
			all = append(all, b.ID)
		}
	}
	return append(all, local...)
}

// boxOfPi is the config of an environment whose boxes have the scene's pi.
func (h *host) boxOfPi() string {
	bin := h.agent.Bin()
	return string(thread.Marshal(map[string]any{"files": []map[string]string{{
		"path": "~/.npm-global/bin/pi", "mode": "0755",
		"content": "#!/bin/sh\nPATH=" + bin + ":$PATH exec " + filepath.Join(bin, "pi") + ` "$@"` + "\n",
	}}}))
}

// provision launches the tasks that wait.
func (h *host) provision(args ...string) {
	h.t.Helper()
	all := append([]string{"provision", "--once"}, args...)
	if out, err := h.try(append(all, h.with("", nil)[3:]...)...); err != nil {
		h.t.Fatalf("provision: %v\n%s", err, out)
	}
}

// withTasks gives the host a database with a house, a bot, an environment of boxes and a thread.
func (h *host) withTasks(parent, provider, config string) {
	h.t.Helper()
	h.database(h.withRows(), func(c *pgx.Conn) error {
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
			if _, err := c.Exec(context.WithoutCancel(h.t.Context()), sql); err != nil {
				return err
			}
		}
		return nil
	})
}

// delegate delegates n tasks at the same time, and returns their threads.
func (h *host) delegate(n int, args ...string) []string {
	h.t.Helper()
	children := make([]string, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			cmd := h.command(append(append([]string{"delegate"}, args...), "--", "a task")...)
			out, err := cmd.Output()
			if err != nil {
				h.t.Errorf("delegate: %v\n%s", err, out)
			}
			children[i] = strings.TrimSpace(string(out))
		})
	}
	all.Wait()
	return children
}

// workDir returns the working directory of a thread's run.
func (h *host) workDir(id string) string {
	h.t.Helper()
	for _, e := range h.of(id) {
		var p thread.Started
		if json.Unmarshal(e.Payload, &p) == nil && p.Type == thread.TypeStarted {
			return p.Cwd
		}
	}
	h.t.Fatalf("thread %s has no run", id)
	return ""
}

// of returns the entries of a thread.
func (h *host) of(id string) []thread.Entry {
	h.t.Helper()
	h.thread = id
	return h.entries()
}

// results checks that a thread has the announcement and the result of each child, once.
func (h *host) results(parent string, children []string) {
	h.t.Helper()
	spawned, finished, chats := map[string]int{}, map[string]int{}, map[string]int{}
	for _, e := range h.of(parent) {
		f, err := thread.Scan(e.Payload)
		if err != nil {
			h.t.Fatal(err)
		}
		switch f.Type {
		case thread.TypeAgentSpawn:
			var p thread.AgentSpawn
			if err := json.Unmarshal(e.Payload, &p); err != nil {
				h.t.Error(err)
			}
			spawned[p.ChildThreadID]++
		case thread.TypeChildFinished:
			var p thread.ChildFinished
			if err := json.Unmarshal(e.Payload, &p); err != nil || p.Status != thread.StatusCompleted {
				h.t.Errorf("%s: %v", e.Payload, err)
			}
			finished[p.ChildThreadID]++
		case thread.TypeChat:
			if child, _, is := strings.Cut(e.ID, "."); is && strings.HasSuffix(e.ID, ".result") {
				chats[child]++
				if !strings.Contains(string(e.Payload), "Result.") ||
					e.AuthorID != "00000000-0000-4000-8000-000000000001" {
					h.t.Errorf("the result of %s by %q: %s", child, e.AuthorID, e.Payload)
				}
			}
		}
	}
	for _, child := range children {
		if spawned[child] != 1 || finished[child] != 1 || chats[child] != 1 {
			h.t.Errorf("%s is announced %d times, finished %d times, with %d results", child, spawned[child],
				finished[child], chats[child])
		}
	}
	if len(spawned) != len(children) || len(finished) != len(children) {
		h.t.Errorf("%d are announced, %d finished", len(spawned), len(finished))
	}
}
