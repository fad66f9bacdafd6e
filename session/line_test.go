package session_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/session"
)

// drain returns the lines that a reader has now, as text, with their places.
func drain(t testing.TB, next func() (session.Line, error)) []string {
	t.Helper()
	var lines []string
	for {
		l, err := next()
		if errors.Is(err, io.EOF) {
			return lines
		}
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%d@%d-%d:%s", l.Start.Index, l.Start.Offset, l.End.Offset, l.Data))
	}
}

// want returns the lines that drain gives for a file with this content: only whole ones.
func want(content []byte) []string {
	var lines []string
	for index, offset := 0, 0; ; index++ {
		n := bytes.IndexByte(content[offset:], '\n')
		if n < 0 {
			return lines
		}
		lines = append(lines, fmt.Sprintf("%d@%d-%d:%s", index, offset, offset+n+1, content[offset:offset+n]))
		offset += n + 1
	}
}

func write(t testing.TB, path string, flags int, content []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|flags, 0o600)
	if err == nil {
		_, err = f.Write(content)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestReaderLines(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 300<<10) // more than the reader's window
	tests := map[string][]byte{
		"empty":              nil,
		"one":                []byte("{}\n"),
		"torn":               []byte("{}\n{\"a\":"),
		"only torn":          []byte("{\"a\":"),
		"blank lines":        []byte("\n\n{}\n\n"),
		"CRLF is data":       []byte("{}\r\n{}\r\n"),
		"U+2028 is data":     []byte("{\"a\":\"x\u2028y\u2029z\"}\n{}\n"),
		"NUL is data":        []byte("\x00\x00{}\n\x00\n"),
		"invalid UTF-8":      []byte("\xff\xfe\n\xc3\n"),
		"long":               append(append([]byte("{}\n"), long...), "\n{}\n"...),
		"two long":           append(append(append(append([]byte{}, long...), '\n'), long...), '\n'),
		"long and torn":      append([]byte("{}\n"), long...),
		"window's very edge": append(bytes.Repeat([]byte("y"), 256<<10), "\n{}\n"...),
	}
	for name, content := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s.jsonl")
			write(t, path, 0, content)
			r := session.NewReader(path, session.Position{})
			defer r.Close()
			if diff := cmp.Diff(want(content), drain(t, r.Next)); diff != "" {
				t.Errorf("-want +got:\n%.2000s", diff)
			}
			// Once the writer is gone the rest is a line, too.
			all := want(append(append([]byte{}, content...), '\n'))
			all = all[len(want(content)):]
			if n := len(content); n == 0 || content[n-1] == '\n' {
				all = nil
			}
			rest := drain(t, r.Rest)
			if len(rest) != len(all) ||
				len(all) == 1 && !bytes.HasSuffix([]byte(rest[0]), content[bytes.LastIndexByte(content, '\n')+1:]) {
				t.Errorf("rest is %d lines, want %d", len(rest), len(all))
			}
		})
	}
}

func TestReaderLateFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "late", "s.jsonl")
	r := session.NewReader(path, session.Position{})
	defer r.Close()
	if got := drain(t, r.Next); got != nil {
		t.Fatalf("lines of a file that is not there: %q", got)
	}
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, path, 0, []byte("{}\n"))
	if diff := cmp.Diff([]string{"0@0-3:{}"}, drain(t, r.Next)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A torn line is not a line, and what its writer makes of it later is.
func TestReaderTornLineIsTakenBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.jsonl")
	write(t, path, 0, []byte("{}\n{\"half\":"))
	r := session.NewReader(path, session.Position{})
	defer r.Close()
	drain(t, r.Next)
	if err := os.Truncate(path, 3); err != nil {
		t.Fatal(err)
	}
	write(t, path, os.O_APPEND, []byte("{\"whole\":1}\n"))
	if diff := cmp.Diff([]string{`1@3-15:{"whole":1}`}, drain(t, r.Next)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestReaderFromPosition(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.jsonl")
	content := []byte("{}\n{\"b\":1}\n{\"c\":2}\n")
	write(t, path, 0, content)
	r := session.NewReader(path, session.Position{Offset: 3, Index: 1})
	defer r.Close()
	if diff := cmp.Diff(want(content)[1:], drain(t, r.Next)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestReaderChangedFile(t *testing.T) {
	old := []byte("{\"a\":1}\n{\"a\":2}\n")
	tests := []struct {
		name, how string
		change    func(t *testing.T, path string)
	}{
		{"another file under the name", "replaced", func(t *testing.T, path string) {
			write(t, path+".new", 0, append(append([]byte{}, old...), "{}\n"...))
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
		}},
		{"deleted and made again", "replaced", func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			write(t, path, 0, []byte("{\"a\":3}\n"))
		}},
		{"shorter", "truncated", func(t *testing.T, path string) { write(t, path, os.O_TRUNC, []byte("{}\n")) }},
		{"written anew in place", "rewritten", func(t *testing.T, path string) {
			write(t, path, os.O_TRUNC, []byte("{\"id\":7}\n{\"id\":8}\n{\"id\":9}\n"))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s.jsonl")
			write(t, path, 0, old)
			r := session.NewReader(path, session.Position{})
			defer r.Close()
			drain(t, r.Next)
			tt.change(t, path)
			var changed *session.ChangedError
			if line, err := r.Next(); !errors.As(err, &changed) {
				t.Fatalf("got %q, %v, want a ChangedError", line.Data, err)
			}
			if changed.How != tt.how {
				t.Errorf("the file was %s, want %s", changed.How, tt.how)
			}
			if err := r.Reset(); err != nil {
				t.Fatal(err)
			}
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want(content), drain(t, r.Next)); diff != "" {
				t.Errorf("after Reset, -want +got:\n%s", diff)
			}
		})
	}
}

// A file that is gone is no change: it ends there, until there is another one.
func TestReaderDeletedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.jsonl")
	write(t, path, 0, []byte("{}\n"))
	r := session.NewReader(path, session.Position{})
	defer r.Close()
	drain(t, r.Next)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want io.EOF", err)
	}
}

// FuzzFraming: however a file's bytes are cut into writes, the lines are the same.
func FuzzFraming(f *testing.F) {
	for _, path := range recorded(f, "*") {
		content, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content, uint64(1))
		f.Add(content[:len(content)*2/3], uint64(7))
	}
	f.Add(bytes.Repeat([]byte("long line "), 60<<10), uint64(3))
	f.Fuzz(func(t *testing.T, content []byte, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		path := filepath.Join(t.TempDir(), "s.jsonl")
		r := session.NewReader(path, session.Position{})
		defer r.Close()
		var got []string
		for rest := content; len(rest) > 0; {
			n := min(len(rest), 1+rnd.IntN(1+len(content)/4))
			write(t, path, os.O_APPEND, rest[:n])
			rest = rest[n:]
			if rnd.IntN(3) > 0 {
				got = append(got, drain(t, r.Next)...)
			}
		}
		got = append(got, drain(t, r.Next)...)
		if diff := cmp.Diff(want(content), got); diff != "" {
			t.Errorf("-want +got:\n%.2000s", diff)
		}
		if end := r.Position(); end.Index != bytes.Count(content, []byte("\n")) ||
			end.Offset != int64(bytes.LastIndexByte(content, '\n')+1) {
			t.Errorf("position %+v", end)
		}
	})
}

// recorded returns the session files of real runs of a harness ("*": of all). It fails the test where there is none.
func recorded(t testing.TB, harness string) []string {
	t.Helper()
	paths, err := filepath.Glob("../testdata/sessions/" + harness + "/*/session.jsonl")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no recorded sessions: %v", err)
	}
	return paths
}
