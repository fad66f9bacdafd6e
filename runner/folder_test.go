package runner_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/runner/runfolder"
)

func TestBusy(t *testing.T) {
	server := fakethread.New(t, nil)
	there := filepath.Join(t.TempDir(), "there")
	cfg := setup(t, server, "prompt", "touch "+there, "sleep 60s")
	second := cfg
	second.RunID = "r2"
	done := make(chan error, 1)
	go func() {
		for {
			if _, err := os.Stat(there); err == nil {
				break
			}
			time.Sleep(5 * time.Millisecond) // until the first run is there
		}
		_, err := runner.RunAlone(t.Context(), t.Context(), second)
		runs, listErr := runfolder.List(cfg.State)
		if listErr != nil || len(runs) != 1 || runs[0].State != "running" || runs[0].AgentPID == 0 {
			t.Errorf("known are %+v, %v", runs, listErr)
		}
		done <- err
		if err := syscall.Kill(runs[0].AgentPID, syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	}()
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	var busy *runfolder.BusyError
	if err := <-done; !errors.As(err, &busy) ||
		!strings.Contains(err.Error(), "run r1, pid "+strconv.Itoa(os.Getpid())) {
		t.Errorf("got %v", err)
	}
	runs, err := runfolder.List(cfg.State)
	if err != nil || len(runs) != 1 || runs[0].State != "delivered" || runs[0].OnThread != 2 ||
		runs[0].Verdict.Outcome != outcome.Cancelled {
		t.Errorf("known are %+v, %v", runs, err)
	}
}

// The state folder's path may have any characters in it.
func TestListOddPath(t *testing.T) {
	server := fakethread.New(t, nil)
	cfg := setup(t, server, "prompt", "say done")
	cfg.State = filepath.Join(cfg.Cwd, "a[b]*\\?\xff")
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	runs, err := runfolder.List(cfg.State)
	if err != nil || len(runs) != 1 || runs[0].State != runfolder.StateDelivered || !strings.HasPrefix(runs[0].Session,
		cfg.State+"/") {
		t.Errorf("%+v, %v", runs, err)
	}
}

// A fact that a full disk has cut off damages no other.
func TestNoteAfterCutFact(t *testing.T) {
	cfg, _, _ := lostRun(t, "prompt", "exit 0")
	dir := runfolder.Path(cfg.State, cfg.ThreadID, cfg.RunID)
	folder, err := runfolder.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	appendTo(t, filepath.Join(dir, "facts.jsonl"), `{"at":"2026-01-01T00:00:00Z","fact":"exi`)
	if err := folder.Note(runfolder.Fact{Fact: runfolder.FactDelivered}); err != nil {
		t.Fatal(err)
	}
	if runs, err := runfolder.List(cfg.State); err != nil || len(runs) != 1 ||
		runs[0].State != runfolder.StateDelivered {
		t.Errorf("%+v, %v", runs, err)
	}
}
