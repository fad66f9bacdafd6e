package hydrate_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/internal/test/recorded"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread/redact"
)

const header = `{"type":"session","version":3,"id":"s1","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w"}`

// seedSessions adds whole session files to a fuzz target: recorded ones and odd ones.
func seedSessions(f *testing.F, add func(content []byte)) {
	f.Helper()
	for _, content := range recorded.Sessions(f, "../testdata") {
		add(content)
		add(content[:len(content)*3/4])
	}
	long := []byte(header + "\n")
	for i := 1; i < 20; i++ {
		text := fmt.Sprintf(`{"role":"user","content":"line %d"}`, i)
		long = append(long, message(fmt.Sprintf("e%d", i), fmt.Sprintf("e%d", i-1), text)+"\n"...)
	}
	add(long)
	add([]byte("\n\n\x00\n\xff\xfe\n{\"type\":\"session\",\"id\":\"x\"}\r\n" +
		"{\"type\":\"label\",\"id\":\"a\"}\n{\"type\":\"label\",\"id\":\"a\"}\n{\"id\":1}\n[]\n\"s\"\n"))
	add([]byte(`{"type":"session","id":"old"}` + "\n" + `{"type":"message","message":{"role":"user",` +
		`"content":"x"}}` + "\n"))
}

// FuzzRebuild mirrors a session file and rebuilds it: each line comes back, and a file without a header gets one.
func FuzzRebuild(f *testing.F) {
	seedSessions(f, func(content []byte) { f.Add(content) })
	f.Fuzz(func(t *testing.T, content []byte) {
		e := &mirror.Encoder{Namer: mirror.Namer{Dialect: session.Pi, Session: "s0"}, Redact: &redact.Redactor{}}
		r := &hydrate.Rebuilder{Dialect: session.Pi, TempDir: t.TempDir()}
		defer r.Close()
		var want [][]byte
		ids := map[string]bool{}
		for raw := range bytes.Lines(content) {
			line := bytes.TrimSuffix(raw, []byte("\n"))
			if dec := session.Pi.Decode(line); dec.Kind == session.Header {
				if ids[dec.SessionID] = true; len(ids) > 1 || dec.Old {
					return // several sessions in a file, or a file in an old format
				}
			}
			entry, _ := e.Encode(session.Line{Start: session.Position{Index: len(want)}, Data: line})
			want = append(want, line)
			if err := r.Add(hydrate.Parse(entry, session.Pi)); err != nil {
				t.Fatal(err)
			}
		}
		if len(want) == 0 {
			return
		}
		path := filepath.Join(t.TempDir(), "s.jsonl")
		done, err := r.Write(path, "made", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		got := bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n"))
		if len(ids) == 0 {
			got = got[1:]
		}
		if len(got) != len(want) || done.Converted != 0 || len(done.Lost) != 0 {
			t.Fatalf("%d lines of %d, %+v:\n%q", len(got), len(want), done, b)
		}
		for i, line := range want {
			if !bytes.Equal(got[i], line) && !equalNumbers(t, got[i], line) {
				t.Fatalf("line %d: %q came back as %q", i, line, got[i])
			}
		}
	})
}

// equalNumbers reports whether two JSON texts are equal, with all digits of their numbers.
func equalNumbers(t *testing.T, a, b []byte) bool {
	t.Helper()
	norm := func(raw []byte) string {
		var v any
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.UseNumber()
		if dec.Decode(&v) != nil {
			return "not JSON: " + string(raw)
		}
		out, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	return norm(a) == norm(b)
}
