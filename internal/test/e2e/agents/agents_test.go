package agents_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/scene"

	"arbe.0sk.ar/runner/internal/procfs"
	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/thread"
)

// What can become of a run of the real codex and the real claude.
func TestFullAgentMatrix(t *testing.T) {
	slow := model.Reply{Text: strings.Repeat("word ", 500), Pace: model.Duration(50 * time.Millisecond)}
	just := func(replies ...model.Reply) func(string) []model.Reply {
		return func(string) []model.Reply { return replies }
	}
	asked := func(t *testing.T, s *scene.Scene) {
		scene.Until(t, "the model is asked", func() bool { return len(s.Model.Requests()) > 0 })
		// It is in the session when it is asked, or a moment later (claude writes in batches).
		scene.Until(
			t,
			"the prompt is on the thread",
			func() bool { return strings.Contains(scene.TextOf(s.Entries()), `"kind":"prompt"`) },
		)
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
	busy := func(name string) []model.Reply {
		return []model.Reply{scene.Calling(name, "echo $$ > tool.pid; exec sleep 300")}
	}
	noTool := func(t *testing.T, s *scene.Scene, _ []thread.Entry) {
		pid := scene.PidIn(filepath.Join(s.Dir, "work", "tool.pid"))
		scene.Until(t, "the tool is gone, too", func() bool {
			st, err := procfs.Read(pid)
			return err != nil || st.State == 'Z'
		})
	}
	has := func(texts ...string) func(*testing.T, *scene.Scene, []thread.Entry) {
		return func(t *testing.T, _ *scene.Scene, entries []thread.Entry) {
			all := scene.TextOf(entries)
			for _, text := range texts {
				if !strings.Contains(all, text) {
					t.Errorf("not on the thread: %s", text)
				}
			}
		}
	}
	type want struct {
		verdict string // status, error class, stop reason
		status  int
	}
	both := func(verdict string, status int) map[string]want {
		return map[string]want{"codex": {verdict, status}, "claude-code": {verdict, status}}
	}
	each := func(codex, claude want) map[string]want {
		return map[string]want{"codex": codex, "claude-code": claude}
	}
	failed := want{"failed provider_error error", 1}
	fine := want{"completed  stop", 0}
	for _, tt := range []struct {
		name    string
		replies func(name string) []model.Reply
		change  func(*testing.T, *scene.Scene)
		when    func(*testing.T, *scene.Scene)                // the moment of
		strike  func(*testing.T, *scene.Scene, *scene.Runner) // something that happens to the run
		want    map[string]want
		check   func(*testing.T, *scene.Scene, []thread.Entry)
	}{
		{
			name: "plain", replies: just(scene.Say("Hello there.")), want: both("completed  stop", 0),
			check: has("Hello there."),
		},
		{name: "tool turn", replies: func(name string) []model.Reply {
			return []model.Reply{scene.Calling(name, "echo the-tool-says-this"), scene.Say("Done.")}
		}, want: both("completed  stop", 0), check: func(t *testing.T, s *scene.Scene, entries []thread.Entry) {
			for _, e := range entries {
				if p := scene.Payload[thread.Line](t, e); strings.HasSuffix(p.Type, "."+thread.KindToolResult) {
					if m := string(p.Message); *p.IsError || p.ToolName == "" ||
						!strings.Contains(m, "the-tool-says-this") || !strings.Contains(m, p.ToolName) {
						t.Errorf("the result is %+v", p)
					}
				}
			}
		}},
		{name: "parallel tools", replies: func(name string) []model.Reply {
			tools := scene.Calling(name, "sleep 0.3; echo one", "echo two", "echo three")
			return []model.Reply{tools, scene.Say("Done.")}
		}, want: both("completed  stop", 0), check: func(t *testing.T, s *scene.Scene, entries []thread.Entry) {
			if n := ofType(entries, s.Dialect().Prefix+".tool_result"); n != 3 {
				t.Errorf("%d results", n)
			}
		}},
		{name: "tool failure", replies: func(name string) []model.Reply {
			return []model.Reply{scene.Calling(name, "echo no; exit 3"), scene.Say("It failed.")}
		}, want: both("completed  stop", 0), check: has(`"isError":true`)},
		{
			name: "thinking", replies: just(model.Reply{Thinking: "Let me think.", Text: "Thought."}),
			want: both("completed  stop", 0), check: has(`"type":"thinking"`),
		},
		{
			name: "length", replies: just(model.Reply{Text: "This is cut o", Finish: "length"}, scene.Say("f.")),
			want: each(want{"failed provider_error length", 1}, fine),
		},
		{
			name: "length for ever", replies: just(model.Reply{Text: "This is cut o", Finish: "length", Times: -1}),
			want: each(want{"failed provider_error length", 1}, failed),
		},
		{
			name: "400", replies: just(model.Reply{Status: 400, Message: "no such thing", Times: -1}),
			want: both(failed.verdict, 1),
		},
		{
			name: "401", replies: just(model.Reply{Status: 401, Message: "who are you", Times: -1}),
			want: both(failed.verdict, 1),
		},
		{
			name: "429", replies: just(model.Reply{Status: 429, Message: "slow down", Times: -1}),
			want: both(failed.verdict, 1),
		},
		{
			name: "500 for ever", replies: just(model.Reply{Status: 500, Message: "not now", Times: -1}),
			want: both(failed.verdict, 1),
		},
		{
			name: "500, then fine", replies: just(model.Reply{Status: 500, Message: "not now"}, scene.Say("Now.")),
			want: both("completed  stop", 0),
		},
		{
			name:    "connection cut, then fine",
			replies: just(model.Reply{Text: "one two three four", Cut: 2}, scene.Say("Done.")),
			want:    both("completed  stop", 0),
		},
		{
			name:    "connection cut for ever",
			replies: just(model.Reply{Text: "one two three four", Cut: 2, Times: -1}), want: both(failed.verdict, 1),
		},
		{
			name:    "an error in the stream",
			replies: just(model.Reply{Text: "one two three four", Cut: 2, Error: "the server is lost", Times: -1}),
			want:    both(failed.verdict, 1),
		},
		{name: "empty answer", replies: just(model.Reply{Times: -1}), want: both("completed  stop", 0)},
		{
			name: "refusal", replies: just(model.Reply{Text: "I will not", Finish: "content_filter", Times: -1}),
			want: both(failed.verdict, 1),
		},
		{
			name: "missing key", change: func(_ *testing.T, s *scene.Scene) { s.Without(s.Agent.KeyVar) },
			want: both(failed.verdict, 1),
		},
		{
			name: "bad model", replies: just(model.Reply{Status: 404, Message: "no such model", Times: -1}),
			change: func(_ *testing.T, s *scene.Scene) {
				s.Args = append(s.Args, "--model", "no-such-model")
			}, want: both(failed.verdict, 1),
		},
		{
			name:   "bad flag",
			change: func(_ *testing.T, s *scene.Scene) { s.Args = append(s.Args, "--agent-arg", "--no-such-flag") },
			want:   each(want{"failed pi_exit none", 2}, want{"failed pi_exit none", 1}),
		},
		{name: "provider refused", change: func(t *testing.T, s *scene.Scene) {
			if err := s.Agent.Home(s.Dir, "http://127.0.0.1:1", 50); err != nil {
				t.Fatal(err)
			}
			s.Args = append(s.Args, "--unreachable-timeout", "1s")
		}, want: each(want{"failed provider_unreachable aborted", 1}, failed)},
		{
			name: "INT to the runner in mid-stream", replies: just(slow), when: asked,
			strike: toRunner(syscall.SIGINT), want: both("cancelled  aborted", 1),
		},
		{
			name: "TERM to the runner in mid-stream", replies: just(slow), when: asked,
			strike: toRunner(syscall.SIGTERM), want: both("cancelled  aborted", 1),
		},
		{
			name: "HUP to the runner in mid-stream", replies: just(slow), when: asked,
			strike: toRunner(syscall.SIGHUP), want: both("cancelled  aborted", 1),
		},
		{
			name: "TERM to the runner in mid-tool", replies: busy, when: tool, strike: toRunner(syscall.SIGTERM),
			want: both("cancelled  aborted", 1), check: noTool,
		},
		{
			name: "INT in mid-stream", replies: just(slow), when: asked, strike: toAgent(syscall.SIGINT),
			want: both("cancelled  aborted", 1),
		},
		{
			name: "TERM in mid-stream", replies: just(slow), when: asked, strike: toAgent(syscall.SIGTERM),
			want: both("cancelled  none", 143),
		},
		{
			name: "HUP in mid-stream", replies: just(slow), when: asked, strike: toAgent(syscall.SIGHUP),
			want: both("cancelled  none", 129),
		},
		{
			name: "KILL in mid-stream", replies: just(slow), when: asked, strike: toAgent(syscall.SIGKILL),
			want: both("failed killed none", 137),
		},
		{
			name: "INT in mid-tool", replies: busy, when: tool, strike: toAgent(syscall.SIGINT),
			want: both("cancelled  aborted", 1),
		},
		{
			name: "TERM in mid-tool", replies: busy, when: tool, strike: toAgent(syscall.SIGTERM),
			want: both("cancelled  toolUse", 143),
		},
		{
			name: "HUP in mid-tool", replies: busy, when: tool, strike: toAgent(syscall.SIGHUP),
			want: both("cancelled  toolUse", 129),
		},
		{
			name: "KILL in mid-tool", replies: busy, when: tool, strike: toAgent(syscall.SIGKILL),
			want: both("failed killed toolUse", 137),
		},
		{name: "KILL to the worker in mid-tool", replies: func(name string) []model.Reply {
			return []model.Reply{scene.Calling(name, "echo $$ > tool.pid; sleep 1; echo two"), scene.Say("Done.")}
		}, when: tool, strike: toWorker, want: both("completed  stop", 0)},
		{
			name: "a line of 1.5 MB", replies: just(scene.Say(strings.Repeat("0123456789abcdef", 100_000))),
			want: both("completed  stop", 0),
		},
		{
			name: "U+2028", replies: just(scene.Say("a\u2028b\u2029c")), want: both("completed  stop", 0),
			check: has("a\u2028b\u2029c"),
		},
		{
			name: "a prompt like a flag", replies: just(scene.Say("Done.")),
			change: func(_ *testing.T, s *scene.Scene) { s.Prompt = "--help me" }, want: both("completed  stop", 0),
			check: has("--help me"),
		},
		{name: "a long prompt", replies: just(scene.Say("Done.")), change: func(t *testing.T, s *scene.Scene) {
			file := filepath.Join(s.Dir, "prompt")
			if err := os.WriteFile(file, []byte(strings.Repeat("long words ", 20_000)+"- the end"), 0o600); err != nil {
				t.Fatal(err)
			}
			s.Prompt, s.Args = "", append(s.Args, "--prompt-file", file)
		}, want: both("completed  stop", 0), check: func(t *testing.T, s *scene.Scene, _ []thread.Entry) {
			if !strings.Contains(s.Asked(), "long words - the end") {
				t.Error("the model was not told the end of it")
			}
		}},
		{
			name: "the npm wrapper is not run", replies: just(scene.Say("Done.")), want: both("completed  stop", 0),
			check: func(t *testing.T, s *scene.Scene, entries []thread.Entry) {
				p := scene.Payload[thread.Started](t, entries[1])
				if p.AgentVersion != s.Agent.Version || !p.AgentProven {
					t.Errorf("started with %+v", p)
				}
			},
		},
	} {
		for _, name := range scene.OtherNames(t) {
			version := scene.Others(t)[name]
			t.Run(tt.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				var replies []model.Reply
				if tt.replies != nil {
					replies = tt.replies(name)
				}
				s := scene.NewOf(t, name, version, replies...)
				if tt.change != nil {
					tt.change(t, s)
				}
				r := s.Start()
				if tt.strike != nil {
					tt.when(t, s)
					tt.strike(t, s, r)
				}
				want, status, e, entries := tt.want[name], s.Status(r), s.End(), s.Entries()
				if tt.strike != nil && !interrupted(entries) {
					want.verdict = strings.Replace(want.verdict, "aborted", unfinished(entries), 1)
					if code := e.Totals.ExitCode; code != nil && *code == 0 && !s.Signalled() {
						// There is no evidence of the signal.
						want.verdict = strings.Replace(want.verdict, "cancelled ", "failed pi_exit", 1)
					}
				}
				if s.Killed() {
					want.status = 137
				}
				if status != want.status {
					t.Errorf("exit status %d, want %d", status, want.status)
				}
				if got := e.Status + " " + e.Cause.ErrorClass + " " + e.Totals.StopReason; got != want.verdict {
					t.Errorf("got %q %q, want %q", got, e.Cause.Message, want.verdict)
				}
				s.Complete(entries)
				if tt.check != nil {
					tt.check(t, s, entries)
				}
			})
		}
	}
}

// interrupted reports whether the agent has recorded that it was interrupted. On a busy machine claude does not: 2 s
// after the signal it exits with 0, whatever it has recorded by then.
func interrupted(entries []thread.Entry) bool {
	all := scene.TextOf(entries)
	return strings.Contains(all, "turn_aborted") || strings.Contains(all, "[Request interrupted by user")
}

// unfinished is the stop reason of a turn that the agent has recorded no end of.
func unfinished(entries []thread.Entry) string {
	if strings.Contains(scene.TextOf(entries), `"type":"toolCall"`) {
		return "toolUse"
	}
	return "none"
}
