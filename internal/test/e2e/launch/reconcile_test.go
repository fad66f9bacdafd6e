package launch_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/scene"

	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/thread"
)

// Reconcile settles runs whose box died with all in it, and posts the result to the parent.
func TestFullReconcile(t *testing.T) {
	t.Parallel()
	h := scene.NewHost(t, model.Reply{Text: strings.Repeat("word ", 5000), Pace: model.Duration(50 * time.Millisecond)})
	parent := h.Arbe("thread", "new")
	l, _ := h.Launch("--parent", parent, "--parent-author", "the-brain", "--", "a part of the work")
	scene.Until(t, "the model is asked", func() bool { return len(h.Model.Requests()) > 0 })
	if out, err := h.Try("reconcile", l.ThreadID); err != nil || out != "" {
		t.Errorf("a live run is left alone: %v\n%s", err, out)
	}
	if out, err := h.Try("sandbox", "rm", "--force", "local:"+l.Sandbox.Ref); err != nil {
		t.Fatalf("sandbox rm: %v\n%s", err, out)
	}
	// The newest entry is recent: a missing box is no evidence yet.
	if out, err := h.Try("reconcile", l.ThreadID); err != nil || out != "" {
		t.Errorf("reconcile at once: %v\n%s", err, out)
	}
	var out string
	scene.Until(t, "the run is given up", func() bool {
		var err error
		if out, err = h.Try("reconcile", "--orphan-after", "1s", l.ThreadID); err != nil {
			t.Fatalf("reconcile: %v\n%s", err, out)
		}
		return out != ""
	})
	if !strings.Contains(out, "orphaned "+l.ThreadID+" box_gone") {
		t.Errorf("reconcile: %s", out)
	}
	if got := h.Arbe("thread", "status", l.ThreadID); got != thread.StatusFailed {
		t.Errorf("the run is %s", got)
	}
	if out, err := h.Try("reconcile", l.ThreadID); err != nil || out != "" {
		t.Errorf("reconcile again: %v\n%s", err, out)
	}
	// The parent gets a provisional end when that has stood for a while, and the end of a run that is cancelled at
	// once.
	if out, err := h.Try("thread", "read", parent); err != nil || out != "" {
		t.Errorf("the parent has %s, %v", out, err)
	}
	h.Model.More(model.Reply{Text: strings.Repeat("word ", 5000), Pace: model.Duration(50 * time.Millisecond)})
	n := len(h.Model.Requests())
	l, _ = h.Launch("--parent", parent, "--parent-author", "the-brain", "--", "another part of the work")
	scene.Until(t, "the model is asked", func() bool { return len(h.Model.Requests()) > n })
	if out, err := h.Try("sandbox", "rm", "local:"+l.Sandbox.Ref); err == nil || !strings.Contains(out, l.RunID) {
		t.Fatalf("sandbox rm under a live run: %v\n%s", err, out)
	}
	if out, err := h.Try("sandbox", "rm", "--cancel", "local:"+l.Sandbox.Ref); err != nil {
		t.Fatalf("sandbox rm --cancel: %v\n%s", err, out)
	}
	if got := h.Arbe("thread", "status", l.ThreadID); got != thread.StatusCancelled {
		t.Errorf("the run whose box was removed is %s", got)
	}
	if out, err := h.Try("reconcile", l.ThreadID); err != nil ||
		!strings.Contains(out, "notified "+l.ThreadID+" thread "+parent) {
		t.Errorf("reconcile: %v\n%s", err, out)
	}
	h.Thread = parent
	entries := h.Entries()
	if len(entries) != 2 || entries[1].AuthorID != "the-brain" ||
		!strings.Contains(string(entries[0].Payload), `"childThreadId":"`+l.ThreadID+`"`) {
		t.Errorf("the parent has %d entries: %s", len(entries), scene.TextOf(entries))
	}
}

// A runner that was killed with its keeper is found by its process, and its box is released; one that lives is left
// alone however silent it is.
func TestFullReconcileFindsDeadRunner(t *testing.T) {
	t.Parallel()
	h := scene.NewHost(t, model.Reply{Text: strings.Repeat("word ", 5000), Pace: model.Duration(50 * time.Millisecond)})
	l, _ := h.Launch("--", "slowly")
	scene.Until(t, "the model is asked", func() bool { return len(h.Model.Requests()) > 0 })
	if out, err := h.Try("reconcile", "--orphan-after", "1ms", l.ThreadID); err != nil || out != "" {
		t.Errorf("a live runner is left alone: %v\n%s", err, out)
	}
	killRunner(t, filepath.Dir(l.WorkDir))
	var out string
	scene.Until(t, "the run is given up", func() bool {
		var err error
		if out, err = h.Try("reconcile", "--orphan-after", "1s", l.ThreadID); err != nil {
			t.Fatalf("reconcile: %v\n%s", err, out)
		}
		return out != ""
	})
	if !strings.Contains(out, "orphaned "+l.ThreadID+" runner_lost") || !strings.Contains(out, "reaped "+l.ThreadID) {
		t.Errorf("reconcile: %s", out)
	}
}

// An attached run whose runner and keeper were killed ends: arbe run asks about the box. Nobody else does here.
func TestFullAttachedFindsDeadRunner(t *testing.T) {
	t.Parallel()
	h := scene.NewHost(t, model.Reply{Text: strings.Repeat("word ", 5000), Pace: model.Duration(50 * time.Millisecond)})
	cmd := h.Command(h.With("run", []string{"--thread", h.Thread, "--", "slowly"})...)
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &printed
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	scene.Until(t, "the model is asked", func() bool { return len(h.Model.Requests()) > 0 })
	boxes, err := filepath.Glob(filepath.Join(h.Data, "boxes", "*"))
	if err != nil || len(boxes) != 1 {
		t.Fatalf("boxes %v, %v", boxes, err)
	}
	killRunner(t, boxes[0])
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("arbe run ended with %v, want 1", err)
	}
	if out := printed.String(); !strings.Contains(out, ": the run ends if its process or its box is gone") ||
		!strings.Contains(out, "runner_lost") {
		t.Errorf("it printed\n%s", out)
	}
	if got := h.Arbe("thread", "status", h.Thread); got != thread.StatusFailed {
		t.Errorf("the run is %s", got)
	}
}

// killRunner kills the runner in a local box, with its keeper, so that nobody ends the run.
func killRunner(t *testing.T, box string) {
	t.Helper()
	runner := filepath.Join(box, "home", ".arbe", "bin", "arbe-pi-runner")
	killed := 0
	scene.Until(t, "no process of the runner is left", func() bool {
		pids := processesOf(t, runner)
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err == nil {
				killed++
			}
		}
		return len(pids) == 0
	})
	if killed < 2 {
		t.Errorf("killed %d processes, want the keeper and the worker", killed)
	}
}

// processesOf are the processes of a program.
func processesOf(t *testing.T, program string) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		line, err := os.ReadFile(file)
		if name, _, _ := strings.Cut(string(line), "\x00"); err == nil && name == program {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}
