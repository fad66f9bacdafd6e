package main

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner/runfolder"
)

// Ids of threads and runs stay readable, and unique, in a terminal of 80 columns; where nothing limits the width they
// are whole.
func TestStatusFits(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	const threadID = "01a1fe57-27a9-7058-90a6-9a5db6aeb558"
	known := func(run, class string) runfolder.Known {
		k := runfolder.Known{State: runfolder.StateDelivered, OnThread: 1234567, Verdict: &outcome.Verdict{
			Outcome: outcome.Failed, ErrorClass: class,
		}}
		k.Thread, k.Run, k.Harness, k.Started = threadID, run, "claude-code", now.Add(-47*time.Hour)
		return k
	}
	runs := []runfolder.Known{
		known("01a1fe57-27aa-7058-90a6-9a5db6aeb558", outcome.ClassUnreachable),
		known("01a1fe57-27aa-7158-90a6-9a5db6aeb558", outcome.ClassSpawn),
	}
	want := []string{" 01a1fe57-27a9  01a1fe57-27aa-70", " 01a1fe57-27a9  01a1fe57-27aa-71"}
	for _, width := range []int{78, 60} {
		lines := fitRuns(runs, now, width)
		for i, line := range lines {
			if n := utf8.RuneCountInString(line); n > width {
				t.Errorf("%d columns, want %d at most: %s", n, width, line)
			}
			if i > 0 && !strings.HasSuffix(line, want[i-1]) {
				t.Errorf("width %d: %q does not end with %q", width, line, want[i-1])
			}
		}
	}
	for i, line := range fitRuns(runs, now, 0)[1:] {
		if !strings.HasSuffix(line, threadID+"  "+runs[i].Run) || !strings.Contains(line, "1234567") {
			t.Errorf("without a limit: %q", line)
		}
	}
}
