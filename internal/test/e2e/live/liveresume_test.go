package live_test

import (
	"slices"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/scene"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/thread"
)

// A version that can't be spoken to is refused, and so is a terminal.
func TestFullLiveRefused(t *testing.T) {
	t.Parallel()
	s := scene.New(t, scene.Pi078, scene.Fine)
	s.Args = append(s.Args, "--live")
	r := s.Start()
	if got := s.Status(r); got != 69 || !strings.Contains(r.Log.String(), "0.78.0 can't be used live") {
		t.Errorf("exit status %d", got)
	}
	if e := s.End(); e.Status != thread.StatusFailed || e.Cause.ErrorClass != "spawn" ||
		!strings.Contains(e.Cause.Message, "0.87.1") {
		t.Errorf("the run is %+v", e)
	}
	if len(s.Model.Requests()) > 0 {
		t.Error("the model was asked")
	}
	s = scene.New(t, "0.87.1", scene.Fine)
	s.Args = append(s.Args, "--live", "--pty")
	if got := s.Status(s.Start()); got != 64 {
		t.Errorf("exit status %d", got)
	}
}

// Live runs and others resume each other, in the box and rebuilt, and with another agent.
func TestFullLiveResume(t *testing.T) {
	names := harness.Names()
	for _, from := range names {
		for _, to := range names {
			t.Run(from+" to "+to, func(t *testing.T) {
				t.Parallel()
				l := scene.NewLive(t, from, scene.Say("This is said in r1."), scene.Say("And this."))
				l.Begin()
				l.Waits(1)
				l.Say("the second-word")
				l.Waits(2)
				l.Finish("completed", 0)
				told := []string{"the task that stands first", "This is said in r1.", "the second-word", "And this."}
				live := l.Args
				notLive := func(a string) bool { return a == "--live" || a == "--idle" || a == "1s" }
				l.Args = append(slices.DeleteFunc(slices.Clone(live), notLive), "--resume")
				l.Say("said between the runs")
				l.OnFrom("r2", "continue", append(told, "said between the runs")...)
				told = append(told, "said between the runs", "go on with r2", "This is said in r2.")
				l.Args = append(slices.Clone(live), "--idle", "1s", "--resume")
				between := l.Say("said between these")
				l.Model.More(scene.Say("I know."))
				l.OnFrom("r3", "continue", append(told, "said between these")...)
				// codex drops the reply to what came before.
				told = append(told, "said between these", "go on with r3", "This is said in r3.")

				versions := scene.Others(t)
				versions["pi"] = "0.87.1"
				n := l.NextOf(to, versions[to], "r4")
				n.Args = append(n.Args, "--live", "--idle", "1s")
				n.OnFrom("r4", "hydrate", told...)
				told = append(told, "go on with r4", "This is said in r4.")
				n.Args = slices.DeleteFunc(n.Args, notLive)
				n.OnFrom("r5", "continue", told...)
				l.Once()
				if !slices.Contains(l.Named(), between) {
					t.Error("a chat was not delivered")
				}
			})
		}
	}
}

// Another agent that resumes after a live run gets the chats in the thread's order: those from before the run, its
// task, and one that came while a tool worked.
func TestFullLiveOrder(t *testing.T) {
	for _, from := range harness.Names() {
		for _, to := range harness.Names() {
			if from == to {
				continue
			}
			t.Run(from+" to "+to, func(t *testing.T) {
				t.Parallel()
				l := scene.NewLive(t, from, scene.Fine)
				l.Say("the first-chat")
				l.Say("the second-chat")
				l.Begin()
				waitsIn(l, "r1", "r1.prompt")
				g := l.Gate()
				l.Model.Drop()
				l.Model.More(g.Reply, scene.Fine)
				l.Say("work on it")
				g.Begun()
				last := l.Say("the chat-in-mid-tool")
				g.Open()
				waitsIn(l, "r1", last)
				l.Finish("completed", 0)
				versions := scene.Others(t)
				versions["pi"] = "0.87.1"
				told := []string{
					"the first-chat", "the second-chat", "the task that stands first", "work on it",
					"the chat-in-mid-tool",
				}
				n := l.NextOf(to, versions[to], "r2")
				n.OnFrom("r2", "hydrate", told...)
				if asked := n.Asked(); !slices.IsSortedFunc(told, func(a, b string) int {
					return strings.Index(asked, a) - strings.Index(asked, b)
				}) {
					t.Errorf("the model was told, in another order: %s", asked)
				}
			})
		}
	}
}
