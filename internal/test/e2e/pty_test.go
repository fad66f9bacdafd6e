package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/internal/test/model"
)

// seen is what a terminal shows.
type seen struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (s *seen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.Write(b)
}

func (s *seen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

// atTerminal starts the runner in a terminal of its own, and returns the terminal's two ends and what it shows.
func (s *scene) atTerminal(args ...string) (cmd *exec.Cmd, keys, tty *os.File, screen *seen) {
	s.t.Helper()
	cmd, keys, tty, screen = s.forTerminal(args...)
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	return cmd, keys, tty, screen
}

// forTerminal is atTerminal before the start.
func (s *scene) forTerminal(args ...string) (cmd *exec.Cmd, keys, tty *os.File, screen *seen) {
	s.t.Helper()
	master, tty, err := pty.Open()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := pty.Setsize(master, &pty.Winsize{Rows: 40, Cols: 100}); err != nil {
		s.t.Fatal(err)
	}
	cmd = exec.CommandContext(s.t.Context(), filepath.Join(bin, "arbe-pi-runner"), args...)
	cmd.Env = append(s.env, "TERM=xterm-256color", "PI_OFFLINE=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	screen = &seen{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			_, _ = screen.Write(b[:n]) // memory takes it
			if err != nil {
				return
			}
		}
	}()
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Logf("the terminal has shown\n%.6000q", screen.String())
		}
		_, _ = tty.Close(), master.Close() // the test is over
		<-done
	})
	return cmd, master, tty, screen
}

