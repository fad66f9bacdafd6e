package e2e_test

import (
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"

	"arbe.0sk.ar/runner/thread"
)

// texts are those of the thread's chats that no run has as its prompt, and the replies, in order.
func (h *host) texts() (all []string) {
	h.t.Helper()
	for _, e := range h.entries() {
		switch p := thread.ParseLine(e.Payload); {
		case p.Type == thread.TypeChat && p.Session == nil && p.Text != nil:
			all = append(all, *p.Text)
		case p.Type == "pi.assistant":
			all = append(all, "reply")
		}
	}
	return all
}

// turns waits until the agent of the thread's run waits for the n-th time.
func (h *host) turns(n int) {
	h.t.Helper()
	until(h.t, "the end of a turn", func() bool {
		return strings.Count(textOf(h.entries()), `"type":"signal.dispatch.pi_waiting"`) >= n
	})
}

// A live run is launched into a box; what is posted reaches its agent, --wait ends with that turn, and the box is
// released after the run.
func TestLaunchLive(t *testing.T) {
	t.Parallel()
	h := newHostOf(t, "0.87.1", say("It is written."), say("It is longer."))
	l, _ := h.launch("--live", "--", "write a report")
	h.turns(1)
	if out, err := h.try("ls"); err != nil || !strings.Contains(out, l.ThreadID+"\twaiting\t") {
		t.Errorf("ls: %v\n%s", err, out)
	}
	if out, err := h.try("say", l.ThreadID, "--wait", "make it longer"); err != nil || out != "completed\n" {
		t.Errorf("say --wait: %v\n%s", err, out)
	}
	if got := strings.Join(h.texts(), "|"); got != "write a report|reply|make it longer|reply" {
		t.Errorf("the thread has %s", got)
	}
	if out, err := h.try("reconcile", "--all"); err != nil || out != "" {
		t.Errorf("reconcile of a run that waits: %v\n%s", err, out)
	}
	if out, err := h.try("say", l.ThreadID, "--end"); err != nil {
		t.Errorf("say --end: %v\n%s", err, out)
	}
	h.ends(l.ThreadID)
	if got := h.arbe("thread", "status", l.ThreadID); got != thread.StatusCompleted {
		t.Errorf("the run is %s", got)
	}
	if out, err := h.try("reconcile", "--all"); err != nil || !strings.Contains(out, "reaped "+l.ThreadID) {
		t.Errorf("reconcile: %v\n%s", err, out)
	}

	// Its next run has what was posted meanwhile, as its first turn where there is no task.
	if out, err := h.try("say", l.ThreadID, "and shorter again"); err != nil || !strings.Contains(out, "no live run is on") {
		t.Errorf("say: %v\n%s", err, out)
	}
	h.model.More(say("It is short."))
	h.launch("--live", "--thread", l.ThreadID, "--resume")
	h.turns(3)
	if got := strings.Join(h.texts()[4:], "|"); got != "and shorter again|reply" {
		t.Errorf("the thread has %s", got)
	}
	if out, err := h.try("cancel", "--wait", l.ThreadID); err != nil || !strings.Contains(out, "completed") {
		t.Errorf("cancel of a run that waits: %v\n%s", err, out)
	}
}

// A live run that waits is settled as any other when its runner is dead, once it has been silent for 90 seconds.
func TestFullLaunchLiveDies(t *testing.T) {
	t.Parallel()
	h := newHostOf(t, "0.87.1", say("It is written."))
	l, _ := h.launch("--live", "--", "write a report")
	h.turns(1)
	for _, pid := range append(runnerPIDs(l.Process.PID), l.Process.PID) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // the keeper is named twice
	}
	h.arbe("thread", "post", l.ThreadID, "does anybody read this")
	until(t, "the run's end", func() bool {
		out, err := h.try("reconcile", "--all")
		if err != nil {
			t.Fatalf("reconcile: %v\n%s", err, out)
		}
		return strings.Contains(out, "orphaned "+l.ThreadID+" runner_lost")
	})
	var p thread.Pending
	for _, e := range h.entries() {
		p.Add(e)
	}
	if len(p.Chats()) != 1 {
		t.Errorf("pending: %+v", p.Chats())
	}
}

// Lines of stdin are the agent's chats while the run is shown, and the end of stdin ends the run once they are done.
func TestRunLive(t *testing.T) {
	t.Parallel()
	h := newHostOf(t, "0.87.1", say("One."), say("Two."), say("Three."))
	cmd := h.command(h.with("run", []string{"--live", "--", "the first line"})...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var printed strings.Builder
	cmd.Stdout, cmd.Stderr = &printed, &printed
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(stdin, "the second line\n\nthe third line\n"); err != nil {
		t.Fatal(err)
	}
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, printed.String())
	}
	lines := strings.Split(printed.String(), "\n")
	at := -1
	for _, want := range []string{"the first line", "the second line", "the third line"} {
		if n := slices.Index(lines, want); n <= at {
			t.Errorf("%q is in line %d", want, n)
		} else {
			at = n
		}
	}
	if !strings.Contains(printed.String(), "✔ completed") || !strings.Contains(h.asked(), "the third line") {
		t.Errorf("printed\n%s", printed.String())
	}
}
