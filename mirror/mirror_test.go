package mirror_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/internal/test/recorded"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
	"arbe.0sk.ar/runner/thread/redact"
)

// testLog writes the log into the test's.
type testLog struct{ t testing.TB }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func newMirror(t testing.TB, path, sid string, server *fakethread.Server) *mirror.Mirror {
	return newMirrorOf(t, session.Pi, path, sid, server)
}

func newMirrorOf(t testing.TB, d session.Dialect, path, sid string, server *fakethread.Server) *mirror.Mirror {
	m := &mirror.Mirror{
		Encoder: mirror.Encoder{
			Namer: mirror.Namer{Dialect: d, Session: sid}, Redact: &redact.Redactor{},
		},
		Path: path, Append: appendTo(server), Log: slog.New(slog.NewTextHandler(testLog{t}, nil)),
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func sync(t testing.TB, m *mirror.Mirror) {
	t.Helper()
	if err := m.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// rebuilt checks that the thread's entries give the file back, line by line.
func rebuilt(t testing.TB, content []byte, entries []thread.Entry) {
	t.Helper()
	rebuiltAs(t, session.Pi, content, entries)
}

func rebuiltAs(t testing.TB, d session.Dialect, content []byte, entries []thread.Entry) {
	t.Helper()
	lines := bytes.Split(bytes.TrimSuffix(content, []byte("\n")), []byte("\n"))
	if len(lines) != len(entries) {
		t.Fatalf("%d entries for %d lines", len(entries), len(lines))
	}
	for i, e := range entries {
		got := hydrate.Parse(e, d).Line
		if got == nil {
			t.Errorf("line %d can't be rebuilt from %s", i, e.Payload)
		} else if !bytes.Equal(got, lines[i]) && !sameJSON(got, lines[i]) {
			t.Errorf("line %d:\ngot  %.300s\nwant %.300s", i, got, lines[i])
		}
	}
}

func TestMirrorRecordings(t *testing.T) {
	for name, content := range recorded.Sessions(t, "../testdata") {
		t.Run(name, func(t *testing.T) {
			d := recorded.Dialect(t, name)
			path := filepath.Join(t.TempDir(), "s.jsonl")
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			server := fakethread.New(t, nil)
			sync(t, newMirrorOf(t, d, path, "s0", server))
			entries := server.Entries()
			rebuiltAs(t, d, content, entries)

			// Again, whole, from the start: nothing new.
			sync(t, newMirrorOf(t, d, path, "s0", server))
			if n := len(server.Entries()); n != len(entries) {
				t.Errorf("mirroring again added %d entries", n-len(entries))
			}

			size := 0
			for _, e := range entries {
				size += len(e.AppendJSON(nil))
			}
			if most := len(content)*5/4 + 1024*len(entries); size > most {
				t.Errorf("the entries take %d bytes, more than %d", size, most)
			}
		})
	}
}

const header = `{"type":"session","version":3,"id":"s1","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w"}`

func message(id, parent, body string) string {
	up := "null"
	if parent != "" {
		up = `"` + parent + `"`
	}
	return fmt.Sprintf(
		`{"type":"message","id":"%s","parentId":%s,"timestamp":"2026-01-01T00:00:01.500Z","message":%s}`,
		id,
		up,
		body,
	)
}

// lines is a session of n lines.
func lines(n int) []byte {
	var b bytes.Buffer
	b.WriteString(header + "\n")
	for i := 1; i < n; i++ {
		b.WriteString(
			message(
				fmt.Sprintf("e%d", i),
				fmt.Sprintf("e%d", i-1),
				fmt.Sprintf(`{"role":"user","content":"line %d"}`, i),
			) + "\n",
		)
	}
	return b.Bytes()
}

func writeFile(t testing.TB, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s.jsonl")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Whatever goes wrong with a call, applied or not, each line is there once and in order in the end.
func TestFaults(t *testing.T) {
	faults := map[string]fakethread.Fault{
		"500": {
			Status: 500,
		}, "500 applied": {Status: 500, Applied: true}, "503": {Status: 503, Header: map[string]string{"Retry-After": "0"}},
		"429": {
			Status: 429,
		}, "dropped": {Drop: true}, "dropped, applied": {Drop: true, Applied: true}, "408": {Status: 408}, "502 applied": {Status: 502, Applied: true},
	}
	content := lines(1200)
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
				if c.N%2 == 1 {
					return fault
				}
				return fakethread.Fault{}
			})
			sync(t, newMirror(t, writeFile(t, content), "", server))
			rebuilt(t, content, server.Entries())
		})
	}
}

