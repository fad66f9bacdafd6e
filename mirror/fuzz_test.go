package mirror_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/internal/test/recorded"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/redact"
)

// seedSessions gives a fuzz target whole session files: recorded ones, which must be there, and odd ones.
func seedSessions(f *testing.F, add func(content []byte)) {
	f.Helper()
	for _, content := range recorded.Sessions(f, "../testdata") {
		add(content)
		add(content[:len(content)*3/4])
	}
	add(lines(20))
	add(
		[]byte(
			"\n\n\x00\n\xff\xfe\n{\"type\":\"session\",\"id\":\"x\"}\r\n{\"type\":\"label\",\"id\":\"a\"}\n" +
				"{\"type\":\"label\",\"id\":\"a\"}\n{\"id\":1}\n[]\n\"s\"\n",
		),
	)
	add(
		[]byte(
			`{"type":"session","id":"old"}` + "\n" + `{"type":"message","message":{"role":"user","content":"x"}}` + "\n",
		),
	)
}

// FuzzRoundTrip: whatever is in a file, each line becomes one good entry, the entries of a file have different ids and
// give the lines back.
func FuzzRoundTrip(f *testing.F) {
	seedSessions(f, func(content []byte) { f.Add(content) })
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, d := range session.Harnesses() {
			roundTrip(t, d, content)
		}
	})
}

func roundTrip(t *testing.T, d session.Dialect, content []byte) {
	e := newEncoder()
	e.Dialect = d
	seen := map[string]bool{}
	n := 0
	for raw := range bytes.Lines(content) {
		line := bytes.TrimSuffix(raw, []byte("\n"))
		entry, fresh := e.Encode(session.Line{Start: session.Position{Index: n}, Data: line})
		n++
		if err := entry.Check(); err != nil || !fresh {
			t.Fatalf("%s, %q: %v, fresh %v", d.Prefix, line, err, fresh)
		}
		if !json.Valid(entry.AppendJSON(nil)) || !utf8.Valid(entry.Payload) {
			t.Fatalf("%s, %q became %q", d.Prefix, line, entry.Payload)
		}
		if seen[entry.ID] {
			t.Fatalf("two lines are %s", entry.ID)
		}
		seen[entry.ID] = true
		got := hydrate.Parse(entry, d).Line
		if got == nil {
			t.Fatalf("%s, %q can't be rebuilt from %s", d.Prefix, line, entry.Payload)
		}
		if !bytes.Equal(got, line) && !equalNumbers(t, got, line) {
			t.Fatalf("%s, %q came back as %q", d.Prefix, line, got)
		}
	}
}

// equalNumbers is equality as JSON in which numbers keep all their digits.
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

// FuzzResume: a mirror that begins where another one stopped, wherever that was, ships what is left and nothing else.
func FuzzResume(f *testing.F) {
	seedSessions(f, func(content []byte) {
		f.Add(content, uint(0))
		f.Add(content, uint(3))
	})
	f.Fuzz(func(t *testing.T, content []byte, stop uint) {
		path := filepath.Join(t.TempDir(), "s.jsonl")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		ship := func(from session.Position, to *[]thread.Entry) {
			m := &mirror.Mirror{
				Encoder: mirror.Encoder{
					Namer:   mirror.Namer{Dialect: session.Pi, Session: "s0"},
					Redact:  &redact.Redactor{},
					Prompt:  "r1.prompt",
					RunFrom: 1,
				},
				Path: path, From: from, Log: slog.New(slog.DiscardHandler),
				Append: func(_ context.Context,
					entries []thread.Entry,
				) error {
					*to = append(*to, entries...)
					return nil
				},
			}
			if err := m.Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
		}
		var all, rest []thread.Entry
		ship(session.Position{}, &all)
		whole := bytes.Count(content, []byte("\n"))
		from := session.Position{Index: int(stop % uint(whole+1))}
		for range from.Index {
			from.Offset += int64(bytes.IndexByte(content[from.Offset:], '\n') + 1)
		}
		ship(from, &rest)
		if len(rest) != len(all)-from.Index {
			t.Fatalf("%d lines after line %d of %d", len(rest), from.Index, len(all))
		}
		for i, e := range rest {
			if want := all[from.Index+i]; e.ID != want.ID || !bytes.Equal(e.Payload, want.Payload) {
				t.Fatalf("line %d is %s %s\nand was %s %s", from.Index+i, e.ID, e.Payload, want.ID, want.Payload)
			}
		}
	})
}

