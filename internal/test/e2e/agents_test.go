package e2e_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/procfs"
	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/thread"
)

// others are the harnesses beside pi, with the version that this is proven with.
func others(t *testing.T) map[string]string {
	t.Helper()
	versions := map[string]string{}
	for _, name := range harness.Names() {
		spec, err := harness.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if name != "pi" {
			versions[name] = spec.Versions[0]
		}
	}
	return versions
}

// otherNames are the harnesses beside pi, in order.
func otherNames(t *testing.T) []string { return slices.Sorted(maps.Keys(others(t))) }

// shell is a call of the agent's tool that runs a command.
func shell(name, command string) model.Tool {
	switch name {
	case "codex":
		return model.Tool{Name: "exec_command", Arguments: map[string]any{"cmd": command, "yield_time_ms": 30000}}
	case "claude-code":
		return model.Tool{Name: "Bash", Arguments: map[string]any{"command": command, "description": "a test"}}
	}
	return model.Tool{Name: "bash", Arguments: map[string]any{"command": command}}
}

// calling is a reply that runs commands, all at once.
func calling(name string, commands ...string) model.Reply {
	r := model.Reply{Text: "I will call a tool."}
	for _, c := range commands {
		r.Tools = append(r.Tools, shell(name, c))
	}
	return r
}

