package agents_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/scene"

	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/thread"
)

// delegating is a reply that gives a part of the work to a subagent.
func delegating(name string) model.Reply {
	tool := model.Tool{
		Name:      "multi_agent_v1.spawn_agent",
		Arguments: map[string]any{"message": "the part of the subagent"},
	}
	if name == "claude-code" {
		tool = model.Tool{Name: "Agent", Arguments: map[string]any{
			"description": "a part", "prompt": "the part of the subagent", "subagent_type": "general-purpose",
			"run_in_background": false,
		}}
	}
	return model.Reply{Text: "I delegate.", Tools: []model.Tool{tool}, When: "the main question"}
}

// A subagent's session is on the thread as what it is, and decides nothing: not how the run ends, and not what
// continues.
func TestFullSubagents(t *testing.T) {
	for _, name := range scene.OtherNames(t) {
		version := scene.Others(t)[name]
		// codex continues while its subagent works, and ends it when it ends itself: the main agent waits until the
		// test has seen the subagent's last line.
		wait := scene.Calling(name, "while [ ! -e subagent.seen ]; do sleep 0.05; done")
		wait.When = "the main question"
		done := model.Reply{Text: "All is done.", When: "the main question"}
		// codex asks once more where it takes in its subagent's end after that reply.
		more := model.Reply{Text: "There is no more.", When: "the main question", Times: -1}
		main := []model.Reply{delegating(name), wait, done, more}
		work := []model.Reply{
			scene.Calling(name, "echo > subagent.done; echo by-the-subagent"),
			scene.Say("My part is done."),
		}
		for _, tt := range []struct {
			name    string
			replies []model.Reply
			fails   bool
		}{
			{"fine", append(main, work...), false},
			{"failed", append(main, work[0], model.Reply{Status: 400, Message: "not for subagents", Times: -1}), true},
		} {
			t.Run(tt.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				s := scene.NewOf(t, name, version, tt.replies...)
				s.Prompt = "the main question"
				r := s.Start()
				last := "My part is done."
				if tt.fails {
					last = "not for subagents"
				}
				scene.Until(
					t,
					"the subagent's last line",
					func() bool { return strings.Contains(scene.TextOf(s.Entries()), last) },
				)
				if err := os.WriteFile(filepath.Join(s.Dir, "work", "subagent.seen"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
				if got := s.Status(r); got != 0 {
					t.Errorf("exit status %d", got)
				}
				e := s.End()
				if got := e.Status + " " + e.Totals.StopReason; got != "completed stop" {
					t.Errorf("got %q %q", got, e.Cause.Message)
				}
				entries := s.Entries()
				s.Complete(entries)
				root, prefix := s.Known("r1").SessionID, s.Dialect().Prefix+":"
				lines, said := 0, ""
				for _, e := range entries {
					p := scene.Payload[thread.Line](t, e)
					if p.Type == thread.TypeChat && e.ID != "r1.prompt" {
						t.Errorf("%s is a chat: %s", e.ID, e.Payload)
					}
					if p.SubagentOf == "" {
						continue
					}
					lines++
					said += string(e.Payload)
					if !p.IsSubagent() || p.SubagentOf != root || p.Session.ID == root ||
						!strings.HasPrefix(e.ID, prefix+p.Session.ID+":") {
						t.Errorf("%s is of %s: %.300s", e.ID, root, e.Payload)
					}
					if hydrate.Parse(e, s.Dialect()).Line == nil {
						t.Errorf("%s can't be rebuilt", e.ID)
					}
				}
				if lines < 4 || !strings.Contains(said, "the part of the subagent") ||
					!strings.Contains(said, "by-the-subagent") ||
					!tt.fails && !strings.Contains(said, "My part is done.") {
					t.Errorf("%d lines of the subagent: %.3000s", lines, said)
				}
				if found, err := filepath.Glob(filepath.Join(s.Dir, "work", "subagent.done")); err != nil ||
					len(found) != 1 {
					t.Errorf("the subagent did not work: %v", err)
				}
				// And once more, in a fresh box: with the conversation, and without the subagent's own.
				n := s.Next(version, "r2")
				n.OnFrom("r2", "hydrate", "the main question", "I delegate.", "All is done.")
				n.Whole("r2")
				n.Once()
			})
		}
	}
}

// A conversation that was made shorter continues as what it was made, in a fresh box, too.
func TestFullCompaction(t *testing.T) {
	for name, version := range scene.Others(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := scene.Calling(name, "echo before-the-summary")
			summary := model.Reply{Text: "<summary>What was done so far.</summary>"}
			kind := "compact_boundary"
			switch first.InputTokens = 990_000; name {
			case "codex":
				first.InputTokens, kind = 9_000, "compacted"
			}
			s := scene.NewOf(t, name, version, first, summary, scene.Say("Done."))
			if name == "codex" {
				s.Args = append(
					s.Args,
					"--agent-arg",
					"-c",
					"--agent-arg",
					"model_context_window=10000",
					"--agent-arg",
					"-c",
					"--agent-arg",
					"model_auto_compact_token_limit=5000",
				)
			}
			if got := s.Status(s.Start()); got != 0 {
				t.Fatalf("exit status %d", got)
			}
			entries := s.Entries()
			s.Complete(entries)
			if !strings.Contains(scene.TextOf(entries), `"kind":"`+kind+`"`) {
				t.Fatal("there was no compaction")
			}
			for _, e := range entries {
				if p := scene.Payload[thread.Line](t, e); p.Type == thread.TypeChat && e.ID != "r1.prompt" {
					t.Errorf("%s is a chat: %s", e.ID, e.Payload)
				}
			}
			n := s.Next(version, "r2")
			n.OnFrom("r2", "hydrate", "What was done so far.", "Done.")
			if strings.Contains(n.Asked(), "before-the-summary") {
				t.Error("the model was told what was left out")
			}
			n.Whole("r2")
		})
	}
}