var cut = regexp.MustCompile(`^((?s).*)\[cut: ([0-9]+) bytes, sha256 ([0-9a-f]{64})\]$`)

// FuzzShorten holds that a shortened line is JSON, small enough, and without secrets, and that each cut has its length
// and hash.
func FuzzShorten(f *testing.F) {
	for _, content := range recorded.Sessions(f, "../testdata") {
		for line := range bytes.Lines(content) {
			f.Add(bytes.TrimSpace(line), "scripted-secret", "[omitted]", uint(300))
		}
	}
	f.Add(
		[]byte(
			`{"a":"x\u0073ecret-one\" `+strings.Repeat(
				"y",
				200,
			)+`secret-one","b":["secret-one\"",{"id":"secret-one","data":{"id":"secret-one"}}]}`,
		),
		`secret-one"`,
		"secret-one",
		uint(120),
	)
	f.Fuzz(func(t *testing.T, line []byte, one, two string, limit uint) {
		if !json.Valid(line) || len(line) == 0 || line[0] != '{' || !utf8.Valid(line) {
			return
		}
		most := int(limit%4096) + 128
		redactor := redact.New([]string{"ONE_KEY=" + one, "TWO_KEY=" + two}, nil)
		short, wasCut := mirror.Shorten(line, most, redactor)
		if short == nil {
			return // nothing but structure
		}
		if !json.Valid(short) || len(short) > most && wasCut {
			t.Fatalf("%d bytes of %d allowed: %q", len(short), most, short)
		}
		before, after := stringsOf(t, line), stringsOf(t, short)
		if len(before) != len(after) {
			t.Fatalf("%d strings became %d", len(before), len(after))
		}
		for i := range after {
			want := before[i]
			if after[i] == want {
				continue // structural, or clean and short
			}
			clean := redactor.Text(want)
			if m := cut.FindStringSubmatch(after[i]); wasCut && m != nil && strings.HasPrefix(clean, m[1]) {
				sum := sha256.Sum256([]byte(clean))
				if m[2] != strconv.Itoa(len(clean)) || m[3] != hex.EncodeToString(sum[:]) {
					t.Fatalf("%q of %d bytes was cut to %q", clean, len(clean), after[i])
				}
				continue
			}
			if after[i] != clean {
				t.Fatalf("%q became %q, want %q", want, after[i], clean)
			}
		}
	})
}

// stringsOf are the string values of a JSON text, in order.
func stringsOf(t *testing.T, raw []byte) []string {
	t.Helper()
	var all []string
	dec := json.NewDecoder(bytes.NewReader(raw))
	type level struct{ object, key bool }
	stack := []level{{}}
	for {
		tok, err := dec.Token()
		if err != nil {
			return all
		}
		top := &stack[len(stack)-1]
		isKey := top.object && top.key
		if top.object {
			top.key = !top.key
		}
		switch tok := tok.(type) {
		case json.Delim:
			switch tok {
			case '{':
				stack = append(stack, level{object: true, key: true})
			case '[':
				stack = append(stack, level{})
			default:
				stack = stack[:len(stack)-1]
				if top = &stack[len(stack)-1]; top.object && !isKey {
					top.key = true
				}
			}
		case string:
			if !isKey {
				all = append(all, fmt.Sprint(tok))
			}
		}
	}
}
