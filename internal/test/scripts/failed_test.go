package scripts

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A server whose log can't be written any more ends on its own with status 74 and a message, and the next one has all
// that was acknowledged. The disk that fails is a limit on the size of files.
func TestServeEndsOnAFailedDisk(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), arbe, args...)
		cmd.Env = append(os.Environ(), "ARBE_DATA="+data, "ARBE_STREAM_URL=")
		return cmd
	}
	var said bytes.Buffer
	var ended chan error
	serve := func() *exec.Cmd {
		t.Helper()
		said.Reset()
		cmd := command("serve", "--addr", "127.0.0.1:0")
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		ended = done
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			if _, err := os.Stat(filepath.Join(data, "address")); err == nil {
				return cmd
			}
			select {
			case <-tick.C:
			case err := <-done:
				t.Fatalf("the server ended: %v\n%s", err, &said)
			}
		}
	}
	server := serve()
	if out, err := command("thread", "post", "t1", "one").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	none := unix.Rlimit{Cur: 1, Max: 1}
	if err := unix.Prlimit(server.Process.Pid, unix.RLIMIT_FSIZE, &none, nil); err != nil {
		t.Fatal(err)
	}
	post := command("thread", "post", "t1", "two")
	if err := post.Start(); err != nil {
		t.Fatal(err)
	}
	err := <-ended
	var exit *exec.ExitError
	text := said.String()
	if !errors.As(err, &exit) || exit.ExitCode() != 74 || strings.Contains(text, "goroutine ") {
		t.Errorf("the server ended with %v:\n%s", err, text)
	}
	if !strings.Contains(text, "arbe: the log has failed: write ") || !strings.Contains(text, "file too large") {
		t.Errorf("it says\n%s", text)
	}
	if err := post.Wait(); err == nil {
		t.Error("the post went well")
	}
	server = serve()
	if out, err := command("thread", "post", "t1", "three").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	out, err := command("thread", "read", "t1").CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"one"`) || !strings.Contains(string(out), `"three"`) {
		t.Errorf("%v: %s", err, out)
	}
	if err := server.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("%v: %s", err, &said)
	}
}
