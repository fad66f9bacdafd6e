package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/thread"
)

const (
	page         = "<!DOCTYPE html><html><body>Log in to the network</body></html>"
	completedRun = " signal.thread.status_changed:completed"
	doneRun      = opening + "pi.session:prompt pi.assistant" + completedRun
)

// A run whose server has another address is not begun, and the error names that address.
func TestRedirectedAtTheStart(t *testing.T) {
	server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
		return fakethread.Fault{Status: 301, Header: map[string]string{"Location": "https://threads.test" + c.Path}}
	})
	there := filepath.Join(t.TempDir(), "there")
	_, err := run(t, setup(t, server, "touch "+there))
	if !errors.Is(err, runner.ErrRefused) || !strings.Contains(err.Error(), "https://threads.test/api/stream,") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(there); err == nil {
		t.Error("the agent was started")
	}
}

// While redirects or login pages answer in mid-run, nothing counts as delivered; afterwards all of it is there.
func TestNoServerInMidRun(t *testing.T) {
	for name, fault := range map[string]fakethread.Fault{
		"a redirect":   {Status: 302, Header: map[string]string{"Location": "/api/stream/arbe-thread-t1"}},
		"a login page": {Status: 200, Header: map[string]string{"Content-Type": "text/html"}, Body: page},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var failed atomic.Int64
			server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
				line := slices.ContainsFunc(c.Entries, func(e thread.Entry) bool {
					return strings.HasPrefix(e.ID, "pi:") || strings.Contains(e.ID, ".end.")
				})
				if line && failed.Add(1) <= 4 {
					return fault
				}
				return fakethread.Fault{}
			})
			res, err := run(t, setup(t, server, "prompt", "say done"))
			if err != nil || res.Verdict.Outcome != outcome.Completed {
				t.Fatalf("got %+v, %v", res.Verdict, err)
			}
			if got := words(server.Entries()); got != doneRun {
				t.Errorf("got  %s\nwant %s", got, doneRun)
			}
		})
	}
}

// A login page at the start is a server that doesn't answer: the agent starts, and its entries wait.
func TestLoginPageAtTheStart(t *testing.T) {
	t.Parallel()
	there := filepath.Join(t.TempDir(), "there")
	server := fakethread.New(t, func(fakethread.Call) fakethread.Fault {
		if _, err := os.Stat(there); err == nil {
			return fakethread.Fault{}
		}
		return fakethread.Fault{Status: 200, Header: map[string]string{"Content-Type": "text/html"}, Body: page}
	})
	cfg := setup(t, server, "prompt", "say done", "touch "+there)
	cfg.Timeout = 500 * time.Millisecond
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	if got := words(server.Entries()); got != doneRun {
		t.Errorf("got  %s\nwant %s", got, doneRun)
	}
}

// A prompt that something on the way refuses, without a word on which entry it is about, is cut on the thread and
// whole for the agent.
func TestRefusedPrompt(t *testing.T) {
	const limit = 100 << 10
	for _, tt := range []struct {
		name   string
		refuse func(c fakethread.Call, e thread.Entry) bool
		status int
		want   string // the beginning of the prompt on the thread; "-" where there is none
	}{
		{"a proxy with a limit", func(c fakethread.Call, _ thread.Entry) bool {
			size := 0
			for _, e := range c.Entries {
				size += len(e.Payload)
			}
			return size > limit
		}, 413, "word word"},
		{"a server that calls it bad", func(_ fakethread.Call, e thread.Entry) bool {
			return strings.Contains(string(e.Payload), "word word")
		}, 400, "[cut: "},
		{"a server that calls it bad at any length", func(_ fakethread.Call, e thread.Entry) bool {
			return e.ID == "r1.prompt"
		}, 400, "-"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
				if slices.ContainsFunc(c.Entries, func(e thread.Entry) bool { return tt.refuse(c, e) }) {
					return fakethread.Fault{Status: tt.status, Body: "no"}
				}
				return fakethread.Fault{}
			})
			cfg := setup(t, server, "prompt", "say done")
			cfg.Prompt = strings.Repeat("word ", limit)
			res, err := run(t, cfg)
			if err != nil || res.Verdict.Outcome != outcome.Completed {
				t.Fatalf("got %+v, %v", res.Verdict, err)
			}
			entries := server.Entries()
			i := slices.IndexFunc(entries, func(e thread.Entry) bool { return e.ID == "r1.prompt" })
			if (i < 0) != (tt.want == "-") {
				t.Fatalf("the thread has %v", types(entries))
			}
			if i >= 0 {
				var chat thread.Chat
				if err := json.Unmarshal(entries[i].Payload, &chat); err != nil {
					t.Fatal(err)
				}
				mark := fmt.Sprintf("[cut: %d bytes, sha256 ", len(cfg.Prompt))
				head, tail := strings.HasPrefix(chat.Text, tt.want), strings.Contains(chat.Text, mark)
				if !chat.Truncated || !head || !tail || len(chat.Text) > 10<<10 {
					t.Errorf("the prompt on the thread is %d bytes, %.100q…", len(chat.Text), chat.Text)
				}
			}
			info, err := os.ReadFile(sessionFileOf(t, cfg.State))
			if err != nil || !strings.Contains(string(info), cfg.Prompt) {
				t.Errorf("the agent did not get the whole prompt: %d bytes of session, %v", len(info), err)
			}
		})
	}
}

