package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/thread"
)

// onFrom starts a run in the scene's box that resumes the run before.
func (s *scene) onFrom(run, how string, told ...string) *runner {
	s.t.Helper()
	s.without("ARBE_RUN_ID")
	s.env = append(s.env, "ARBE_RUN_ID="+run)
	s.model.More(say("This is said in " + run + "."))
	s.prompt = "go on with " + run
	r := s.start()
	if got := s.status(r); got != 0 {
		s.t.Fatalf("exit status %d", got)
	}
	if got := s.started(run).Resume; got != how {
		s.t.Errorf("%s was resumed by %s, want %s", run, got, how)
	}
	asked := s.asked()
	for _, want := range append(told, s.prompt) {
		if strings.Count(asked, want) != 1 {
			s.t.Errorf("in %s the model was told %q %d times", run, want, strings.Count(asked, want))
		}
	}
	s.once()
	return r
}

// once checks that no line of the agent's is on the thread too often, after each run.
func (s *scene) once() {
	s.t.Helper()
	for _, line := range s.doubled() {
		s.t.Error(line)
	}
}

// doubled returns what the thread has more often than one of the session files that this box, or a box before it, has
// had: an agent may write the same line twice. It is called after each run, before a file that is rebuilt from the
// thread has what the thread has.
func (s *scene) doubled() (all []string) {
	s.t.Helper()
	err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the box is gone, or its agent's cache changes
		}
		if err != nil || d.IsDir() || filepath.Ext(path) != ".jsonl" || strings.HasPrefix(d.Name(), rebuilt) {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		in := map[string]int{}
		for line := range bytes.Lines(content) {
			in[normal(line)]++
		}
		for line, n := range in {
			s.written[line] = max(s.written[line], n)
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	posted := map[string][]string{}
	for _, e := range s.entries() {
		line := hydrate.Parse(e, s.dialect()).Line
		if line == nil || !strings.HasPrefix(e.ID, s.dialect().Prefix+":") {
			continue
		}
		text := normal(line)
		posted[text] = append(posted[text], e.ID)
		if ids, n := posted[text], max(1, s.written[text]); len(ids) > n {
			all = append(all, fmt.Sprintf("%q are one line, a session file has it %d times: %.300s", ids, n, text))
		}
	}
	return all
}

// normal returns a line of a session with its keys in order and without blanks.
func normal(line []byte) string {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return strings.TrimSuffix(string(line), "\n")
	}
	return string(thread.Marshal(v))
}

