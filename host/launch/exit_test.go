package launch_test

import (
	"testing"

	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/thread"
)

// The exit status is 0 for a completed run only: a run without entries is 1.
func TestExitStatus(t *testing.T) {
	entry := func(id, payload string) thread.Entry {
		return thread.Entry{ID: id, TS: "2026-01-01T00:00:00.000Z", Payload: []byte(payload)}
	}
	status := func(s, more string) string {
		return `{"type":"signal.thread.status_changed","runId":"r1","harness":"pi","status":"` + s + `"` + more + `}`
	}
	running := entry("r1.running", status("running", ""))
	for _, tt := range []struct {
		name    string
		entries []thread.Entry
		want    int
	}{
		{"nothing was read", nil, 1},
		{"completed", []thread.Entry{running, entry("r1.end.0", status("completed", `,"exitCode":0`))}, 0},
		{"failed", []thread.Entry{running, entry("r1.end.1", status("failed", `,"exitCode":7`))}, 7},
	} {
		var fold thread.Fold
		for _, e := range tt.entries {
			fold.Add(e)
		}
		if got := launch.ExitStatus(&fold, "r1"); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}
