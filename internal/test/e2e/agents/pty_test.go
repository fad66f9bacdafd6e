package agents_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"arbe.0sk.ar/runner/internal/test/scene"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/internal/test/model"
)

// atTerminal starts the runner in a terminal of its own, and returns the terminal's two ends and what it shows.
func atTerminal(s *scene.Scene, args ...string) (cmd *exec.Cmd, keys, tty *os.File, screen *scene.Seen) {
	s.T.Helper()
	cmd, keys, tty, screen = s.ForTerminal(args...)
	if err := cmd.Start(); err != nil {
		s.T.Fatal(err)
	}
	return cmd, keys, tty, screen
}

// columns is how wide the terminal of the newest run's agent is.
func columns(t *testing.T, s *scene.Scene) int {
	t.Helper()
	out, err := s.Box("status", "--json")
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
	for _, version := range scene.Versions {
		for _, crash := range []bool{false, true} {
			name := version
			if crash {
				name += "/the worker dies"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := scene.New(t, version, scene.Say("I am the first reply."),
					model.Reply{Text: "I am the reply at the terminal."})
				if got := s.Status(s.Start()); got != 0 {
					t.Fatalf("exit status %d", got)
				}
				s.Without("ARBE_RUN_ID")
				s.Env = append(s.Env, "ARBE_RUN_ID=r2")
				args := []string{"run", "--resume", "--pty"}
				if crash {
					args = append(args, "--", "asked at the terminal")
				}
				cmd, keys, tty, screen := atTerminal(s, args...)
				if !crash { // the person types
					scene.Until(
						t,
						"the session in pi's interface",
						func() bool { return strings.Contains(screen.String(), "I am the first reply.") },
					)
					scene.Press(t, keys, "asked at the terminal\r")
				}
				scene.Until(
					t,
					"the reply at the terminal",
					func() bool { return strings.Contains(screen.String(), "I am the reply at the terminal.") },
				)
				if scene.Cooked(t, tty) {
					t.Error("keys are not passed on as they are")
				}
				if crash {
					pids := scene.RunnerPIDs(cmd.Process.Pid)
					if len(pids) != 2 {
						t.Fatalf("the runner is %d processes", len(pids))
					}
					if err := syscall.Kill(pids[1], syscall.SIGKILL); err != nil {
						t.Fatal(err)
					}
				} else {
					scene.Until(
						t,
						"the reply on the thread",
						func() bool {
							return strings.Contains(scene.TextOf(s.Entries()), "I am the reply at the terminal.")
						},
					)
					if err := pty.Setsize(keys, &pty.Winsize{Rows: 30, Cols: 72}); err != nil {
						t.Fatal(err)
					}
					scene.Until(
						t,
						"pi's terminal is as wide as the person's",
						func() bool { return columns(t, s) == 72 },
					)
					scene.Press(t, keys, "\x04") // the end of input, at an empty prompt
				}
				var ee *exec.ExitError
				if err := cmd.Wait(); err != nil && !errors.As(err, &ee) {
					t.Fatal(err)
				}
				if !scene.Cooked(t, tty) {
					t.Error("the terminal is not what it was")
				}
				if got := s.Arbe("thread", "status", s.Thread); got != "completed" || cmd.ProcessState.ExitCode() != 0 {
					t.Errorf("the run is %s, exit status %d", got, cmd.ProcessState.ExitCode())
				}
				if asked := s.Asked(); !strings.Contains(asked, "I am the first reply.") ||
					!strings.Contains(asked, "asked at the terminal") {
					t.Errorf("the model was asked %.3000s", asked)
				}
				if n := ofType(s.Entries(), "chat"); n != 2 {
					t.Errorf("%d chats on the thread", n)
				}
				all := scene.TextOf(s.Entries())
				for _, once := range []string{"I am the first reply.", "I am the reply at the terminal."} {
					if strings.Count(all, once) != 1 {
						t.Errorf("%q is on the thread %d times", once, strings.Count(all, once))
					}
				}
				if how := s.Started("r2").Resume; how != "continue" {
					t.Errorf("resumed by %s", how)
				}
				s.Whole("r2")
			})
		}
	}
}

// claude's own interface does the same, where it has been through its first questions.
func TestFullClaudePTY(t *testing.T) {
	t.Parallel()
	s := scene.NewOf(
		t,
		"claude-code",
		scene.Others(t)["claude-code"],
		scene.Say("I am the first reply."),
		scene.Say("I am the reply at the terminal."),
	)
	answered := `{"hasCompletedOnboarding":true,"theme":"dark","bypassPermissionsModeAccepted":true,"customApiKeyResponses":{"approved":["scripted-key-0001"]},` +
		`"projects":{"` + filepath.Join(
		s.Dir,
		"work",
	) + `":{"hasTrustDialogAccepted":true}}}`
	if err := os.WriteFile(filepath.Join(s.Dir, ".claude.json"), []byte(answered), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := s.Status(s.Start()); got != 0 {
		t.Fatalf("exit status %d", got)
	}
	s.Without("ARBE_RUN_ID")
	s.Env = append(s.Env, "ARBE_RUN_ID=r2")
	cmd, keys, tty, screen := atTerminal(s,
		"run",
		"--harness",
		"claude-code",
		"--resume",
		"--pty",
		"--",
		"asked at the terminal",
	)
	scene.Until(
		t,
		"the reply on the screen",
		func() bool { return strings.Contains(screen.String(), "terminal.") && len(s.Model.Requests()) == 2 },
	)
	scene.Until(
		t,
		"the reply on the thread",
		func() bool { return strings.Contains(scene.TextOf(s.Entries()), "I am the reply at the terminal.") },
	)
	scene.Until(t, "claude is idle, as the title says", func() bool {
		return strings.LastIndex(screen.String(), "✳") > strings.LastIndex(screen.String(), "◐")
	})
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	// Claude asks back, and takes the key for its end if it comes again within a moment. Else it asks back once more.
	again := func() int { return strings.Count(screen.String(), "again") }
	for asked, over := again(), false; !over; asked = again() {
		scene.Press(t, keys, "\x03")
		scene.Until(t, "claude asks back, or ends", func() bool {
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
	if !scene.Cooked(t, tty) {
		t.Error("the terminal is not what it was")
	}
	if got := s.Arbe("thread", "status", s.Thread); got != "completed" || cmd.ProcessState.ExitCode() != 0 {
		t.Errorf("the run is %s, exit status %d", got, cmd.ProcessState.ExitCode())
	}
	if n := ofType(s.Entries(), "chat"); n != 2 {
		t.Errorf("%d chats on the thread", n)
	}
	if how := s.Started("r2").Resume; how != "continue" {
		t.Errorf("resumed by %s", how)
	}
	s.Whole("r2")
}
