package e2e_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/thread"
)

// Three tasks are delegated at the same time from one thread. Each gets a box and a tree of its own, or works in the
// parent's box, and the results of all three come to the thread.
func TestFullDelegate(t *testing.T) {
	for name, tt := range map[string]struct {
		in    []string
		trees int
	}{
		"isolated": {[]string{"--environment", "local1"}, 3},
		"shared":   {[]string{"--in", "parent"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			parent := h.arbe("thread", "new")
			h.withTasks(parent)
			if tt.trees == 1 {
				h.model.More(say("Here."))
				first, _ := h.launch("--keep", "--thread", parent, "--", "make a box")
				h.ends(first.ThreadID)
			}
			gate := filepath.Join(h.dir, "gate")
			work := bash("echo line >> made.txt; until [ -e " + gate + " ]; do sleep 0.01; done")
			h.model.More(work, work, work, say("Result."), say("Result."), say("Result."))
			before := len(h.model.Requests())

			children := h.delegate(3, append([]string{parent}, tt.in...)...)
			provision := []string{"provision", "--once", "--launches", "3"}
			out, err := h.try(append(provision, h.with("", nil)[3:]...)...)
			if err != nil {
				t.Fatalf("provision: %v\n%s", err, out)
			}
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
			if len(trees) != tt.trees || lines != 3 {
				t.Errorf("%d trees with %d lines", len(trees), lines)
			}
			for range 2 { // a second pass tells nobody again
				if out, err := h.try("reconcile", "--all"); err != nil {
					t.Errorf("reconcile: %v\n%s", err, out)
				}
			}
			h.told(parent, children)
		})
	}
}

// withTasks gives the host a database with a house, a bot, an environment of local boxes and a thread.
func (h *host) withTasks(parent string) {
	h.t.Helper()
	h.database(h.withRows(), func(c *pgx.Conn) error {
		for _, sql := range []string{
			"insert into agents (id, kind, runtime) values ('00000000-0000-4000-8000-000000000001', 'bot', 'pi')",
			"insert into members (house_id, agent_id, role) select 'house1', id, 'member' from agents",
			"insert into environments (id, house_id, name, runtime) values ('local1', 'house1', 'local', 'local')",
			`insert into threads (id, stream_id, house_id, environment_id, agent_id, status)
				select '` + parent + `', '` + parent + `', 'house1', 'local1', id, 'idle' from agents`,
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

// told checks that a thread has the announcement and the result of each child, once.
func (h *host) told(parent string, children []string) {
	h.t.Helper()
	spawned, finished, results := map[string]int{}, map[string]int{}, map[string]int{}
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
				results[child]++
				if !strings.Contains(string(e.Payload), "Result.") ||
					e.AuthorID != "00000000-0000-4000-8000-000000000001" {
					h.t.Errorf("the result of %s by %q: %s", child, e.AuthorID, e.Payload)
				}
			}
		}
	}
	for _, child := range children {
		if spawned[child] != 1 || finished[child] != 1 || results[child] != 1 {
			h.t.Errorf("%s is announced %d times, finished %d times, with %d results", child, spawned[child],
				finished[child], results[child])
		}
	}
	if len(spawned) != len(children) || len(finished) != len(children) {
		h.t.Errorf("%d are announced, %d finished", len(spawned), len(finished))
	}
}

