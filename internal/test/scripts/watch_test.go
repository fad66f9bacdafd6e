package scripts

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

// screen has the output of a program on a terminal.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// await waits until the screen has a text behind the first n bytes, and returns what it has there.
func (s *screen) await(t *testing.T, n int, want string) string {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; <-tick.C {
		text := s.String()
		if text = text[min(n, len(text)):]; strings.Contains(text, want) {
			return text
		}
		if time.Since(began) > 5*time.Minute {
			t.Fatalf("no %q in %q", want, text)
		}
	}
}

// On a terminal arbe ls --watch draws its table again, within the size of the terminal, and leaves it as it was. arbe
// thread status has more than a word there.
func TestWatchOnATerminal(t *testing.T) {
	t.Parallel()
	env := append(os.Environ(), "ARBE_DATA="+t.TempDir(), "ARBE_STREAM_URL=", "ARBE_STREAM_TOKEN=", "TERM=xterm")
	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), arbe, args...)
		cmd.Env = env
		return cmd
	}
	do := func(stdin string, args ...string) {
		t.Helper()
		cmd := command(args...)
		cmd.Stdin = strings.NewReader(stdin)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	server := command("serve", "--addr", "127.0.0.1:0")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = server.Process.Signal(syscall.SIGINT) // it may have ended
		_ = server.Wait()
	}()
	data := strings.TrimPrefix(env[len(env)-4], "ARBE_DATA=")
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) { // between two looks
		if _, err := os.Stat(filepath.Join(data, "address")); err == nil {
			break
		}
		if time.Since(began) > 5*time.Minute {
			t.Fatal("the server does not start")
		}
	}
	const running = `{"id":"r1.running","ts":"2026-01-01T12:00:00.000Z","payload":` +
		`{"type":"signal.thread.status_changed","runId":"r1","harness":"pi","status":"running"}}`
	for _, id := range []string{"one", "two", "three", "four"} {
		do(running, "thread", "post", id)
	}
	status := command("thread", "status", "one")
	once, err := pty.StartWithSize(status, &pty.Winsize{Rows: 4, Cols: 80})
	if err != nil {
		t.Fatal(err)
	}
	line, _ := io.ReadAll(once) // EIO at its end
	if err := errors.Join(status.Wait(), once.Close()); err != nil ||
		!regexp.MustCompile(`^running · pi · [0-9ms]+ · last entry [0-9ms]+ ago\r\n$`).Match(line) {
		t.Errorf("status: %v, %q", err, line)
	}
	for listed := false; !listed; { // the server's index follows the threads
		out, err := command("ls", "--running").Output()
		if err != nil {
			t.Fatal(err)
		}
		listed = bytes.Count(out, []byte("\n")) == 4
	}
	watch := command("ls", "--watch", "--running")
	terminal, err := pty.StartWithSize(watch, &pty.Winsize{Rows: 4, Cols: 40})
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close() // it was only read
	var s screen
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&s, terminal) // EIO at its end
	}()
	text := s.await(t, 0, "two\x1b[0m")
	if !strings.HasPrefix(text, "\x1b[?1049h") || !strings.Contains(text, "TITLE") || strings.Contains(text, "one") {
		t.Errorf("with room for a head and three threads: %q", text)
	}
	n := len(s.String())
	do(strings.NewReplacer("running", "end.0", `"status":"running"`, `"status":"completed"`).Replace(running),
		"thread", "post", "three")
	s.await(t, n, "one\x1b[0m") // it has room now
	if err := watch.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := watch.Wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
	<-read
	if text := s.String(); !strings.HasSuffix(text, "\x1b[?25h\x1b[?1049l") || strings.Count(text, "\x1b[?1049h") != 1 {
		t.Errorf("the terminal is left with %q", text[max(0, len(text)-200):])
	}
}
