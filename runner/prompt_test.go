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

	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// chat puts a chat on the thread.
func chat(server *fakethread.Server, id, author, text string) {
	payload := thread.Marshal(thread.Chat{Type: thread.TypeChat, Text: text})
	server.Put(thread.Entry{ID: id, TS: "2026-06-01T12:00:00.000Z", AuthorID: author, Payload: payload})
}

// delivery returns the text of a run's first user line, and the chats that its entry names. There is no second one.
func delivery(t *testing.T, entries []thread.Entry, run string) (text string, chats []string) {
	t.Helper()
	found := 0
	for _, e := range entries {
		p := thread.ParseLine(e.Payload)
		if !p.Names() || !slices.Contains(p.Named(), run+".prompt") {
			continue
		}
		if found++; len(p.Chats) > 0 == (p.Chat != "") {
			t.Errorf("%s names %q in chat and %q in chats", e.ID, p.Chat, p.Chats)
		}
		text, chats = session.Pi.Decode(p.Line).Text, p.Named()
	}
	if found != 1 {
		t.Errorf("%d lines have the prompt of %s", found, run)
	}
	return text, chats
}

// pendingOn are the ids of the chats that are pending on a thread.
func pendingOn(entries []thread.Entry) string {
	var p thread.Pending
	for _, e := range entries {
		p.Add(e)
	}
	var ids []string
	for _, c := range p.Chats() {
		ids = append(ids, c.ID)
	}
	return strings.Join(ids, " ")
}

// A resume has what is pending before its prompt, in one turn, whichever way it gets its session.
func TestEarlierChats(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*runner.Config)
		want   string // session_started.resume
	}{
		{"in place", func(*runner.Config) {}, runner.ResumeContinue},
		{"rebuilt", func(cfg *runner.Config) { cfg.Hydrate = true }, runner.ResumeHydrate},
		{"in a fresh box", func(cfg *runner.Config) { cfg.State += "2" }, runner.ResumeHydrate},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := fakethread.New(t, nil)
			cfg := setup(t, server, "prompt", "say done")
			chat(server, "early", "ada", "before any run")
			if _, err := run(t, cfg); err != nil {
				t.Fatal(err)
			}
			if text, chats := delivery(t, server.Entries(), "r1"); text != "do it" || len(chats) != 1 {
				t.Errorf("r1, which resumes nothing, got %q, %q", text, chats)
			}
			chat(server, "late", "", "two\nlines\n")
			server.Put(thread.Entry{
				ID: "image", TS: "2026-06-01T12:00:00.000Z", AuthorID: "bob", Payload: json.RawMessage(
					`{"type":"chat","text":"","message":{"role":"user","content":[` +
						`{"type":"image","mimeType":"image/png","data":"AAAA"}]}}`),
			})
			tt.change(&cfg)
			cfg.RunID, cfg.Resume, cfg.Prompt = "r2", true, "/go on"
			if res, err := run(t, cfg); err != nil || res.Verdict.Outcome != outcome.Completed {
				t.Fatalf("%+v, %v", res.Verdict, err)
			}
			entries := server.Entries()
			text, chats := delivery(t, entries, "r2")
			const want = "[chat from ada]\nbefore any run\n\n[chat]\ntwo\nlines\n\n\n" +
				"[chat from bob]\n[image left out: image/png]\n\n[prompt]\n/go on"
			if text != want {
				t.Errorf("got  %q\nwant %q", text, want)
			}
			if got := strings.Join(chats, " "); got != "early late image r2.prompt" {
				t.Errorf("the line names %s", got)
			}
			if got := last[thread.Started](t, upTo(entries, "r2.started")).Resume; got != tt.want {
				t.Errorf("resumed by %s", got)
			}
			if got := pendingOn(entries); got != "" {
				t.Errorf("still pending: %s", got)
			}
			for _, e := range entries {
				if p := thread.ParseLine(e.Payload); p.Type == thread.TypeChat && p.Session != nil {
					t.Errorf("%s is a second chat: %s", e.ID, e.Payload)
				}
			}
			// Nothing is pending now: the next prompt is as it is, and so it is after a rebuild.
			for _, id := range []string{"r3", "r4"} {
				cfg.RunID, cfg.Prompt, cfg.Hydrate = id, "on", id == "r4"
				if _, err := run(t, cfg); err != nil {
					t.Fatal(err)
				}
				if text, chats := delivery(t, server.Entries(), id); text != "on" || len(chats) != 1 {
					t.Errorf("%s got %q, %q", id, text, chats)
				}
			}
			files, err := filepath.Glob(filepath.Join(cfg.State, "sessions", "t1", "*.jsonl"))
			if err != nil || len(files) == 0 {
				t.Fatalf("%v, %v", files, err)
			}
			b, err := os.ReadFile(slices.Max(files))
			if err != nil || strings.Count(string(b), "before any run") != 1 {
				t.Errorf("a chat is in the session twice, or not: %s (%v)", b, err)
			}
		})
	}
}

