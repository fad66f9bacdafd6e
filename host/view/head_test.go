package view_test

import (
	"testing"

	"arbe.0sk.ar/runner/host/view"
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
