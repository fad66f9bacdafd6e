package runner

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/redact"
)

// TestWayToResume holds wayToResume to the table in docs/SESSIONS.md: a row for each state of the box's own file, a
// column for each state of the thread.
func TestWayToResume(t *testing.T) {
	// A file of five lines; the thread lacks the ahead last ones, and has behind lines that the file lacks.
	usable := func(torn bool, ahead, behind int) resumeState {
		found := 5 - ahead
		return resumeState{
			File: fileUsable, Dir: dirUsable, Path: "s.jsonl",
			Lines: comparison{Torn: torn, Ahead: ahead, OnThread: found + behind, Found: found},
		}
	}
	with := func(s resumeState, change func(*resumeState)) resumeState { change(&s); return s }
	const lacks = "the thread has 3 lines that the session file does not have"
	const torn = "the session file ends in the middle of a line: s.jsonl"
	files := []struct {
		name  string
		state resumeState
		why   string // where the thread has its session
	}{
		{"whole", usable(false, 0, 0), ""},
		{"ahead: lines that the thread lacks", usable(false, 2, 0), ""},
		{"behind: lacks lines that the thread has", usable(false, 0, 3), lacks},
		{"ahead and behind", usable(false, 2, 3), lacks},
		{"torn last line, the others on the thread", usable(true, 0, 0), torn},
		{"torn last line, and ahead", usable(true, 2, 0), ""},
		{"torn last line, and behind", usable(true, 2, 3), torn},
		{
			"of another directory than `--cwd`",
			with(usable(false, 0, 0), func(s *resumeState) { s.Dir, s.OldCwd, s.Cwd = dirOther, "/old", "/new" }),
			"the session is of /old, and is to continue in /new",
		},
		{
			"of a directory that is gone",
			with(usable(false, 0, 0), func(s *resumeState) { s.Dir, s.OldCwd = dirGone, "/old" }),
			"the session's directory is gone: /old",
		},
		{"no session, or not usable", resumeState{File: fileUnusable, FileErr: errors.New("broken")}, "broken"},
		{"gone", resumeState{File: fileGone, Path: "s.jsonl"}, "the session file is gone: s.jsonl"},
		{"none in this box", resumeState{File: fileUnknown}, "this box has no session of the thread"},
		{
			"any, with `--hydrate`",
			with(usable(false, 0, 0), func(s *resumeState) { s.Rebuild = true }), "a rebuild is asked for",
		},
	}
	threads := []struct {
		name string
		in   func(*resumeState) // what the thread's state changes about the file's
	}{
		{"thread has its session", func(s *resumeState) { s.Thread = threadFilled }},
		{"thread is empty", func(s *resumeState) {
			s.Thread, s.Lines = threadEmpty, comparison{Torn: s.Lines.Torn, Ahead: 5}
		}},
		{"turns of another harness or mirror since", func(s *resumeState) {
			s.Thread, s.Lines.Turns, s.Lines.TurnsFound = threadFilled, 4, 1
		}},
		{"another session since", func(s *resumeState) {
			s.Thread, s.Lines = threadFilled, comparison{Torn: s.Lines.Torn, Ahead: 5, Other: 7}
		}},
		{"thread can't be read for 30 s", func(s *resumeState) {
			s.Thread, s.Lines = threadUnread, comparison{Torn: s.Lines.Torn, Ahead: 5}
		}},
	}
	ways := map[string]string{
		"continue": ResumeContinue, "rebuild": ResumeHydrate, "new": ResumeNone, "fail": resumeFails,
	}
	want := resumeTable(t)
	if len(want) != len(files)+1 {
		t.Errorf("the table has %d rows, want %d", len(want)-1, len(files))
	}
	for _, file := range files {
		for i, th := range threads {
			t.Run(file.name+"/"+th.name, func(t *testing.T) {
				if want["own file"][i] != th.name {
					t.Fatalf("column %d of the table is %q", i, want["own file"][i])
				}
				s := file.state
				th.in(&s)
				way, why := wayToResume(s)
				row := want[file.name]
				if row == nil || way != ways[row[i]] || way == "" {
					t.Errorf("way %s, want %v", way, row)
				}
				if (way == ResumeContinue) != (why == "") {
					t.Errorf("way %s because %q", way, why)
				}
				if i == 0 && why != file.why {
					t.Errorf("because %q, want %q", why, file.why)
				}
				s.Thread = threadRefused
				if way, _ := wayToResume(s); way != resumeFails {
					t.Errorf("refused: way %s", way)
				}
			})
		}
	}
}

