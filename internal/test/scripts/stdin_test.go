package scripts

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/internal/test/postgres"
)

// own returns an environment of its own for arbe, with a server that is not there.
func own(t *testing.T, more ...string) []string {
	t.Helper()
	return append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "ARBE_DATA=" + t.TempDir(), "TERM=xterm",
		"ARBE_STREAM_URL=http://127.0.0.1:1", "DURABLE_STREAMS_SECRET=abcdefghijklmnopqrstuvwxyz0123456789",
	}, more...)
}

// reading are the commands that read stdin, and what they print about it at a terminal.
var reading = []struct{ command, asks string }{
	{"thread post t1", "reading entries (NDJSON) from the terminal; Ctrl-D on an empty line ends it"},
	{"thread import t1", "reading an export (NDJSON) from the terminal; Ctrl-D on an empty line ends it"},
	{"thread import t1 -", "reading an export (NDJSON) from the terminal; Ctrl-D on an empty line ends it"},
	{"say t1 -", "reading the text from the terminal; Ctrl-D on an empty line ends it"},
	{"env apply --check -", "reading an environment from the terminal; Ctrl-D on an empty line ends it"},
	{"launch --environment-file - -- hi", "reading an environment from the terminal; Ctrl-D on an empty line ends it"},
	{"serve restore -", "reading a backup from the terminal; Ctrl-D on an empty line ends it"},
}

var interrupts = map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143}

// A command that reads stdin ends with a signal while nothing comes, and has done nothing.
func TestInterruptedReads(t *testing.T) {
	t.Parallel()
	for _, r := range reading {
		for sig, status := range interrupts {
			out, in, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), arbe, strings.Fields(r.command)...)
			var said strings.Builder
			cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = own(t), out, &said, &said
			if _, err := in.WriteString("{"); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(cmd.Start(), out.Close()); err != nil {
				t.Fatal(err)
			}
			for waiting := 1; waiting > 0; time.Sleep(time.Millisecond) { // between two looks
				if waiting, err = unix.IoctlGetInt(int(in.Fd()), unix.TIOCINQ); err != nil {
					t.Fatal(err)
				}
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // its status is looked at
			if got := cmd.ProcessState.ExitCode(); got != status || !strings.HasSuffix(said.String(), "interrupted\n") {
				t.Errorf("arbe %s, %v: %d: %s", r.command, sig, got, said.String())
			}
			if err := in.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// atTerminal starts arbe at a terminal of its own.
func atTerminal(t *testing.T, env []string, args ...string) (cmd *exec.Cmd, keys, tty *os.File, s *screen) {
	t.Helper()
	keys, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(t.Context(), arbe, args...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	s = &screen{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for b := make([]byte, 4096); ; {
			n, err := keys.Read(b)
			_, _ = s.Write(b[:n]) // memory takes it
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_, _ = tty.Close(), keys.Close() // the test is over
		<-done
	})
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, keys, tty, s
}

// plain reports whether a terminal echoes and waits for whole lines.
func plain(t *testing.T, tty *os.File) bool {
	t.Helper()
	m, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return m.Lflag&unix.ECHO != 0 && m.Lflag&unix.ICANON != 0
}

// At a terminal a command prints what it waits for. Ctrl-C ends it, and the terminal is as it was.
func TestTypedReads(t *testing.T) {
	t.Parallel()
	for _, r := range reading {
		cmd, keys, tty, s := atTerminal(t, own(t), strings.Fields(r.command)...)
		s.await(t, 0, r.asks)
		for plain(t, tty) {
			time.Sleep(time.Millisecond) // between two looks
		}
		if _, err := keys.WriteString("abc\x03"); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // its status is looked at
		if got := cmd.ProcessState.ExitCode(); got != 130 || !plain(t, tty) {
			t.Errorf("arbe %s: %d, the terminal is as it was: %v: %s", r.command, got, plain(t, tty), s)
		}
		s.await(t, 0, "interrupted")
	}
}

// What is typed for a secret is not shown, and Enter ends it. A value of several lines is pasted.
func TestTypedSecret(t *testing.T) {
	t.Parallel()
	programs, err := postgres.Find()
	if err != nil {
		t.Fatal(err)
	}
	db, err := postgres.Start(programs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := db.Template(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	url, err := db.New(context.Background(), "arbe")
	if err != nil {
		t.Fatal(err)
	}
	keyset := filepath.Join(t.TempDir(), "keys")
	env := own(t, "ARBE_DATABASE="+url, "ARBE_SECRET_KEYS="+keyset, "ARBE_HOUSE=h1")
	for _, args := range []string{"db migrate", "secret key new " + keyset} {
		cmd := exec.CommandContext(t.Context(), arbe, strings.Fields(args)...)
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("arbe %s: %v: %s", args, err, out)
		}
	}
	if err := query(url, "insert into houses (id, name) values ('h1', 'one')"); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		keys   string
		status int
		set    string // the names of the secrets
	}{
		{"sesame-open\x03", 130, ""},
		{"sesame-open\n", 0, "S0"},
		{"\x1b[200~sesame\nopen\x1b[201~\n", 0, "S0,S2"},
	} {
		name := map[string]string{"": "S0", "S0": "S0", "S0,S2": "S2"}[tt.set]
		cmd, keys, tty, s := atTerminal(t, env, "secret", "set", name)
		s.await(t, 0, "value of "+name+", which is not shown; Enter ends it: ")
		for plain(t, tty) {
			time.Sleep(time.Millisecond) // between two looks
		}
		if _, err := keys.WriteString(tt.keys); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // its status is looked at
		if got := cmd.ProcessState.ExitCode(); got != tt.status || !plain(t, tty) {
			t.Errorf("%q: %d, the terminal is as it was: %v: %s", tt.keys, got, plain(t, tty), s)
		}
		if strings.Contains(s.String(), "sesame") {
			t.Errorf("%q is shown: %s", tt.keys, s)
		}
		const names = "select coalesce(string_agg(name, ',' order by name), '') from secrets"
		if err := query(url, names, tt.set); err != nil {
			t.Error(err)
		}
	}
}
