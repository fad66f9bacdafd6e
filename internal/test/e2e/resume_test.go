package e2e_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/thread"
)

// next is a fresh box, with nothing but the thread of the one before.
func (s *scene) next(version, run string, replies ...model.Reply) *scene {
	s.t.Helper()
	return s.nextOf(s.agent.Harness, version, run, replies...)
}

// nextOf is a fresh box with another agent in it.
func (s *scene) nextOf(name, version, run string, replies ...model.Reply) *scene {
	s.t.Helper()
	s.once()
	n := newSceneOf(s.t, name, version, replies...)
	n.thread, n.written = s.thread, s.written
	for _, name := range []string{"ARBE_THREAD_ID", "ARBE_STREAM_TOKEN", "ARBE_RUN_ID"} {
		n.without(name)
	}
	n.env = append(
		n.env,
		"ARBE_THREAD_ID="+s.thread,
		"ARBE_STREAM_TOKEN="+n.arbe("token", "mint", "--thread", s.thread),
		"ARBE_RUN_ID="+run,
	)
	n.args = append(n.args, "--resume")
	return n
}

// started returns the run's session_started.
func (s *scene) started(run string) (p thread.Started) {
	s.t.Helper()
	for _, e := range s.entries() {
		if e.ID == run+".started" {
			return payload[thread.Started](s.t, e)
		}
	}
	s.t.Fatalf("run %s has not started", run)
	return p
}

// asked is the last request that the model got, as text.
func (s *scene) asked() string {
	s.t.Helper()
	all := s.model.Requests()
	if len(all) == 0 {
		s.t.Fatal("the model was not asked")
	}
	var v any
	if err := json.Unmarshal(all[len(all)-1].Body, &v); err != nil {
		s.t.Fatal(err)
	}
	return string(thread.Marshal(v))
}

// rebuilt begins the name of a session file that whole makes.
const rebuilt = "rebuilt-"

// whole checks that the thread gives the box's session file back, and has no line twice.
func (s *scene) whole(run string) {
	s.t.Helper()
	content, err := os.ReadFile(s.known(run).Session)
	if err != nil {
		s.t.Fatal(err)
	}
	out := filepath.Join(s.dir, rebuilt+run+".jsonl") // hydrate replaces no file
	s.hydrate("--harness", s.agent.Harness, "--out", out)
	rebuilt, err := os.ReadFile(out)
	if err != nil {
		s.t.Fatal(err)
	}
	if n, m := strings.Count(string(rebuilt), "\n"), strings.Count(string(content), "\n"); n != m {
		s.t.Errorf("rebuilt %d lines, the file has %d\n%s", n, m, rebuilt)
	}
	s.begins(string(rebuilt), string(content))
}

// begins checks that a session file begins with all the lines of another one, but for the directory that it is of.
func (s *scene) begins(file, with string) {
	s.t.Helper()
	want, got := strings.Split(strings.TrimSuffix(with, "\n"), "\n"), strings.Split(file, "\n")
	if len(got) < len(want) {
		s.t.Fatalf("%d lines, want %d and more:\n%s", len(got), len(want), file)
	}
	for i := range want {
		var x, y map[string]any
		if json.Unmarshal([]byte(want[i]), &y) != nil {
			if got[i] != want[i] {
				s.t.Errorf("line %d: %q, want %q", i, got[i], want[i])
			}
			continue
		}
		if err := json.Unmarshal([]byte(got[i]), &x); err != nil {
			s.t.Errorf("line %d: %v in %s", i, err, got[i])
		}
		if i == 0 { // which is mapped from box to box
			delete(x, "cwd")
			delete(y, "cwd")
		}
		if a, b := string(thread.Marshal(x)), string(thread.Marshal(y)); a != b {
			s.t.Errorf("line %d:\ngot  %.400s\nwant %.400s", i, a, b)
		}
	}
}

// hydrate is what arbe-pi-runner hydrate prints.
func (s *scene) hydrate(args ...string) string {
	s.t.Helper()
	out, err := s.box(append([]string{"hydrate"}, args...)...)
	if err != nil {
		s.t.Fatalf("hydrate: %v\n%s", err, out)
	}
	return out
}

