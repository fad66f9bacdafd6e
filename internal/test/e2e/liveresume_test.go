package e2e_test

import (
	"slices"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/thread"
)

// A version that can't be spoken to is refused, and so is a terminal.
func TestFullLiveRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t, pi078, fine)
	s.args = append(s.args, "--live")
	r := s.start()
	if got := s.status(r); got != 69 || !strings.Contains(r.stderr.String(), "0.78.0 can't be used live") {
		t.Errorf("exit status %d", got)
	}
	if e := s.end(); e.Status != thread.StatusFailed || e.Cause.ErrorClass != "spawn" ||
		!strings.Contains(e.Cause.Message, "0.87.1") {
		t.Errorf("the run is %+v", e)
	}
	if len(s.model.Requests()) > 0 {
		t.Error("the model was asked")
	}
	s = newScene(t, "0.87.1", fine)
	s.args = append(s.args, "--live", "--pty")
	if got := s.status(s.start()); got != 64 {
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
				l := newLive(t, from, say("This is said in r1."), say("And this."))
				l.begin()
				l.waits(1)
				l.say("the second-word")
				l.waits(2)
				l.finish("completed", 0)
				told := []string{"the task that stands first", "This is said in r1.", "the second-word", "And this."}
				live := l.args
				notLive := func(a string) bool { return a == "--live" || a == "--idle" || a == "1s" }
				l.args = append(slices.DeleteFunc(slices.Clone(live), notLive), "--resume")
				l.say("said between the runs")
				l.onFrom("r2", "continue", append(told, "said between the runs")...)
				told = append(told, "said between the runs", "go on with r2", "This is said in r2.")
				l.args = append(slices.Clone(live), "--idle", "1s", "--resume")
				between := l.say("said between these")
				l.model.More(say("I know."))
				l.onFrom("r3", "continue", append(told, "said between these")...)
				// codex drops the reply to what came before.
				told = append(told, "said between these", "go on with r3", "This is said in r3.")

				versions := others(t)
				versions["pi"] = "0.87.1"
				n := l.nextOf(to, versions[to], "r4")
				n.args = append(n.args, "--live", "--idle", "1s")
				n.onFrom("r4", "hydrate", told...)
				told = append(told, "go on with r4", "This is said in r4.")
				n.args = slices.DeleteFunc(n.args, notLive)
				n.onFrom("r5", "continue", told...)
				l.once()
				if !slices.Contains(l.named(), between) {
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
				l := newLive(t, from, fine)
				l.say("the first-chat")
				l.say("the second-chat")
				l.begin()
				l.waitsIn("r1", "r1.prompt")
				g := l.gate()
				l.model.Drop()
				l.model.More(g.reply, fine)
				l.say("work on it")
				g.begun()
				last := l.say("the chat-in-mid-tool")
				g.open()
				l.waitsIn("r1", last)
				l.finish("completed", 0)
				versions := others(t)
				versions["pi"] = "0.87.1"
				told := []string{
					"the first-chat", "the second-chat", "the task that stands first", "work on it",
					"the chat-in-mid-tool",
				}
				n := l.nextOf(to, versions[to], "r2")
				n.onFrom("r2", "hydrate", told...)
				if asked := n.asked(); !slices.IsSortedFunc(told, func(a, b string) int {
					return strings.Index(asked, a) - strings.Index(asked, b)
				}) {
					t.Errorf("the model was told, in another order: %s", asked)
				}
			})
		}
	}
}
