package session_test

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/session"
)

// A path that names no regular file is refused at once; a FIFO that nobody writes into would block an ordinary open.
func TestOpenRegularFilesOnly(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		os.Mkdir(in("folder"), 0o700), unix.Mkfifo(in("fifo"), 0o600), os.Symlink("loop", in("loop")),
		os.Symlink("fifo", in("to-fifo")),
		os.WriteFile(in("file"), []byte("x\n"), 0o600), os.Symlink("file", in("to-file")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	socket, err := net.Listen("unix", in("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for _, path := range []string{in("folder"), in("fifo"), in("loop"), in("to-fifo"), in("socket"), "/dev/zero"} {
		for _, open := range []func(string) (*os.File, error){session.Open, session.OpenAppend} {
			if f, err := open(path); !errors.Is(err, session.ErrNotFile) {
				t.Errorf("%s: got %v, %v", path, f, err)
			}
		}
		r := session.NewReader(path, session.Position{})
		if _, err := r.Rest(); !errors.Is(err, session.ErrNotFile) {
			t.Errorf("reader of %s: %v", path, err)
		}
	}
	for _, path := range []string{in("file"), in("to-file")} {
		f, err := session.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(f); string(b) != "x\n" || err != nil {
			t.Errorf("%s: %q, %v", path, b, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

const (
	piHead = `{"type":"session","version":3,"id":"s1","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/"}` + "\n"
	notes  = "dear diary\n{\"my\":\"notes\"}\n"
)

// A session's reader returns no line of a file in which the dialect understands none, also where the file becomes such
// a one after it was opened.
func TestSessionReader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.jsonl")
	r := session.NewSessionReader(path, session.Pi)
	defer r.Close()
	none := func(when string) {
		t.Helper()
		for _, next := range []func() (session.Line, error){r.Next, r.Rest} {
			if line, err := next(); !errors.Is(err, io.EOF) {
				t.Errorf("%s: got %q, %v", when, line.Data, err)
			}
		}
	}
	none("no file")
	write(t, path, 0, []byte(notes))
	none("notes")
	write(t, path, os.O_APPEND, []byte("more"))
	none("notes with a torn line")
	write(t, path, os.O_APPEND, []byte("\n"+piHead))
	if got := drain(t, r.Next); len(got) != 4 {
		t.Errorf("a session with %d lines", len(got))
	}

	// It is rewritten in place, and then another file takes its name: neither is a session.
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	write(t, path, os.O_APPEND, []byte(notes))
	var changed *session.ChangedError
	if _, err := r.Next(); !errors.As(err, &changed) {
		t.Errorf("rewritten: %v", err)
	}
	if err := r.Reset(); err != nil {
		t.Fatal(err)
	}
	none("rewritten")
	write(t, path+".new", 0, []byte(notes+notes))
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	if line, err := r.Next(); !errors.As(err, &changed) {
		t.Errorf("replaced: %q, %v", line.Data, err)
	}
	if err := r.Reset(); err != nil {
		t.Fatal(err)
	}
	none("replaced")
}

// A file that is rewritten between the look at it and the first read of it is looked at again.
func TestSessionReaderChangedMeanwhile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.jsonl")
	// The line that proves the file stands behind one that is given first.
	long := `{"no":"` + string(make([]byte, 300<<10)) + `"}` + "\n"
	write(t, path, 0, []byte("a\n"+long+piHead))
	r := session.NewSessionReader(path, session.Pi)
	defer r.Close()
	if line, err := r.Next(); err != nil || string(line.Data) != "a" {
		t.Fatalf("%.20q, %v", line.Data, err)
	}
	secret := make([]byte, 301<<10)
	for i := range secret {
		secret[i] = 's'
	}
	write(t, path, 0, append(secret, '\n'))
	var changed *session.ChangedError
	if line, err := r.Next(); !errors.As(err, &changed) {
		t.Errorf("%.20q, %v", line.Data, err)
	}
}
