package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// aLine is a line of a random session: ids come again, and so do whole lines.
func aLine(rng *rand.Rand, d session.Dialect, all [][]byte) []byte {
	if rng.IntN(4) == 0 {
		return all[rng.IntN(len(all))]
	}
	at := fmt.Sprintf("2026-01-01T00:00:%02d.000Z", rng.IntN(60))
	id, call := fmt.Sprintf("e%d", rng.IntN(20)), fmt.Sprintf("c%d", rng.IntN(6))
	text := fmt.Sprint(rng.IntN(3))
	if rng.IntN(8) == 0 {
		return fmt.Appendf(nil, "no JSON %s", text)
	}
	var forms []string
	switch d.Prefix {
	case "pi":
		forms = []string{
			message(id, "", `{"role":"user","content":"TEXT"}`),
			message(
				id,
				"",
				`{"role":"assistant","content":[{"type":"toolCall","id":"CALL","name":"tTEXT","arguments":{}}],`+
					`"provider":"p","model":"mTEXT","usage":{"input":1},"stopReason":"toolUse"}`,
			),
			message(id, "", `{"role":"toolResult","toolCallId":"CALL","content":[],"isError":false}`),
			`{"type":"model_change","id":"ID","timestamp":"AT","provider":"q","modelId":"nTEXT"}`,
			`{"type":"session","version":3,"id":"sTEXT","timestamp":"AT","cwd":"/w"}`,
		}
	case "codex":
		item := `{"timestamp":"AT","type":"response_item","payload":`
		forms = []string{
			`{"timestamp":"AT","type":"turn_context","payload":{"cwd":"/w","model":"mTEXT"}}`,
			item + `{"type":"message","role":"user","content":[{"type":"input_text","text":"TEXT"}]}}`,
			item + `{"type":"message","role":"assistant","content":[{"type":"output_text","text":"TEXT"}]}}`,
			item + `{"type":"function_call","name":"tTEXT","arguments":"{}","call_id":"CALL"}}`,
			item + `{"type":"function_call_output","call_id":"CALL","output":"TEXT"}}`,
		}
	default:
		line := `"uuid":"ID","sessionId":"s0","timestamp":"AT","message":`
		forms = []string{
			`{"type":"user",` + line + `{"role":"user","content":"TEXT"}}`,
			`{"type":"assistant",` + line + `{"id":"mTEXT","role":"assistant","model":"m","content":[` +
				`{"type":"tool_use","id":"CALL","name":"tTEXT","input":{}}],"usage":{"input_tokens":1}}}`,
			`{"type":"user",` + line + `{"role":"user","content":[` +
				`{"type":"tool_result","tool_use_id":"CALL","content":"TEXT"}]}}`,
			`{"type":"summary","summary":"TEXT"}`,
		}
	}
	fill := strings.NewReplacer("AT", at, "ID", id, "CALL", call, "TEXT", text)
	return []byte(fill.Replace(forms[rng.IntN(len(forms))]))
}

var errKilled = errors.New("killed")

// A session whose mirrors are killed, with their last post or right after it, has the entries that one pass gives:
// with notes that are whole, torn, garbled, of another version or gone, and with whatever cursor.
func TestKilledMirrors(t *testing.T) {
	for seed := range uint64(150) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel() // they wait for the disk
			killedMirrors(t, seed)
		})
	}
}

