package hydrate_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/internal/test/recorded"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// at is when files are rebuilt.
var at = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// hydrated returns the file that is rebuilt from entries, and its report.
func hydrated(t testing.TB, entries []thread.Entry, cwd string) ([]byte, hydrate.Report) {
	t.Helper()
	return hydratedAs(t, session.Pi, entries, cwd)
}

func hydratedAs(t testing.TB, d session.Dialect, entries []thread.Entry, cwd string) ([]byte, hydrate.Report) {
	t.Helper()
	r := &hydrate.Rebuilder{Dialect: d, Cwd: cwd, DefaultCwd: "/here", NextPrompt: "next.prompt", TempDir: t.TempDir()}
	defer r.Close()
	for _, e := range entries {
		if err := r.Add(hydrate.Parse(e, d)); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "out", "s.jsonl")
	plan, err := r.Plan("made-1", at)
	if err != nil {
		t.Fatal(err)
	}
	done, err := r.Write(path, "made-1", at)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(plan, done); diff != "" {
		t.Errorf("-planned +written:\n%s", diff)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	end := session.Position{Offset: int64(len(b)), Index: bytes.Count(b, []byte("\n"))}
	if done.End != end || !done.Known {
		t.Errorf("the file ends at %+v; the report is %+v", end, done)
	}
	ends, lines := bytes.HasSuffix(b, []byte("\n")), bytes.Count(b, []byte("\n"))
	if st.Mode().Perm() != 0o600 || st.Size() != done.Size || !ends || lines != done.Lines {
		t.Errorf("the file is %v, with %d bytes and %d lines; the report is %+v", st.Mode(), st.Size(), lines, done)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	return b, done
}

// sameFile checks that two files are equal line by line, as JSON where they are JSON.
func sameFile(t testing.TB, got, want []byte) {
	t.Helper()
	g, w := bytes.Split(got, []byte("\n")), bytes.Split(want, []byte("\n"))
	if len(g) != len(w) {
		t.Fatalf("%d lines, want %d:\n%.1000s", len(g), len(w), got)
	}
	for i := range w {
		if !bytes.Equal(g[i], w[i]) && !sameJSON(g[i], w[i]) {
			t.Errorf("line %d:\ngot  %.400s\nwant %.400s", i, g[i], w[i])
		}
	}
}

// Every recorded session comes back from a thread, and mirroring the rebuilt file adds nothing.
func TestRebuildRecordings(t *testing.T) {
	for name, content := range recorded.Sessions(t, "../testdata") {
		t.Run(name, func(t *testing.T) {
			d := recorded.Dialect(t, name)
			server := fakethread.New(t, nil)
			ship(t, d, content, server)
			got, done := hydratedAs(t, d, server.Entries(), "")
			sameFile(t, got, content)
			if len(done.Lost) != 0 || done.Converted != 0 || done.Cut != 0 {
				t.Errorf("got %+v", done)
			}
			n := len(server.Entries())
			ship(t, d, got, server)
			if now := len(server.Entries()); now != n {
				t.Errorf("mirroring the rebuilt file adds %d entries", now-n)
			}
		})
	}
}

const head = `{"type":"session","version":3,"id":"s1","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/old"}` + "\n"

// All kinds of lines of pi's tree come back, with the new box's directory.
func TestRebuildTree(t *testing.T) {
	content := head +
		`{"type":"session_info","id":"i1","parentId":null,"timestamp":"2026-01-01T00:00:00.500Z",` +
		`"name":"a name"}` + "\n" +
		message("u1", "i1", `{"role":"user","content":"one"}`) + "\n" +
		message("a1", "u1", `{"role":"assistant","content":[{"type":"thinking","thinking":"hm",`+
			`"thinkingSignature":"sig"},{"type":"text","text":"x"}],"usage":{"input":1},`+
			`"stopReason":"stop"}`) + "\n" +
		message("u2", "a1", `{"role":"user","content":"two"}`) + "\n" +
		message("a2", "u2", `{"role":"assistant","content":[],"stopReason":"aborted"}`) + "\n" +
		message("u3", "a1", `{"role":"user","content":[{"type":"image","data":"AAAA",`+
			`"mimeType":"image/png"}]}`) + "\n" + // another branch
		`{"type":"label","id":"l1","parentId":"u3","timestamp":"2026-01-01T00:00:02.000Z","targetId":"a1",` +
		`"label":"here"}` + "\n" +
		`{"type":"branch_summary","id":"b1","parentId":"l1","timestamp":"2026-01-01T00:00:02.000Z",` +
		`"fromId":"a2","summary":"it was given up"}` + "\n" +
		`{"type":"compaction","id":"c1","parentId":"b1","timestamp":"2026-01-01T00:00:03.000Z",` +
		`"summary":"s","firstKeptEntryId":"u3","tokensBefore":5}` + "\n" +
		`{"type":"custom","customType":"x","data":{"deep":[1,2,{"a":null}]},"id":"x1","parentId":"c1",` +
		`"timestamp":"2026-01-01T00:00:03.000Z"}` + "\n" +
		`{"type":"of a later version","id":"y1","parentId":"x1","more":true}` + "\n" +
		`{"id":"z1"}` + "\n" + "no JSON\n" + `"\ud800"` + "\n" + "\n"
	server := fakethread.New(t, nil)
	ship(t, session.Pi, []byte(content), server)
	got, done := hydrated(t, server.Entries(), "/new")
	sameFile(t, got, []byte(strings.Replace(content, `"/old"`, `"/new"`, 1)))
	if done.OldCwd != "/old" || done.Cwd != "/new" || done.Branches != 1 || done.Turns != 5 ||
		done.Session != "s1" || done.Leaf != "z1" {
		t.Errorf("got %+v", done)
	}
}

// A line that the thread doesn't hold is reported, and the lines after it keep their past.
func TestRebuildLost(t *testing.T) {
	content := head + message("u1", "", `{"role":"user",`+
		`"content":"one"}`) + "\n" + message("a1", "u1", `{"role":"assistant","content":[],`+
		`"stopReason":"stop"}`) + "\n" +
		message("u2", "a1", `{"role":"user","content":"two"}`) + "\n"
	server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
		for _, e := range c.Entries {
			if e.ID == "pi:s1:a1" && !strings.Contains(string(e.Payload), `"kind":"stub"`) {
				return fakethread.Fault{Status: 400, Body: `{"error":{"code":"bad","message":"no",` +
					`"entries":[{"index":0,"id":"pi:s1:a1","reason":"I say so"}]}}`}
			}
		}
		return fakethread.Fault{}
	})
	ship(t, session.Pi, []byte(content), server)
	got, done := hydrated(t, server.Entries(), "")
	if len(done.Lost) != 1 || !strings.Contains(done.Lost[0], "line 2") || !strings.Contains(done.Lost[0], "I say so") {
		t.Errorf("got %+v", done)
	}
	chained(t, got, 3)

	// One of which not even the id was read.
	var entries []thread.Entry
	for _, e := range server.Entries() {
		if e.ID == "pi:s1:a1" {
			e.ID, e.Payload = "pi:s1:2.0123456789ab", []byte(`{"type":"pi.session","kind":"long",`+
				`"session":{"id":"s1","entry":null,"parent":null,"index":2},"truncated":true,"bytes":99}`)
		}
		entries = append(entries, e)
	}
	got, done = hydrated(t, entries, "")
	if len(done.Lost) != 1 || !strings.Contains(done.Lost[0], "longer than what is read") {
		t.Errorf("got %+v", done)
	}
	chained(t, got, 3)
}

