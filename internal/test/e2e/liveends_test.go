package e2e_test

import (
	"strings"
	"syscall"
	"testing"

	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/thread"
)

// liveEnds are how a live run ends.
var liveEnds = []liveCase{
	{"a failed turn, then a good one", nil, func(t *testing.T, l *live) {
		l.model.More(model.Reply{Status: 400, Message: "no such thing", Times: -1})
		l.begin()
		l.turn(1, "failed", "r1.prompt")
		l.model.Drop()
		l.model.More(fine)
		second := l.say("try it again")
		l.turn(2, "completed", second)
		l.finish("completed", 0)
		l.check("r1.prompt", second)
	}},
	{"a failed turn at the end", nil, func(t *testing.T, l *live) {
		l.model.More(say("Hello."))
		l.begin()
		l.turn(1, "completed", "r1.prompt")
		l.model.More(model.Reply{Status: 400, Message: "no such thing", Times: -1})
		second := l.say("and now this")
		l.turn(2, "failed", second)
		l.finish("failed", 1)
		l.check("r1.prompt", second)
		if cause := l.end().Cause; cause.ErrorClass != "provider_error" ||
			!strings.Contains(cause.Message, "no such thing") {
			t.Errorf("the cause is %+v", cause)
		}
	}},
	{"what is queued is done first", nil, func(t *testing.T, l *live) {
		g := l.gate()
		l.model.More(g.reply, fine)
		l.begin()
		g.begun()
		second, third := l.say("said in mid-tool"), l.sayAs(thread.DeliverFollowUp, "said for after the turn")
		l.post(l.endRequested())
		g.open()
		l.ended("completed", 0)
		l.check("r1.prompt", second, third)
	}},
	{"idle for too long", nil, func(t *testing.T, l *live) {
		l.args = append(l.args, "--idle", "1s")
		l.model.More(fine)
		l.begin()
		l.ended("completed", 0)
		if n := len(l.turns()); n != 1 {
			t.Errorf("%d turns", n)
		}
		l.check("r1.prompt")
	}},
	{"TERM while it waits", nil, func(t *testing.T, l *live) {
		l.model.More(fine)
		l.begin()
		l.waits(1)
		if err := l.r.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		l.ended("completed", 0)
		l.check("r1.prompt")
	}},
	{"TERM in mid-tool", nil, func(t *testing.T, l *live) {
		g := l.gate()
		l.model.More(g.reply, fine)
		l.begin()
		g.begun()
		l.has("r1.prompt")
		if err := l.r.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		l.status(l.r)
		if got := l.end().Status; got != thread.StatusCancelled {
			t.Errorf("the run is %s", got)
		}
		l.check("r1.prompt")
	}},
	{"cancelled in mid-tool, with a chat for after it", nil, func(t *testing.T, l *live) {
		g := l.gate()
		l.model.More(g.reply, fine)
		l.begin()
		g.begun()
		l.has("r1.prompt")
		l.sayAs(thread.DeliverFollowUp, "this waits for the next run")
		l.arbe("cancel", l.thread)
		l.status(l.r)
		if got := l.end().Status; got != thread.StatusCancelled {
			t.Errorf("the run is %s", got)
		}
		l.check("r1.prompt")
	}},
	{"KILL of the agent in mid-tool", nil, func(t *testing.T, l *live) {
		g := l.gate()
		l.model.More(g.reply, fine)
		l.begin()
		g.begun()
		l.has("r1.prompt")
		if err := syscall.Kill(agentPID(t, l.scene), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		l.status(l.r)
		if e := l.end(); e.Status != thread.StatusFailed || e.Cause.ErrorClass != "killed" {
			t.Errorf("the run is %+v", e)
		}
		l.check("r1.prompt")
	}},
	{"KILL of the keeper", nil, func(t *testing.T, l *live) {
		l.model.More(fine)
		l.begin()
		l.turn(1, "completed", "r1.prompt")
		k := l.known("r1")
		if err := l.r.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		second := l.say("said without the keeper")
		l.turn(2, "completed", second)
		l.post(l.endRequested())
		_ = l.r.Wait() // killed; its output ends with the worker's
		l.until("the agent is gone", func() bool { return syscall.Kill(k.AgentPID, 0) != nil })
		if got := l.end().Status; got != thread.StatusCompleted {
			t.Errorf("the run is %s", got)
		}
		l.check("r1.prompt", second)
	}},
	{"KILL of the runner: the agent's input ends", nil, func(t *testing.T, l *live) {
		l.model.More(fine)
		l.begin()
		l.waits(1)
		k := l.known("r1")
		for _, pid := range runnerPIDs(l.r.Process.Pid) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		l.status(l.r)
		l.until("the agent is gone", func() bool { return syscall.Kill(k.AgentPID, 0) != nil })
		if out, err := l.box("recover"); err != nil {
			t.Fatalf("recover: %v\n%s", err, out)
		}
		if got := l.end().Status; got != thread.StatusCompleted {
			t.Errorf("the run is %s", got)
		}
		l.check("r1.prompt")
	}},
}
