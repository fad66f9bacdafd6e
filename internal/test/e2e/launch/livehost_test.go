package launch_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"

	"arbe.0sk.ar/runner/internal/test/scene"

	"github.com/creack/pty"

	"arbe.0sk.ar/runner/thread"
)

// texts are those of the thread's chats that no run has as its prompt, and the replies, in order.
func texts(h *scene.Host) (all []string) {
	h.T.Helper()
	for _, e := range h.Entries() {
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
func turns(h *scene.Host, n int) {
	h.T.Helper()
	scene.Until(h.T, "the end of a turn", func() bool {
		return strings.Count(scene.TextOf(h.Entries()), `"type":"signal.dispatch.pi_waiting"`) >= n
	})
}

// A live run is launched into a box; what is posted reaches its agent, --wait ends with that turn, and the box is
// released after the run.
func TestFullLaunchLive(t *testing.T) {
	t.Parallel()
	h := scene.NewHostOf(t, "0.87.1", scene.Say("It is written."), scene.Say("It is longer."))
	l, _ := h.Launch("--live", "--", "write a report")
	turns(h, 1)
	if out, err := h.Try("ls"); err != nil || !strings.Contains(out, l.ThreadID+"\twaiting\t") {
		t.Errorf("ls: %v\n%s", err, out)
	}
	if out, err := h.Try("say", l.ThreadID, "--wait", "make it longer"); err != nil || out != "completed\n" {
		t.Errorf("say --wait: %v\n%s", err, out)
	}
	if got := strings.Join(texts(h), "|"); got != "write a report|reply|make it longer|reply" {
		t.Errorf("the thread has %s", got)
	}
	if out, err := h.Try("reconcile", "--all"); err != nil || out != "" {
		t.Errorf("reconcile of a run that waits: %v\n%s", err, out)
	}
	if out, err := h.Try("say", l.ThreadID, "--end"); err != nil {
		t.Errorf("say --end: %v\n%s", err, out)
	}
	h.Ends(l.ThreadID)
	if got := h.Arbe("thread", "status", l.ThreadID); got != thread.StatusCompleted {
		t.Errorf("the run is %s", got)
	}
	if out, err := h.Try("reconcile", "--all"); err != nil || !strings.Contains(out, "reaped "+l.ThreadID) {
		t.Errorf("reconcile: %v\n%s", err, out)
	}

	// Its next run has what was posted meanwhile, as its first turn where there is no task.
	if out, err := h.Try("say", l.ThreadID, "and shorter again"); err != nil ||
		!strings.Contains(out, "no live run is on") {
		t.Errorf("say: %v\n%s", err, out)
	}
	h.Model.More(scene.Say("It is short."))
	h.Launch("--live", "--thread", l.ThreadID, "--resume")
	turns(h, 3)
	if got := strings.Join(texts(h)[4:], "|"); got != "and shorter again|reply" {
		t.Errorf("the thread has %s", got)
	}
	if out, err := h.Try("cancel", "--wait", l.ThreadID); err != nil || !strings.Contains(out, "completed") {
		t.Errorf("cancel of a run that waits: %v\n%s", err, out)
	}
}

// A live run that waits is settled as any other when its runner is dead, once it has been silent for 90 seconds.
func TestFullLaunchLiveDies(t *testing.T) {
	t.Parallel()
	h := scene.NewHostOf(t, "0.87.1", scene.Say("It is written."))
	l, _ := h.Launch("--live", "--", "write a report")
	turns(h, 1)
	for _, pid := range append(scene.RunnerPIDs(l.Process.PID), l.Process.PID) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // the keeper is named twice
	}
	h.Arbe("thread", "post", l.ThreadID, "does anybody read this")
	scene.Until(t, "the run's end", func() bool {
		out, err := h.Try("reconcile", "--all")
		if err != nil {
			t.Fatalf("reconcile: %v\n%s", err, out)
		}
		return strings.Contains(out, "orphaned "+l.ThreadID+" runner_lost")
	})
	var p thread.Pending
	for _, e := range h.Entries() {
		p.Add(e)
	}
	if len(p.Chats()) != 1 {
		t.Errorf("pending: %+v", p.Chats())
	}
}

// Lines of stdin are the agent's chats while the run is shown, and the end of stdin ends the run once they are done.
func TestFullRunLive(t *testing.T) {
	t.Parallel()
	h := scene.NewHostOf(t, "0.87.1", scene.Say("One."), scene.Say("Two."), scene.Say("Three."))
	cmd := h.Command(h.With("run", []string{"--live", "--", "the first line"})...)
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
	if !strings.Contains(printed.String(), "✔ completed") || !strings.Contains(h.Asked(), "the third line") {
		t.Errorf("printed\n%s", printed.String())
	}
}

// typesLong: a line that is longer than a terminal takes is a chat, whole, and so is a text of several lines that is
// pasted. After Ctrl-C nothing waits for a chat any more.
func typesLong(h *scene.Host) {
	t := h.T
	t.Helper()
	h.Model.More(scene.Say("One."), scene.Say("Two."), scene.Say("Three."))
	cmd, keys, tty, screen := h.ForTerminal()
	arbe := h.Command(h.With("run", []string{"--live", "--thread", "long", "--", "the first line"})...)
	cmd.Path, cmd.Args, cmd.Env = arbe.Path, arbe.Args, append(arbe.Env, "TERM=xterm-256color")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	const waits = "○ waiting for a chat"
	waiting := func(n int) {
		t.Helper()
		scene.Until(t, "the agent waits", func() bool { return strings.Count(screen.String(), waits) == n })
	}
	waiting(1)
	h.Thread = "long"
	long := strings.Repeat("0123456789", 900)
	scene.Press(t, keys, long+"\n")
	waiting(2)
	scene.Press(t, keys, "\x1b[200~of two\nlines\x1b[201~\n")
	waiting(3)
	var chats []string
	for _, e := range h.Entries() {
		if c := scene.Payload[thread.Chat](t, e); c.Type == thread.TypeChat {
			chats = append(chats, c.Text)
		}
	}
	if got, want := strings.Join(chats, "|"), "the first line|"+long+"|of two\nlines"; got != want {
		t.Errorf("the chats are %.200q…%.50q, %d bytes", got, got[max(0, len(got)-50):], len(got))
	}
	scene.Press(t, keys, "\x03")
	if err := cmd.Wait(); err != nil { // its last turn has ended well
		t.Error(err)
	}
	scene.Until(t, "the verdict", func() bool { return strings.Contains(screen.String(), "✔ completed") })
	if n := strings.Count(screen.String(), waits); n != 3 {
		t.Errorf("waiting for a chat %d times:\n%s", n, screen)
	}
	if !scene.Cooked(t, tty) {
		t.Error("the terminal is not as it was")
	}
}

// A person types at the terminal while the run is shown: nothing there changes in place, and Ctrl-D ends the run. A
// terminal that hangs up ends the watching alone.
func TestFullRunLiveTerminal(t *testing.T) {
	t.Parallel()
	h := scene.NewHostOf(t, "0.87.1", scene.Say("One."), scene.Say("Two."))
	cmd, keys, tty, screen := h.ForTerminal()
	arbe := h.Command(h.With("run", []string{"--live", "--thread", "typed", "--", "the first line"})...)
	cmd.Path, cmd.Args, cmd.Env = arbe.Path, arbe.Args, append(arbe.Env, "TERM=xterm-256color")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := tty.Close(); err != nil {
		t.Fatal(err)
	}
	waiting := func(n int) {
		t.Helper()
		scene.Until(t, "the agent waits", func() bool {
			return strings.Count(screen.String(), "○ waiting for a chat; Ctrl-D ends the run") == n
		})
	}
	waiting(1)
	scene.Press(t, keys, "the second line\n")
	waiting(2)
	_, shown, _ := strings.Cut(screen.String(), "○ waiting")
	if strings.Count(shown, "the second line") != 2 || // its echo, and the chat
		strings.Contains(shown, "\x1b[K") || !strings.Contains(shown, "Two.") {
		t.Errorf("the terminal shows\n%s", shown)
	}
	scene.Press(t, keys, "\x04")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	scene.Until(t, "the verdict", func() bool { return strings.Contains(screen.String(), "✔ completed") })

	typesLong(h)

	h.Model.More(scene.Say("One."))
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	cmd = h.Command(h.With("run", []string{"--live", "--thread", "left", "--", "the first line"})...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := errors.Join(cmd.Start(), tty.Close()); err != nil {
		t.Fatal(err)
	}
	h.Thread = "left"
	turns(h, 1)
	if err := master.Close(); err != nil { // nothing reads from it: this hangs up
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("ended with %v", err)
	}
	if all := scene.TextOf(h.Entries()); strings.Contains(all, "end_requested") || strings.Contains(all, `"completed","exit`) {
		t.Errorf("the run was ended: %s", all)
	}
	if out, err := h.Try("say", "left", "--end"); err != nil {
		t.Errorf("say --end: %v\n%s", err, out)
	}
	h.Ends("left")
}
