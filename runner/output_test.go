package runner_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/thread"
)

// An agent that prints at full speed, and whose stdout counts, fills no disk and holds no line up: its lines come to
// the thread while it prints.
func TestLargeGush(t *testing.T) {
	t.Parallel()
	server := fakethread.New(t, nil)
	dir := t.TempDir()
	stop, next := filepath.Join(dir, "stop"), filepath.Join(dir, "next")
	cfg := setup(t, server, "prompt", "gush "+stop, "wait "+next, "call bash", "result fine",
		"wait "+stop, "say done", "exit 0")
	claude, err := harness.Lookup("claude-code")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Spec.Report = claude.Report
	var most atomic.Int64
	var size atomic.Int64
	sampling, sampled := context.WithCancel(t.Context())
	stdout := filepath.Join(runfolder.Path(cfg.State, cfg.ThreadID, cfg.RunID), "stdout")
	go func() {
		for sampling.Err() == nil {
			if st, err := os.Stat(stdout); err == nil {
				most.Store(max(most.Load(), st.Sys().(*syscall.Stat_t).Blocks*512))
				size.Store(max(size.Load(), st.Size()))
			}
			time.Sleep(2 * time.Millisecond) // between two samples
		}
	}()
	done := make(chan runner.Result, 1)
	go func() {
		res, err := run(t, cfg)
		if err != nil {
			t.Error(err)
		}
		done <- res
	}()
	const gushed = 1 << 30
	for size.Load() < gushed && sampling.Err() == nil {
		time.Sleep(5 * time.Millisecond) // until so much is printed
	}
	if err := os.WriteFile(next, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	server.Await(func(e thread.Entry) bool { return strings.Contains(string(e.Payload), `"pi.tool_result"`) })
	before := size.Load()
	for size.Load() == before && sampling.Err() == nil {
		time.Sleep(5 * time.Millisecond) // it prints still
	}
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	res := <-done
	sampled()
	if res.Verdict.Outcome != outcome.Completed {
		t.Errorf("got %+v", res.Verdict)
	}
	t.Logf("%d MiB printed, at most %d MiB on disk", size.Load()>>20, most.Load()>>20)
	if most.Load() > gushed/3 { // how late the trimmer is, is up to the machine's load
		t.Errorf("%d MiB on disk", most.Load()>>20)
	}
	b, err := os.ReadFile(stdout)
	if err != nil || len(b) > 16<<20 || len(b) == 0 || strings.ContainsRune(string(b), 0) {
		t.Errorf("%d bytes are kept, with zeroes: %v; %v", len(b), strings.ContainsRune(string(b), 0), err)
	}
}

// However much the agent prints, the disk holds a little of it, the end.
func TestOutputIsCapped(t *testing.T) {
	server := fakethread.New(t, nil)
	cfg := setup(t, server, "prompt", "flood 100000000", "print the end", "say done")
	res, err := run(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(res.Folder, "stdout")
	b, err := os.ReadFile(path)
	if err != nil || len(b) > 16<<20 ||
		!strings.HasSuffix(string(b), "0\nthe end\n") && !strings.HasSuffix(string(b), "0the end\n") {
		t.Errorf("%d bytes are kept, %v", len(b), err)
	}
}
