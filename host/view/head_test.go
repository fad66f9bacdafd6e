package view_test

import (
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/view"
)

// The status is in the first line of a verdict once.
func TestHead(t *testing.T) {
	for _, tt := range []struct {
		verdict view.Verdict
		want    string
	}{
		{view.Verdict{Status: "completed"}, "completed"},
		{view.Verdict{Status: "cancelled"}, "cancelled"},
		{view.Verdict{Status: "cancelled", Message: "cancelled: SIGTERM"}, "cancelled: SIGTERM"},
		{view.Verdict{Status: "cancelled", Message: "the turn was interrupted"}, "cancelled · the turn was interrupted"},
		{view.Verdict{Status: "failed", Class: "pi_exit", Message: "boom"}, "failed · pi_exit · boom"},
		{view.Verdict{Status: "orphaned", Reason: "no_output"}, "orphaned · no_output"},
	} {
		if got := strings.Join(tt.verdict.Head(), " · "); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.verdict, got, tt.want)
		}
	}
}
