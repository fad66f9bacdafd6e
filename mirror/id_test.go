package mirror_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/redact"
)

// namesOf are the ids of a file's lines.
func namesOf(t *testing.T, d session.Dialect, known *mirror.Known, lines [][]byte) (names []string) {
	t.Helper()
	n := mirror.Namer{Dialect: d, Session: "s1", Known: known}
	for i, line := range lines {
		names = append(names, n.Name(session.Line{Start: session.Position{Index: i}, Data: line}, d.Decode(line)).ID)
	}
	return names
}

// A rebuilt file's lines have the ids that they had, whatever bytes a server gives their JSON back in.
func TestIDsOfRebuiltLines(t *testing.T) {
	sorted := func(b []byte) []byte {
		var v any
		if err := json.Unmarshal(b, &v); err != nil {
			t.Fatal(err)
		}
		return thread.Marshal(v)
	}
	spaced := func(b []byte) []byte {
		var out bytes.Buffer
		if err := json.Indent(&out, sorted(b), "", "  "); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	lost := func(b []byte) []byte { // the third line is a stub
		if bytes.Contains(b, []byte(`"index":2}`)) {
			return []byte(`{"type":"x.session","kind":"stub","session":{"id":"s1","entry":null,"index":2}}`)
		}
		return b
	}
	for _, d := range session.Harnesses() {
		folder := map[string]string{"pi": "pi", "codex": "codex", "claude": "claude-code"}[d.Prefix]
		files, err := filepath.Glob("../testdata/sessions/" + folder + "/*/session.jsonl")
		if err != nil || len(files) == 0 {
			t.Fatalf("no sessions of %s: %v", d.Prefix, err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			lines := bytes.Split(bytes.TrimSuffix(content, []byte("\n")), []byte("\n"))
			want := namesOf(t, d, nil, lines)
			for name, change := range map[string]func([]byte) []byte{
				"as it was": func(b []byte) []byte { return b }, "sorted": sorted, "spaced": spaced,
				"a line lost": lost,
			} {
				known := &mirror.Known{}
				enc := mirror.Encoder{Namer: mirror.Namer{Dialect: d, Session: "s1"}, Redact: &redact.Redactor{}}
				var rebuilt [][]byte
				var wanted []string
				for i, line := range lines {
					e, _ := enc.Encode(session.Line{Start: session.Position{Index: i}, Data: line})
					e.Payload = change(e.Payload)
					parsed := hydrate.Parse(e, d)
					known.Add(e.ID, parsed.Fields.Session, parsed.Line, d)
					if parsed.Line != nil {
						rebuilt, wanted = append(rebuilt, parsed.Line), append(wanted, e.ID)
					}
				}
				if !slices.Equal(namesOf(t, d, known, lines), want) {
					t.Errorf("%s, %s: the file itself has other ids now", file, name)
				}
				got := namesOf(t, d, known, rebuilt)
				if name == "a line lost" { // equal lines may have changed places
					slices.Sort(got)
					slices.Sort(wanted)
				}
				if !slices.Equal(got, wanted) {
					t.Errorf("%s, %s:\ngot  %q\nwant %q", file, name, got, wanted)
				}
			}
		}
	}
}

// Lines with one id have entries of their own, also where they are equal.
func TestLinesWithOneID(t *testing.T) {
	lines := [][]byte{}
	for _, text := range []string{"a", "b", "b", "a", "b"} {
		lines = append(lines, []byte(`{"type":"message","id":"x","parentId":null,`+
			`"timestamp":"2026-01-01T00:00:00.000Z","message":{"role":"user","content":"`+text+`"}}`))
	}
	names := namesOf(t, session.Pi, nil, lines)
	seen := map[string]bool{}
	for _, id := range names {
		if seen[id] || !thread.ValidID(id) {
			t.Errorf("%s is not an id of its own", id)
		}
		seen[id] = true
	}
	if names[0] != "pi:s1:x" || !strings.HasPrefix(names[1], "pi:s1:x.") || names[2] != names[1]+".2" {
		t.Errorf("got %q", names)
	}
}
