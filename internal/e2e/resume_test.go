package e2e_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"arbe.0sk.ar/runner/internal/model"
	"arbe.0sk.ar/runner/thread"
)

// next is a fresh box, with nothing but the thread of the one before.
func (s *scene) next(version, run string, replies ...model.Reply) *scene {
	s.t.Helper()
	n := newScene(s.t, version, replies...)
	n.thread = s.thread
	for _, name := range []string{"ARBE_THREAD_ID", "ARBE_STREAM_TOKEN", "ARBE_RUN_ID"} {
		n.without(name)
	}
	n.env = append(n.env, "ARBE_THREAD_ID="+s.thread, "ARBE_STREAM_TOKEN="+n.arbe("token", "mint", "--thread", s.thread), "ARBE_RUN_ID="+run)
	n.args = append(n.args, "--resume")
	return n
}

// started is what the run says of its start.
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

// whole checks that the thread gives the box's session file back, and has no line twice.
func (s *scene) whole(run string) {
	s.t.Helper()
	content, err := os.ReadFile(s.started(run).SessionFile)
	if err != nil {
		s.t.Fatal(err)
	}
	out := filepath.Join(s.dir, "rebuilt.jsonl")
	s.hydrate("--out", out)
	rebuilt, err := os.ReadFile(out)
	if err != nil {
		s.t.Fatal(err)
	}
	want, got := strings.Split(string(content), "\n"), strings.Split(string(rebuilt), "\n")
	if len(got) != len(want) {
		s.t.Fatalf("rebuilt %d lines, the file has %d\n%s", len(got), len(want), rebuilt)
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

// A conversation goes on in a fresh box, whatever became of the run before: the model is told all of it, ids stay as they are, and nothing is on the thread twice.
func TestPiResume(t *testing.T) {
	tools := []model.Reply{bash("echo the-tool-says-this"), say("I have seen it.")}
	for _, tt := range []struct {
		name    string
		replies []model.Reply
		change  func(*testing.T, *scene)
		strike  func(*testing.T, *scene, *runner)
		want    []string // in what the model is asked after the resume
		without []string
	}{
		{name: "a tool turn", replies: tools, want: []string{"do it", "the-tool-says-this", "I have seen it.", "echo the-tool-says-this"}},
		{name: "an error turn", replies: []model.Reply{{Status: 400, Message: "no such luck"}}, want: []string{"do it"}},
		{name: "TERM in mid-tool", replies: []model.Reply{bash("echo $$ > tool.pid; exec sleep 300")}, strike: func(t *testing.T, s *scene, r *runner) {
			until(t, "the tool is at work", func() bool { return pidIn(filepath.Join(s.dir, "work", "tool.pid")) > 0 })
			if err := r.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}, want: []string{"do it", "exec sleep 300"}},
		{name: "KILL of pi in mid-tool", replies: []model.Reply{bash("echo $$ > tool.pid; exec sleep 3")}, strike: func(t *testing.T, s *scene, _ *runner) {
			until(t, "the tool is at work", func() bool { return pidIn(filepath.Join(s.dir, "work", "tool.pid")) > 0 })
			if err := syscall.Kill(agentPID(t, s), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}, want: []string{"do it", "exec sleep 3"}},
		{name: "thinking", replies: []model.Reply{{Thinking: "I ponder this", Text: "Pondered."}}, want: []string{"do it", "Pondered."}},
	} {
		for _, pair := range [][2]string{{pi078, pi078}, {"0.87.1", "0.87.1"}, {pi078, "0.87.1"}, {"0.87.1", pi078}} {
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
				// And on, in the same box.
				n.again("r3", "once more")
				if how := n.started("r3").Resume; how != "continue" {
					t.Errorf("resumed by %s", how)
				}
				n.whole("r3")
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
	if asked := s.asked(); !strings.Contains(asked, prompt) || !strings.Contains(asked, "second-tool") || strings.Count(asked, "second-tool") > 4 {
		s.t.Errorf("the model was asked %.3000s", asked)
	}
}
