package resume_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"arbe.0sk.ar/runner/internal/test/scene"

	"arbe.0sk.ar/runner/internal/test/model"
)

// A conversation continues in a fresh box after each end of the run before: the model gets all of it, ids stay as they
// are, and nothing is on the thread twice.
func TestFullPiResume(t *testing.T) {
	tools := []model.Reply{scene.Bash("echo the-tool-says-this"), scene.Say("I have seen it.")}
	for _, tt := range []struct {
		name    string
		replies []model.Reply
		change  func(*testing.T, *scene.Scene)
		strike  func(*testing.T, *scene.Scene, *scene.Runner)
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
			name: "TERM in mid-tool", replies: []model.Reply{scene.Bash("echo $$ > tool.pid; exec sleep 300")},
			strike: func(t *testing.T, s *scene.Scene, r *scene.Runner) {
				scene.Until(t, "the tool is at work",
					func() bool { return scene.PidIn(filepath.Join(s.Dir, "work", "tool.pid")) > 0 })
				if err := r.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			}, want: []string{"do it", "exec sleep 300"},
		},
		{
			name: "KILL of pi in mid-tool", replies: []model.Reply{scene.Bash("echo $$ > tool.pid; exec sleep 3")},
			strike: func(t *testing.T, s *scene.Scene, _ *scene.Runner) {
				scene.Until(t, "the tool is at work",
					func() bool { return scene.PidIn(filepath.Join(s.Dir, "work", "tool.pid")) > 0 })
				if err := syscall.Kill(scene.AgentPID(t, s), syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}, want: []string{"do it", "exec sleep 3"},
		},
		{name: "a line torn by a KILL", replies: tools, change: func(t *testing.T, s *scene.Scene) {
			// As pi leaves its file where it is killed in the middle of a write.
			wrap := filepath.Join(s.Dir, "torn-pi")
			if err := os.WriteFile(wrap,
				[]byte("#!/bin/sh\npi \"$@\"\nprintf '{\"type\":\"message\",\"id\":\"deadbeef\",\"par' >>\"$2\"\n"+
					"kill -9 $$\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			s.Args = append(s.Args, "--agent-bin", wrap)
		}, want: []string{"do it", "the-tool-says-this", "I have seen it."}},
		{name: "a session of version 1", across: true, replies: tools, change: func(t *testing.T, s *scene.Scene) {
			path := filepath.Join(s.Dir, "old.jsonl")
			if err := os.WriteFile(path, []byte(fmt.Sprintf(scene.OldSession, filepath.Join(s.Dir, "work"))),
				0o600); err != nil {
				t.Fatal(err)
			}
			s.Args = append(s.Args, "--session", path)
		}, want: []string{"before", "do it", "the-tool-says-this"}},
		{name: "an image", replies: []model.Reply{scene.Say("A pixel.")}, change: func(t *testing.T, s *scene.Scene) {
			b, err := base64.StdEncoding.DecodeString(scene.Pixel)
			if err == nil {
				err = os.WriteFile(filepath.Join(s.Dir, "work", "x.png"), b, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			s.Args = append(s.Args, "--agent-arg", "@x.png")
		}, want: []string{"do it", "A pixel.", scene.Pixel}},
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
			pairs = append(pairs, [2]string{scene.Pi078, "0.87.1"}, [2]string{"0.87.1", scene.Pi078})
		}
		pairs = append(pairs, [2]string{scene.Pi078, scene.Pi078}, [2]string{"0.87.1", "0.87.1"})
		for _, pair := range pairs {
			t.Run(tt.name+"/"+pair[0]+" to "+pair[1], func(t *testing.T) {
				t.Parallel()
				s := scene.New(t, pair[0], tt.replies...)
				if tt.change != nil {
					tt.change(t, s)
				}
				r := s.Start()
				if tt.strike != nil {
					tt.strike(t, s, r)
				}
				s.Status(r)
				before := s.Entries()
				if tt.name == "a compaction" && !strings.Contains(scene.TextOf(before), `"kind":"compaction"`) {
					t.Error("there was no compaction")
				}
				first, err := os.ReadFile(s.Started("r1").SessionFile)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.RemoveAll(s.Dir); err != nil { // the box is gone
					t.Fatal(err)
				}
				n := s.Next(pair[1], "r2", scene.Bash("echo second-tool"), scene.Say("And on."))
				n.Prompt = "go on"
				if got := n.Status(n.Start()); got != 0 {
					t.Fatalf("exit status %d", got)
				}
				if how := n.Started("r2").Resume; how != "hydrate" {
					t.Errorf("resumed by %s", how)
				}
				then, err := os.ReadFile(n.Started("r2").SessionFile)
				if err != nil {
					t.Fatal(err)
				}
				n.Begins(string(then), string(first))
				asked := n.Asked()
				for _, want := range append(tt.want, "go on", "second-tool") {
					if !strings.Contains(asked, want) {
						t.Errorf("the model was not told %q:\n%.3000s", want, asked)
					}
				}
				seen := map[string]bool{}
				for i, e := range n.Entries() {
					if i < len(before) && e.ID != before[i].ID {
						t.Errorf("entry %d is %s, was %s", i, e.ID, before[i].ID)
					}
					key := string(e.Payload)
					if strings.HasPrefix(e.ID, "pi:") && seen[key] {
						t.Errorf("%s is there twice", e.Payload)
					}
					seen[key] = true
				}
				n.Whole("r2")
				// And on, in the same box, and in a third one.
				again(n, "r3", "once more")
				if how := n.Started("r3").Resume; how != "continue" {
					t.Errorf("resumed by %s", how)
				}
				n.Whole("r3")
				third := n.Next(pair[0], "r4", scene.Bash("echo second-tool"))
				again(third, "r4", "and a third time")
				third.Whole("r4")
			})
		}
	}
}

// again runs once more in the same box.
func again(s *scene.Scene, run, prompt string) {
	s.T.Helper()
	s.Without("ARBE_RUN_ID")
	s.Env = append(s.Env, "ARBE_RUN_ID="+run)
	s.Model.More(scene.Say("Again."))
	s.Prompt = prompt
	if got := s.Status(s.Start()); got != 0 {
		s.T.Fatalf("exit status %d", got)
	}
	if asked := s.Asked(); !strings.Contains(asked, prompt) || !strings.Contains(asked, "second-tool") ||
		strings.Count(asked, "second-tool") > 6 {
		s.T.Errorf("the model was asked %.3000s", asked)
	}
}

// Where this box's own file differs from the thread, the run continues with the thread.
func TestFullPiResumeFallsBack(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, s *scene.Scene, file string)
		how    string
		said   string
	}{
		{"nothing is wrong", func(*testing.T, *scene.Scene, string) {}, "continue", ""},
		{"gone", func(t *testing.T, _ *scene.Scene, file string) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}, "hydrate", "the session file is gone"},
		{"torn", func(t *testing.T, _ *scene.Scene, file string) {
			f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteString(`{"type":"mess`); err != nil {
				t.Fatal(err)
			}
		}, "hydrate", "ends in the middle of a line"},
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
		{"no session at all", func(t *testing.T, _ *scene.Scene, file string) {
			if err := os.WriteFile(file, []byte("words\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "hydrate", "not a session file"},
		{"another session's", func(t *testing.T, _ *scene.Scene, file string) {
			if err := os.WriteFile(file, []byte(`{"type":"session","version":3,"id":"another","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/"}`+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "hydrate", "lines that the session file does not have"},
		{"another directory", func(t *testing.T, s *scene.Scene, _ string) {
			other := filepath.Join(s.Dir, "other")
			if err := os.Mkdir(other, 0o700); err != nil {
				t.Fatal(err)
			}
			s.Args = append(s.Args, "--cwd", other)
		}, "hydrate", "is to continue in"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := scene.New(t, scene.Pi078, scene.Bash("echo second-tool"), scene.Say("Seen."))
			if got := s.Status(s.Start()); got != 0 {
				t.Fatalf("exit status %d", got)
			}
			file := s.Started("r1").SessionFile
			s.Args = append(s.Args[:2:2], "--resume")
			tt.change(t, s, file)
			s.Without("ARBE_RUN_ID")
			s.Env = append(s.Env, "ARBE_RUN_ID=r2")
			s.Model.More(scene.Say("And on."))
			s.Prompt = "go on"
			r := s.Start()
			if got := s.Status(r); got != 0 {
				t.Fatalf("exit status %d", got)
			}
			if how := s.Started("r2").Resume; how != tt.how || !strings.Contains(r.Log.String(), tt.said) {
				t.Errorf("resumed by %s", how)
			}
			if asked := s.Asked(); !strings.Contains(asked, "second-tool") || !strings.Contains(asked, "Seen.") ||
				!strings.Contains(asked, "go on") {
				t.Errorf("the model was asked %.3000s", asked)
			}
			s.Whole("r2")
		})
	}
}
