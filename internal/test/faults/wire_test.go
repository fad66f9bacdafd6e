package faults_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/thread"
)

// renewToken is the scenes' renew token, where they have one.
const renewToken = "the-renew-token"

// html is the header of a page.
var html = map[string]string{"Content-Type": "text/html"}

// page is the answer of a network's login page, with the status of a success.
var page = fakethread.Fault{Status: 200, Header: html, Body: "<html><title>Log in to the network</title></html>"}

// elsewhere is a redirect to a page that any GET is answered with.
var elsewhere = fakethread.Fault{Status: 302, Header: map[string]string{"Location": "/api/stream/arbe-thread-t1"}}

// renewable gives the scene a renew token.
func renewable(s *scene) {
	s.server.Renew(renewToken)
	s.env["ARBE_STREAM_RENEW_TOKEN"] = renewToken
}

// tokenInFile gives the scene its token in a file.
func tokenInFile(s *scene) {
	s.write("token", s.server.Current())
	s.env["ARBE_STREAM_TOKEN_FILE"], s.env["ARBE_STREAM_TOKEN"] = s.path("token"), ""
}

// rotate replaces the token, as its file or the server's renewal has it.
func (s *scene) rotate(token string) {
	s.server.SetToken(token)
	if s.env["ARBE_STREAM_TOKEN_FILE"] != "" {
		s.write("token", token)
	}
}

// hangRenewals lets the next n renewals wait and then break off.
func (s *scene) hangRenewals(n int, wait time.Duration) {
	s.failWith(func(c fakethread.Call) fakethread.Fault {
		if !c.Renewal || n == 0 {
			return fakethread.Fault{}
		}
		n--
		time.Sleep(wait) // this is the fault
		return fakethread.Fault{Drop: true}
	})
}

// refuseTogether answers the next n posts of several entries with 413, as a proxy with a limit on bodies does.
func (s *scene) refuseTogether(n int) {
	s.failWith(func(c fakethread.Call) fakethread.Fault {
		if len(c.Entries) < 2 || n == 0 {
			return fakethread.Fault{}
		}
		n--
		return fakethread.Fault{Status: 413, Header: html, Body: "<html>too large</html>"}
	})
}

// slowAnswers lets the next n posts be applied, and answered after the wait.
func (s *scene) slowAnswers(n int64, wait time.Duration) {
	var calls atomic.Int64
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = func(fakethread.Call) fakethread.Fault { // which may overlap
		if calls.Add(1) <= n {
			return fakethread.Fault{Late: wait}
		}
		return fakethread.Fault{}
	}
}

// failReads lets the next n reads go wrong in the same way.
func (s *scene) failReads(n int64, f fakethread.Fault) {
	var reads atomic.Int64
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads = func(fakethread.Call) fakethread.Fault {
		if reads.Add(1) <= n {
			return f
		}
		return fakethread.Fault{}
	}
}

// promptOnThread lets the host post the run's prompt. The first n reads of the runner go wrong.
func promptOnThread(n int64, f fakethread.Fault) func(*scene) {
	return func(s *scene) {
		s.prompted = true
		signal := thread.Signal{Type: thread.TypeStatus, RunID: s.run, Harness: "pi"}
		for id, payload := range map[string]any{
			s.run + ".prompt":  thread.Chat{Type: thread.TypeChat, Text: "do it", RunID: s.run},
			s.run + ".running": thread.StatusChanged{Signal: signal, Status: thread.StatusRunning},
		} {
			s.server.Put(thread.Entry{ID: id, TS: thread.Stamp(time.Now()), Payload: thread.Marshal(payload)})
		}
		var reads atomic.Int64
		s.reads = func(c fakethread.Call) fakethread.Fault {
			if !c.Live && reads.Add(1) <= n {
				return f
			}
			return fakethread.Fault{}
		}
	}
}