func sessionFileOf(t *testing.T, state string) string {
	t.Helper()
	runs, err := runfolder.List(state)
	if err != nil || len(runs) != 1 {
		t.Fatalf("%d runs, %v", len(runs), err)
	}
	return runs[0].Session
}

// prompted is a run whose prompt is on the thread.
func prompted(t *testing.T, server *fakethread.Server, plan ...string) runner.Config {
	cfg := setup(t, server, plan...)
	cfg.Prompt = ""
	put(server, "r1.prompt", `{"type":"chat","text":"do it","runId":"r1"}`)
	put(server, "r1.running", `{"type":"signal.thread.status_changed","runId":"r1","harness":"pi","status":"running"}`)
	return cfg
}

// words returns the entries in short.
func words(entries []thread.Entry) string { return strings.Join(types(entries), " ") }

func put(server *fakethread.Server, id, payload string) {
	server.Put(thread.Entry{ID: id, TS: "2026-01-01T00:00:00.000Z", Payload: []byte(payload)})
}

const promptedRun = "chat signal.thread.status_changed:running signal.dispatch.session_started "

// A hiccup of the server does not end a run that reads its prompt from the thread.
func TestPromptReadThroughAHiccup(t *testing.T) {
	for name, fault := range map[string]fakethread.Fault{
		"503": {Status: 503}, "a broken connection": {Drop: true}, "404": {Status: 404},
		"a login page":  {Status: 200, Header: map[string]string{"Content-Type": "text/html"}, Body: page},
		"half an entry": {Status: 200, Body: `{"id":"a","ts":"2026-01-01T00:0`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var reads atomic.Int64
			server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
				if c.Method == "GET" && !c.Live && reads.Add(1) <= 6 { // more than one read tries
					return fault
				}
				return fakethread.Fault{}
			})
			res, err := run(t, runner.Fast(prompted(t, server, "prompt", "say done")))
			if err != nil || res.Verdict.Outcome != outcome.Completed {
				t.Fatalf("got %+v, %v", res.Verdict, err)
			}
			want := promptedRun + "pi.session:session pi.session:prompt pi.assistant" + completedRun
			if got := words(server.Entries()); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// Where the prompt can't be had the run has its end on the thread anyway, and the runner the status that fits.
func TestPromptCannotBeRead(t *testing.T) {
	const other = `{"id":"r2.prompt","ts":"2026-01-01T00:00:00.000Z","payload":{"type":"chat","text":"x"}}`
	for _, tt := range []struct {
		name   string
		fault  fakethread.Fault
		status int
	}{
		{"away for too long", fakethread.Fault{Status: 503}, 69},
		{"never written", fakethread.Fault{Status: 404}, 64},
		{"another prompt", fakethread.Fault{Status: 200, Body: other + "\n"}, 64},
		{"not allowed", fakethread.Fault{Status: 403}, 78},
		{"deleted", fakethread.Fault{Status: 410}, 78},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
				if c.Method == "GET" && !c.Live {
					return tt.fault
				}
				return fakethread.Fault{}
			})
			there := filepath.Join(t.TempDir(), "there")
			cfg := prompted(t, server, "touch "+there)
			cfg.Timeout = 5 * time.Second // well above one answer
			res, err := run(t, cfg)
			if err != nil || res.NotStarted == nil || res.NotStarted.Status != tt.status {
				t.Fatalf("got %v, not started because of %v", err, res.NotStarted)
			}
			want := promptedRun + "pi.session:session signal.thread.pi_failed:spawn signal.thread.status_changed:failed"
			if got := words(server.Entries()); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if _, err := os.Stat(there); err == nil {
				t.Error("the agent was started")
			}
		})
	}
}