// A subagent's session is on the thread whatever the time of its file is: the clock may be set back, and files may be
// on another machine. A resume reads none of a run before again.
func TestFullSubagentsOfAnEarlierTime(t *testing.T) {
	t.Parallel()
	const name = "claude-code"
	more := model.Reply{Text: "All is done.", When: "the main question", Times: -1}
	part := scene.Say("This is of the first part.")
	part.When = "the part of the subagent"
	s := scene.NewOf(t, name, scene.Others(t)[name], delegating(name), part, more)
	s.Prompt = "the main question"
	r := s.Start()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if got := s.Status(r); got != 0 {
			t.Errorf("exit status %d", got)
		}
	}()
	for old := time.Unix(1e9, 0); ; {
		select {
		case <-ended:
		case <-time.After(time.Millisecond): // between two changes
			files, err := filepath.Glob(filepath.Join(s.Dir, ".claude", "projects", "*", "*", "subagents", "*.jsonl"))
			for _, file := range files {
				err = errors.Join(err, os.Chtimes(file, old, old))
			}
			if err != nil {
				t.Fatal(err)
			}
			continue
		}
		break
	}
	found := func(text string) {
		t.Helper()
		if !slices.ContainsFunc(s.Entries(), func(e thread.Entry) bool {
			return scene.Payload[thread.Line](t, e).SubagentOf != "" && strings.Contains(string(e.Payload), text)
		}) {
			t.Errorf("the thread lacks the subagent's %q", text)
		}
	}
	found("This is of the first part.")

	part.Text = "This is of the second part."
	s.Model.Drop()
	s.Model.More(delegating(name), part)
	s.Args = append(s.Args, "--resume")
	r = s.OnFrom("r2", "continue", "This is of the first part.")
	found("This is of the second part.")
	if n := strings.Count(r.Log.String(), "subagent session found"); n != 1 {
		t.Errorf("the resume found %d sessions of subagents", n)
	}
}