// wireTable has the faults between the runner and its thread's server.
var wireTable = []fault{
	{
		name: "server: a redirect, three times", slow: 2 * time.Second, want: refusedAtStart, exit: refusedExit,
		hit: func(s *scene, _ moment) { s.failCalls(3, elsewhere) },
	},
	{
		name: "network: a login page (200, HTML), three times", slow: 2 * time.Second,
		hit: func(s *scene, _ moment) { s.failCalls(3, page) },
	},
	{
		name: "proxy: 413 for entries together, three times", slow: time.Second,
		hit: func(s *scene, _ moment) { s.refuseTogether(3) },
	},
	{
		name: "proxy: 413 for the prompt, without a list", on: at(beforeAgent),
		hit: func(s *scene, _ moment) {
			s.failWith(func(c fakethread.Call) fakethread.Fault {
				whole := func(e thread.Entry) bool {
					var chat thread.Chat
					return e.ID == s.run+".prompt" && json.Unmarshal(e.Payload, &chat) == nil && !chat.Truncated
				}
				if slices.ContainsFunc(c.Entries, whole) {
					return fakethread.Fault{Status: 413, Body: "too large"}
				}
				return fakethread.Fault{}
			})
		},
	},
	{
		name: "server: 400 for a line, without a list", on: at(beforeLine), torn: true,
		hit: func(s *scene, _ moment) {
			id := "pi:" + s.sessionID() + ":m2"
			s.alien = id // a stub stands for it
			s.failWith(func(c fakethread.Call) fakethread.Fault {
				for _, e := range c.Entries {
					if e.ID == id && !strings.Contains(string(e.Payload), `"kind":"stub"`) {
						return fakethread.Fault{Status: 400, Body: "no"}
					}
				}
				return fakethread.Fault{}
			})
		},
	},
	{
		name: "server: each answer takes longer than heartbeats are apart", slow: 3 * time.Second,
		prep: func(s *scene) { s.env["ARBE_HEARTBEAT"] = "200ms" },
		hit:  func(s *scene, _ moment) { s.slowAnswers(4, 600*time.Millisecond) },
	},
	{
		name: "token expired, and the server renews it", on: from(beforeLine), slow: 2 * time.Second, prep: renewable,
		hit: func(s *scene, _ moment) { s.server.SetToken("another-token") },
	},
	{
		name: "the same, and the renewal hangs for a second", on: from(beforeLine), slow: 4 * time.Second,
		prep: renewable,
		hit: func(s *scene, _ moment) {
			s.hangRenewals(1, time.Second)
			s.server.SetToken("another-token")
		},
	},
	{
		name: "cancel over the thread, at a server that holds no answer back", keep: true, on: agentLives,
		want: cancelled,
		prep: func(s *scene) { s.server.NoLive() }, hit: cancelOnThread,
	},
	{
		name: "prompt on the thread: 503 for six reads", hit: nothing,
		prep: promptOnThread(6, fakethread.Fault{Status: 503}),
	},
	{
		name: "prompt on the thread, and worker: KILL", prep: promptOnThread(0, fakethread.Fault{}),
		hit: func(s *scene, _ moment) { kill(s.worker(), syscall.SIGKILL) },
	},
	{
		name: "prompt on the thread: 404 for two reads", hit: nothing,
		prep: promptOnThread(2, fakethread.Fault{Status: 404}),
	},
}

func nothing(*scene, moment) {}

// A run that is killed altogether while it reads a long thread to resume it is known to recover, and gets its end.
func TestKilledWhileReading(t *testing.T) {
	t.Parallel()
	s := newScene(t, fmt.Sprintf("reading-%d", os.Getpid()))
	s.script(after)
	promptOnThread(0, fakethread.Fault{})(s)
	s.args = []string{"--resume"}
	s.reads = func(fakethread.Call) fakethread.Fault { return fakethread.Fault{Hang: true} }
	s.start()
	s.until("a record", func() bool { return exists(filepath.Join(s.folder(), "run.json")) })
	kill(s.keeper(), syscall.SIGKILL)
	for _, pid := range processes("work " + s.run) {
		kill(pid, syscall.SIGKILL)
	}
	s.finish()
	s.failReads(0, fakethread.Fault{})
	s.recover()
	if word, _ := s.verdict(); word != "failed: spawn" {
		t.Errorf("the run is %q", word)
	}
}

// A run that is stopped while it reads its prompt ends as cancelled.
func TestStoppedWhileReading(t *testing.T) {
	t.Parallel()
	s := newScene(t, fmt.Sprintf("stopped-%d", os.Getpid()))
	s.script(after)
	promptOnThread(0, fakethread.Fault{})(s)
	reading := make(chan struct{})
	var once sync.Once
	s.reads = func(c fakethread.Call) fakethread.Fault {
		if !c.Live {
			once.Do(func() { close(reading) })
		}
		return fakethread.Fault{Hang: true}
	}
	s.start()
	select {
	case <-reading:
	case <-time.After(patience):
		t.Fatalf("nobody reads the prompt:\n%s", s.stderr.String())
	}
	kill(s.keeper(), syscall.SIGTERM)
	if status := s.finish(); status != 1 {
		t.Errorf("the runner ended with %d:\n%s", status, s.stderr.String())
	}
	if word, _ := s.verdict(); word != "cancelled" {
		t.Errorf("the run is %q", word)
	}
}
