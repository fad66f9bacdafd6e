package scene

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/thread"
)

// OnFrom starts a run in the scene's box that resumes the run before.
func (s *Scene) OnFrom(run, how string, told ...string) *Runner {
	s.T.Helper()
	s.Without("ARBE_RUN_ID")
	s.Env = append(s.Env, "ARBE_RUN_ID="+run)
	s.Model.More(Say("This is said in " + run + "."))
	s.Prompt = "go on with " + run
	r := s.Start()
	if got := s.Status(r); got != 0 {
		s.T.Fatalf("exit status %d", got)
	}
	if got := s.Started(run).Resume; got != how {
		s.T.Errorf("%s was resumed by %s, want %s", run, got, how)
	}
	asked := s.Asked()
	for _, want := range append(told, s.Prompt) {
		if strings.Count(asked, want) != 1 {
			s.T.Errorf("in %s the model was told %q %d times", run, want, strings.Count(asked, want))
		}
	}
	s.Once()
	return r
}

// Once checks that no line of the agent's is on the thread too often, after each run.
func (s *Scene) Once() {
	s.T.Helper()
	for _, line := range s.Doubled() {
		s.T.Error(line)
	}
}

// Doubled returns what the thread has more often than one of the session files that this box, or a box before it, has
// had: an agent may write the same line twice. It is called after each run, before a file that is rebuilt from the
// thread has what the thread has.
func (s *Scene) Doubled() (all []string) {
	s.T.Helper()
	err := filepath.WalkDir(s.Dir, func(path string, d fs.DirEntry, err error) error {
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
			in[Normal(line)]++
		}
		for line, n := range in {
			s.written[line] = max(s.written[line], n)
		}
		return nil
	})
	if err != nil {
		s.T.Fatal(err)
	}
	posted := map[string][]string{}
	for _, e := range s.Entries() {
		line := hydrate.Parse(e, s.Dialect()).Line
		if line == nil || !strings.HasPrefix(e.ID, s.Dialect().Prefix+":") {
			continue
		}
		text := Normal(line)
		posted[text] = append(posted[text], e.ID)
		if ids, n := posted[text], max(1, s.written[text]); len(ids) > n {
			all = append(all, fmt.Sprintf("%q are one line, a session file has it %d times: %.300s", ids, n, text))
		}
	}
	return all
}

// Normal returns a line of a session with its keys in order and without blanks.
func Normal(line []byte) string {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return strings.TrimSuffix(string(line), "\n")
	}
	return string(thread.Marshal(v))
}

// Next is a fresh box, with nothing but the thread of the one before.
func (s *Scene) Next(version, run string, replies ...model.Reply) *Scene {
	s.T.Helper()
	return s.NextOf(s.Agent.Harness, version, run, replies...)
}

// NextOf is a fresh box with another agent in it.
func (s *Scene) NextOf(name, version, run string, replies ...model.Reply) *Scene {
	s.T.Helper()
	s.Once()
	n := NewOf(s.T, name, version, replies...)
	n.Thread, n.written = s.Thread, s.written
	for _, name := range []string{"ARBE_THREAD_ID", "ARBE_STREAM_TOKEN", "ARBE_RUN_ID"} {
		n.Without(name)
	}
	n.Env = append(
		n.Env,
		"ARBE_THREAD_ID="+s.Thread,
		"ARBE_STREAM_TOKEN="+n.Arbe("token", "mint", "--thread", s.Thread),
		"ARBE_RUN_ID="+run,
	)
	n.Args = append(n.Args, "--resume")
	return n
}

// Started returns the run's session_started.
func (s *Scene) Started(run string) (p thread.Started) {
	s.T.Helper()
	for _, e := range s.Entries() {
		if e.ID == run+".started" {
			return Payload[thread.Started](s.T, e)
		}
	}
	s.T.Fatalf("run %s has not started", run)
	return p
}

// Asked is the last request that the model got, as text.
func (s *Scene) Asked() string {
	s.T.Helper()
	all := s.Model.Requests()
	if len(all) == 0 {
		s.T.Fatal("the model was not asked")
	}
	var v any
	if err := json.Unmarshal(all[len(all)-1].Body, &v); err != nil {
		s.T.Fatal(err)
	}
	return string(thread.Marshal(v))
}

// rebuilt begins the name of a session file that whole makes.
const rebuilt = "rebuilt-"

// Whole checks that the thread gives the box's session file back, and has no line twice.
func (s *Scene) Whole(run string) {
	s.T.Helper()
	content, err := os.ReadFile(s.Known(run).Session)
	if err != nil {
		s.T.Fatal(err)
	}
	out := filepath.Join(s.Dir, rebuilt+run+".jsonl") // hydrate replaces no file
	s.Hydrate("--harness", s.Agent.Harness, "--out", out)
	rebuilt, err := os.ReadFile(out)
	if err != nil {
		s.T.Fatal(err)
	}
	if n, m := strings.Count(string(rebuilt), "\n"), strings.Count(string(content), "\n"); n != m {
		s.T.Errorf("rebuilt %d lines, the file has %d\n%s", n, m, rebuilt)
	}
	s.Begins(string(rebuilt), string(content))
}

// Begins checks that a session file begins with all the lines of another one, but for the directory that it is of.
func (s *Scene) Begins(file, with string) {
	s.T.Helper()
	want, got := strings.Split(strings.TrimSuffix(with, "\n"), "\n"), strings.Split(file, "\n")
	if len(got) < len(want) {
		s.T.Fatalf("%d lines, want %d and more:\n%s", len(got), len(want), file)
	}
	for i := range want {
		var x, y map[string]any
		if json.Unmarshal([]byte(want[i]), &y) != nil {
			if got[i] != want[i] {
				s.T.Errorf("line %d: %q, want %q", i, got[i], want[i])
			}
			continue
		}
		if err := json.Unmarshal([]byte(got[i]), &x); err != nil {
			s.T.Errorf("line %d: %v in %s", i, err, got[i])
		}
		if i == 0 { // which is mapped from box to box
			delete(x, "cwd")
			delete(y, "cwd")
		}
		if a, b := string(thread.Marshal(x)), string(thread.Marshal(y)); a != b {
			s.T.Errorf("line %d:\ngot  %.400s\nwant %.400s", i, a, b)
		}
	}
}

// Hydrate returns the output of arbe-pi-runner hydrate.
func (s *Scene) Hydrate(args ...string) string {
	s.T.Helper()
	out, err := s.Box(append([]string{"hydrate"}, args...)...)
	if err != nil {
		s.T.Fatalf("hydrate: %v\n%s", err, out)
	}
	return out
}

// Waiting checks which chats are pending, for readers of the thread and in the list of threads.
func (s *Scene) Waiting(want ...string) {
	s.T.Helper()
	var p thread.Pending
	for _, e := range s.Entries() {
		p.Add(e)
	}
	var got []string
	for _, c := range p.Chats() {
		got = append(got, c.ID)
	}
	if !slices.Equal(got, want) {
		s.T.Errorf("pending %q, want %q", got, want)
	}
	shown := strings.Contains(s.Arbe("thread", "status", "--json", s.Thread), `"pending": 1`)
	if shown != (len(want) == 1) {
		s.T.Errorf("the thread's status has a pending chat: %v", shown)
	}
}