// What can become of a run of the real codex and the real claude.
func TestFullAgentMatrix(t *testing.T) {
	slow := model.Reply{Text: strings.Repeat("word ", 500), Pace: model.Duration(50 * time.Millisecond)}
	just := func(replies ...model.Reply) func(string) []model.Reply {
		return func(string) []model.Reply { return replies }
	}
	asked := func(t *testing.T, s *scene) {
		until(t, "the model is asked", func() bool { return len(s.model.Requests()) > 0 })
		// It is in the session when it is asked, or a moment later (claude writes in batches).
		until(
			t,
			"the prompt is on the thread",
			func() bool { return strings.Contains(textOf(s.entries()), `"kind":"prompt"`) },
		)
	}
	tool := func(t *testing.T, s *scene) {
		until(t, "the tool is at work", func() bool { return pidIn(filepath.Join(s.dir, "work", "tool.pid")) > 0 })
		until(
			t,
			"the call is on the thread",
			func() bool { return strings.Contains(textOf(s.entries()), `"type":"toolCall"`) },
		)
	}
	busy := func(name string) []model.Reply {
		return []model.Reply{calling(name, "echo $$ > tool.pid; exec sleep 300")}
	}
	noTool := func(t *testing.T, s *scene, _ []thread.Entry) {
		pid := pidIn(filepath.Join(s.dir, "work", "tool.pid"))
		until(t, "the tool is gone, too", func() bool {
			st, err := procfs.Read(pid)
			return err != nil || st.State == 'Z'
		})
	}
	has := func(texts ...string) func(*testing.T, *scene, []thread.Entry) {
		return func(t *testing.T, _ *scene, entries []thread.Entry) {
			all := textOf(entries)
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
		change  func(*testing.T, *scene)
		when    func(*testing.T, *scene)          // the moment of
		strike  func(*testing.T, *scene, *runner) // something that happens to the run
		want    map[string]want
		check   func(*testing.T, *scene, []thread.Entry)
	}{
		{
			name: "plain", replies: just(say("Hello there.")), want: both("completed  stop", 0),
			check: has("Hello there."),
		},
		{name: "tool turn", replies: func(name string) []model.Reply {
			return []model.Reply{calling(name, "echo the-tool-says-this"), say("Done.")}
		}, want: both("completed  stop", 0), check: func(t *testing.T, s *scene, entries []thread.Entry) {
			for _, e := range entries {
				if p := payload[thread.Line](t, e); strings.HasSuffix(p.Type, "."+thread.KindToolResult) {
					if m := string(p.Message); *p.IsError || p.ToolName == "" ||
						!strings.Contains(m, "the-tool-says-this") || !strings.Contains(m, p.ToolName) {
						t.Errorf("the result is %+v", p)
					}
				}
			}
		}},
		{name: "parallel tools", replies: func(name string) []model.Reply {
			return []model.Reply{calling(name, "sleep 0.3; echo one", "echo two", "echo three"), say("Done.")}
		}, want: both("completed  stop", 0), check: func(t *testing.T, s *scene, entries []thread.Entry) {
			if n := ofType(entries, s.dialect().Prefix+".tool_result"); n != 3 {
				t.Errorf("%d results", n)
			}
		}},
		{name: "tool failure", replies: func(name string) []model.Reply {
			return []model.Reply{calling(name, "echo no; exit 3"), say("It failed.")}
		}, want: both("completed  stop", 0), check: has(`"isError":true`)},
		{
			name: "thinking", replies: just(model.Reply{Thinking: "Let me think.", Text: "Thought."}),
			want: both("completed  stop", 0), check: has(`"type":"thinking"`),
		},
		{
			name: "length", replies: just(model.Reply{Text: "This is cut o", Finish: "length"}, say("f.")),
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
			name: "500, then fine", replies: just(model.Reply{Status: 500, Message: "not now"}, say("Now.")),
			want: both("completed  stop", 0),
		},
		{
			name:    "connection cut, then fine",
			replies: just(model.Reply{Text: "one two three four", Cut: 2}, say("Done.")),
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
			name: "missing key", change: func(_ *testing.T, s *scene) { s.without(s.agent.KeyVar) },
			want: both(failed.verdict, 1),
		},
		{
			name: "bad model", replies: just(model.Reply{Status: 404, Message: "no such model", Times: -1}),
			change: func(_ *testing.T, s *scene) {
				s.args = append(s.args, "--model", "no-such-model")
			}, want: both(failed.verdict, 1),
		},
		{
			name:   "bad flag",
			change: func(_ *testing.T, s *scene) { s.args = append(s.args, "--agent-arg", "--no-such-flag") },
			want:   each(want{"failed pi_exit none", 2}, want{"failed pi_exit none", 1}),
		},
		{name: "provider refused", change: func(t *testing.T, s *scene) {
			if err := s.agent.Home(s.dir, "http://127.0.0.1:1", 50); err != nil {
				t.Fatal(err)
			}
			s.args = append(s.args, "--unreachable-timeout", "1s")
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
			return []model.Reply{calling(name, "echo $$ > tool.pid; sleep 1; echo two"), say("Done.")}
		}, when: tool, strike: toWorker, want: both("completed  stop", 0)},
		{
			name: "a line of 1.5 MB", replies: just(say(strings.Repeat("0123456789abcdef", 100_000))),
			want: both("completed  stop", 0),
		},
		{
			name: "U+2028", replies: just(say("a\u2028b\u2029c")), want: both("completed  stop", 0),
			check: has("a\u2028b\u2029c"),
		},
		{
			name: "a prompt like a flag", replies: just(say("Done.")),
			change: func(_ *testing.T, s *scene) { s.prompt = "--help me" }, want: both("completed  stop", 0),
			check: has("--help me"),
		},
		{name: "a long prompt", replies: just(say("Done.")), change: func(t *testing.T, s *scene) {
			file := filepath.Join(s.dir, "prompt")
			if err := os.WriteFile(file, []byte(strings.Repeat("long words ", 20_000)+"- the end"), 0o600); err != nil {
				t.Fatal(err)
			}
			s.prompt, s.args = "", append(s.args, "--prompt-file", file)
		}, want: both("completed  stop", 0), check: func(t *testing.T, s *scene, _ []thread.Entry) {
			if !strings.Contains(s.asked(), "long words - the end") {
				t.Error("the model was not told the end of it")
			}
		}},
		{
			name: "the npm wrapper is not run", replies: just(say("Done.")), want: both("completed  stop", 0),
			check: func(t *testing.T, s *scene, entries []thread.Entry) {
				p := payload[thread.Started](t, entries[1])
				if p.AgentVersion != s.agent.Version || !p.AgentProven {
					t.Errorf("started with %+v", p)
				}
			},
		},
	} {
		for _, name := range otherNames(t) {
			version := others(t)[name]
			t.Run(tt.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				var replies []model.Reply
				if tt.replies != nil {
					replies = tt.replies(name)
				}
				s := newSceneOf(t, name, version, replies...)
				if tt.change != nil {
					tt.change(t, s)
				}
				r := s.start()
				if tt.strike != nil {
					tt.when(t, s)
					tt.strike(t, s, r)
				}
				want, status, e, entries := tt.want[name], s.status(r), s.end(), s.entries()
				if tt.strike != nil && !interrupted(entries) {
					want.verdict = strings.Replace(want.verdict, "aborted", unfinished(entries), 1)
					if code := e.Totals.ExitCode; code != nil && *code == 0 && !s.signalled() {
						// There is no evidence of the signal.
						want.verdict = strings.Replace(want.verdict, "cancelled ", "failed pi_exit", 1)
					}
				}
				if s.killed() {
					want.status = 137
				}
				if status != want.status {
					t.Errorf("exit status %d, want %d", status, want.status)
				}
				if got := e.Status + " " + e.Cause.ErrorClass + " " + e.Totals.StopReason; got != want.verdict {
					t.Errorf("got %q %q, want %q", got, e.Cause.Message, want.verdict)
				}
				s.complete(entries)
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
	all := textOf(entries)
	return strings.Contains(all, "turn_aborted") || strings.Contains(all, "[Request interrupted by user")
}

// unfinished is the stop reason of a turn that the agent has recorded no end of.
func unfinished(entries []thread.Entry) string {
	if strings.Contains(textOf(entries), `"type":"toolCall"`) {
		return "toolUse"
	}
	return "none"
}
