package resume_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"arbe.0sk.ar/runner/internal/test/scene"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// A line that the agent wrote twice may be on the thread twice, one that it wrote once may not.
func TestFullDoubled(t *testing.T) {
	t.Parallel()
	s := scene.New(t, scene.Pi078)
	const twice, single = `{"type":"custom","text":"twice"}`, `{"type":"custom","text":"once"}`
	file := filepath.Join(s.Dir, "session.jsonl")
	if err := os.WriteFile(file, []byte(twice+"\n"+single+"\n"+twice+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	post := func(index int, line string) {
		t.Helper()
		c := &client.Client{
			Base: thread.BaseURL(scene.Server), Thread: s.Thread,
			Token: client.StaticToken(s.Arbe("token", "mint", "--thread", s.Thread)),
		}
		_, err := c.Append(t.Context(), []thread.Entry{
			{
				ID: fmt.Sprintf("pi:s:%d.0", index),
				TS: "2026-01-01T00:00:00.000Z",
				Payload: fmt.Appendf(
					nil,
					`{"type":"pi.session","kind":"custom","session":{"id":"s","entry":null,"parent":null,"index":%d},`+
						`"line":%s}`,
					index,
					line,
				),
			},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	post(0, twice)
	post(1, single)
	post(2, twice)
	if got := s.Doubled(); len(got) != 0 {
		t.Errorf("what the file has: %q", got)
	}
	post(3, single)
	if got := s.Doubled(); len(got) != 1 || !strings.Contains(got[0], `"pi:s:1.0" "pi:s:3.0"`) {
		t.Errorf("a line posted again: %q", got)
	}
	post(4, twice)
	if got := s.Doubled(); len(got) != 2 {
		t.Errorf("a line that the file has twice, posted again: %q", got)
	}
}

// A conversation continues in the same box, and in a fresh one, whatever became of the run before.
func TestFullAgentResume(t *testing.T) {
	tools := func(name string) []model.Reply {
		return []model.Reply{scene.Calling(name, "echo the-tool-says-$((40+2))"), scene.Say("I have seen it.")}
	}
	busy := func(name string) []model.Reply {
		return []model.Reply{scene.Calling(name, "echo $$ > tool.pid; exec sleep 300")}
	}
	tool := func(t *testing.T, s *scene.Scene) {
		scene.Until(
			t,
			"the tool is at work",
			func() bool { return scene.PidIn(filepath.Join(s.Dir, "work", "tool.pid")) > 0 },
		)
		scene.Until(
			t,
			"the call is on the thread",
			func() bool { return strings.Contains(scene.TextOf(s.Entries()), `"type":"toolCall"`) },
		)
	}
	for _, tt := range []struct {
		name    string
		replies func(name string) []model.Reply
		strike  func(*testing.T, *scene.Scene, *scene.Runner)
		told    []string // what the model is asked after the resume has in it
	}{
		{
			name: "a tool turn", replies: tools,
			told: []string{"the first question", "the-tool-says-42", "I have seen it."},
		},
		{
			name:    "an error turn",
			replies: func(string) []model.Reply { return []model.Reply{{Status: 400, Message: "no such luck", Times: -1}} },
			told:    []string{"the first question"},
		},
		{name: "TERM in mid-tool", replies: busy, strike: func(t *testing.T, s *scene.Scene, r *scene.Runner) {
			tool(t, s)
			if err := r.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}, told: []string{"the first question", "exec sleep 300"}},
		{
			name: "KILL of the agent in mid-tool", replies: busy,
			strike: func(t *testing.T, s *scene.Scene, _ *scene.Runner) {
				tool(t, s)
				if err := syscall.Kill(scene.AgentPID(t, s), syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			},
			told: []string{"the first question", "exec sleep 300"},
		},
		{
			name:    "thinking",
			replies: func(string) []model.Reply { return []model.Reply{{Thinking: "I ponder.", Text: "Pondered."}} },
			told:    []string{"the first question", "Pondered."},
		},
	} {
		for _, name := range scene.OtherNames(t) {
			version := scene.Others(t)[name]
			t.Run(tt.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				s := scene.NewOf(t, name, version, tt.replies(name)...)
				s.Prompt = "the first question"
				r := s.Start()
				if tt.strike != nil {
					tt.strike(t, s, r)
				}
				s.Status(r)
				if tt.strike == nil && strings.Contains(tt.name, "error") {
					s.Model.Drop()
				}
				first, err := os.ReadFile(s.Known("r1").Session)
				if err != nil {
					t.Fatal(err)
				}
				s.Args = append(s.Args, "--resume")
				s.OnFrom("r2", "continue", tt.told...)
				s.Whole("r2")
				then, err := os.ReadFile(s.Known("r2").Session)
				if err != nil || !strings.HasPrefix(string(then), string(first)) {
					t.Errorf("the session was not gone on with: %v", err)
				}
				if err := os.RemoveAll(s.Dir); err != nil { // the box is gone
					t.Fatal(err)
				}
				told := append(tt.told, "go on with r2", "This is said in r2.")
				n := s.Next(version, "r3")
				n.OnFrom("r3", "hydrate", told...)
				n.Whole("r3")
				fresh, err := os.ReadFile(n.Known("r3").Session)
				if err != nil || !strings.HasPrefix(string(fresh), string(then)) {
					t.Errorf("the session of the fresh box does not begin as the one before: %v", err)
				}
				// And on, in the same box, and in one more.
				told = append(told, "go on with r3", "This is said in r3.")
				n.OnFrom("r4", "continue", told...)
				n.Whole("r4")
				third := n.Next(version, "r5")
				third.OnFrom("r5", "hydrate", append(told, "go on with r4", "This is said in r4.")...)
				third.Whole("r5")
				third.Once()
			})
		}
	}
}

// A thread that was begun with one harness continues with another, and back.
func TestFullAcrossHarnesses(t *testing.T) {
	versions := scene.Others(t)
	versions["pi"] = scene.Pi078
	for _, from := range harness.Names() {
		for _, to := range harness.Names() {
			if from == to {
				continue
			}
			t.Run(from+" to "+to, func(t *testing.T) {
				t.Parallel()
				first := scene.Calling(from, "echo the-tool-says-$((40+2))", "echo and-$((5+2))")
				first.Thinking = "I ponder."
				s := scene.NewOf(t, from, versions[from], first, scene.Say("I have seen it."))
				s.Prompt = "the first question"
				if got := s.Status(s.Start()); got != 0 {
					t.Fatalf("exit status %d", got)
				}
				told := []string{"the first question", "the-tool-says-42", "and-7", "I have seen it."}

				n := s.NextOf(to, versions[to], "r2")
				n.OnFrom("r2", "hydrate", told...)
				told = append(told, "go on with r2", "This is said in r2.")
				n.OnFrom("r3", "continue", told...)
				told = append(told, "go on with r3", "This is said in r3.")

				// In one more box, from what both have written.
				third := n.NextOf(to, versions[to], "r4")
				third.OnFrom("r4", "hydrate", told...)
				third.Once()
				told = append(told, "go on with r4", "This is said in r4.")

				// And back, where it began: that box's own file does not have all.
				s.Args = append(s.Args, "--resume")
				s.OnFrom("r5", "hydrate", told...)
				s.OnFrom("r6", "continue", append(told, "go on with r5", "This is said in r5.")...)
				s.Once()
			})
		}
	}
}

// Where this box's own file differs from the thread, the run continues with the thread. A named file continues, too.
func TestFullAgentFallsBack(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, s *scene.Scene, file string)
		how    string
		said   string // in the runner's log
	}{
		{"gone", func(t *testing.T, _ *scene.Scene, file string) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}, "hydrate", "the session file is gone"},
		{"gone, from a box that knows nothing of its runs", func(t *testing.T, s *scene.Scene, file string) {
			if err := errors.Join(os.Remove(file), os.RemoveAll(filepath.Join(s.Dir, ".arbe"))); err != nil {
				t.Fatal(err)
			}
		}, "hydrate", "this box has no session of the thread"},
		{
			"torn", func(t *testing.T, _ *scene.Scene, file string) { appendTo(t, file, `{"type":"mess`) }, "hydrate",
			"ends in the middle of a line",
		},
		{"torn, and ahead of the thread", func(t *testing.T, s *scene.Scene, file string) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			line := map[string]string{
				"codex": fmt.Sprintf(`{"timestamp":"2026-01-01T00:00:00.000Z","ordinal":%d,"type":"event_msg",`+
					`"payload":{"type":"warning","message":"unposted"}}`, strings.Count(string(b), "\n")),
				"claude-code": `{"type":"queue-operation","operation":"dequeue",` +
					`"timestamp":"2026-01-01T00:00:00.000Z","content":"unposted"}`,
			}[s.Agent.Harness]
			appendTo(t, file, line+"\n"+`{"type":"mess`)
			t.Cleanup(func() {
				if n := strings.Count(scene.TextOf(s.Entries()), "unposted"); n != 1 {
					t.Errorf("the unposted line is there %d times", n)
				}
			})
		}, "continue", ""},
		{"behind", func(t *testing.T, _ *scene.Scene, file string) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.SplitAfter(string(b), "\n")
			if err := os.WriteFile(file, []byte(strings.Join(lines[:len(lines)-2], "")), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "hydrate", "the thread has 1 lines that the session file does not have"},
		{"of a box that knows nothing of its runs", func(t *testing.T, s *scene.Scene, _ string) {
			if err := os.RemoveAll(filepath.Join(s.Dir, ".arbe")); err != nil {
				t.Fatal(err)
			}
		}, "continue", ""},
		{"another directory", func(t *testing.T, s *scene.Scene, _ string) {
			other := filepath.Join(s.Dir, "other")
			if err := os.Mkdir(other, 0o700); err != nil {
				t.Fatal(err)
			}
			s.Args = append(s.Args, "--cwd", other)
		}, "hydrate", "is to continue in"},
		{"named", func(_ *testing.T, s *scene.Scene, file string) {
			s.Args = append(s.Args[:len(s.Args)-1:len(s.Args)-1], "--session", file)
		}, "none", ""},
	} {
		for _, name := range scene.OtherNames(t) {
			version := scene.Others(t)[name]
			t.Run(tt.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				s := scene.NewOf(
					t,
					name,
					version,
					scene.Calling(name, "echo the-tool-says-$((40+2))"),
					scene.Say("Seen."),
				)
				s.Prompt = "the first question"
				if got := s.Status(s.Start()); got != 0 {
					t.Fatalf("exit status %d", got)
				}
				s.Args = append(s.Args, "--resume")
				tt.change(t, s, s.Known("r1").Session)
				r := s.OnFrom("r2", tt.how, "the first question", "the-tool-says-42", "Seen.")
				if !strings.Contains(r.Log.String(), tt.said) {
					t.Errorf("the log does not say %q", tt.said)
				}
				if cwd := s.Started("r2").Cwd; tt.name == "another directory" && filepath.Base(cwd) != "other" {
					t.Errorf("it went on in %s", cwd)
				}
				s.Whole("r2")
				s.Once()
			})
		}
	}
}

func appendTo(t *testing.T, file, text string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}
