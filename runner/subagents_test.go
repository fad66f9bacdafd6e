package runner_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/runner"
)

// A clock that is set back during the run hides no subagent. A clock that is set ahead adds no older one.
func TestSubagentsAfterClockChange(t *testing.T) {
	spec, err := harness.Lookup("claude-code")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "s1", "subagents", "agent-a1.jsonl")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	started := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name    string
		written time.Time     // the file's time
		elapsed time.Duration // since the run began
		now     time.Time
		found   int
	}{
		{"a right clock", started.Add(time.Minute), 2 * time.Minute, started.Add(2 * time.Minute), 1},
		{"written before the run", started.Add(-time.Minute), 2 * time.Minute, started.Add(2 * time.Minute), 0},
		{"set back by a day", started.Add(time.Minute - 24*time.Hour), 2 * time.Minute, started.Add(2*time.Minute - 24*time.Hour), 1},
		{"set ahead by a day, after it was written", started.Add(time.Minute), 2 * time.Minute, started.Add(24 * time.Hour), 1},
	} {
		if err := os.Chtimes(file, tt.written, tt.written); err != nil {
			t.Fatal(err)
		}
		since := runner.Began(started, tt.elapsed, tt.now)
		if got := spec.Subagents(filepath.Join(dir, "s1.jsonl"), "s1", since, nil); len(got) != tt.found {
			t.Errorf("%s: found %v, want %d", tt.name, got, tt.found)
		}
	}
}
