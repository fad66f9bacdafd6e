package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/thread"
)

// A chat may be a command of claude-code itself. At one that begins another session the run continues there, and so do
// those that resume it; one that claude-code refuses is on record, too.
func TestFullLiveCommands(t *testing.T) {
	for _, tt := range commands {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.play(t, newLive(t, "claude-code"))
		})
	}
}

var commands = []liveCase{
	{"clear", nil, func(t *testing.T, l *live) {
		l.model.More(say("The report is written."), say("A new beginning."), say("And again."))
		l.begin()
		l.turn(1, "completed", "r1.prompt")
		first := l.say("/clear")
		l.turn(2, "completed", first)
		second := l.say("said after the clear")
		l.turn(3, "completed", second)
		third := l.say("and the-last")
		l.turn(4, "completed", third)
		l.finish("completed", 0)
		l.delivered("r1.prompt", first, second, third)
		l.sessions(2)
		l.goesOn([]string{"said after the clear", "A new beginning.", "and the-last", "And again."},
			"the task that stands first", "The report is written.")
	}},
	{"clear first, new and reset at once, and at the end", nil, func(t *testing.T, l *live) {
		l.prompt, l.texts = "", map[string]string{}
		l.model.More(fine)
		l.begin()
		want := []string{l.say("/clear")}
		l.turn(1, "completed", want[0])
		var batch []thread.Entry
		for _, text := range []string{"said between-clears", "/new", "/reset now", "said behind-all"} {
			e := l.chat("", text)
			batch, want = append(batch, e), append(want, e.ID)
		}
		l.post(batch...)
		l.has(want[4])
		want = append(want, l.say("/clear"))
		l.has(want[5])
		l.finish("completed", 0)
		l.delivered(want...)
		l.sessions(4)
		l.goesOn(nil, "between-clears", "behind-all")
	}},
	{"clear in mid-tool, and chats behind it", nil, func(t *testing.T, l *live) {
		g := l.gate()
		l.model.More(g.reply, fine)
		l.begin()
		g.begun()
		first := l.say("said in mid-tool")
		clear := l.say("/clear")
		last := l.say("said behind-the-clear")
		g.open()
		l.waitsIn("r1", last)
		l.finish("completed", 0)
		l.delivered("r1.prompt", first, clear, last)
		l.sessions(2)
		l.goesOn([]string{"said behind-the-clear"}, "the task that stands first", "said in mid-tool")
	}},
	{"commands that it refuses, and others", nil, func(t *testing.T, l *live) {
		g := l.gate()
		l.model.More(g.reply, fine)
		l.begin()
		g.begun()
		want := []string{"r1.prompt"}
		for _, text := range []string{
			"/exit", "said after-exit", "/context", "/nosuch command", " /resume", "the last-word",
		} {
			want = append(want, l.say(text))
		}
		g.open()
		l.waitsIn("r1", want[len(want)-1])
		l.finish("completed", 0)
		l.delivered(want...)
		l.sessions(1)
		l.goesOn([]string{"the task that stands first", "said after-exit", "the last-word"})
	}},
}

// delivered checks which chats the thread has as delivered, in order, that nothing is pending, and that no chat was
// refused.
func (l *live) delivered(want ...string) {
	l.t.Helper()
	if got := l.named(); !slices.Equal(got, want) {
		l.t.Errorf("delivered:\n%s\nwant:\n%s", l.words(got), l.words(want))
	}
	for _, c := range l.pendingChats() {
		l.t.Errorf("%q is pending", c.Text)
	}
	for _, e := range l.entries() {
		p := thread.ParseLine(e.Payload)
		if p.Type == thread.TypeRefused || p.Type == thread.TypeChat && p.Session != nil {
			l.t.Errorf("%s: %.300s", e.ID, e.Payload)
		}
	}
}

// sessions checks that the thread has each line of the box's n sessions, once, and one session after the other.
func (l *live) sessions(n int) {
	l.t.Helper()
	lines := map[string][]string{}
	var order []string
	for _, e := range l.entries() {
		p := thread.ParseLine(e.Payload)
		if p.Session == nil {
			continue
		}
		id := p.Session.ID
		if !strings.HasPrefix(e.ID, l.dialect().Prefix+":"+id+":") {
			l.t.Errorf("%s is of session %s", e.ID, id)
		}
		if len(order) == 0 || order[len(order)-1] != id {
			order = append(order, id)
		}
		lines[id] = append(lines[id], normal(hydrate.Parse(e, l.dialect()).Line))
	}
	files, err := filepath.Glob(filepath.Join(l.dir, ".claude", "projects", "*", "*.jsonl"))
	if err != nil || len(files) != n || len(order) != n {
		l.t.Errorf("%d session files, %d sessions on the thread, want %d (%v)", len(files), len(order), n, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			l.t.Fatal(err)
		}
		var want []string
		for line := range strings.Lines(string(content)) {
			want = append(want, normal([]byte(line)))
		}
		if got := lines[strings.TrimSuffix(filepath.Base(file), ".jsonl")]; !slices.Equal(got, want) {
			l.t.Errorf("%s: %d lines on the thread, %d in the file", file, len(got), len(want))
		}
	}
	if k := l.known("r1"); len(order) > 0 && k.SessionID != order[len(order)-1] {
		l.t.Errorf("the box has session %s, the thread ends with %s", k.SessionID, order[len(order)-1])
	}
}

