package e2e_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"

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
func TestFullLaunchLive(t *testing.T) {
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
	if out, err := h.try("say", l.ThreadID, "and shorter again"); err != nil ||
		!strings.Contains(out, "no live run is on") {
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
func TestFullRunLive(t *testing.T) {
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

// typesLong: a line that is longer than a terminal takes is a chat, whole, and so is a text of several lines that is
// pasted. After Ctrl-C nothing waits for a chat any more.
func (h *host) typesLong() {
	t := h.t
	t.Helper()
	h.model.More(say("One."), say("Two."), say("Three."))
	cmd, keys, tty, screen := h.forTerminal()
	arbe := h.command(h.with("run", []string{"--live", "--thread", "long", "--", "the first line"})...)
	cmd.Path, cmd.Args, cmd.Env = arbe.Path, arbe.Args, append(arbe.Env, "TERM=xterm-256color")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	const waits = "○ waiting for a chat"
	waiting := func(n int) {
		t.Helper()
		until(t, "the agent waits", func() bool { return strings.Count(screen.String(), waits) == n })
	}
	waiting(1)
	h.thread = "long"
	long := strings.Repeat("0123456789", 900)
	press(t, keys, long+"\n")
	waiting(2)
	press(t, keys, "\x1b[200~of two\nlines\x1b[201~\n")
	waiting(3)
	var chats []string
	for _, e := range h.entries() {
		if c := payload[thread.Chat](t, e); c.Type == thread.TypeChat {
			chats = append(chats, c.Text)
		}
	}
	if got, want := strings.Join(chats, "|"), "the first line|"+long+"|of two\nlines"; got != want {
		t.Errorf("the chats are %.200q…%.50q, %d bytes", got, got[max(0, len(got)-50):], len(got))
	}
	press(t, keys, "\x03")
	if err := cmd.Wait(); err != nil { // its last turn has ended well
		t.Error(err)
	}
	until(t, "the verdict", func() bool { return strings.Contains(screen.String(), "✔ completed") })
	if n := strings.Count(screen.String(), waits); n != 3 {
		t.Errorf("waiting for a chat %d times:\n%s", n, screen)
	}
	if !cooked(t, tty) {
		t.Error("the terminal is not as it was")
	}
}

// A person types at the terminal while the run is shown: nothing there changes in place, and Ctrl-D ends the run. A
// terminal that hangs up ends the watching alone.
func TestFullRunLiveTerminal(t *testing.T) {
	t.Parallel()
	h := newHostOf(t, "0.87.1", say("One."), say("Two."))
	cmd, keys, tty, screen := h.forTerminal()
	arbe := h.command(h.with("run", []string{"--live", "--thread", "typed", "--", "the first line"})...)
	cmd.Path, cmd.Args, cmd.Env = arbe.Path, arbe.Args, append(arbe.Env, "TERM=xterm-256color")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := tty.Close(); err != nil {
		t.Fatal(err)
	}
	waiting := func(n int) {
		t.Helper()
		until(t, "the agent waits", func() bool {
			return strings.Count(screen.String(), "○ waiting for a chat; Ctrl-D ends the run") == n
		})
	}
	waiting(1)
	press(t, keys, "the second line\n")
	waiting(2)
	_, shown, _ := strings.Cut(screen.String(), "○ waiting")
	if strings.Count(shown, "the second line") != 2 || // its echo, and the chat
		strings.Contains(shown, "\x1b[K") || !strings.Contains(shown, "Two.") {
		t.Errorf("the terminal shows\n%s", shown)
	}
	press(t, keys, "\x04")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	until(t, "the verdict", func() bool { return strings.Contains(screen.String(), "✔ completed") })

	h.typesLong()

	h.model.More(say("One."))
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	cmd = h.command(h.with("run", []string{"--live", "--thread", "left", "--", "the first line"})...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := errors.Join(cmd.Start(), tty.Close()); err != nil {
		t.Fatal(err)
	}
	h.thread = "left"
	h.turns(1)
	if err := master.Close(); err != nil { // nothing reads from it: this hangs up
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("ended with %v", err)
	}
	if all := textOf(h.entries()); strings.Contains(all, "end_requested") || strings.Contains(all, `"completed","exit`) {
		t.Errorf("the run was ended: %s", all)
	}
	if out, err := h.try("say", "left", "--end"); err != nil {
		t.Errorf("say --end: %v\n%s", err, out)
	}
	h.ends("left")
}