// A pass that fails is repeated from the last acknowledged line, by the same mirror or by the next one.
func TestResume(t *testing.T) {
	content := lines(1300)
	path := writeFile(t, content)
	down := false
	server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
		if down || c.N == 2 {
			return fakethread.Fault{Status: 401} // no use in trying again at once
		}
		return fakethread.Fault{}
	})
	first := newMirror(t, path, "", server)
	var saved session.Position
	first.Saved = func(p session.Position) error { saved = p; return nil }
	if err := first.Sync(t.Context()); !client.Refused(err) {
		t.Fatalf("got %v, want a refusal", err)
	}
	if n := len(server.Entries()); n == 0 || saved.Index != n || first.Posted() != int64(n) {
		t.Fatalf("saved %+v and posted %d with %d entries on the thread", saved, first.Posted(), n)
	}
	second := newMirror(t, path, "", server)
	second.From = saved
	sync(t, second)
	rebuilt(t, content, server.Entries())

	// The same position in another file means nothing.
	other := writeFile(t, append([]byte(header+"\n"), "{}\n{}\n"...))
	third := newMirror(t, other, "", fakethread.New(t, nil))
	third.From = saved
	sync(t, third)
	if third.Posted() != 3 {
		t.Errorf("posted %d lines of a file of 3", third.Posted())
	}
}

func TestSinglePosts(t *testing.T) {
	content := lines(60)
	server := fakethread.New(t, nil).Old()
	sync(t, newMirror(t, writeFile(t, content), "", server))
	rebuilt(t, content, server.Entries())
	if calls := server.Calls(); calls > 60+7 { // arrays of 60, 30, 15 … until two are refused that are good alone
		t.Errorf("%d calls for 60 lines: the arrays were tried again and again", calls)
	}
}

// One bad entry never blocks the others.
func TestRefusedEntries(t *testing.T) {
	const victim = "pi:s1:e3"
	for _, tt := range []struct {
		name   string
		status int
		listed bool
		times  int // how often the server refuses the entry
		left   int
	}{
		{"bad, listed", 400, true, 1, 6},
		{"bad and its stub too", 400, true, 9, 5},
		{"too large, listed", 413, true, 1, 6},
		{"too large even cut", 413, true, 2, 6},
		{"too large for a proxy once", 413, false, 1, 6},
		{"too large, not listed", 413, false, 4, 6},
		{"too large even cut, not listed", 413, false, 6, 6},
		{"bad, not listed", 400, false, 4, 6},
		{"bad and its stub too, not listed", 400, false, 99, 5},
		{"taken", 409, true, 9, 5},
		{"taken, not listed", 409, false, 99, 5},
		{"bad, listed without its id", 400, true, 1, 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			named := victim
			if tt.name == "bad, listed without its id" {
				named = ""
			}
			refused := 0
			server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
				for i, e := range c.Entries {
					if e.ID != victim || refused >= tt.times {
						continue
					}
					refused++
					body := `{"error":{"code":"x","message":"too large for me"}}`
					if tt.listed {
						body = fmt.Sprintf(
							`{"error":{"code":"x","message":"no","entries":[{"index":%d,"id":"%s","reason":"I say so"}]}}`,
							i,
							named,
						)
					}
					if tt.status == 409 {
						return fakethread.Fault{Status: 409, Body: body}
					}
					return fakethread.Fault{Status: tt.status, Body: body}
				}
				return fakethread.Fault{}
			})
			if tt.left == 5 {
				server.Gaps()
			}
			m := newMirror(t, writeFile(t, lines(6)), "", server)
			sync(t, m)
			if n := len(server.Entries()); n != tt.left {
				t.Errorf("%d entries on the thread, want %d", n, tt.left)
			}
			if m.Posted() != 6 {
				t.Errorf("posted %d", m.Posted())
			}
		})
	}
}

func TestTornLine(t *testing.T) {
	content := append(lines(3), `{"type":"message","id":"torn`...)
	path := writeFile(t, content)
	server := fakethread.New(t, nil)
	m := newMirror(t, path, "", server)
	sync(t, m)
	if n := len(server.Entries()); n != 3 {
		t.Fatalf("%d entries while the last line is being written", n)
	}
	if err := m.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	rebuilt(t, content, server.Entries())
}

func TestRunFollows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.jsonl")
	server := fakethread.New(t, nil)
	m := newMirror(t, path, "", server)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	content := lines(4)
	written := 0
	for line := range bytes.Lines(content) {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err == nil {
			_, err = f.Write(line)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		written++
		n := 0
		server.Await(func(thread.Entry) bool { n++; return n == written })
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run returned %v for an order to stop", err)
	}
	rebuilt(t, content, server.Entries())
}

func payload(t testing.TB, e thread.Entry) (p thread.Line) {
	t.Helper()
	if err := json.Unmarshal(e.Payload, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// appendTo appends to the server's thread.
func appendTo(server *fakethread.Server) func(context.Context, []thread.Entry) error {
	c := server.Client()
	return func(ctx context.Context, entries []thread.Entry) error {
		_, err := c.Append(ctx, entries)
		return err
	}
}