// press presses keys.
func press(t *testing.T, keys *os.File, text string) {
	t.Helper()
	if _, err := keys.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// cooked reports whether a terminal echoes and waits for whole lines, as a shell leaves it.
func cooked(t *testing.T, tty *os.File) bool {
	t.Helper()
	state, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return state.Lflag&unix.ECHO != 0 && state.Lflag&unix.ICANON != 0
}

// columns is how wide the terminal of the newest run's agent is.
func columns(t *testing.T, s *scene) int {
	t.Helper()
	out, err := s.box("status", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var runs []struct{ AgentPID int }
	if err := json.Unmarshal([]byte(out), &runs); err != nil || len(runs) == 0 {
		t.Fatalf("status says %s, %v", out, err)
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/fd/0", runs[0].AgentPID), unix.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
	if err != nil {
		t.Fatal(err)
	}
	return int(size.Col)
}

// A person uses pi's own interface on the session of the run before, and the whole conversation is on the thread.
func TestFullPiPTY(t *testing.T) {
	for _, version := range versions {
		for _, crash := range []bool{false, true} {
			name := version
			if crash {
				name += "/the worker dies"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := newScene(t, version, say("I am the first reply."),
					model.Reply{Text: "I am the reply at the terminal."})
				if got := s.status(s.start()); got != 0 {
					t.Fatalf("exit status %d", got)
				}
				s.without("ARBE_RUN_ID")
				s.env = append(s.env, "ARBE_RUN_ID=r2")
				args := []string{"run", "--resume", "--pty"}
				if crash {
					args = append(args, "--", "asked at the terminal")
				}
				cmd, keys, tty, screen := s.atTerminal(args...)
				if !crash { // the person types
					until(
						t,
						"the session in pi's interface",
						func() bool { return strings.Contains(screen.String(), "I am the first reply.") },
					)
					press(t, keys, "asked at the terminal\r")
				}
				until(
					t,
					"the reply at the terminal",
					func() bool { return strings.Contains(screen.String(), "I am the reply at the terminal.") },
				)
				if cooked(t, tty) {
					t.Error("keys are not passed on as they are")
				}
				if crash {
					pids := runnerPIDs(cmd.Process.Pid)
					if len(pids) != 2 {
						t.Fatalf("the runner is %d processes", len(pids))
					}
					if err := syscall.Kill(pids[1], syscall.SIGKILL); err != nil {
						t.Fatal(err)
					}
				} else {
					until(t, "the reply on the thread",
						func() bool { return strings.Contains(textOf(s.entries()), "I am the reply at the terminal.") })
					if err := pty.Setsize(keys, &pty.Winsize{Rows: 30, Cols: 72}); err != nil {
						t.Fatal(err)
					}
					until(t, "pi's terminal is as wide as the person's", func() bool { return columns(t, s) == 72 })
					press(t, keys, "\x04") // the end of input, at an empty prompt
				}
				var ee *exec.ExitError
				if err := cmd.Wait(); err != nil && !errors.As(err, &ee) {
					t.Fatal(err)
				}
				if !cooked(t, tty) {
					t.Error("the terminal is not what it was")
				}
				if got := s.arbe("thread", "status", s.thread); got != "completed" || cmd.ProcessState.ExitCode() != 0 {
					t.Errorf("the run is %s, exit status %d", got, cmd.ProcessState.ExitCode())
				}
				if asked := s.asked(); !strings.Contains(asked, "I am the first reply.") ||
					!strings.Contains(asked, "asked at the terminal") {
					t.Errorf("the model was asked %.3000s", asked)
				}
				if n := ofType(s.entries(), "chat"); n != 2 {
					t.Errorf("%d chats on the thread", n)
				}
				all := textOf(s.entries())
				for _, once := range []string{"I am the first reply.", "I am the reply at the terminal."} {
					if strings.Count(all, once) != 1 {
						t.Errorf("%q is on the thread %d times", once, strings.Count(all, once))
					}
				}
				if how := s.started("r2").Resume; how != "continue" {
					t.Errorf("resumed by %s", how)
				}
				s.whole("r2")
			})
		}
	}
}

// claude's own interface does the same, where it has been through its first questions.
func TestFullClaudePTY(t *testing.T) {
	t.Parallel()
	s := newSceneOf(
		t,
		"claude-code",
		others(t)["claude-code"],
		say("I am the first reply."),
		say("I am the reply at the terminal."),
	)
	answered := `{"hasCompletedOnboarding":true,"theme":"dark","bypassPermissionsModeAccepted":true,"customApiKeyResponses":{"approved":["scripted-key-0001"]},` +
		`"projects":{"` + filepath.Join(
		s.dir,
		"work",
	) + `":{"hasTrustDialogAccepted":true}}}`
	if err := os.WriteFile(filepath.Join(s.dir, ".claude.json"), []byte(answered), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := s.status(s.start()); got != 0 {
		t.Fatalf("exit status %d", got)
	}
	s.without("ARBE_RUN_ID")
	s.env = append(s.env, "ARBE_RUN_ID=r2")
	cmd, keys, tty, screen := s.atTerminal(
		"run",
		"--harness",
		"claude-code",
		"--resume",
		"--pty",
		"--",
		"asked at the terminal",
	)
	until(
		t,
		"the reply on the screen",
		func() bool { return strings.Contains(screen.String(), "terminal.") && len(s.model.Requests()) == 2 },
	)
	until(
		t,
		"the reply on the thread",
		func() bool { return strings.Contains(textOf(s.entries()), "I am the reply at the terminal.") },
	)
	until(t, "claude is idle, as the title says", func() bool {
		return strings.LastIndex(screen.String(), "✳") > strings.LastIndex(screen.String(), "◐")
	})
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	// Claude asks back, and takes the key for its end if it comes again within a moment. Else it asks back once more.
	again := func() int { return strings.Count(screen.String(), "again") }
	for asked, over := again(), false; !over; asked = again() {
		press(t, keys, "\x03")
		until(t, "claude asks back, or ends", func() bool {
			select {
			case err := <-ended:
				var ee *exec.ExitError
				if err != nil && !errors.As(err, &ee) {
					t.Fatal(err)
				}
				over = true
				return true
			default:
				return again() > asked
			}
		})
	}
	if !cooked(t, tty) {
		t.Error("the terminal is not what it was")
	}
	if got := s.arbe("thread", "status", s.thread); got != "completed" || cmd.ProcessState.ExitCode() != 0 {
		t.Errorf("the run is %s, exit status %d", got, cmd.ProcessState.ExitCode())
	}
	if n := ofType(s.entries(), "chat"); n != 2 {
		t.Errorf("%d chats on the thread", n)
	}
	if how := s.started("r2").Resume; how != "continue" {
		t.Errorf("resumed by %s", how)
	}
	s.whole("r2")
}
