//go:build linux

package stdin_test

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/cmd/internal/stdin"
)

func TestEditor(t *testing.T) {
	for _, tt := range []struct {
		keys, texts, echo string
		end               bool
	}{
		{"one\rtwo\n", "one|two", "one\ntwo\n", false},
		{"a\x7f\x7fb\n", "b", "a\b \bb\n", false},
		{"żó漢\x7f\x08x\n", "żx", "żó漢\b \b\b \b\b \bx\n", false},
		{"one two \x17three\n", "one three", "one two \b \b\b \b\b \b\b \bthree\n", false},
		{"gone\x15stays\n", "stays", "gone\b \b\b \b\b \b\b \bstays\n", false},
		{"\x04", "", "", true},
		{"half\x04\n\x04", "half", "half\n", true},
		{"\n\n", "|", "\n\n", false},
		{"\x1b[200~one\ntwo\tx\n\x1b[201~ three\n", "one\ntwo\tx\n three", "one\ntwo x\n three\n", false},
		{"\x1b[200~a\x04\x7f\x1b[31mb\x1b\x1b[201~\n", "a\x04\x7f\x1b[31mb\x1b", "a···[31mb·\n", false},
		{"\x1b[200~a\nb\x1b[201~\x15\x7f\n", "a\n", "a\nb\b \b\n", false},
		{"a\x1b[D\x1b[1;5C\x1bOHb\x1b[3~\n", "ab", "ab\n", false}, // keys that do nothing here
		{"one\x1b\rtwo\n", "one\ntwo", "one\ntwo\n", false},       // Alt-Enter
		{"\x1bx\x0c\x16\n", "x", "x\n", false},
		{"\xc3\n", "\xc3", "\n", false},
		{"\xff\xfea\n", "\xff\xfea", "··a\n", false},
	} {
		texts, echo, end := stdin.Type(tt.keys)
		if got := strings.Join(texts, "|"); got != tt.texts || echo != tt.echo || end != tt.end {
			t.Errorf("%q: %q, shown %q, end %v; want %q, %q, %v", tt.keys, got, echo, end, tt.texts, tt.echo, tt.end)
		}
	}
}

// terminal opens a terminal, and returns the end where a person types, the program's, and what it shows at the end.
func terminal(t *testing.T) (keys, tty *os.File, shown func() string) {
	t.Helper()
	keys, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.Copy(&all, keys) }) // until the terminal is closed
	return keys, tty, func() string {
		if err := tty.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if err := keys.Close(); err != nil {
			t.Error(err)
		}
		return all.String()
	}
}

func modes(t *testing.T, f *os.File) unix.Termios {
	t.Helper()
	m, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *m
}

// What is typed and pasted arrives whole, also a line that is longer than a terminal takes, and the terminal is given
// back as it was.
func TestTerminal(t *testing.T) {
	keys, tty, shown := terminal(t)
	was := modes(t, tty)
	in, err := stdin.Open(t.Context(), tty, 1<<20, true)
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("0123456789", 2000)
	var wg sync.WaitGroup
	wg.Go(func() {
		for _, text := range []string{long + "\n", "\x1b[200~one\ntwo\x1b[201~\n", "\x04"} {
			if _, err := keys.WriteString(text); err != nil {
				t.Error(err)
			}
		}
	})
	for _, want := range []string{long, "one\ntwo"} {
		if got, err := in.Next(); got != want || err != nil {
			t.Errorf("got %d bytes, %v, want %d", len(got), err, len(want))
		}
	}
	if got, err := in.Next(); err != io.EOF {
		t.Errorf("got %q, %v at the end", got, err)
	}
	wg.Wait()
	if err := errors.Join(in.Close(), in.Close()); err != nil {
		t.Error(err)
	}
	if modes(t, tty) != was {
		t.Error("the terminal is not what it was")
	}
	if got := shown(); !strings.Contains(got, long+"\r\n") || !strings.Contains(got, "one\r\ntwo\r\n") ||
		!strings.Contains(got, "\x1b[?2004h") || !strings.HasSuffix(got, "\x1b[?2004l") {
		t.Errorf("shown: %.20q…%.40q", got, got[len(got)-40:])
	}
}

// Without echo nothing of what is typed is shown. The text is a reader's, too.
func TestTerminalWithoutEcho(t *testing.T) {
	keys, tty, shown := terminal(t)
	in, err := stdin.Open(t.Context(), tty, 100, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keys.WriteString("secret\n\x04"); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(in); string(b) != "secret\n" || err != nil {
		t.Errorf("got %q, %v", b, err)
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if got := shown(); strings.Contains(got, "secret") {
		t.Errorf("shown: %q", got)
	}
}

// A text that is too long is refused, and not cut.
func TestTerminalTooLong(t *testing.T) {
	keys, tty, shown := terminal(t)
	in, err := stdin.Open(t.Context(), tty, 10, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keys.WriteString("12345678901\n"); err != nil {
		t.Fatal(err)
	}
	if got, err := in.Next(); !errors.Is(err, stdin.ErrTooLong) {
		t.Errorf("got %q, %v", got, err)
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	shown()
}

// A read ends with its context, also one that waits, of a terminal and of a pipe.
func TestEnds(t *testing.T) {
	cause := errors.New("the command is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	r, w := io.Pipe()
	in := stdin.Reader(ctx, r)
	go func() { _, _ = w.Write([]byte("all that comes")) }() // the reader takes it
	b := make([]byte, 14)
	if _, err := io.ReadFull(in, b); string(b) != "all that comes" || err != nil {
		t.Errorf("got %q, %v", b, err)
	}
	go cancel(cause)
	if n, err := in.Read(b); n != 0 || err != cause {
		t.Errorf("got %q, %v", b[:n], err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	keys, tty, shown := terminal(t)
	typed, err := stdin.Open(ctx, tty, 100, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := typed.Next(); err != cause {
		t.Errorf("got %v", err)
	}
	if err := typed.Close(); err != nil {
		t.Error(err)
	}
	if _, err := keys.WriteString("\n"); err != nil { // ends the read of the terminal itself
		t.Error(err)
	}
	shown()
}

// What is no terminal gives no keys.
func TestNoTerminal(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // nothing was written
	if _, err := stdin.Open(t.Context(), f, 100, true); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
}
