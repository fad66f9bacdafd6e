package agents_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/scene"

	"arbe.0sk.ar/runner/internal/procfs"
	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/thread"
)

// What can become of a run of the real pi.
func TestFullPiMatrix(t *testing.T) {
	done := []model.Reply{scene.Say("Done.")}
	slow := model.Reply{Text: strings.Repeat("word ", 500), Pace: model.Duration(50 * time.Millisecond)}
	asked := func(n int) func(*testing.T, *scene.Scene) {
		return func(t *testing.T, s *scene.Scene) {
			scene.Until(t, "the model is asked", func() bool { return len(s.Model.Requests()) == n })
		}
	}
	tool := func(t *testing.T, s *scene.Scene) {
		scene.Until(
			t,
			"the tool is at work",
			func() bool { return scene.PidIn(filepath.Join(s.Dir, "work", "tool.pid")) > 0 },
		)
	}
	brief := model.Reply{Text: strings.Repeat("word ", 30), Pace: model.Duration(50 * time.Millisecond)}
	second := scene.Bash("echo $$ > tool.pid; sleep 1; echo two")
	ended := func(t *testing.T, s *scene.Scene) {
		s.Ends(s.Thread)
	}
	for _, tt := range []struct {
		name    string
		replies []model.Reply
		change  func(*testing.T, *scene.Scene)
		when    func(*testing.T, *scene.Scene)                // the moment of
		strike  func(*testing.T, *scene.Scene, *scene.Runner) // something that happens to the run
		// status, error class, stop reason; "|" between what the versions come to
		want   string
		status int
		check  func(*testing.T, *scene.Scene, []thread.Entry)
	}{
		{name: "three parallel tools", replies: []model.Reply{
			{Tools: []model.Tool{
				{Name: "bash", Arguments: map[string]any{"command": "sleep 0.5; echo one"}},
				{Name: "bash", Arguments: map[string]any{"command": "echo two"}},
				{Name: "read", Arguments: map[string]any{"path": "nothing-there"}},
			}}, scene.Say("Done."),
		}, want: "completed  stop", check: func(t *testing.T, _ *scene.Scene, entries []thread.Entry) {
			if n := ofType(entries, "pi.tool_result"); n != 3 {
				t.Errorf("%d results", n)
			}
		}},
		{
			name: "500 four times", replies: []model.Reply{{Status: 500, Message: "not now", Times: 4}},
			want: "failed provider_error error", status: 1,
			check: func(t *testing.T, _ *scene.Scene, entries []thread.Entry) {
				if n := ofType(entries, "pi.assistant"); n != 4 {
					t.Errorf("%d attempts on the thread", n)
				}
			},
		},
		{
			name: "401", replies: []model.Reply{{Status: 401, Message: "who are you"}},
			want: "failed provider_error error", status: 1,
		},
		{
			name:    "connection cut, then fine",
			replies: []model.Reply{{Text: "one two three four", Cut: 2}, scene.Say("Done.")}, want: "completed  stop",
		},
		{
			name: "connection cut for ever", replies: []model.Reply{{Text: "one two three four", Cut: 2, Times: -1}},
			want: "failed provider_error error", status: 1,
		},
		{
			name: "unknown model", replies: []model.Reply{{Status: 404, Message: "no such model"}},
			change: func(_ *testing.T, s *scene.Scene) {
				s.Args = append(s.Args, "--model", "scripted/no-such-model")
			}, want: "failed provider_error error", status: 1,
		},
		{name: "provider refused", change: func(t *testing.T, s *scene.Scene) {
			if err := s.Agent.Home(s.Dir, "http://127.0.0.1:1", 50); err != nil {
				t.Fatal(err)
			}
		}, want: "failed provider_error error", status: 1},
		{
			name: "KILL to pi in mid-stream", replies: []model.Reply{slow}, when: asked(1),
			strike: toAgent(syscall.SIGKILL), want: "failed killed none", status: 137,
		},
		{
			name: "INT to pi in mid-stream", replies: []model.Reply{slow}, when: asked(1),
			strike: toAgent(syscall.SIGINT), want: "cancelled  none", status: 130,
		},
		{
			name: "HUP to pi in mid-stream", replies: []model.Reply{slow}, when: asked(1),
			strike: toAgent(syscall.SIGHUP), want: "cancelled  none", status: 129,
		},
		{
			name: "INT to the runner", replies: []model.Reply{slow}, when: asked(1), strike: toRunner(syscall.SIGINT),
			want: "cancelled  none", status: 143,
		},
		{
			name: "HUP to the runner", replies: []model.Reply{slow}, when: asked(1), strike: toRunner(syscall.SIGHUP),
			want: "cancelled  none", status: 143,
		},
		{
			name:    "TERM to the runner in mid-tool",
			replies: []model.Reply{scene.Bash("echo $$ > tool.pid; exec sleep 300")}, when: tool,
			strike: toRunner(syscall.SIGTERM), want: "cancelled  toolUse", status: 143,
			check: func(t *testing.T, s *scene.Scene, _ []thread.Entry) {
				pid := scene.PidIn(filepath.Join(s.Dir, "work", "tool.pid"))
				scene.Until(t, "the tool is gone, too", func() bool { return syscall.Kill(pid, 0) != nil })
			},
		},
		{
			name: "KILL to the worker in mid-stream", replies: []model.Reply{brief}, when: asked(1), strike: toWorker,
			want: "completed  stop",
		},
		{
			name: "KILL to the worker in mid-tool", replies: []model.Reply{second, scene.Say("Done.")}, when: tool,
			strike: toWorker, want: "completed  stop",
		},
		{
			name: "KILL to the worker and then to pi", replies: []model.Reply{slow}, when: asked(1),
			strike: func(t *testing.T, s *scene.Scene, r *scene.Runner) {
				pid := scene.AgentPID(t, s)
				toWorker(t, s, r)
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}, want: "failed killed none", status: 137,
		},
		{
			name: "KILL to the keeper in mid-stream", replies: []model.Reply{brief}, when: asked(1),
			strike: func(t *testing.T, s *scene.Scene, r *scene.Runner) {
				toRunner(syscall.SIGKILL)(t, s, r)
				ended(t, s)
			}, want: "completed  stop", status: -1,
		},
		{
			name: "KILL to all of the runner, then recover", replies: []model.Reply{slow}, when: asked(1),
			strike: func(t *testing.T, s *scene.Scene, r *scene.Runner) {
				pid := scene.AgentPID(t, s)
				toRunner(syscall.SIGSTOP)(t, s, r) // it must not see its worker die
				toWorker(t, s, r)
				toRunner(syscall.SIGKILL)(t, s, r)
				scene.Until(t, "the run is lost", func() bool { return s.Known("r1").State == runfolder.StateLost })
				if out, err := s.Box("recover"); err != nil || !strings.Contains(out, "run r1: failed") {
					t.Errorf("recover: %v\n%s", err, out)
				}
				if st, err := procfs.Read(pid); err == nil && st.State != 'Z' { // which init may not have looked at yet
					t.Error("pi lives on")
				}
			}, want: "failed  none", status: -1,
		},
		{
			name:    "a child in a session of its own holds stdout",
			replies: []model.Reply{scene.Bash("setsid sleep 300 & echo $! > tool.pid; echo left it"), scene.Say("Done.")},
			want:    "completed  stop", check: func(t *testing.T, s *scene.Scene, _ []thread.Entry) {
				pid := scene.PidIn(filepath.Join(s.Dir, "work", "tool.pid"))
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Errorf("the child did not outlive a run that ended well: %v", err)
				}
			},
		},
		{
			name: "a line of 1 MB", replies: []model.Reply{{Text: strings.Repeat("0123456789abcde ", 1<<16)}},
			want: "completed  stop",
		},
		{
			name:    "a tool call of 1 MB",
			replies: []model.Reply{{Tools: []model.Tool{{Name: "write", Arguments: map[string]any{"path": "big", "content": strings.Repeat("x", 1<<20)}}}}, scene.Say("Done.")},
			want:    "completed  stop",
		},
		{
			name: "U+2028", replies: []model.Reply{scene.Say("a\u2028b\u2029c"), scene.Say("unused")}, want: "completed  stop",
			check: func(t *testing.T, _ *scene.Scene, entries []thread.Entry) {
				if !strings.Contains(scene.TextOf(entries), "a\u2028b\u2029c") {
					t.Error("the text is not on the thread")
				}
			},
		},
		{name: "an image", replies: []model.Reply{scene.Say("A pixel.")}, change: func(t *testing.T, s *scene.Scene) {
			b, err := base64.StdEncoding.DecodeString(scene.Pixel)
			if err == nil {
				err = os.WriteFile(filepath.Join(s.Dir, "work", "x.png"), b, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			s.Args = append(s.Args, "--agent-arg", "@x.png")
		}, want: "completed  stop", check: func(t *testing.T, _ *scene.Scene, entries []thread.Entry) {
			if !strings.Contains(scene.TextOf(entries), `"mimeType":"image/png"`) {
				t.Error("the image is not on the thread")
			}
		}},
		{
			name: "thinking", replies: []model.Reply{{Thinking: "Let me think.", Text: "Thought."}},
			want: "completed  stop", check: func(t *testing.T, _ *scene.Scene, entries []thread.Entry) {
				if !strings.Contains(scene.TextOf(entries), `"thinking":"Let me think."`) {
					t.Error("the thinking is not on the thread")
				}
			},
		},
		{name: "compaction", replies: []model.Reply{
			{
				Text:        "I will call a tool.",
				Tools:       []model.Tool{{Name: "bash", Arguments: map[string]any{"command": "seq 1 3000"}}},
				InputTokens: 2000,
			},
			{Text: "Long: " + strings.Repeat("many words ", 9000), InputTokens: 120000},
			{Text: "A summary.", Times: -1},
		}, want: "completed  stop", check: func(t *testing.T, _ *scene.Scene, entries []thread.Entry) {
			if !strings.Contains(scene.TextOf(entries), `"kind":"compaction"`) {
				t.Error("there was no compaction")
			}
		}},
		{name: "a long working directory", replies: done, change: func(t *testing.T, s *scene.Scene) {
			long := filepath.Join(s.Dir, strings.Repeat("d", 120), strings.Repeat("e", 120), strings.Repeat("f", 120))
			if err := os.MkdirAll(long, 0o700); err != nil {
				t.Fatal(err)
			}
			s.Args = append(s.Args, "--cwd", long)
		}, want: "completed  stop"},
		{name: "a session of version 1", replies: done, change: func(t *testing.T, s *scene.Scene) {
			path := filepath.Join(s.Dir, "old.jsonl")
			if err := os.WriteFile(path, []byte(fmt.Sprintf(scene.OldSession, filepath.Join(s.Dir, "work"))),
				0o600); err != nil {
				t.Fatal(err)
			}
			s.Args, s.Rewritten = append(s.Args, "--session", path), true
		}, want: "completed  stop", check: func(t *testing.T, s *scene.Scene, entries []thread.Entry) {
			if n := strings.Count(scene.TextOf(entries), `"text":"before"`); n != 1 {
				t.Errorf("the old prompt is on the thread %d times", n)
			}
			if !strings.Contains(string(s.Model.Requests()[0].Body), "before") {
				t.Error("pi has not read the old session")
			}
		}},
		{name: "a fork", replies: []model.Reply{scene.Say("First."), scene.Say("Second.")}, change: func(t *testing.T, s *scene.Scene) {
			// pi makes the fork itself where it is not given the session's path: the fork is made first, and then
			// continues as this run's session.
			from := filepath.Join(s.Dir, "from.jsonl")
			pi(s, "--session", from, "-p", "first question")
			forks := filepath.Join(s.Dir, "forks")
			pi(s, "--fork", from, "--session-dir", forks, "--offline", "-p", "")
			paths, err := filepath.Glob(filepath.Join(forks, "*.jsonl"))
			if err != nil || len(paths) != 1 {
				t.Fatalf("forks: %v, %v", paths, err)
			}
			s.Args = append(s.Args, "--session", paths[0])
		}, want: "completed  stop", check: func(t *testing.T, _ *scene.Scene, entries []thread.Entry) {
			if all := scene.TextOf(entries); !strings.Contains(all, `"parentSession":`) || !strings.Contains(all, `"text":"first question"`) {
				t.Error("the fork's past is not on the thread")
			}
		}},
	} {
		for i, version := range scene.Versions {
			t.Run(tt.name+"/"+version, func(t *testing.T) {
				t.Parallel()
				s := scene.New(t, version, tt.replies...)
				if tt.change != nil {
					tt.change(t, s)
				}
				r := s.Start()
				if tt.strike != nil {
					tt.when(t, s)
					tt.strike(t, s, r)
				}
				if got := s.Status(r); got != tt.status && (got != 137 || !s.Killed()) {
					t.Errorf("exit status %d, want %d", got, tt.status)
				}
				want := strings.Split(tt.want, "|")
				e := s.End()
				if got := e.Status + " " + e.Cause.ErrorClass + " " +
					e.Totals.StopReason; got != want[min(i, len(want)-1)] {
					t.Errorf("got %q %q, want %q", got, e.Cause.Message, want[min(i, len(want)-1)])
				}
				entries := s.Entries()
				if !s.Rewritten {
					s.Complete(entries)
				}
				if tt.check != nil {
					tt.check(t, s, entries)
				}
			})
		}
	}
}

// pi runs the scene's pi on its own, as a user would.
func pi(s *scene.Scene, args ...string) {
	s.T.Helper()
	cmd := exec.Command("pi", args...)
	for _, kv := range s.Env {
		if path, is := strings.CutPrefix(kv, "PATH="); is {
			cmd.Path = filepath.Join(strings.Split(path, ":")[0], "pi")
			cmd.Err = nil
		}
	}
	cmd.Env, cmd.Dir = s.Env, filepath.Join(s.Dir, "work")
	if out, err := cmd.CombinedOutput(); err != nil {
		s.T.Fatalf("pi %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// ofType is how many entries have the payload type.
func ofType(entries []thread.Entry, typ string) (n int) {
	for _, e := range entries {
		if strings.HasPrefix(string(e.Payload), `{"type":"`+typ+`"`) {
			n++
		}
	}
	return n
}

// toRunner sends a signal to the runner.
func toRunner(sig syscall.Signal) func(*testing.T, *scene.Scene, *scene.Runner) {
	return func(t *testing.T, _ *scene.Scene, r *scene.Runner) {
		if err := r.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
}

// toAgent sends a signal to the agent itself.
func toAgent(sig syscall.Signal) func(*testing.T, *scene.Scene, *scene.Runner) {
	return func(t *testing.T, s *scene.Scene, _ *scene.Runner) {
		if err := syscall.Kill(scene.AgentPID(t, s), sig); err != nil {
			t.Fatal(err)
		}
	}
}

// toWorker kills the worker.
func toWorker(t *testing.T, _ *scene.Scene, r *scene.Runner) {
	pids := scene.RunnerPIDs(r.Process.Pid)
	if len(pids) != 2 {
		t.Fatalf("the runner is %d processes", len(pids))
	}
	if err := syscall.Kill(pids[1], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
