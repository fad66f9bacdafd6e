package live_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"arbe.0sk.ar/runner/internal/test/scene"

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
			tt.play(t, scene.NewLive(t, "claude-code"))
		})
	}
}

var commands = []liveCase{
	{"clear", nil, func(t *testing.T, l *scene.Live) {
		l.Model.More(scene.Say("The report is written."), scene.Say("A new beginning."), scene.Say("And again."))
		l.Begin()
		turn(l, 1, "completed", "r1.prompt")
		first := l.Say("/clear")
		turn(l, 2, "completed", first)
		second := l.Say("said after the clear")
		turn(l, 3, "completed", second)
		third := l.Say("and the-last")
		turn(l, 4, "completed", third)
		l.Finish("completed", 0)
		delivered(l, "r1.prompt", first, second, third)
		sessions(l, 2)
		goesOn(l, []string{"said after the clear", "A new beginning.", "and the-last", "And again."},
			"the task that stands first", "The report is written.")
	}},
	{"clear first, new and reset at once, and at the end", nil, func(t *testing.T, l *scene.Live) {
		l.Prompt, l.Texts = "", map[string]string{}
		l.Model.More(scene.Fine)
		l.Begin()
		want := []string{l.Say("/clear")}
		turn(l, 1, "completed", want[0])
		var batch []thread.Entry
		for _, text := range []string{"said between-clears", "/new", "/reset now", "said behind-all"} {
			e := l.Chat("", text)
			batch, want = append(batch, e), append(want, e.ID)
		}
		l.Post(batch...)
		l.Has(want[4])
		want = append(want, l.Say("/clear"))
		l.Has(want[5])
		l.Finish("completed", 0)
		delivered(l, want...)
		sessions(l, 4)
		goesOn(l, nil, "between-clears", "behind-all")
	}},
	{"clear in mid-tool, and chats behind it", nil, func(t *testing.T, l *scene.Live) {
		g := l.Gate()
		l.Model.More(g.Reply, scene.Fine)
		l.Begin()
		g.Begun()
		first := l.Say("said in mid-tool")
		clear := l.Say("/clear")
		last := l.Say("said behind-the-clear")
		g.Open()
		waitsIn(l, "r1", last)
		l.Finish("completed", 0)
		delivered(l, "r1.prompt", first, clear, last)
		sessions(l, 2)
		goesOn(l, []string{"said behind-the-clear"}, "the task that stands first", "said in mid-tool")
	}},
	{"commands that it refuses, and others", nil, func(t *testing.T, l *scene.Live) {
		g := l.Gate()
		l.Model.More(g.Reply, scene.Fine)
		l.Begin()
		g.Begun()
		want := []string{"r1.prompt"}
		for _, text := range []string{
			"/exit", "said after-exit", "/context", "/nosuch command", " /resume", "the last-word",
		} {
			want = append(want, l.Say(text))
		}
		g.Open()
		waitsIn(l, "r1", want[len(want)-1])
		l.Finish("completed", 0)
		delivered(l, want...)
		sessions(l, 1)
		goesOn(l, []string{"the task that stands first", "said after-exit", "the last-word"})
	}},
}

// delivered checks which chats the thread has as delivered, in order, that nothing is pending, and that no chat was
// refused.
func delivered(l *scene.Live, want ...string) {
	l.T.Helper()
	if got := l.Named(); !slices.Equal(got, want) {
		l.T.Errorf("delivered:\n%s\nwant:\n%s", l.Words(got), l.Words(want))
	}
	for _, c := range l.PendingChats() {
		l.T.Errorf("%q is pending", c.Text)
	}
	for _, e := range l.Entries() {
		p := thread.ParseLine(e.Payload)
		if p.Type == thread.TypeRefused || p.Type == thread.TypeChat && p.Session != nil {
			l.T.Errorf("%s: %.300s", e.ID, e.Payload)
		}
	}
}

// sessions checks that the thread has each line of the box's n sessions, once, and one session after the other.
func sessions(l *scene.Live, n int) {
	l.T.Helper()
	lines := map[string][]string{}
	var order []string
	for _, e := range l.Entries() {
		p := thread.ParseLine(e.Payload)
		if p.Session == nil {
			continue
		}
		id := p.Session.ID
		if !strings.HasPrefix(e.ID, l.Dialect().Prefix+":"+id+":") {
			l.T.Errorf("%s is of session %s", e.ID, id)
		}
		if len(order) == 0 || order[len(order)-1] != id {
			order = append(order, id)
		}
		lines[id] = append(lines[id], scene.Normal(hydrate.Parse(e, l.Dialect()).Line))
	}
	files, err := filepath.Glob(filepath.Join(l.Dir, ".claude", "projects", "*", "*.jsonl"))
	if err != nil || len(files) != n || len(order) != n {
		l.T.Errorf("%d session files, %d sessions on the thread, want %d (%v)", len(files), len(order), n, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			l.T.Fatal(err)
		}
		var want []string
		for line := range strings.Lines(string(content)) {
			want = append(want, scene.Normal([]byte(line)))
		}
		if got := lines[strings.TrimSuffix(filepath.Base(file), ".jsonl")]; !slices.Equal(got, want) {
			l.T.Errorf("%s: %d lines on the thread, %d in the file", file, len(got), len(want))
		}
	}
	if k := l.Known("r1"); len(order) > 0 && k.SessionID != order[len(order)-1] {
		l.T.Errorf("the box has session %s, the thread ends with %s", k.SessionID, order[len(order)-1])
	}
}

