package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/thread"
)

// liveSetup is a live run of the fake agent. What the agent reads is in the file read.
func liveSetup(t *testing.T, server *fakethread.Server) (cfg runner.Config, read string) {
	t.Helper()
	read = filepath.Join(t.TempDir(), "read")
	cfg = runner.Fast(setup(t, server, "converse "+read))
	cfg.Live = true
	return cfg, read
}

// going is a live run under way.
type going struct {
	t      *testing.T
	server *fakethread.Server
	cfg    runner.Config
	read   string // the file with what the agent has read
	done   chan struct{}
	res    runner.Result
	err    error
	cancel context.CancelFunc
}

func goLive(t *testing.T, server *fakethread.Server, cfg runner.Config, read string) *going {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	g := &going{t: t, server: server, cfg: cfg, read: read, done: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(g.done)
		g.res, g.err = runner.RunAlone(ctx, t.Context(), cfg)
	}()
	t.Cleanup(func() {
		cancel()
		<-g.done
	})
	return g
}

// await waits for a condition, as long as the run lasts.
func (g *going) await(what string, ok func() bool) {
	g.t.Helper()
	for !ok() {
		select {
		case <-g.done:
			if !ok() {
				g.t.Fatalf("the run ended before: %s; %+v, %v, %v", what, g.res, g.err, types(g.server.Entries()))
			}
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// say posts a chat.
func (g *going) say(id, deliver, text string) {
	g.server.Put(thread.Entry{ID: id, TS: thread.Stamp(time.Now()), AuthorID: "ada", Payload: thread.Marshal(
		thread.Chat{Type: thread.TypeChat, Text: text, Deliver: deliver})})
}

// finish asks for the end and returns the verdict.
func (g *going) finish() outcome.Verdict {
	g.t.Helper()
	g.server.Put(endRequest())
	<-g.done
	if g.err != nil {
		g.t.Fatal(g.err)
	}
	return g.res.Verdict
}

func endRequest() thread.Entry {
	return thread.Entry{ID: "end-please", TS: thread.Stamp(time.Now()), Payload: thread.Marshal(thread.EndRequested{
		Signal: thread.Signal{Type: thread.TypeEnd, RunID: "r1"},
	})}
}

// turns are the ends of turns on the thread: outcome and chats.
func turns(entries []thread.Entry) (all []string) {
	for _, e := range entries {
		var p thread.Waiting
		if json.Unmarshal(e.Payload, &p) == nil && p.Type == thread.TypeWaiting {
			all = append(all, fmt.Sprintf("%d %s %s", p.Turn, p.Outcome, strings.Join(p.Chats, "+")))
		}
	}
	return all
}

func (g *going) turn(n int) {
	g.t.Helper()
	g.await(fmt.Sprintf("the end of turn %d", n), func() bool { return len(turns(g.server.Entries())) >= n })
}

// delivered are the chats that lines of the session name, in order.
func delivered(entries []thread.Entry) (ids []string) {
	for _, e := range entries {
		if p := thread.ParseLine(e.Payload); p.Names() {
			ids = append(ids, p.Named()...)
		}
	}
	return ids
}

// texts are the messages that the agent has read.
func texts(t *testing.T, file string) (all []string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		text, err := strconv.Unquote(strings.TrimSuffix(line, "\n"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text)
	}
	return all
}

func wantAll(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %.300q, want %.300q", what, got, want)
	}
}

func TestLiveRun(t *testing.T) {
	t.Parallel()
	server := fakethread.New(t, nil)
	g := goLive2(t, server)
	g.turn(1)
	hold := filepath.Join(t.TempDir(), "hold")
	g.say("a", "", "hold "+hold)
	g.await("a's turn", func() bool { return len(delivered(server.Entries())) == 2 })
	g.say("b", thread.DeliverFollowUp, "after the turn")
	g.say("c", thread.DeliverSteer, "in the turn")
	g.await("c is read", func() bool { return len(texts(t, g.read)) == 3 })
	touch(t, hold)
	g.turn(3)
	if v := g.finish(); v.Outcome != outcome.Completed {
		t.Errorf("got %+v", v)
	}
	wantAll(t, "read", texts(t, g.read), "do it", "hold "+hold, "in the turn", "after the turn")
	wantAll(t, "delivered", delivered(server.Entries()), "r1.prompt", "a", "c", "b")
	wantAll(t, "turns", turns(server.Entries()), "1 completed r1.prompt", "2 completed a+c", "3 completed b")
}

func goLive2(t *testing.T, server *fakethread.Server) *going {
	t.Helper()
	cfg, read := liveSetup(t, server)
	return goLive(t, server, cfg, read)
}

func touch(t *testing.T, file string) {
	t.Helper()
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// An interrupt overtakes what is not written. The turn that it ends is cancelled, whatever the agent makes of it.
func TestLiveInterrupt(t *testing.T) {
	t.Parallel()
	server := fakethread.New(t, nil)
	g := goLive2(t, server)
	g.turn(1)
	g.say("a", "", "hold "+filepath.Join(t.TempDir(), "never"))
	g.await("a's turn", func() bool { return len(delivered(server.Entries())) == 2 })
	g.say("b", thread.DeliverFollowUp, "after the turn")
	g.say("c", thread.DeliverInterrupt, "at once")
	g.turn(4)
	if v := g.finish(); v.Outcome != outcome.Completed {
		t.Errorf("got %+v", v)
	}
	wantAll(t, "delivered", delivered(server.Entries()), "r1.prompt", "a", "c", "b")
	wantAll(t, "turns", turns(server.Entries()),
		"1 completed r1.prompt", "2 cancelled a", "3 completed c", "4 completed b")
}

// A request of the agent is answered and posted, and what an extension handles is refused in the end.
func TestLiveRequests(t *testing.T) {
	t.Parallel()
	server := fakethread.New(t, nil)
	g := goLive2(t, server)
	g.turn(1)
	g.say("a", "", "ask")
	g.turn(2)
	g.say("b", "", "/command")
	g.await("b is refused", func() bool { return strings.Contains(words(server.Entries()), "chat_refused") })
	if v := g.finish(); v.Outcome != outcome.Completed {
		t.Errorf("got %+v", v)
	}
	var asked []thread.Asked
	for _, e := range server.Entries() {
		var p thread.Asked
		if json.Unmarshal(e.Payload, &p) == nil && p.Type == thread.TypeAsked {
			asked = append(asked, p)
		}
	}
	if len(asked) != 1 || asked[0].Kind != "confirm" || asked[0].Text != "Sure?" || asked[0].Outcome != "cancelled" {
		t.Errorf("asked %+v", asked)
	}
	if got := pendingOn(server.Entries()); got != "" {
		t.Errorf("pending: %s", got)
	}
}

// A run of whose chats the agent takes none has failed. One that has done anything has not.
func TestLiveRefused(t *testing.T) {
	const refused = "refuse No API key found for anthropic."
	for _, tt := range []struct {
		name    string
		prompt  string
		next    string
		refused int
		want    outcome.Outcome
	}{
		{"all", refused, "", 1, outcome.Failed},
		{"both", "refuse it is too early", refused, 2, outcome.Failed},
		{"all but one", refused, "hello", 1, outcome.Completed},
		{"an extension has handled one", refused, "/command", 2, outcome.Completed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := fakethread.New(t, nil)
			cfg, read := liveSetup(t, server)
			cfg.Prompt = tt.prompt
			g := goLive(t, server, cfg, read)
			server.Await(func(e thread.Entry) bool { return e.ID == "r1.prompt" })
			if tt.next != "" {
				g.say("a", "", tt.next)
			}
			g.await("the chats are refused", func() bool {
				return strings.Count(words(server.Entries()), "chat_refused") == tt.refused
			})
			v := g.finish()
			if v.Outcome != tt.want {
				t.Errorf("got %+v", v)
			}
			if tt.want == outcome.Failed && (v.ErrorClass != outcome.ClassExit || v.ExitStatus() != 1 ||
				!strings.HasSuffix(v.Message, "No API key found for anthropic.")) {
				t.Errorf("got %+v", v)
			}
			if got := pendingOn(server.Entries()); got != "" {
				t.Errorf("pending: %s", got)
			}
		})
	}
}

// A message that is longer than the pipe arrives whole.
func TestLargeLive(t *testing.T) {
	t.Parallel()
	server := fakethread.New(t, nil)
	g := goLive2(t, server)
	g.turn(1)
	long := strings.Repeat("0123456789abcde ", 200<<10) + "\u2028end"
	g.say("a", "", long)
	g.turn(2)
	g.finish()
	wantAll(t, "read", texts(t, g.read), "do it", long)
	wantAll(t, "delivered", delivered(server.Entries()), "r1.prompt", "a")
}

// Cancelled in mid-turn: the turn is interrupted, and the chat for after it waits for the next run.
func TestLiveCancel(t *testing.T) {
	t.Parallel()
	server := fakethread.New(t, nil)
	g := goLive2(t, server)
	g.turn(1)
	g.say("a", "", "hold "+filepath.Join(t.TempDir(), "never"))
	g.await("a's turn", func() bool { return len(delivered(server.Entries())) == 2 })
	g.say("b", thread.DeliverFollowUp, "after the turn")
	server.Put(thread.Entry{ID: "stop", TS: thread.Stamp(time.Now()), Payload: thread.Marshal(
		thread.Cancel{Signal: thread.Signal{Type: thread.TypeCancel, RunID: "r1"}})})
	<-g.done
	if g.err != nil || g.res.Verdict.Outcome != outcome.Cancelled {
		t.Errorf("got %+v, %v", g.res.Verdict, g.err)
	}
	if got := pendingOn(server.Entries()); got != "b" {
		t.Errorf("pending: %q", got)
	}
	if g.res.Verdict.Exit != outcome.ExitCode(0) {
		t.Errorf("the agent ended with %v, not with the end of its input", g.res.Verdict.Exit)
	}
}

// An agent that prints more than is kept: the conversation is saved before the beginning is freed.
func TestLiveFlood(t *testing.T) {
	t.Parallel()
	server := fakethread.New(t, nil)
	g := goLive2(t, server)
	g.turn(1)
	for i := range 5 {
		g.say(fmt.Sprint("flood", i), "", fmt.Sprint("flood ", 8<<20))
		g.turn(i + 2)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(runfolder.Path(g.cfg.State, "t1", "r1"), "stdout"), &st); err != nil {
		t.Fatal(err)
	}
	if used := st.Blocks * 512; used > 17<<20 || st.Size < 40<<20 {
		t.Errorf("stdout takes %d bytes of %d", used, st.Size)
	}
	g.say("last", "", "still there")
	g.turn(7)
	if v := g.finish(); v.Outcome != outcome.Completed {
		t.Errorf("got %+v", v)
	}
	wantAll(t, "delivered", delivered(server.Entries()),
		"r1.prompt", "flood0", "flood1", "flood2", "flood3", "flood4", "last")
}

// While the server does not answer, the agent gets the prompt of the command line after Timeout, and the rest when it
// is back.
func TestLiveServerAway(t *testing.T) {
	t.Parallel()
	var back atomic.Bool
	server := fakethread.New(t, func(fakethread.Call) fakethread.Fault {
		if back.Load() {
			return fakethread.Fault{}
		}
		return fakethread.Fault{Status: 503}
	})
	chat(server, "before", "ada", "a chat from before")
	cfg, read := liveSetup(t, server)
	cfg.Timeout = 300 * time.Millisecond
	g := goLive(t, server, cfg, read)
	g.await("the prompt is read", func() bool { return len(texts(t, read)) == 1 })
	back.Store(true)
	g.turn(2)
	if v := g.finish(); v.Outcome != outcome.Completed {
		t.Errorf("got %+v", v)
	}
	wantAll(t, "read", texts(t, read), "do it", "a chat from before")
	wantAll(t, "delivered", delivered(server.Entries()), "r1.prompt", "before")
}