// goesOn resumes the run in its box, in a fresh one, and there with another agent: the model gets these texts, once
// each, and none of the others.
func (l *live) goesOn(told []string, not ...string) {
	l.t.Helper()
	if l.t.Failed() {
		return
	}
	l.model.Drop()
	l.args = append(slices.DeleteFunc(slices.Clone(l.args), func(a string) bool { return a == "--live" }), "--resume")
	s := l.scene
	for n, how := range []string{"continue", "hydrate", "hydrate"} {
		run := fmt.Sprint("r", n+2)
		switch n {
		case 1:
			s = s.next(l.agent.Version, run)
		case 2:
			s = s.nextOf("pi", pi078, run)
		}
		s.onFrom(run, how, told...)
		told = append(told, "go on with "+run, "This is said in "+run+".")
		for _, text := range not {
			if strings.Contains(s.asked(), text) {
				l.t.Errorf("in %s the model was told %q", run, text)
			}
		}
	}
}

// A task may be such a command, too.
func TestFullTaskIsCommand(t *testing.T) {
	t.Parallel()
	s := newSceneOf(t, "claude-code", others(t)["claude-code"])
	s.prompt = "/clear"
	if got := s.status(s.start()); got != 0 {
		t.Errorf("exit status %d", got)
	}
	s.args = append(s.args, "--resume")
	s.onFrom("r2", "continue")
	for n, command := range []string{"/exit", "/clear"} {
		s.without("ARBE_RUN_ID")
		s.env = append(s.env, fmt.Sprint("ARBE_RUN_ID=r", n+3))
		s.prompt = command
		if got := s.status(s.start()); got != 0 {
			t.Errorf("%s: exit status %d", command, got)
		}
	}
	s.onFrom("r5", "continue")
	s.once()
	if asked := s.asked(); strings.Contains(asked, "go on with r2") {
		t.Error("the model was told what was before the clear")
	}
	var named []string
	for _, e := range s.entries() {
		if p := thread.ParseLine(e.Payload); p.Names() {
			named = append(named, p.Named()...)
		}
	}
	if want := []string{"r1.prompt", "r2.prompt", "r3.prompt", "r4.prompt", "r5.prompt"}; !slices.Equal(named, want) {
		t.Errorf("the lines have the prompts %q, want %q", named, want)
	}
	s.waiting()
}

// claude-code moves its session to another folder where it begins to work in a worktree. The session's lines are on the
// thread whatever worker reads them, and a resume continues it.
func TestFullMovedSession(t *testing.T) {
	t.Parallel()
	const name = "claude-code"
	enter := []model.Reply{
		{Tools: []model.Tool{{Name: "ToolSearch", Arguments: map[string]any{"query": "select:EnterWorktree", "max_results": 5}}}},
		{Tools: []model.Tool{{Name: "EnterWorktree", Arguments: map[string]any{"name": "aside"}}}},
	}
	s := newSceneOf(t, name, others(t)[name])
	work := filepath.Join(s.dir, "work")
	for _, args := range [][]string{{"init", "-q"}, {"commit", "-q", "--allow-empty", "-m", "first"}} {
		git := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
		git.Dir = work
		if out, err := git.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	tool := calling(name, "touch "+work+"/begun; until [ -e "+work+"/open ]; do sleep 0.05; done; echo in-the-worktree")
	s.model.More(append(enter, tool, say("It is done."))...)
	r := s.start()
	until(t, "the tool is at work", func() bool {
		_, err := os.Stat(filepath.Join(work, "begun"))
		return err == nil
	})
	if err := syscall.Kill(runnerPIDs(r.Process.Pid)[1], syscall.SIGKILL); err != nil { // the worker
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(work, "open"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := s.status(r); got != 0 {
		t.Errorf("exit status %d", got)
	}
	if e := s.end(); e.Status != thread.StatusCompleted {
		t.Errorf("the run is %+v", e)
	}
	s.complete(s.entries())
	s.args = append(s.args, "--resume")
	s.onFrom("r2", "continue", "echo in-the-worktree", "It is done.")
}
