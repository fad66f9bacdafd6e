package runner_test

import (
	"testing"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner"
)

func TestNext(t *testing.T) {
	exit := outcome.ExitCode(1)
	opened := runner.Fact{Fact: runner.FactOpened}
	spawned := runner.Fact{Fact: runner.FactSpawned, PID: 7}
	unbegun := runner.Fact{Fact: runner.FactExited, Exit: &harness.NotBegun}
	exited := runner.Fact{Fact: runner.FactExited, Exit: &exit}
	action := runner.Fact{Fact: runner.FactAction, Action: outcome.ActionCancel}
	failed := runner.Fact{Fact: runner.FactNotStarted, Status: 69}
	decided := runner.Fact{Fact: runner.FactDecided}
	for _, tt := range []struct {
		name                string
		facts               []runner.Fact
		notStarted, stopped bool
		want                string
	}{
		{"a new run", nil, false, false, "spawn"},
		{"the thread has its beginning", []runner.Fact{opened}, false, false, "spawn"},
		{"stopped before the agent began", []runner.Fact{opened}, false, true, "cancel"},
		{"a worker that stopped it died", []runner.Fact{opened, action}, false, false, "cancel"},
		{"the agent can't be started", []runner.Fact{opened}, true, false, "fail"},
		{"it can't be started, and is stopped", []runner.Fact{opened}, true, true, "fail"},
		{"an earlier worker could not start it", []runner.Fact{opened, failed}, true, false, "fail"},
		{"it failed after its process was there", []runner.Fact{spawned, failed}, true, false, "fail"},
		{"it may be running", []runner.Fact{opened, spawned}, false, false, "adopt"},
		{"it may be running, and is stopped", []runner.Fact{opened, spawned}, false, true, "adopt"},
		{"a worker died while it ended it", []runner.Fact{opened, spawned, action}, false, false, "adopt"},
		{"it has ended", []runner.Fact{opened, spawned, exited}, false, false, "settle"},
		{"it has ended, and the run is stopped", []runner.Fact{opened, spawned, exited}, false, true, "settle"},
		{"its process did not become it", []runner.Fact{opened, spawned, unbegun}, false, false, "settle"},
		{"and was made again", []runner.Fact{opened, spawned, unbegun, spawned}, false, false, "adopt"},
		{"the verdict is decided", []runner.Fact{opened, spawned, exited, decided}, false, true, "none"},
		{"the verdict of a failed start is decided", []runner.Fact{failed, decided}, true, false, "none"},
	} {
		if got := runner.Next(tt.facts, tt.notStarted, tt.stopped); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
