package live_test

import (
	"strings"
	"syscall"
	"testing"

	"arbe.0sk.ar/runner/internal/test/scene"

	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/thread"
)

// liveEnds are how a live run ends.
var liveEnds = []liveCase{
	{"a failed turn, then a good one", nil, func(t *testing.T, l *scene.Live) {
		l.Model.More(model.Reply{Status: 400, Message: "no such thing", Times: -1})
		l.Begin()
		turn(l, 1, "failed", "r1.prompt")
		l.Model.Drop()
		l.Model.More(scene.Fine)
		second := l.Say("try it again")
		turn(l, 2, "completed", second)
		l.Finish("completed", 0)
		l.Check("r1.prompt", second)
	}},
	{"a failed turn at the end", nil, func(t *testing.T, l *scene.Live) {
		l.Model.More(scene.Say("Hello."))
		l.Begin()
		turn(l, 1, "completed", "r1.prompt")
		l.Model.More(model.Reply{Status: 400, Message: "no such thing", Times: -1})
		second := l.Say("and now this")
		turn(l, 2, "failed", second)
		l.Finish("failed", 1)
		l.Check("r1.prompt", second)
		if cause := l.End().Cause; cause.ErrorClass != "provider_error" ||
			!strings.Contains(cause.Message, "no such thing") {
			t.Errorf("the cause is %+v", cause)
		}
	}},
	{"what is queued is done first", nil, func(t *testing.T, l *scene.Live) {
		g := l.Gate()
		l.Model.More(g.Reply, scene.Fine)
		l.Begin()
		g.Begun()
		second, third := l.Say("said in mid-tool"), l.SayAs(thread.DeliverFollowUp, "said for after the turn")
		l.Post(l.EndRequested())
		g.Open()
		l.Ended("completed", 0)
		l.Check("r1.prompt", second, third)
	}},
	{"idle for too long", nil, func(t *testing.T, l *scene.Live) {
		l.Args = append(l.Args, "--idle", "1s")
		l.Model.More(scene.Fine)
		l.Begin()
		l.Ended("completed", 0)
		if n := len(l.Turns()); n != 1 {
			t.Errorf("%d turns", n)
		}
		l.Check("r1.prompt")
	}},
	{"TERM while it waits", nil, func(t *testing.T, l *scene.Live) {
		l.Model.More(scene.Fine)
		l.Begin()
		l.Waits(1)
		if err := l.R.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		l.Ended("completed", 0)
		l.Check("r1.prompt")
	}},
	{"TERM in mid-tool", nil, func(t *testing.T, l *scene.Live) {
		g := l.Gate()
		l.Model.More(g.Reply, scene.Fine)
		l.Begin()
		g.Begun()
		l.Has("r1.prompt")
		if err := l.R.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		l.Status(l.R)
		if got := l.End().Status; got != thread.StatusCancelled {
			t.Errorf("the run is %s", got)
		}
		l.Check("r1.prompt")
	}},
	{"cancelled in mid-tool, with a chat for after it", nil, func(t *testing.T, l *scene.Live) {
		g := l.Gate()
		l.Model.More(g.Reply, scene.Fine)
		l.Begin()
		g.Begun()
		l.Has("r1.prompt")
		l.SayAs(thread.DeliverFollowUp, "this waits for the next run")
		l.Arbe("cancel", l.Thread)
		l.Status(l.R)
		if got := l.End().Status; got != thread.StatusCancelled {
			t.Errorf("the run is %s", got)
		}
		l.Check("r1.prompt")
	}},
	{"KILL of the agent in mid-tool", nil, func(t *testing.T, l *scene.Live) {
		g := l.Gate()
		l.Model.More(g.Reply, scene.Fine)
		l.Begin()
		g.Begun()
		l.Has("r1.prompt")
		if err := syscall.Kill(scene.AgentPID(t, l.Scene), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		l.Status(l.R)
		if e := l.End(); e.Status != thread.StatusFailed || e.Cause.ErrorClass != "killed" {
			t.Errorf("the run is %+v", e)
		}
		l.Check("r1.prompt")
	}},
	{"KILL of the keeper", nil, func(t *testing.T, l *scene.Live) {
		l.Model.More(scene.Fine)
		l.Begin()
		turn(l, 1, "completed", "r1.prompt")
		k := l.Known("r1")
		if err := l.R.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		second := l.Say("said without the keeper")
		turn(l, 2, "completed", second)
		l.Post(l.EndRequested())
		_ = l.R.Wait() // killed; its output ends with the worker's
		l.Until("the agent is gone", func() bool { return syscall.Kill(k.AgentPID, 0) != nil })
		if got := l.End().Status; got != thread.StatusCompleted {
			t.Errorf("the run is %s", got)
		}
		l.Check("r1.prompt", second)
	}},
	{"KILL of the runner: the agent's input ends", nil, func(t *testing.T, l *scene.Live) {
		l.Model.More(scene.Fine)
		l.Begin()
		l.Waits(1)
		k := l.Known("r1")
		for _, pid := range scene.RunnerPIDs(l.R.Process.Pid) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		l.Status(l.R)
		l.Until("the agent is gone", func() bool { return syscall.Kill(k.AgentPID, 0) != nil })
		if out, err := l.Box("recover"); err != nil {
			t.Fatalf("recover: %v\n%s", err, out)
		}
		if got := l.End().Status; got != thread.StatusCompleted {
			t.Errorf("the run is %s", got)
		}
		l.Check("r1.prompt")
	}},
}
