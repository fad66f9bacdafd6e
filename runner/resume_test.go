package runner_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/thread"
)

// Where the thread can't be read, the box's own session is continued. With --hydrate the agent is not started, and the
// run's end has the reason.
func TestResumeWithoutTheThread(t *testing.T) {
	var away atomic.Bool
	server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
		if away.Load() && c.Method == http.MethodGet {
			return fakethread.Fault{Status: 500}
		}
		return fakethread.Fault{}
	})
	cfg := setup(t, server, "prompt", "say done")
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	away.Store(true)
	cfg.RunID, cfg.Resume, cfg.Timeout = "r2", true, 200*time.Millisecond
	if res, err := run(t, cfg); err != nil || res.Verdict.Outcome != outcome.Completed {
		t.Errorf("%+v, %v", res.Verdict, err)
	}
	var started thread.Started
	for _, e := range server.Entries() {
		if e.ID == "r2.started" {
			if err := json.Unmarshal(e.Payload, &started); err != nil {
				t.Fatal(err)
			}
		}
	}
	if started.Resume != runner.ResumeContinue {
		t.Errorf("resumed by %s", started.Resume)
	}
	cfg.RunID, cfg.Hydrate = "r3", true
	res, err := run(t, cfg)
	if err != nil || res.NotStarted == nil || !strings.Contains(res.Verdict.Message, "read the thread") {
		t.Errorf("%+v, %v", res.Verdict, err)
	}
}

// NextIndex skips lines that are on the thread. A wrong index loses nothing.
func TestNextIndex(t *testing.T) {
	for _, tt := range []struct {
		name string
		next int
		want string // the ids of the posted lines
	}{
		{"not given", 0, "s1 m1 m2 m3 m4"},
		{"true", 3, "m3 m4"},
		{"too far", 5, "s1 m1 m2 m3 m4"},
		{"beyond the file", 50, "s1 m1 m2 m3 m4"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var posted []string
			server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
				mu.Lock()
				defer mu.Unlock()
				for _, e := range c.Entries {
					id, is := strings.CutPrefix(e.ID, "pi:s1:")
					if is && !slices.Contains(posted, id) { // the last ones may come twice
						posted = append(posted, id)
					}
				}
				return fakethread.Fault{}
			})
			const head = `{"type":"session","version":3,"id":"s1","timestamp":"2026-01-01T00:00:00.000Z",` +
				`"cwd":"/"}` + "\n"
			line := func(id string) string {
				return `{"type":"message","id":"` + id + `","parentId":null,` +
					`"timestamp":"2026-01-01T00:00:00.000Z","message":{"role":"user","content":"` + id + `"}}` + "\n"
			}
			for i, payload := range []string{
				`{"type":"pi.session","kind":"session","session":{"id":"s1","entry":"s1","parent":null,` +
					`"index":0},"line":` + strings.TrimSpace(head) + `}`,
				`{"type":"chat","text":"m1","message":{"role":"user","content":"m1"},"session":{"id":"s1",` +
					`"entry":"m1","parent":null,"index":1}}`,
				`{"type":"chat","text":"m2","message":{"role":"user","content":"m2"},"session":{"id":"s1",` +
					`"entry":"m2","parent":null,"index":2}}`,
			} {
				server.Put(thread.Entry{
					ID: "pi:s1:" + []string{"s1", "m1", "m2"}[i], TS: "2026-01-01T00:00:00.000Z",
					Payload: json.RawMessage(payload),
				})
			}
			cfg := setup(t, server, "prompt", "say done")
			cfg.Session, cfg.NextIndex = filepath.Join(cfg.Cwd, "s.jsonl"), tt.next
			if err := os.WriteFile(cfg.Session, []byte(head+line("m1")+line("m2")), 0o600); err != nil {
				t.Fatal(err)
			}
			if res, err := run(t, cfg); err != nil || res.Verdict.Outcome != outcome.Completed {
				t.Fatalf("%v, %v", res.Verdict, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if got := strings.Join(posted, " "); got != tt.want {
				t.Errorf("posted %s, want %s", got, tt.want)
			}
		})
	}
}