// A run that is stopped while it reads its prompt, or the thread that it resumes, ends as cancelled.
func TestStoppedWhileReading(t *testing.T) {
	for name, resume := range map[string]bool{"the prompt": false, "the session": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
				if c.Method == "GET" && !c.Live {
					cancel(errors.New("SIGTERM"))
					return fakethread.Fault{Hang: true}
				}
				return fakethread.Fault{}
			})
			cfg := prompted(t, server)
			if cfg.Resume = resume; resume {
				cfg.Prompt = "do it"
			}
			res, err := runner.RunAlone(ctx, t.Context(), cfg)
			if err != nil || res.NotStarted != nil || res.Verdict.Outcome != outcome.Cancelled {
				t.Errorf("got %+v, %v, not started because of %v", res.Verdict, err, res.NotStarted)
			}
			if end := last[thread.StatusChanged](t, server.Entries()); end.Status != "cancelled" {
				t.Errorf("the thread has %v", types(server.Entries()))
			}
		})
	}
}

// A thread that takes longer to read than a dead server is waited for is resumed, also where it comes in pieces.
func TestResumeOfALongThread(t *testing.T) {
	for name, paged := range map[string]int{"in one piece": 0, "in pieces": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
				if c.Method == "GET" && !c.Live {
					return fakethread.Fault{Pace: 10 * time.Millisecond}
				}
				return fakethread.Fault{}
			}).Paged(paged)
			tool := []string{"call bash", "result fine"}
			first := setup(t, server, slices.Concat([]string{"prompt"}, tool, tool, tool, []string{"say done"})...)
			if _, err := run(t, first); err != nil {
				t.Fatal(err)
			}
			for i := range 600 { // in all longer than the timeout, and each a small part of it
				put(server, fmt.Sprint("step", i), `{"type":"signal.setup.file","name":"a"}`)
			}
			had := len(server.Entries())
			second := setup(t, server, "prompt", "say again")
			second.RunID, second.Resume, second.Timeout = "r2", true, 5*time.Second // and in another box
			res, err := run(t, second)
			if err != nil || res.Verdict.Outcome != outcome.Completed {
				t.Fatalf("got %+v, %v, not started because of %v", res.Verdict, err, res.NotStarted)
			}
			var p thread.Started
			err = json.Unmarshal(server.Entries()[had+1].Payload, &p)
			if err != nil || p.Resume != runner.ResumeHydrate {
				t.Errorf("resumed by %q, %v", p.Resume, err)
			}
			want := strings.TrimSuffix(opening, "pi.session:session ") + "pi.session:prompt pi.assistant" + completedRun
			if got := words(server.Entries()[had:]); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// A run that turns out to be another runner's when only its end is left is noted as such: nobody tries to finish it
// again.
func TestTakenAtTheEnd(t *testing.T) {
	t.Parallel()
	var state atomic.Value
	server := fakethread.New(t, func(fakethread.Call) fakethread.Fault {
		dir, _ := state.Load().(string)
		b, err := os.ReadFile(filepath.Join(dir, "facts.jsonl"))
		if err == nil && strings.Contains(string(b), `"decided"`) {
			return fakethread.Fault{}
		}
		return fakethread.Fault{Status: 503}
	})
	server.Allow("r1.started")
	put(server, "r1.started", `{"type":"signal.dispatch.session_started","runId":"r1","harness":"pi","pid":1}`)
	cfg := setup(t, server, "prompt", "say done")
	cfg.Timeout = 300 * time.Millisecond
	state.Store(runfolder.Path(cfg.State, "t1", "r1"))
	if _, err := run(t, cfg); !errors.Is(err, runner.ErrTaken) {
		t.Errorf("got %v", err)
	}
	runs, err := runfolder.List(cfg.State)
	if err != nil || len(runs) != 1 || runs[0].State != runfolder.StateTaken {
		t.Errorf("known are %+v, %v", runs, err)
	}
	if n := len(server.Entries()); n != 1 {
		t.Errorf("the thread has %v", types(server.Entries()))
	}
}
