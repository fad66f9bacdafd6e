package screen

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/internal/test/reaction"
	"arbe.0sk.ar/runner/thread"
)

// answer returns a reaction of piet's, in UTC at noon.
func answer() *reaction.Reaction {
	return &reaction.Reaction{
		Thread: "t1", Bot: "7f9c", At: time.Date(2000, 1, 1, 12, 0, 0, 0, time.UTC), Took: 12 * time.Second,
		Chats: []string{"a"},
	}
}

func names(id string) string { return map[string]string{"7f9c": "piet", "a1": "alma"}[id] }

// visible returns what a terminal shows of an output, which redraws its last line alone.
func visible(out string) string {
	var all []string
	for line := range strings.Lines(out) {
		all = append(all, line[strings.LastIndex(line, "\r␛[K")+1:])
	}
	return strings.ReplaceAll(strings.Join(all, ""), "␛[K", "")
}

// give gives entries to a screen.
func give(t *testing.T, s *Screen, all ...thread.Entry) {
	t.Helper()
	for _, e := range all {
		e.At = thread.Stamp(time.Now())
		if err := s.Entry(e); err != nil {
			t.Fatal(err)
		}
	}
}

// On a terminal a reply is written as it comes, each line once, whatever stands between its pieces. The round adds what
// its deltas did not have.
func TestReplyComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		utc(t)
		var out safeBuffer
		s := New(&out, Options{Live: true, Thread: "t1", Columns: func() int { return 30 }, Name: names})
		s.Start()
		after := func(want string, all ...thread.Entry) {
			t.Helper()
			time.Sleep(400 * time.Millisecond)
			give(t, s, all...)
			time.Sleep(2 * time.Second) // the live line is there
			synctest.Wait()
			if got := visible(out.take()); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		}
		chat := func(id, text string) thread.Entry {
			return thread.Entry{
				ID: id, TS: thread.Stamp(answer().At), AuthorID: "a1",
				Payload: thread.Marshal(map[string]string{"type": "chat", "text": text}),
			}
		}
		r := answer()
		after("… piet answers", r.Claim(0))
		after("\npiet (bot) 12:00:00\nI will", r.Delta(0, 0, 0, 0, "I will"))
		after("I will run the tests now, and\nthen tell", r.Delta(0, 0, 1, 6, " run the tests now, and then tell"))
		after("\nalma 12:00:00\nHurry!\nthen tell", chat("c1", "Hurry!"))
		after("\npiet (bot) 12:00:00\nthen tell you.\nSo", r.Delta(0, 0, 2, 39, " you.\nSo"))
		after("So: now.\n… piet answers: run_command …",
			r.Round(0, "I will run the tests now, and then tell you.\nSo: now.", "make"))
		after("› run_command make · failed\n… piet answers", r.Result(0, 0, "no rule", true))
		after("No", r.Delta(1, 0, 3, 0, "No"))
		after("No\n(the reply begins anew)\nThere", r.Delta(1, 1, 0, 0, "There"))
		after("There is no rule.\n1 call · 12s\n", r.Reply(1, "There is no rule.")...)

		r = answer()
		r.N = 1
		after("\npiet (bot) 12:00:00\nOne", r.Claim(0), r.Delta(0, 0, 0, 0, "One"))
		after("One\n(the reply begins anew)\nTwo\n", r.Reply(0, "Two")...)
		r = answer()
		r.N = 2
		after("\npiet (bot) 12:00:00\nThr", r.Claim(0), r.Delta(0, 0, 0, 0, "Thr"))
		after("Thr\npiet was stopped\n", r.End(thread.ReactionCancelled, "", ""))
		r = answer()
		r.N = 3
		after("… piet answers: run_command", r.Claim(0), r.Delta(0, 0, 0, 0, "", "run_command"))
		after("\npiet (bot) 12:00:00\nFour", r.Delta(0, 0, 1, 0, "Four"))
		s.Stop()
		if got := visible(out.take()); got != "Four\n" {
			t.Errorf("at the end: %q", got)
		}
	})
}