// A conversation continues in a fresh box after each end of the run before: the model gets all of it, ids stay as they
// are, and nothing is on the thread twice.
func TestFullPiResume(t *testing.T) {
	tools := []model.Reply{bash("echo the-tool-says-this"), say("I have seen it.")}
	for _, tt := range []struct {
		name    string
		replies []model.Reply
		change  func(*testing.T, *scene)
		strike  func(*testing.T, *scene, *runner)
		want    []string // in what the model is asked after the resume
		across  bool     // from each version to the other, too
	}{
		{
			name: "a tool turn", across: true, replies: tools,
			want: []string{"do it", "the-tool-says-this", "I have seen it.", "echo the-tool-says-this"},
		},
		{
			name: "an error turn", replies: []model.Reply{{Status: 400, Message: "no such luck"}},
			want: []string{"do it"},
		},
		{
			name: "TERM in mid-tool", replies: []model.Reply{bash("echo $$ > tool.pid; exec sleep 300")},
			strike: func(t *testing.T, s *scene, r *runner) {
				until(t, "the tool is at work",
					func() bool { return pidIn(filepath.Join(s.dir, "work", "tool.pid")) > 0 })
				if err := r.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			}, want: []string{"do it", "exec sleep 300"},
		},
		{
			name: "KILL of pi in mid-tool", replies: []model.Reply{bash("echo $$ > tool.pid; exec sleep 3")},
			strike: func(t *testing.T, s *scene, _ *runner) {
				until(t, "the tool is at work",
					func() bool { return pidIn(filepath.Join(s.dir, "work", "tool.pid")) > 0 })
				if err := syscall.Kill(agentPID(t, s), syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}, want: []string{"do it", "exec sleep 3"},
		},
		{name: "a line torn by a KILL", replies: tools, change: func(t *testing.T, s *scene) {
			// As pi leaves its file where it is killed in the middle of a write.
			wrap := filepath.Join(s.dir, "torn-pi")
			if err := os.WriteFile(wrap,
				[]byte("#!/bin/sh\npi \"$@\"\nprintf '{\"type\":\"message\",\"id\":\"deadbeef\",\"par' >>\"$2\"\n"+
					"kill -9 $$\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			s.args = append(s.args, "--agent-bin", wrap)
		}, want: []string{"do it", "the-tool-says-this", "I have seen it."}},
		{name: "a session of version 1", across: true, replies: tools, change: func(t *testing.T, s *scene) {
			path := filepath.Join(s.dir, "old.jsonl")
			if err := os.WriteFile(path, []byte(fmt.Sprintf(oldSession, filepath.Join(s.dir, "work"))),
				0o600); err != nil {
				t.Fatal(err)
			}
			s.args = append(s.args, "--session", path)
		}, want: []string{"before", "do it", "the-tool-says-this"}},
		{name: "an image", replies: []model.Reply{say("A pixel.")}, change: func(t *testing.T, s *scene) {
			b, err := base64.StdEncoding.DecodeString(pixel)
			if err == nil {
				err = os.WriteFile(filepath.Join(s.dir, "work", "x.png"), b, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			s.args = append(s.args, "--agent-arg", "@x.png")
		}, want: []string{"do it", "A pixel.", pixel}},
		{name: "a compaction", across: true, replies: []model.Reply{
			{
				Text:        "I will call a tool.",
				Tools:       []model.Tool{{Name: "bash", Arguments: map[string]any{"command": "seq 1 3000"}}},
				InputTokens: 2000,
			},
			{Text: "Long: " + strings.Repeat("many words ", 9000), InputTokens: 120000},
			{Text: "A summary.", Times: -1},
		}, want: []string{"A summary."}},
		{
			name: "thinking", replies: []model.Reply{{Thinking: "I ponder this", Text: "Pondered."}},
			want: []string{"do it", "Pondered."},
		},
	} {
		var pairs [][2]string
		if tt.across { // what one version writes the other reads: enough is seen where the lines differ
			pairs = append(pairs, [2]string{pi078, "0.87.1"}, [2]string{"0.87.1", pi078})
		}
		pairs = append(pairs, [2]string{pi078, pi078}, [2]string{"0.87.1", "0.87.1"})
		for _, pair := range pairs {
			t.Run(tt.name+"/"+pair[0]+" to "+pair[1], func(t *testing.T) {
				t.Parallel()
				s := newScene(t, pair[0], tt.replies...)
				if tt.change != nil {
					tt.change(t, s)
				}
				r := s.start()
				if tt.strike != nil {
					tt.strike(t, s, r)
				}
				s.status(r)
				before := s.entries()
				if tt.name == "a compaction" && !strings.Contains(textOf(before), `"kind":"compaction"`) {
					t.Error("there was no compaction")
				}
				first, err := os.ReadFile(s.started("r1").SessionFile)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.RemoveAll(s.dir); err != nil { // the box is gone
					t.Fatal(err)
				}
				n := s.next(pair[1], "r2", bash("echo second-tool"), say("And on."))
				n.prompt = "go on"
				if got := n.status(n.start()); got != 0 {
					t.Fatalf("exit status %d", got)
				}
				if how := n.started("r2").Resume; how != "hydrate" {
					t.Errorf("resumed by %s", how)
				}
				then, err := os.ReadFile(n.started("r2").SessionFile)
				if err != nil {
					t.Fatal(err)
				}
				n.begins(string(then), string(first))
				asked := n.asked()
				for _, want := range append(tt.want, "go on", "second-tool") {
					if !strings.Contains(asked, want) {
						t.Errorf("the model was not told %q:\n%.3000s", want, asked)
					}
				}
				seen := map[string]bool{}
				for i, e := range n.entries() {
					if i < len(before) && e.ID != before[i].ID {
						t.Errorf("entry %d is %s, was %s", i, e.ID, before[i].ID)
					}
					key := string(e.Payload)
					if strings.HasPrefix(e.ID, "pi:") && seen[key] {
						t.Errorf("%s is there twice", e.Payload)
					}
					seen[key] = true
				}
				n.whole("r2")
				// And on, in the same box, and in a third one.
				n.again("r3", "once more")
				if how := n.started("r3").Resume; how != "continue" {
					t.Errorf("resumed by %s", how)
				}
				n.whole("r3")
				third := n.next(pair[0], "r4", bash("echo second-tool"))
				third.again("r4", "and a third time")
				third.whole("r4")
			})
		}
	}
}

// again runs once more in the same box.
func (s *scene) again(run, prompt string) {
	s.t.Helper()
	s.without("ARBE_RUN_ID")
	s.env = append(s.env, "ARBE_RUN_ID="+run)
	s.model.More(say("Again."))
	s.prompt = prompt
	if got := s.status(s.start()); got != 0 {
		s.t.Fatalf("exit status %d", got)
	}
	if asked := s.asked(); !strings.Contains(asked, prompt) || !strings.Contains(asked, "second-tool") ||
		strings.Count(asked, "second-tool") > 6 {
		s.t.Errorf("the model was asked %.3000s", asked)
	}
}

// Where this box's own file differs from the thread, the run continues with the thread.
func TestFullPiResumeFallsBack(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, s *scene, file string)
		how    string
		said   string
	}{
		{"nothing is wrong", func(*testing.T, *scene, string) {}, "continue", ""},
		{"gone", func(t *testing.T, _ *scene, file string) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}, "hydrate", "the session file is gone"},
		{"torn", func(t *testing.T, _ *scene, file string) {
			f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteString(`{"type":"mess`); err != nil {
				t.Fatal(err)
			}
		}, "hydrate", "ends in the middle of a line"},
		{"behind", func(t *testing.T, _ *scene, file string) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.SplitAfter(string(b), "\n")
			if err := os.WriteFile(file, []byte(strings.Join(lines[:len(lines)-2], "")), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "hydrate", "the thread has 1 lines that the session file does not have"},
		{"no session at all", func(t *testing.T, _ *scene, file string) {
			if err := os.WriteFile(file, []byte("words\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "hydrate", "not a session file"},
		{"another session's", func(t *testing.T, _ *scene, file string) {
			if err := os.WriteFile(file, []byte(`{"type":"session","version":3,"id":"another","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/"}`+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "hydrate", "lines that the session file does not have"},
		{"another directory", func(t *testing.T, s *scene, _ string) {
			other := filepath.Join(s.dir, "other")
			if err := os.Mkdir(other, 0o700); err != nil {
				t.Fatal(err)
			}
			s.args = append(s.args, "--cwd", other)
		}, "hydrate", "is to continue in"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, pi078, bash("echo second-tool"), say("Seen."))
			if got := s.status(s.start()); got != 0 {
				t.Fatalf("exit status %d", got)
			}
			file := s.started("r1").SessionFile
			s.args = append(s.args[:2:2], "--resume")
			tt.change(t, s, file)
			s.without("ARBE_RUN_ID")
			s.env = append(s.env, "ARBE_RUN_ID=r2")
			s.model.More(say("And on."))
			s.prompt = "go on"
			r := s.start()
			if got := s.status(r); got != 0 {
				t.Fatalf("exit status %d", got)
			}
			if how := s.started("r2").Resume; how != tt.how || !strings.Contains(r.stderr.String(), tt.said) {
				t.Errorf("resumed by %s", how)
			}
			if asked := s.asked(); !strings.Contains(asked, "second-tool") || !strings.Contains(asked, "Seen.") ||
				!strings.Contains(asked, "go on") {
				t.Errorf("the model was asked %.3000s", asked)
			}
			s.whole("r2")
		})
	}
}