// chained checks that the parents of the last line lead to the root over n lines.
func chained(t *testing.T, file []byte, n int) {
	t.Helper()
	parents, leaf := map[string]string{}, ""
	for line := range bytes.Lines(file) {
		if e := session.Pi.Decode(bytes.TrimSpace(line)); e.Kind != session.Header && e.ID != "" {
			parents[e.ID], leaf = e.Parent, e.ID
		}
	}
	steps := 0
	for id := leaf; id != ""; id = parents[id] {
		if _, ok := parents[id]; !ok {
			t.Errorf("the way ends at %s:\n%s", id, file)
			return
		}
		steps++
	}
	if steps != n {
		t.Errorf("%d lines from the leaf to the root, want %d:\n%s", steps, n, file)
	}
}

// foreign returns an entry as another mirror writes it.
func foreign(n int, payload string) thread.Entry {
	at := fmt.Sprintf("2026-01-01T00:00:%02d.000Z", n)
	return thread.Entry{ID: fmt.Sprintf("other-%d", n), TS: at, Payload: json.RawMessage(payload)}
}

// A thread without a line of the file becomes a conversation in a row, and lines that our mirror adds continue it.
func TestRebuildForeign(t *testing.T) {
	entries := []thread.Entry{
		foreign(1, `{"type":"chat","text":"write a file"}`),
		foreign(2, `{"type":"pi.assistant","stopReason":"toolUse","message":{"role":"assistant",`+
			`"content":[{"type":"text","text":"ok"},{"type":"toolCall","id":"c1","name":"bash","arguments":{}}]}}`),
		foreign(3, `{"type":"pi.tool_result","toolCallId":"c1","toolName":"bash","isError":false,`+
			`"message":{"role":"toolResult","content":"done"}}`),
		foreign(4, `{"type":"pi.tool_result","toolCallId":"nobody's","text":"?"}`),
		foreign(5, `{"type":"chat","text":"I am another agent"}`),
		foreign(6, `{"type":"chat","text":"and I a person"}`),
		foreign(7, `{"type":"pi.assistant","text":"hello both"}`),
		foreign(8, `{"type":"pi.assistant","message":{"role":"assistant","content":"as a string"},`+
			`"usage":{"input":3}}`),
		foreign(9, `{"type":"signal.dispatch.heartbeat","runId":"r0"}`),
		foreign(9, `{"type":"pi.assistant","reaction":{"id":"x_1"},"message":{"role":"assistant",`+
			`"content":[{"type":"text","text":"a bot's reply"}]}}`),
		foreign(10, `{"type":"chat","text":"not answered yet"}`),
		{ID: "next.prompt", TS: "2026-01-01T00:00:11.000Z", Payload: json.RawMessage(`{"type":"chat",` +
			`"text":"the next task"}`)},
	}
	got, done := hydrated(t, entries, "")
	if done.Converted != 7 || done.Turns != 7 || done.Unrelated != 1 || len(done.Lost) != 1 ||
		done.Session != "made-1" || done.Cwd != "/here" {
		t.Errorf("got %+v", done)
	}
	chained(t, got, 7)
	for line := range bytes.Lines(got) {
		var l struct {
			Type    string
			Message struct {
				Role    string
				Content any
				Usage   map[string]any
			}
		}
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatal(err)
		}
		if _, list := l.Message.Content.([]any); l.Type == "message" && !list {
			t.Errorf("the content is no list: %s", line)
		}
		if _, has := l.Message.Usage["totalTokens"]; l.Message.Role == "assistant" && !has {
			t.Errorf("a reply without its usage: %s", line)
		}
	}
	text := string(got)
	if strings.Contains(text, "the next task") || strings.Contains(text, "not answered yet") ||
		strings.Contains(text, "a bot's reply") ||
		strings.Contains(text, "nobody's") {
		t.Errorf("got %s", text)
	}
	again, _ := hydrated(t, entries, "")
	if !bytes.Equal(got, again) {
		t.Error("the same thread gives another file")
	}

	// Resumed from that file, the mirror posts what is new, and nothing else.
	server := fakethread.New(t, nil)
	server.Gaps()
	from := session.Position{Index: done.Lines, Offset: done.Size}
	longer := append(got, message("n1", done.Leaf, `{"role":"user","content":"new"}`)+"\n"...)
	shipFrom(t, session.Pi, done.Session, from, longer, server)
	added := server.Entries()
	if len(added) != 1 || added[0].ID != "pi:made-1:n1" {
		t.Fatalf("the mirror added %d entries", len(added))
	}
	more, done := hydrated(t, append(entries[:10:10], added...), "")
	if done.Session != "made-1" || done.Converted != 7 { // the last chat has no answer, so it was aside
		t.Errorf("got %+v", done)
	}
	_ = more
}

// Of several sessions the one of the last line is rebuilt, without the lines of the others.
func TestRebuildLastSession(t *testing.T) {
	server := fakethread.New(t, nil)
	ship(t, session.Pi, []byte(head+message("u1", "", `{"role":"user","content":"one"}`)+"\n"), server)
	second := strings.Replace(head, `"s1"`, `"s2"`, 1) + message("u9", "", `{"role":"user","content":"nine"}`) + "\n"
	ship(t, session.Pi, []byte(second), server)
	got, _ := hydrated(t, server.Entries(), "")
	sameFile(t, got, []byte(second))

	// Of many sessions only some are kept at a time.
	for i := range 100 {
		s := strings.Replace(head, `"s1"`, fmt.Sprintf(`"many-%d"`, i), 1)
		ship(t, session.Pi, []byte(s), server)
	}
	if _, done := hydrated(t, server.Entries(), ""); done.Session != "many-99" || done.Lines != 1 {
		t.Errorf("got %+v", done)
	}

	r := &hydrate.Rebuilder{Dialect: session.Pi, TempDir: t.TempDir()}
	if _, err := r.Plan("x", time.Now()); err != hydrate.ErrNoSession {
		t.Errorf("of an empty thread: %v", err)
	}
}
