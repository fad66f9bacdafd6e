package view_test

import (
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/outcome"
)

// The first line of a verdict is that of the runner: the status once, and the message.
func TestHead(t *testing.T) {
	for _, tt := range []struct {
		verdict view.Verdict
		want    string
	}{
		{view.Verdict{Status: "completed"}, "completed"},
		{view.Verdict{Status: "cancelled"}, "cancelled"},
		{view.Verdict{Status: "cancelled", Message: "cancelled: SIGTERM"}, "cancelled: SIGTERM"},
		{view.Verdict{Status: "cancelled", Message: "the turn was interrupted"}, "cancelled: the turn was interrupted"},
		{view.Verdict{Status: "cancelled", Message: "the run was cancelled: SIGTERM"}, "cancelled: SIGTERM"},
		{view.Verdict{Status: "orphaned", Reason: "runner_lost"}, "failed: the runner stopped without a result"},
		{view.Verdict{Status: "orphaned", Reason: "new_reason"}, "failed"},
		{view.Verdict{Status: "failed", Class: "launch"}, "failed"},
		{view.Verdict{Status: "failed", Class: "pi_exit", Message: "boom"}, "failed: boom"},
		{view.Verdict{Status: "orphaned", Reason: "no_output"}, "failed: the agent ended without any output"},
	} {
		if got := tt.verdict.Head(); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.verdict, got, tt.want)
		}
	}
}

// Each class of a failed run has words.
func TestFailure(t *testing.T) {
	for _, class := range []string{
		outcome.ClassProvider, outcome.ClassUnreachable, outcome.ClassExit, outcome.ClassKilled, outcome.ClassOOM,
		outcome.ClassTimeout, outcome.ClassStalled, outcome.ClassDiskFull, outcome.ClassSpawn, outcome.ClassLaunch,
		outcome.ClassUnknownFormat,
	} {
		if got := view.Failure(class); !strings.HasPrefix(got, "failed: ") || got == "failed: "+class {
			t.Errorf("%s: %q", class, got)
		}
	}
	if got := view.Failure(outcome.ClassUnknown); got != "failed" {
		t.Errorf("got %q", got)
	}
}