// goesOn resumes the run in its box, in a fresh one, and there with another agent: the model gets these texts, once
// each, and none of the others.
func goesOn(l *scene.Live, told []string, not ...string) {
	l.T.Helper()
	if l.T.Failed() {
		return
	}
	l.Model.Drop()
	l.Args = append(slices.DeleteFunc(slices.Clone(l.Args), func(a string) bool { return a == "--live" }), "--resume")
	s := l.Scene
	for n, how := range []string{"continue", "hydrate", "hydrate"} {
		run := fmt.Sprint("r", n+2)
		switch n {
		case 1:
			s = s.Next(l.Agent.Version, run)
		case 2:
			s = s.NextOf("pi", scene.Pi078, run)
		}
		s.OnFrom(run, how, told...)
		told = append(told, "go on with "+run, "This is said in "+run+".")
		for _, text := range not {
			if strings.Contains(s.Asked(), text) {
				l.T.Errorf("in %s the model was told %q", run, text)
			}
		}
	}
}

// A task may be such a command, too.
func TestFullTaskIsCommand(t *testing.T) {
	t.Parallel()
	s := scene.NewOf(t, "claude-code", scene.Others(t)["claude-code"])
	s.Prompt = "/clear"
	if got := s.Status(s.Start()); got != 0 {
		t.Errorf("exit status %d", got)
	}
	s.Args = append(s.Args, "--resume")
	s.OnFrom("r2", "continue")
	for n, command := range []string{"/exit", "/clear"} {
		s.Without("ARBE_RUN_ID")
		s.Env = append(s.Env, fmt.Sprint("ARBE_RUN_ID=r", n+3))
		s.Prompt = command
		if got := s.Status(s.Start()); got != 0 {
			t.Errorf("%s: exit status %d", command, got)
		}
	}
	s.OnFrom("r5", "continue")
	s.Once()
	if asked := s.Asked(); strings.Contains(asked, "go on with r2") {
		t.Error("the model was told what was before the clear")
	}
	var named []string
	for _, e := range s.Entries() {
		if p := thread.ParseLine(e.Payload); p.Names() {
			named = append(named, p.Named()...)
		}
	}
	if want := []string{"r1.prompt", "r2.prompt", "r3.prompt", "r4.prompt", "r5.prompt"}; !slices.Equal(named, want) {
		t.Errorf("the lines have the prompts %q, want %q", named, want)
	}
	s.Waiting()
}

// claude-code moves its session to another folder where it begins to work in a worktree. The session's lines are on the
// thread whatever worker reads them, and a resume continues it.
func TestFullMovedSession(t *testing.T) {
	t.Parallel()
	const name = "claude-code"
	enter := []model.Reply{
		{
			Tools: []model.Tool{
				{Name: "ToolSearch", Arguments: map[string]any{"query": "select:EnterWorktree", "max_results": 5}},
			},
		},
		{Tools: []model.Tool{{Name: "EnterWorktree", Arguments: map[string]any{"name": "aside"}}}},
	}
	s := scene.NewOf(t, name, scene.Others(t)[name])
	work := filepath.Join(s.Dir, "work")
	for _, args := range [][]string{{"init", "-q"}, {"commit", "-q", "--allow-empty", "-m", "first"}} {
		git := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
		git.Dir = work
		if out, err := git.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	tool := scene.Calling(
		name,
		"touch "+work+"/begun; until [ -e "+work+"/open ]; do sleep 0.05; done; echo in-the-worktree",
	)
	s.Model.More(append(enter, tool, scene.Say("It is done."))...)
	r := s.Start()
	scene.Until(t, "the tool is at work", func() bool {
		_, err := os.Stat(filepath.Join(work, "begun"))
		return err == nil
	})
	if err := syscall.Kill(scene.RunnerPIDs(r.Process.Pid)[1], syscall.SIGKILL); err != nil { // the worker
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(work, "open"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := s.Status(r); got != 0 {
		t.Errorf("exit status %d", got)
	}
	if e := s.End(); e.Status != thread.StatusCompleted {
		t.Errorf("the run is %+v", e)
	}
	s.Complete(s.Entries())
	s.Args = append(s.Args, "--resume")
	s.OnFrom("r2", "continue", "echo in-the-worktree", "It is done.")
}
