package e2e_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/procfs"
	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/thread"
)

// versions are the pis that this is proven with: what boxes install, and the newest that installs.
var versions = []string{pi078, "0.87.1"}

// pixel is a picture of one pixel, PNG.
const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// oldSession is a session as pi wrote it in version 1, of the directory that is put in.
const oldSession = `{"type":"session","id":"old-one","timestamp":"2025-11-01T00:00:00.000Z","cwd":"%s","provider":"scripted","modelId":"scripted-1","thinkingLevel":"off"}
{"type":"message","timestamp":"2025-11-01T00:00:01.000Z","message":{"role":"user","content":"before","timestamp":1761955201000}}
{"type":"message","timestamp":"2025-11-01T00:00:02.000Z","message":{"role":"assistant","content":[{"type":"text","text":"yes"}],"api":"openai-completions","provider":"scripted","model":"scripted-1","usage":{"input":1,"output":1,"cacheRead":0,"cacheWrite":0,"totalTokens":2,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}},"stopReason":"stop","timestamp":1761955202000}}
`

// What can become of a run of the real pi.
func TestFullPiMatrix(t *testing.T) {
	slow := model.Reply{Text: strings.Repeat("word ", 500), Pace: model.Duration(50 * time.Millisecond)}
	asked := func(n int) func(*testing.T, *scene) {
		return func(t *testing.T, s *scene) {
			until(t, "the model is asked", func() bool { return len(s.model.Requests()) == n })
		}
	}
	tool := func(t *testing.T, s *scene) {
		until(t, "the tool is at work", func() bool { return pidIn(filepath.Join(s.dir, "work", "tool.pid")) > 0 })
	}
	brief := model.Reply{Text: strings.Repeat("word ", 30), Pace: model.Duration(50 * time.Millisecond)}
	second := bash("echo $$ > tool.pid; sleep 1; echo two")
	ended := func(t *testing.T, s *scene) {
		s.ends(s.thread)
	}
	for _, tt := range []struct {
		name    string
		replies []model.Reply
		change  func(*testing.T, *scene)
		when    func(*testing.T, *scene)          // the moment of
		strike  func(*testing.T, *scene, *runner) // something that happens to the run
		// status, error class, stop reason; "|" between what the versions come to
		want   string
		status int
		check  func(*testing.T, *scene, []thread.Entry)
	}{
		{name: "three parallel tools", replies: []model.Reply{
			{Tools: []model.Tool{
				{Name: "bash", Arguments: map[string]any{"command": "sleep 0.5; echo one"}},
				{Name: "bash", Arguments: map[string]any{"command": "echo two"}},
				{Name: "read", Arguments: map[string]any{"path": "nothing-there"}},
			}}, say("Done."),
		}, want: "completed  stop", check: func(t *testing.T, _ *scene, entries []thread.Entry) {
			if n := ofType(entries, "pi.tool_result"); n != 3 {
				t.Errorf("%d results", n)
			}
		}},
		{
			name: "500 four times", replies: []model.Reply{{Status: 500, Message: "not now", Times: 4}},
			want: "failed provider_error error", status: 1,
			check: func(t *testing.T, _ *scene, entries []thread.Entry) {
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
			replies: []model.Reply{{Text: "one two three four", Cut: 2}, say("Done.")}, want: "completed  stop",
		},
		{
			name: "connection cut for ever", replies: []model.Reply{{Text: "one two three four", Cut: 2, Times: -1}},
			want: "failed provider_error error", status: 1,
		},
		{
			name: "unknown model", replies: []model.Reply{{Status: 404, Message: "no such model"}},
			change: func(_ *testing.T, s *scene) {
				s.args = append(s.args, "--model", "scripted/no-such-model")
			}, want: "failed provider_error error", status: 1,
		},
		{name: "provider refused", change: func(t *testing.T, s *scene) {
			if err := s.agent.Home(s.dir, "http://127.0.0.1:1", 50); err != nil {
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
			replies: []model.Reply{bash("echo $$ > tool.pid; exec sleep 300")}, when: tool,
			strike: toRunner(syscall.SIGTERM), want: "cancelled  toolUse", status: 143,
			check: func(t *testing.T, s *scene, _ []thread.Entry) {
				pid := pidIn(filepath.Join(s.dir, "work", "tool.pid"))
				until(t, "the tool is gone, too", func() bool { return syscall.Kill(pid, 0) != nil })
			},
		},
		{
			name: "KILL to the worker in mid-stream", replies: []model.Reply{brief}, when: asked(1), strike: toWorker,
			want: "completed  stop",
		},
		{
			name: "KILL to the worker in mid-tool", replies: []model.Reply{second, say("Done.")}, when: tool,
			strike: toWorker, want: "completed  stop",
		},
		{
			name: "KILL to the worker and then to pi", replies: []model.Reply{slow}, when: asked(1),
			strike: func(t *testing.T, s *scene, r *runner) {
				pid := agentPID(t, s)
				toWorker(t, s, r)
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}, want: "failed killed none", status: 137,
		},
		{
			name: "KILL to the keeper in mid-stream", replies: []model.Reply{brief}, when: asked(1),
			strike: func(t *testing.T, s *scene, r *runner) {
				toRunner(syscall.SIGKILL)(t, s, r)
				ended(t, s)
			}, want: "completed  stop", status: -1,
		},
		{
			name: "KILL to all of the runner, then recover", replies: []model.Reply{slow}, when: asked(1),
			strike: func(t *testing.T, s *scene, r *runner) {
				pid := agentPID(t, s)
				toRunner(syscall.SIGSTOP)(t, s, r) // it must not see its worker die
				toWorker(t, s, r)
				toRunner(syscall.SIGKILL)(t, s, r)
				until(t, "the run is lost", func() bool { return s.known("r1").State == runfolder.StateLost })
				if out, err := s.box("recover"); err != nil || !strings.Contains(out, "run r1: failed") {
					t.Errorf("recover: %v\n%s", err, out)
				}
				if st, err := procfs.Read(pid); err == nil && st.State != 'Z' { // which init may not have looked at yet
					t.Error("pi lives on")
				}
			}, want: "failed  none", status: -1,
		},
		{
			name:    "a child in a session of its own holds stdout",
			replies: []model.Reply{bash("setsid sleep 300 & echo $! > tool.pid; echo left it"), say("Done.")},
			want:    "completed  stop", check: func(t *testing.T, s *scene, _ []thread.Entry) {
				if err := syscall.Kill(pidIn(filepath.Join(s.dir, "work", "tool.pid")), syscall.SIGKILL); err != nil {
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
			replies: []model.Reply{{Tools: []model.Tool{{Name: "write", Arguments: map[string]any{"path": "big", "content": strings.Repeat("x", 1<<20)}}}}, say("Done.")},
			want:    "completed  stop",
		},
		{
			name: "U+2028", replies: []model.Reply{say("a\u2028b\u2029c"), say("unused")}, want: "completed  stop",
			check: func(t *testing.T, _ *scene, entries []thread.Entry) {
				if !strings.Contains(textOf(entries), "a\u2028b\u2029c") {
					t.Error("the text is not on the thread")
				}
			},
		},
		{name: "an image", replies: []model.Reply{say("A pixel.")}, change: func(t *testing.T, s *scene) {
			b, err := base64.StdEncoding.DecodeString(pixel)
			if err == nil {
				err = os.WriteFile(filepath.Join(s.dir, "work", "x.png"), b, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			s.args = append(s.args, "--agent-arg", "@x.png")
		}, want: "completed  stop", check: func(t *testing.T, _ *scene, entries []thread.Entry) {
			if !strings.Contains(textOf(entries), `"mimeType":"image/png"`) {
				t.Error("the image is not on the thread")
			}
		}},
		{
			name: "thinking", replies: []model.Reply{{Thinking: "Let me think.", Text: "Thought."}},
			want: "completed  stop", check: func(t *testing.T, _ *scene, entries []thread.Entry) {
				if !strings.Contains(textOf(entries), `"thinking":"Let me think."`) {
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
		}, want: "completed  stop", check: func(t *testing.T, _ *scene, entries []thread.Entry) {
			if !strings.Contains(textOf(entries), `"kind":"compaction"`) {
				t.Error("there was no compaction")
			}
		}},
		{name: "a long working directory", replies: []model.Reply{say("Done.")}, change: func(t *testing.T, s *scene) {
			long := filepath.Join(s.dir, strings.Repeat("d", 120), strings.Repeat("e", 120), strings.Repeat("f", 120))
			if err := os.MkdirAll(long, 0o700); err != nil {
				t.Fatal(err)
			}
			s.args = append(s.args, "--cwd", long)
		}, want: "completed  stop"},
		{name: "a session of version 1", replies: []model.Reply{say("Done.")}, change: func(t *testing.T, s *scene) {
			path := filepath.Join(s.dir, "old.jsonl")
			if err := os.WriteFile(path, []byte(fmt.Sprintf(oldSession, filepath.Join(s.dir, "work"))),
				0o600); err != nil {
				t.Fatal(err)
			}
			s.args, s.rewritten = append(s.args, "--session", path), true
		}, want: "completed  stop", check: func(t *testing.T, s *scene, entries []thread.Entry) {
			if n := strings.Count(textOf(entries), `"text":"before"`); n != 1 {
				t.Errorf("the old prompt is on the thread %d times", n)
			}
			if !strings.Contains(string(s.model.Requests()[0].Body), "before") {
				t.Error("pi has not read the old session")
			}
		}},
		{name: "a fork", replies: []model.Reply{say("First."), say("Second.")}, change: func(t *testing.T, s *scene) {
			// pi makes the fork itself where it is not given the session's path: the fork is made first, and then
			// continues as this run's session.
			from := filepath.Join(s.dir, "from.jsonl")
			s.pi("--session", from, "-p", "first question")
			forks := filepath.Join(s.dir, "forks")
			s.pi("--fork", from, "--session-dir", forks, "--offline", "-p", "")
			paths, err := filepath.Glob(filepath.Join(forks, "*.jsonl"))
			if err != nil || len(paths) != 1 {
				t.Fatalf("forks: %v, %v", paths, err)
			}
			s.args = append(s.args, "--session", paths[0])
		}, want: "completed  stop", check: func(t *testing.T, _ *scene, entries []thread.Entry) {
			if all := textOf(entries); !strings.Contains(all, `"parentSession":`) || !strings.Contains(all, `"text":"first question"`) {
				t.Error("the fork's past is not on the thread")
			}
		}},
	} {
		for i, version := range versions {
			t.Run(tt.name+"/"+version, func(t *testing.T) {
				t.Parallel()
				s := newScene(t, version, tt.replies...)
				if tt.change != nil {
					tt.change(t, s)
				}
				r := s.start()
				if tt.strike != nil {
					tt.when(t, s)
					tt.strike(t, s, r)
				}
				if got := s.status(r); got != tt.status && (got != 137 || !s.killed()) {
					t.Errorf("exit status %d, want %d", got, tt.status)
				}
				want := strings.Split(tt.want, "|")
				e := s.end()
				if got := e.Status + " " + e.Cause.ErrorClass + " " +
					e.Totals.StopReason; got != want[min(i, len(want)-1)] {
					t.Errorf("got %q %q, want %q", got, e.Cause.Message, want[min(i, len(want)-1)])
				}
				entries := s.entries()
				if !s.rewritten {
					s.complete(entries)
				}
				if tt.check != nil {
					tt.check(t, s, entries)
				}
			})
		}
	}
}

// pi runs the scene's pi on its own, as a user would.
func (s *scene) pi(args ...string) {
	s.t.Helper()
	cmd := exec.Command("pi", args...)
	for _, kv := range s.env {
		if path, is := strings.CutPrefix(kv, "PATH="); is {
			cmd.Path = filepath.Join(strings.Split(path, ":")[0], "pi")
			cmd.Err = nil
		}
	}
	cmd.Env, cmd.Dir = s.env, filepath.Join(s.dir, "work")
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("pi %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// pidIn is the process id in a file, 0 where there is none yet.
func pidIn(path string) int {
	b, err := os.ReadFile(path)
	if err != nil || !strings.HasSuffix(string(b), "\n") {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(b))) // 0 where it is none
	return pid
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

// textOf is all payloads, with the escapes that JSON need not have taken out.
func textOf(entries []thread.Entry) string {
	var all []string
	for _, e := range entries {
		var v any
		if err := json.Unmarshal(e.Payload, &v); err != nil {
			panic(err) // the server has checked it
		}
		all = append(all, string(thread.Marshal(v)))
	}
	return strings.NewReplacer(`\u2028`, "\u2028", `\u2029`, "\u2029").Replace(strings.Join(all, "\n"))
}

// toRunner sends a signal to the runner.
func toRunner(sig syscall.Signal) func(*testing.T, *scene, *runner) {
	return func(t *testing.T, _ *scene, r *runner) {
		if err := r.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
}

// toAgent sends a signal to the agent itself.
func toAgent(sig syscall.Signal) func(*testing.T, *scene, *runner) {
	return func(t *testing.T, s *scene, _ *runner) {
		if err := syscall.Kill(agentPID(t, s), sig); err != nil {
			t.Fatal(err)
		}
	}
}

// toWorker kills the worker.
func toWorker(t *testing.T, _ *scene, r *runner) {
	pids := runnerPIDs(r.Process.Pid)
	if len(pids) != 2 {
		t.Fatalf("the runner is %d processes", len(pids))
	}
	if err := syscall.Kill(pids[1], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