// upTo are the entries up to the one with an id.
func upTo(entries []thread.Entry, id string) []thread.Entry {
	i := slices.IndexFunc(entries, func(e thread.Entry) bool { return e.ID == id })
	return entries[:i+1]
}

// A worker that dies before it has started the agent leaves the turn to the next one, as it was: a chat that has come
// since waits.
func TestEarlierChatsAfterWorker(t *testing.T) {
	ctx, die := context.WithCancel(t.Context())
	defer die()
	var cfg runner.Config
	var dies atomic.Bool
	saved := filepath.Join(t.TempDir(), "saved")
	server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
		begins := slices.ContainsFunc(c.Entries, func(e thread.Entry) bool { return e.ID == "r2.started" })
		if !begins || !dies.Swap(false) {
			return fakethread.Fault{}
		}
		if err := os.CopyFS(saved, os.DirFS(runfolder.Path(cfg.State, "t1", "r2"))); err != nil {
			t.Error(err)
		}
		die()
		return fakethread.Fault{Status: 503}
	})
	cfg = setup(t, server, "prompt", "say done")
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	chat(server, "a", "ada", "one")
	dies.Store(true)
	cfg.RunID, cfg.Resume, cfg.Prompt = "r2", true, "go on"
	if _, err := runner.RunAlone(ctx, ctx, cfg); !errors.Is(err, runner.ErrUndelivered) {
		t.Fatal(err)
	}
	chat(server, "b", "bob", "two")
	path := runfolder.Path(cfg.State, "t1", "r2")
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(path, os.DirFS(saved)); err != nil {
		t.Fatal(err)
	}
	folder, err := runfolder.New(cfg.State, "t1", "r2")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Folder = folder
	if res, err := run(t, cfg); err != nil || res.Verdict.Outcome != outcome.Completed {
		t.Fatalf("%+v, %v", res.Verdict, err)
	}
	text, chats := delivery(t, server.Entries(), "r2")
	if text != "[chat from ada]\none\n\n[prompt]\ngo on" || strings.Join(chats, " ") != "a r2.prompt" {
		t.Errorf("got %q, %q", text, chats)
	}
	if got := pendingOn(server.Entries()); got != "b" {
		t.Errorf("pending: %q", got)
	}
}

