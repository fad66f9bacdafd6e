package runner_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/thread"
)

// stopWhen runs cfg and ends it, with the cause, when the file is there.
func stopWhen(t *testing.T, cfg runner.Config, file string, cause error) (runner.Result, time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	done := make(chan runner.Result, 1)
	go func() {
		res, err := runner.RunAlone(ctx, t.Context(), cfg)
		if err != nil {
			t.Error(err)
		}
		done <- res
	}()
	for {
		if _, err := os.Stat(file); err == nil {
			break
		}
		time.Sleep(5 * time.Millisecond) // until the plan is there
	}
	began := time.Now()
	cancel(cause)
	return <-done, time.Since(began)
}

func TestCancel(t *testing.T) {
	const ordered = time.Minute // the grace of an agent that ends in order
	for _, tt := range []struct {
		name   string
		plan   []string
		want   outcome.Outcome
		status int
		killed bool
	}{
		{"in order", []string{"prompt", "on TERM 143", "call bash"}, outcome.Cancelled, 143, false},
		{"by the signal's own effect", []string{"prompt", "call bash"}, outcome.Cancelled, 143, false},
		{"one that will not", []string{"prompt", "ignore TERM", "call bash"}, outcome.Cancelled, 137, true},
		{"after a good end", []string{"prompt", "on TERM 143", "say done"}, outcome.Completed, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := fakethread.New(t, nil)
			there := filepath.Join(t.TempDir(), "there")
			cfg := setup(t, server, append(tt.plan, "touch "+there, "sleep 60s")...)
			if cfg = runner.Fast(cfg); !tt.killed {
				cfg = runner.Grace(cfg, ordered)
			}
			res, took := stopWhen(t, cfg, there, errors.New("SIGTERM"))
			if res.Verdict.Outcome != tt.want || res.Verdict.ExitStatus() != tt.status {
				t.Errorf("got %+v, status %d", res.Verdict, res.Verdict.ExitStatus())
			}
			if waited := took >= ordered; waited && !tt.killed { // an agent that ends at once needs no grace
				t.Errorf("took %v", took)
			}
			end := last[thread.StatusChanged](t, server.Entries())
			if tt.want == outcome.Cancelled &&
				(end.Totals.Reason != "cancelled: SIGTERM" || end.Status != "cancelled") {
				t.Errorf("the end on the thread is %+v", end.Totals)
			}
		})
	}
}

// A cancel over the thread is obeyed whatever the server makes of those who wait for it.
func TestCancelAfterRestore(t *testing.T) {
	for _, tt := range []struct {
		name   string
		server func(*fakethread.Server)             // before the run
		hook   func(reads int64) fakethread.Fault   // of the reads
		before func(*testing.T, *fakethread.Server) // in mid-run, before the cancel
	}{
		{name: "a server that holds no answer back", server: func(s *fakethread.Server) { s.NoLive() }},
		{name: "an older server", server: func(s *fakethread.Server) { s.Old() }},
		{name: "a server that gives the thread in pieces", server: func(s *fakethread.Server) { s.Paged(1) }},
		{name: "a server that was restored to an earlier state", before: func(t *testing.T, s *fakethread.Server) {
			s.Await(func(e thread.Entry) bool { return strings.HasPrefix(e.ID, "pi:") })
			s.Restore(1)
		}},
		{name: "a hiccup with 405", hook: func(n int64) fakethread.Fault {
			if n <= 2 {
				return fakethread.Fault{Status: 405}
			}
			return fakethread.Fault{}
		}},
		{name: "a hiccup with a redirect", hook: func(n int64) fakethread.Fault {
			if n == 1 {
				return fakethread.Fault{Status: 302, Header: map[string]string{"Location": "/login"}}
			}
			return fakethread.Fault{}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var reads atomic.Int64
			server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
				if c.Method == "GET" && tt.hook != nil {
					return tt.hook(reads.Add(1))
				}
				return fakethread.Fault{}
			})
			if tt.server != nil {
				tt.server(server)
			}
			there := filepath.Join(t.TempDir(), "there")
			cfg := setup(t, server, "prompt", "touch "+there, "sleep 60s")
			done := make(chan runner.Result, 1)
			go func() {
				res, err := run(t, runner.Fast(cfg))
				if err != nil {
					t.Error(err)
				}
				done <- res
			}()
			awaitFile(t, there)
			if tt.before != nil {
				tt.before(t, server)
			}
			put(server, "please", `{"type":"signal.dispatch.cancel_requested","runId":"r1","reason":"enough"}`)
			v := (<-done).Verdict
			if v.Outcome != outcome.Cancelled || !strings.Contains(v.Message, "enough") {
				t.Errorf("got %+v", v)
			}
		})
	}
}

// A run whose beginning the host has posted reads its prompt and the requests to it, and nothing else of a long thread.
func TestReadsNoMoreThanItNeeds(t *testing.T) {
	for _, tt := range []struct {
		name  string
		early string // a request from before the runner started
		most  int    // bytes of all reads
		kind  func(*fakethread.Server)
	}{
		{"asked while it runs", "", 16 << 10, func(*fakethread.Server) {}},
		{"asked before it started", "r1", 16 << 10, func(*fakethread.Server) {}},
		{"an older server", "r1", 16 << 20, func(s *fakethread.Server) { s.Whole() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := fakethread.New(t, nil)
			tt.kind(server)
			text := strings.Repeat("x", 10<<10)
			for i := range 100 {
				put(server, fmt.Sprintf("chat%d", i), `{"type":"chat","text":"`+text+`"}`)
			}
			there := filepath.Join(t.TempDir(), "there")
			cfg := prompted(t, server, "prompt", "touch "+there, "sleep 60s")
			const ask = `{"type":"signal.dispatch.cancel_requested","runId":"r1","reason":"enough"}`
			put(server, "all", `{"type":"signal.dispatch.cancel_requested","reason":"of runs before this one"}`)
			if tt.early != "" {
				put(server, "please", ask)
			}
			done := make(chan runner.Result, 1)
			go func() {
				res, err := run(t, runner.Fast(cfg))
				if err != nil {
					t.Error(err)
				}
				done <- res
			}()
			if tt.early == "" {
				awaitFile(t, there)
				put(server, "please", ask)
			}
			v := (<-done).Verdict
			if v.Outcome != outcome.Cancelled || !strings.Contains(v.Message, "enough") {
				t.Errorf("got %+v", v)
			}
			if sent := server.Sent(); sent > tt.most {
				t.Errorf("read %d bytes of a thread of 1 MB", sent)
			}
		})
	}
}