// A line that the agent wrote twice may be on the thread twice, one that it wrote once may not.
func TestFullDoubled(t *testing.T) {
	t.Parallel()
	s := newScene(t, pi078)
	const twice, single = `{"type":"custom","text":"twice"}`, `{"type":"custom","text":"once"}`
	file := filepath.Join(s.dir, "session.jsonl")
	if err := os.WriteFile(file, []byte(twice+"\n"+single+"\n"+twice+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	post := func(index int, line string) {
		t.Helper()
		c := &thread.Client{
			Base: thread.BaseURL(server), Thread: s.thread,
			Token: thread.StaticToken(s.arbe("token", "mint", "--thread", s.thread)),
		}
		_, err := c.Append(t.Context(), []thread.Entry{{
			ID: fmt.Sprintf("pi:s:%d.0", index), TS: "2026-01-01T00:00:00.000Z",
			Payload: fmt.Appendf(nil, `{"type":"pi.session","kind":"custom","session":{"id":"s","entry":null,"parent":null,"index":%d},`+
				`"line":%s}`, index, line),
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	post(0, twice)
	post(1, single)
	post(2, twice)
	if got := s.doubled(); len(got) != 0 {
		t.Errorf("what the file has: %q", got)
	}
	post(3, single)
	if got := s.doubled(); len(got) != 1 || !strings.Contains(got[0], `"pi:s:1.0" "pi:s:3.0"`) {
		t.Errorf("a line posted again: %q", got)
	}
	post(4, twice)
	if got := s.doubled(); len(got) != 2 {
		t.Errorf("a line that the file has twice, posted again: %q", got)
	}
}

// A conversation continues in the same box, and in a fresh one, whatever became of the run before.
func TestFullAgentResume(t *testing.T) {
	tools := func(name string) []model.Reply {
		return []model.Reply{calling(name, "echo the-tool-says-$((40+2))"), say("I have seen it.")}
	}
	busy := func(name string) []model.Reply {
		return []model.Reply{calling(name, "echo $$ > tool.pid; exec sleep 300")}
	}
	tool := func(t *testing.T, s *scene) {
		until(t, "the tool is at work", func() bool { return pidIn(filepath.Join(s.dir, "work", "tool.pid")) > 0 })
		until(
			t,
			"the call is on the thread",
			func() bool { return strings.Contains(textOf(s.entries()), `"type":"toolCall"`) },
		)
	}
	for _, tt := range []struct {
		name    string
		replies func(name string) []model.Reply
		strike  func(*testing.T, *scene, *runner)
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
		{name: "TERM in mid-tool", replies: busy, strike: func(t *testing.T, s *scene, r *runner) {
			tool(t, s)
			if err := r.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}, told: []string{"the first question", "exec sleep 300"}},
		{name: "KILL of the agent in mid-tool", replies: busy, strike: func(t *testing.T, s *scene, _ *runner) {
			tool(t, s)
			if err := syscall.Kill(agentPID(t, s), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}, told: []string{"the first question", "exec sleep 300"}},
		{
			name:    "thinking",
			replies: func(string) []model.Reply { return []model.Reply{{Thinking: "I ponder.", Text: "Pondered."}} },
			told:    []string{"the first question", "Pondered."},
		},
	} {
		for _, name := range otherNames(t) {
			version := others(t)[name]
			t.Run(tt.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				s := newSceneOf(t, name, version, tt.replies(name)...)
				s.prompt = "the first question"
				r := s.start()
				if tt.strike != nil {
					tt.strike(t, s, r)
				}
				s.status(r)
				if tt.strike == nil && strings.Contains(tt.name, "error") {
					s.model.Drop()
				}
				first, err := os.ReadFile(s.known("r1").Session)
				if err != nil {
					t.Fatal(err)
				}
				s.args = append(s.args, "--resume")
				s.onFrom("r2", "continue", tt.told...)
				s.whole("r2")
				then, err := os.ReadFile(s.known("r2").Session)
				if err != nil || !strings.HasPrefix(string(then), string(first)) {
					t.Errorf("the session was not gone on with: %v", err)
				}
				if err := os.RemoveAll(s.dir); err != nil { // the box is gone
					t.Fatal(err)
				}
				told := append(tt.told, "go on with r2", "This is said in r2.")
				n := s.next(version, "r3")
				n.onFrom("r3", "hydrate", told...)
				n.whole("r3")
				fresh, err := os.ReadFile(n.known("r3").Session)
				if err != nil || !strings.HasPrefix(string(fresh), string(then)) {
					t.Errorf("the session of the fresh box does not begin as the one before: %v", err)
				}
				// And on, in the same box, and in one more.
				told = append(told, "go on with r3", "This is said in r3.")
				n.onFrom("r4", "continue", told...)
				n.whole("r4")
				third := n.next(version, "r5")
				third.onFrom("r5", "hydrate", append(told, "go on with r4", "This is said in r4.")...)
				third.whole("r5")
				third.once()
			})
		}
	}
}

// A thread that was begun with one harness continues with another, and back.
func TestFullAcrossHarnesses(t *testing.T) {
	versions := others(t)
	versions["pi"] = pi078
	for _, from := range harness.Names() {
		for _, to := range harness.Names() {
			if from == to {
				continue
			}
			t.Run(from+" to "+to, func(t *testing.T) {
				t.Parallel()
				first := calling(from, "echo the-tool-says-$((40+2))", "echo and-$((5+2))")
				first.Thinking = "I ponder."
				s := newSceneOf(t, from, versions[from], first, say("I have seen it."))
				s.prompt = "the first question"
				if got := s.status(s.start()); got != 0 {
					t.Fatalf("exit status %d", got)
				}
				told := []string{"the first question", "the-tool-says-42", "and-7", "I have seen it."}

				n := s.nextOf(to, versions[to], "r2")
				n.onFrom("r2", "hydrate", told...)
				told = append(told, "go on with r2", "This is said in r2.")
				n.onFrom("r3", "continue", told...)
				told = append(told, "go on with r3", "This is said in r3.")

				// In one more box, from what both have written.
				third := n.nextOf(to, versions[to], "r4")
				third.onFrom("r4", "hydrate", told...)
				third.once()
				told = append(told, "go on with r4", "This is said in r4.")

				// And back, where it began: that box's own file does not have all.
				s.args = append(s.args, "--resume")
				s.onFrom("r5", "hydrate", told...)
				s.onFrom("r6", "continue", append(told, "go on with r5", "This is said in r5.")...)
				s.once()
			})
		}
	}
}

// Where this box's own file differs from the thread, the run continues with the thread. A named file continues, too.
func TestFullAgentFallsBack(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, s *scene, file string)
		how    string
		said   string // in the runner's log
	}{
		{"gone", func(t *testing.T, _ *scene, file string) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}, "hydrate", "the session file is gone"},
		{"gone, from a box that knows nothing of its runs", func(t *testing.T, s *scene, file string) {
			if err := errors.Join(os.Remove(file), os.RemoveAll(filepath.Join(s.dir, ".arbe"))); err != nil {
				t.Fatal(err)
			}
		}, "hydrate", "this box has no session of the thread"},
		{
			"torn", func(t *testing.T, _ *scene, file string) { appendTo(t, file, `{"type":"mess`) }, "hydrate",
			"ends in the middle of a line",
		},
		{"torn, and ahead of the thread", func(t *testing.T, s *scene, file string) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			line := map[string]string{
				"codex": fmt.Sprintf(`{"timestamp":"2026-01-01T00:00:00.000Z","ordinal":%d,"type":"event_msg",`+
					`"payload":{"type":"warning","message":"unposted"}}`, strings.Count(string(b), "\n")),
				"claude-code": `{"type":"queue-operation","operation":"dequeue",` +
					`"timestamp":"2026-01-01T00:00:00.000Z","content":"unposted"}`,
			}[s.agent.Harness]
			appendTo(t, file, line+"\n"+`{"type":"mess`)
			t.Cleanup(func() {
				if n := strings.Count(textOf(s.entries()), "unposted"); n != 1 {
					t.Errorf("the unposted line is there %d times", n)
				}
			})
		}, "continue", ""},
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
		{"of a box that knows nothing of its runs", func(t *testing.T, s *scene, _ string) {
			if err := os.RemoveAll(filepath.Join(s.dir, ".arbe")); err != nil {
				t.Fatal(err)
			}
		}, "continue", ""},
		{"another directory", func(t *testing.T, s *scene, _ string) {
			other := filepath.Join(s.dir, "other")
			if err := os.Mkdir(other, 0o700); err != nil {
				t.Fatal(err)
			}
			s.args = append(s.args, "--cwd", other)
		}, "hydrate", "is to continue in"},
		{"named", func(_ *testing.T, s *scene, file string) {
			s.args = append(s.args[:len(s.args)-1:len(s.args)-1], "--session", file)
		}, "none", ""},
	} {
		for _, name := range otherNames(t) {
			version := others(t)[name]
			t.Run(tt.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				s := newSceneOf(t, name, version, calling(name, "echo the-tool-says-$((40+2))"), say("Seen."))
				s.prompt = "the first question"
				if got := s.status(s.start()); got != 0 {
					t.Fatalf("exit status %d", got)
				}
				s.args = append(s.args, "--resume")
				tt.change(t, s, s.known("r1").Session)
				r := s.onFrom("r2", tt.how, "the first question", "the-tool-says-42", "Seen.")
				if !strings.Contains(r.stderr.String(), tt.said) {
					t.Errorf("the log does not say %q", tt.said)
				}
				if cwd := s.started("r2").Cwd; tt.name == "another directory" && filepath.Base(cwd) != "other" {
					t.Errorf("it went on in %s", cwd)
				}
				s.whole("r2")
				s.once()
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
