package hydrate_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/redact"
)

// A file of version 1 that pi wrote anew in version 3 comes back in version 3: each line once, with the id that pi gave
// it, and a compaction names the first entry that it keeps by its id.
func TestRebuildMigrated(t *testing.T) {
	var before, after []string
	before = append(before, `{"type":"session","id":"s1","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/old"}`)
	after = append(after, strings.TrimSpace(head))
	parent := ""
	for i := range 4 {
		text := fmt.Sprintf(`{"role":"user","content":"turn %d"}`, i)
		before = append(before, `{"type":"message","timestamp":"2026-01-01T00:00:01.500Z","message":`+text+`}`)
		id := fmt.Sprintf("m%d", i)
		after, parent = append(after, message(id, parent, text)), id
	}
	const compaction = `"timestamp":"2026-01-01T00:00:03.000Z","summary":"s","tokensBefore":5`
	before = append(before, `{"type":"compaction","firstKeptEntryIndex":2,`+compaction+`}`)
	after = append(after,
		`{"type":"compaction","id":"c1","parentId":"m3","firstKeptEntryId":"m1",`+compaction+`}`,
		message("a1", "c1", `{"role":"assistant","content":[],"stopReason":"stop"}`))

	enc := mirror.Encoder{Namer: mirror.Namer{Dialect: session.Pi}, Redact: &redact.Redactor{}}
	var entries []thread.Entry
	for round, lines := range [][]string{before, after} {
		if round > 0 {
			enc.Restart()
		}
		for i, line := range lines {
			e, fresh := enc.Encode(session.Line{Start: session.Position{Index: i}, Data: []byte(line)})
			if fresh {
				entries = append(entries, e)
			}
		}
	}
	want := []byte(strings.Join(after, "\n") + "\n")

	got, done := hydrated(t, entries, "")
	sameFile(t, got, want)
	if done.Lines != 7 || done.Turns != 5 || len(done.Lost) != 0 || done.Leaf != "a1" || done.OldCwd != "/old" {
		t.Errorf("got %+v", done)
	}
	got, done = hydrated(t, entries[:len(before)], "")
	sameFile(t, got, []byte(strings.Join(before, "\n")+"\n"))
	if done.Lines != 6 {
		t.Errorf("before the migration: %+v", done)
	}

	// A line that the thread lost in the old format is lost in the new one, and cuts nobody off.
	lost := append([]thread.Entry(nil), entries...)
	lost[2].Payload = json.RawMessage(`{"type":"pi.session","kind":"stub",` +
		`"session":{"id":"s1","entry":null,"parent":null,"index":2},"truncated":true,"bytes":9,"reason":"too bad"}`)
	got, done = hydrated(t, lost, "")
	if len(done.Lost) != 2 || strings.Contains(string(got), "turn 1") {
		t.Errorf("got %+v\n%s", done, got)
	}
	// So is all of it where the old header, or the old file, is not on the thread.
	for _, from := range []int{1, len(before)} {
		r := &hydrate.Rebuilder{Dialect: session.Pi, DefaultCwd: "/here", TempDir: t.TempDir()}
		for _, e := range entries[from:] {
			if err := r.Add(hydrate.Parse(e, session.Pi)); err != nil {
				t.Fatal(err)
			}
		}
		if done, err := r.Plan("", at); err != nil || len(done.Lost) != 5 {
			t.Errorf("from entry %d: %+v, %v", from, done, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}