// In a pipe replies are whole, and what was called stands in front of them, a line for each call.
func TestReplyInPipe(t *testing.T) {
	utc(t)
	for _, full := range []bool{false, true} {
		var out safeBuffer
		s := New(&out, Options{Thread: "t1", Name: names, Full: full})
		r := answer()
		skip := thread.Choice{AgentID: "a1", Decision: thread.DecisionSkip, Reason: thread.ReasonDepth}
		give(t, s, reaction.Decided("a", r.At, skip), r.Claim(0), r.Delta(0, 0, 0, 0, "I"),
			r.Round(0, "I run it.", "make test", "pwd"), r.Result(0, 1, "/w", false))
		r.At = r.At.Add(8 * time.Second)
		started := thread.Exec{Type: thread.TypeExecStarted, ExecID: thread.CallKey(r.ID(), 0, 0)}
		give(t, s, thread.Entry{ // what shows a person's command
			ID: thread.ExecID(started.ExecID, 0), TS: thread.Stamp(r.At), AuthorID: r.Bot,
			Payload: thread.Marshal(thread.ExecStarted{Exec: started, Command: "make test"}),
		})
		give(t, s, r.Result(0, 0, "exit 2, 8 s\nok", false))
		give(t, s, r.Reply(1, "It fails.")...)
		r.N++
		give(t, s, r.Claim(0), r.End(thread.ReactionFailed, "denied", "the house's key ANTHROPIC_API_KEY was refused"),
			thread.Entry{ID: "x_b-0-0", TS: thread.Stamp(r.At), AuthorID: "7f9c", Payload: []byte(
				`{"type":"chat","text":"Look.","via":{"threadId":"t2"}}`)})
		s.Stop()
		want := `alma was not asked: a chain of 8 replies

piet (bot) 2000-01-01 12:00:00
I run it.
› run_command pwd
› run_command make test · exit 2 · 8s
It fails.
2 calls · 12s
piet did not answer: the house's key ANTHROPIC_API_KEY was refused

piet (bot) 12:00:08
posted from thread t2
Look.
`
		if full {
			const folded = "› run_command pwd\n› run_command make test · exit 2 · 8s\n"
			want = strings.Replace(want, folded, "› run_command\n"+
				"  make test\n› run_command\n  pwd\n"+
				"  /w\n  run_command make test:\n  exit 2, 8 s\n  ok\n  exit 2 · took 8s\n\npiet (bot) 12:00:08\n", 1)
		}
		if d := cmp.Diff(want, out.take()); d != "" {
			t.Errorf("full %v: -want +got:\n%s", full, d)
		}
	}
}

// A chat from another thread has that one's name, a call that delegates a task the state of the task's thread, and the
// last line how open tasks do now.
func TestOthers(t *testing.T) {
	utc(t)
	r := answer()
	task := thread.CallKey(r.ID(), 0, 1)
	state := "running"
	o := Options{
		Thread: "t1", Name: names,
		Title: func(_ context.Context, id string) string { return map[string]string{"t2": "Planning\x1b[31m"}[id] },
		Task: func(_ context.Context, id string) string {
			if id != task {
				t.Errorf("state of %s", id)
			}
			return state
		},
	}
	via := func(id, from string) thread.Entry {
		return thread.Entry{ID: id, TS: thread.Stamp(r.At), AuthorID: "a1", Payload: []byte(
			`{"type":"chat","text":"Look.","via":{"threadId":"` + from + `"}}`)}
	}
	entries := []thread.Entry{
		r.Claim(0), r.Calling(0, "I delegate it.", "delegate_task", "task", "the haiku", "the other"),
		thread.Spawn(task, r.Bot, r.Bot), r.Result(0, 0, "refused", true), r.Result(0, 1, "under way", false),
	}
	entries = append(append(entries, r.Reply(1, "It is under way.")...), via("v1", "t2"), via("v2", "t3"))
	var out safeBuffer
	s := New(&out, o)
	give(t, s, entries...)
	s.Check()
	s.Stop()
	want := `
piet (bot) 2000-01-01 12:00:00
I delegate it.
delegated to thread ` + task + `
› delegate_task the haiku · failed
› delegate_task the other · task: running
It is under way.
2 calls · 12s

alma (bot) 12:00:00
posted from Planning·[31m, thread t2
Look.

alma (bot) 12:00:00
posted from thread t3
Look.
… task ` + task + `: running
`
	if d := cmp.Diff(want, out.take()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}

	o.Live = true
	s = New(&out, o)
	give(t, s, entries...)
	for _, state = range []string{"running", "completed"} {
		s.look(t.Context())
		s.breathe(time.Now())
		if got := out.take(); !strings.HasSuffix(got, "task "+task+": "+state) {
			t.Errorf("live: %q", got)
		}
	}
	end := thread.ChildFinished{
		Signal: thread.Signal{Type: thread.TypeChildFinished}, ChildThreadID: task, Status: "completed",
	}
	give(t, s, thread.NewEntry("end", r.Bot, end))
	s.look(t.Context())
	out.take()
	s.breathe(time.Now())
	if got := out.take(); strings.Contains(got, "task") {
		t.Errorf("behind its end: %q", got)
	}
	s.Stop()
}