// killedMirrors plays the schedule of a seed.
func killedMirrors(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	d := session.Harnesses()[seed%3]
	dir := t.TempDir()
	path, notes := filepath.Join(dir, "s.jsonl"), filepath.Join(dir, "notes")
	newOne := func(path string, appendEntries func([]thread.Entry) error) *mirror.Mirror {
		e := newEncoder()
		e.Dialect, e.Prompt, e.RunFrom = d, "r1.prompt", 3
		return &mirror.Mirror{
			Encoder: *e, Path: path, Log: slog.New(slog.DiscardHandler),
			Append: func(_ context.Context, entries []thread.Entry) error { return appendEntries(entries) },
		}
	}
	var got []thread.Entry
	there := map[string]thread.Entry{}
	content := [][]byte{[]byte(header)}
	cursors := []session.Position{{}}
	var file bytes.Buffer
	file.WriteString(header + "\n")
	for range 2 + rng.IntN(8) {
		for range rng.IntN(12) {
			line := aLine(rng, d, content)
			content = append(content, line)
			file.Write(append(line, '\n'))
		}
		if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil { // the same file, with more in it
			t.Fatal(err)
		}
		dies := rng.IntN(3) == 0
		m := newOne(path, func(entries []thread.Entry) error {
			for _, e := range entries {
				if e.TS > "2026-11" {
					e.TS = ""
				}
				was, known := there[e.ID]
				if !known {
					there[e.ID], got = e, append(got, e)
				} else if !reflect.DeepEqual(was, e) {
					t.Fatalf("seed %d: posted again as something else: %s", seed, cmp.Diff(was, e))
				}
			}
			if dies {
				return errKilled
			}
			return nil
		})
		m.Notes = notes
		m.From = cursors[max(0, len(cursors)-1-rng.IntN(3))]
		m.Saved = func(p session.Position) error { cursors = append(cursors, p); return nil }
		if err := m.Sync(t.Context()); err != nil && !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		_ = m.Close()
		if b, err := os.ReadFile(notes); err == nil && len(b) > 0 {
			switch rng.IntN(6) {
			case 0:
				b = b[:rng.IntN(len(b))]
			case 1:
				b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
			case 2:
				b = slices.Concat(b, b[len(b)/2:]) // of another writer
			}
			if err := os.WriteFile(notes, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	last := newOne(path, func(entries []thread.Entry) error {
		for _, e := range entries {
			if _, known := there[e.ID]; !known {
				got = append(got, e)
			}
		}
		return nil
	})
	last.Notes, last.From = notes, cursors[len(cursors)-1]
	var want []thread.Entry
	whole := newOne(path, func(entries []thread.Entry) error { want = append(want, entries...); return nil })
	for _, m := range []*mirror.Mirror{last, whole} {
		if err := m.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = m.Close()
	}
	for _, all := range [][]thread.Entry{got, want} {
		for i := range all {
			if all[i].TS > "2026-11" { // of a line without a time, before any with one
				all[i].TS = ""
			}
		}
	}
	if !reflect.DeepEqual(want, got) {
		t.Fatalf("seed %d, %s: %s", seed, d.Prefix, cmp.Diff(want, got))
	}
}

// A mirror with notes reads no line that is posted; one whose session file has become another reads all of it.
func TestNotesBeginAtTheCursor(t *testing.T) {
	const known = 5000
	content := lines(known)
	again := bytes.SplitAfter(content, []byte("\n"))[7]
	for _, c := range []struct {
		name   string
		change func(t *testing.T, path string)
		posted int // lines
	}{
		{"as it was", func(*testing.T, string) {}, 2},
		{"its beginning can't be read any more", func(t *testing.T, path string) {
			b := slices.Concat(bytes.Repeat([]byte("x"), len(content)-200), content[len(content)-200:])
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}, 2},
		{"another file", func(t *testing.T, path string) {
			if err := os.WriteFile(path+".new", content, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
		}, known + 2},
		{"other bytes before the cursor", func(t *testing.T, path string) {
			b := bytes.Clone(content)
			b[len(b)-3] = ' '
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}, known + 2},
		{"a shorter file", func(t *testing.T, path string) {
			if err := os.WriteFile(path, content[:len(content)/2+1], 0o600); err != nil {
				t.Fatal(err)
			}
		}, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			path, notes := writeFile(t, content), filepath.Join(t.TempDir(), "notes")
			var got []thread.Entry
			newOne := func() *mirror.Mirror {
				return &mirror.Mirror{
					Encoder: *newEncoder(), Path: path, Notes: notes, Log: slog.New(slog.DiscardHandler),
					Append: func(_ context.Context, entries []thread.Entry) error {
						got = append(got, entries...)
						return nil
					},
				}
			}
			first := newOne()
			sync(t, first)
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			c.change(t, path)
			got = nil
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				t.Fatal(err)
			}
			line := message("new", "", `{"role":"user","content":"new"}`)
			if _, err := f.WriteString(string(again) + line + "\n"); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			second := newOne()
			sync(t, second)
			defer second.Close()
			if c.posted >= 0 && len(got) != c.posted {
				t.Fatalf("%d lines posted, want %d", len(got), c.posted)
			}
			if got[len(got)-1].ID != "pi:s1:new" {
				t.Errorf("the last is %s", got[len(got)-1].ID)
			}
			if c.posted == 2 && got[0].ID == "pi:s1:e7" {
				t.Error("a line that came again has its first id")
			}
			if st, err := os.Stat(notes); err != nil || st.Size() > known*16 {
				t.Errorf("the notes have %v bytes (%v)", st.Size(), err)
			}
		})
	}
}