// An agent that ends before its session has the turn has had neither the chats nor its prompt: the next run has them. A
// prompt that is given once more is one.
func TestEarlierChatsOfAnAgentThatDied(t *testing.T) {
	server := fakethread.New(t, nil)
	cfg := setup(t, server, "prompt", "say done")
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	chat(server, "a", "ada", "one")
	plan := filepath.Join(cfg.Cwd, "plan")
	if err := os.WriteFile(plan, []byte("die KILL"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.RunID, cfg.Resume = "r2", true
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	cfg.RunID, cfg.Prompt = "r3", "another task"
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	if got := pendingOn(server.Entries()); got != "a r2.prompt r3.prompt" {
		t.Errorf("pending: %q", got)
	}
	if err := os.WriteFile(plan, []byte("prompt\nsay done"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.RunID = "r4"
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	text, chats := delivery(t, server.Entries(), "r4")
	const want = "[chat from ada]\none\n\n[chat]\ndo it\n\n[prompt]\nanother task"
	if text != want || strings.Join(chats, " ") != "a r2.prompt r4.prompt" {
		t.Errorf("got %q, %q", text, chats)
	}
	if got := pendingOn(server.Entries()); got != "" {
		t.Errorf("still pending: %q", got)
	}
}

// The chats of a run whose runner is lost are delivered where its session has them, also before the thread has that
// line; while that is not posted, the next run takes no chats.
func TestEarlierChatsOfALostRun(t *testing.T) {
	cfg, server, refuse := lostRun(t, "prompt", "say done")
	chat(server, "a", "ada", "one")
	refuse.Store(403) // r1 can't be finished
	cfg.RunID, cfg.Resume = "r2", true
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	if text, _ := delivery(t, server.Entries(), "r2"); text != "do it" || pendingOn(server.Entries()) != "a" {
		t.Errorf("got %q, pending %q", text, pendingOn(server.Entries()))
	}
	refuse.Store(0)
	cfg.RunID = "r3"
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	if text, _ := delivery(t, server.Entries(), "r3"); !strings.Contains(text, "one") ||
		pendingOn(server.Entries()) != "" {
		t.Errorf("got %q, pending %q", text, pendingOn(server.Entries()))
	}
}

// Where the record of the chats can't be written, the run has none.
func TestEarlierChatsUnrecorded(t *testing.T) {
	server := fakethread.New(t, nil)
	cfg := setup(t, server, "prompt", "say done")
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	chat(server, "a", "ada", "one")
	cfg.RunID, cfg.Resume = "r2", true
	block := filepath.Join(runfolder.Path(cfg.State, "t1", "r2"), "chats.json", "x")
	if err := os.MkdirAll(block, 0o700); err != nil {
		t.Fatal(err)
	}
	if res, err := run(t, cfg); err != nil || res.Verdict.Outcome != outcome.Completed {
		t.Fatalf("%+v, %v", res.Verdict, err)
	}
	if text, _ := delivery(t, server.Entries(), "r2"); text != "do it" || pendingOn(server.Entries()) != "a" {
		t.Errorf("got %q, pending %q", text, pendingOn(server.Entries()))
	}
}

// One turn takes as much as fits, the oldest first. A chat that no turn takes is refused on the thread.
func TestEarlierChatsTooMany(t *testing.T) {
	server := fakethread.New(t, nil)
	cfg := setup(t, server, "prompt", "say done")
	cfg.Spec.MostPrompt = 200
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		chat(server, fmt.Sprintf("c%d", i), "", strings.Repeat("ä", 60))
	}
	chat(server, "long", "", strings.Repeat("x", 300))
	chat(server, "short", "", "s")
	cfg.Resume = true
	for _, want := range [][3]string{
		{"r2", "c0 c1 r2.prompt", "c2 c3 long short"}, {"r3", "c2 c3 short r3.prompt", ""},
	} {
		cfg.RunID = want[0]
		if _, err := run(t, cfg); err != nil {
			t.Fatal(err)
		}
		_, chats := delivery(t, server.Entries(), cfg.RunID)
		if got := pendingOn(server.Entries()); strings.Join(chats, " ") != want[1] || got != want[2] {
			t.Errorf("%s: %q, pending %q", cfg.RunID, chats, got)
		}
	}
	refused := last[thread.ChatRefused](t, upTo(server.Entries(), "r3.refused.0"))
	if refused.Type != thread.TypeRefused || refused.Chat != "long" || refused.RunID != "r3" || refused.Reason == "" {
		t.Errorf("got %+v", refused)
	}
}