// resumeTable returns the cells of the table in docs/SESSIONS.md by the first one of their row.
func resumeTable(t *testing.T) map[string][]string {
	t.Helper()
	doc, err := os.ReadFile("../docs/SESSIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(doc), "| own file |")
	if !found {
		t.Fatal("docs/SESSIONS.md has no table of own files")
	}
	section, _, _ = strings.Cut("| own file |"+section, "\n\n")
	table := map[string][]string{}
	for row := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(row), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if cells[0] != "---" {
			table[cells[0]] = cells[1:]
		}
	}
	return table
}

// compare counts the lines of a file beside those of the thread.
func TestCompare(t *testing.T) {
	const head = `{"type":"session","version":3,"id":"SID","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w"}` + "\n"
	line := func(id string) string {
		return `{"type":"message","id":"` + id + `","parentId":null,"timestamp":"2026-01-01T00:00:00.000Z",` +
			`"message":{"role":"user","content":[{"type":"text","text":"` + id + `"}]}}` + "\n"
	}
	first := strings.Replace(head, "SID", "s1", 1) + line("m1") + line("m2")
	other := strings.Replace(head, "SID", "s2", 1) + line("m9")
	foreign := thread.Entry{
		ID: "f1", TS: "2026-01-01T00:00:00.000Z", Payload: []byte(`{"type":"codex.assistant","text":"from elsewhere"}`),
	}
	for _, tt := range []struct {
		name   string
		thread []string // files that were mirrored, one after the other
		turns  bool     // and a turn of another harness
		file   string
		want   comparison
		posted int // lines
	}{
		{"whole", []string{first}, false, first, comparison{OnThread: 3, Found: 3}, 3},
		{"ahead", []string{first}, false, first + line("m3"), comparison{Ahead: 1, OnThread: 3, Found: 3}, 3},
		{"behind", []string{first + line("m3")}, false, first, comparison{OnThread: 4, Found: 3}, 3},
		{
			"ahead and behind",
			[]string{first + line("m3")},
			false, first + line("m4"),
			comparison{Ahead: 1, OnThread: 4, Found: 3},
			3,
		},
		{"torn", []string{first}, false, first + `{"type":`, comparison{Torn: true, OnThread: 3, Found: 3}, 3},
		{
			"torn and ahead",
			[]string{first},
			false, first + line("m3") + "{",
			comparison{Torn: true, Ahead: 1, OnThread: 3, Found: 3},
			3,
		},
		{"empty thread", nil, false, first, comparison{Ahead: 3}, 0},
		{"another session", []string{first, other}, false, first, comparison{OnThread: 3, Found: 3, Other: 2}, 3},
		{"back to the session", []string{first, other, first}, false, first, comparison{OnThread: 3, Found: 3}, 3},
		{"turns since", []string{first}, true, first, comparison{OnThread: 3, Found: 3, Turns: 1}, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lines, rebuilder := &threadLines{}, &hydrate.Rebuilder{Dialect: session.Pi, TempDir: t.TempDir()}
			defer rebuilder.Close()
			add := func(e thread.Entry) {
				parsed := hydrate.Parse(e, session.Pi)
				lines.add(parsed, session.Pi)
				if err := rebuilder.Add(parsed); err != nil {
					t.Fatal(err)
				}
			}
			for _, file := range tt.thread {
				enc := mirror.Encoder{Namer: mirror.Namer{Dialect: session.Pi}, Redact: &redact.Redactor{}}
				for i, l := range strings.Split(strings.TrimSpace(file), "\n") {
					e, _ := enc.Encode(session.Line{Start: session.Position{Index: i}, Data: []byte(l)})
					add(e)
				}
			}
			if tt.turns {
				add(foreign)
			}
			path := filepath.Join(t.TempDir(), "s.jsonl")
			if err := os.WriteFile(path, []byte(tt.file), 0o600); err != nil {
				t.Fatal(err)
			}
			notes := filepath.Join(t.TempDir(), "notes")
			c, err := lines.compare(path, session.Pi, rebuilder.Converted(), notes)
			if err != nil || c.comparison != tt.want || c.posted.Index != tt.posted || c.info.ID != "s1" ||
				c.cwd != "/w" {
				t.Errorf("got %+v, %v; want %+v", c, err, tt.want)
			}
			// The mirror that continues the file has notes of its lines where the thread has them all.
			if _, err := os.Stat(notes); (err == nil) != (tt.want.Ahead == 0) {
				t.Errorf("notes: %v", err)
			}
			checkFinish(t, path, c.info)
		})
	}
}

// checkFinish finishes a session file, and compares what is known of it then with another reading. So it does after
// somebody else has added a line.
func checkFinish(t *testing.T, path string, info SessionInfo) {
	t.Helper()
	for range 2 {
		if err := info.finish(path, session.Pi); err != nil {
			t.Fatal(err)
		}
		if want, err := ReadSession(path, session.Pi); err != nil || info != want {
			t.Errorf("got %+v, %v; want %+v", info, err, want)
		}
		f, err := session.OpenAppend(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("more\nand more"); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
