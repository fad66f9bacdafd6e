package scene

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// Seen collects the output of a terminal.
type Seen struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (s *Seen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.Write(b)
}

func (s *Seen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

// ForTerminal is atTerminal before the start.
func (s *Scene) ForTerminal(args ...string) (cmd *exec.Cmd, keys, tty *os.File, screen *Seen) {
	s.T.Helper()
	master, tty, err := pty.Open()
	if err != nil {
		s.T.Fatal(err)
	}
	if err := pty.Setsize(master, &pty.Winsize{Rows: 40, Cols: 100}); err != nil {
		s.T.Fatal(err)
	}
	cmd = exec.CommandContext(s.T.Context(), filepath.Join(Bin, "arbe-pi-runner"), args...)
	cmd.Env = append(s.Env, "TERM=xterm-256color", "PI_OFFLINE=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	screen = &Seen{}
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
	s.T.Cleanup(func() {
		if s.T.Failed() {
			s.T.Logf("the terminal has shown\n%.6000q", screen.String())
		}
		_, _ = tty.Close(), master.Close() // the test is over
		<-done
	})
	return cmd, master, tty, screen
}

// Press presses keys.
func Press(t *testing.T, keys *os.File, text string) {
	t.Helper()
	if _, err := keys.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// Cooked reports whether a terminal echoes and waits for whole lines, as a shell leaves it.
func Cooked(t *testing.T, tty *os.File) bool {
	t.Helper()
	state, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return state.Lflag&unix.ECHO != 0 && state.Lflag&unix.ICANON != 0
}
