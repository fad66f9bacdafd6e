package thread_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/thread"
)

func TestScan(t *testing.T) {
	for _, tt := range []struct {
		payload string
		want    thread.Fields
		err     string
	}{
		{`{"type":"chat"}`, thread.Fields{Type: "chat"}, ""},
		{
			`{"type":"signal.thread.status_changed","runId":"r","harness":"pi","status":"running"}`,
			thread.Fields{Type: "signal.thread.status_changed", RunID: "r", Harness: "pi", Status: "running"},
			"",
		},
		{`{"type":"signal.a.b","runId":null}`, thread.Fields{Type: "signal.a.b"}, ""},
		{
			`{"type":"pi.session","line":{"type":1,"Type":2,"type":3},"message":{"RUNID":1},"other":1,"Other":2}`,
			thread.Fields{Type: "pi.session"},
			"",
		},
		{`{"type":"pi.session","status":7}`, thread.Fields{Type: "pi.session"}, ""},
		{`{"t\u0079pe":"chat"}`, thread.Fields{Type: "chat"}, ""},
		{`{"type":"pi.assistant","reaction":{"id":"x"}}`, thread.Fields{Type: "pi.assistant", Reaction: true}, ""},
		{`[]`, thread.Fields{}, "object"},
		{`{}`, thread.Fields{}, "payload.type"},
		{`{"type":""}`, thread.Fields{}, "payload.type"},
		{`{"type":7}`, thread.Fields{}, "payload.type"},
		{`{"Type":"chat"}`, thread.Fields{}, "want type"},
		{`{"type":"chat","Type":"signal.a.b"}`, thread.Fields{}, "want type"},
		{`{"type":"chat","type":"chat"}`, thread.Fields{}, "once"},
		{`{"type":"chat","t\u0079pe":"signal.a.b"}`, thread.Fields{}, "once"},
		{`{"type":"signal.a.b","runId":"a","RunId":"b"}`, thread.Fields{}, "want runId"},
		{`{"type":"signal.a.b","runId":"a","runid":"b"}`, thread.Fields{}, "want runId"},
		{`{"type":"signal.a.b","\u017ftatus":"failed"}`, thread.Fields{}, "want status"},
		{`{"type":"pi.assistant","message":{},"message":{}}`, thread.Fields{}, "once"},
		{`{"type":"signal.a.b","runId":["a"]}`, thread.Fields{}, "payload.runId"},
		{`{"type":"signal.a.b","status":{}}`, thread.Fields{}, "payload.status"},
		{`{"type":"chat","text":["x"]}`, thread.Fields{}, "payload.text"},
	} {
		got, err := thread.Scan([]byte(tt.payload))
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %+v, %v, want %+v and %q", tt.payload, got, err, tt.want, tt.err)
		}
	}
}

// Every member at the top level of a payload that this package writes or reads is one whose name has to be exact.
func TestScanCoversAllPayloads(t *testing.T) {
	inner := map[string]bool{ // stand inside members
		"Sandbox": true, "Box": true, "Parent": true, "SessionRef": true, "AgentProgress": true,
		"After": true, "AfterPush": true, "AfterSync": true, "Stored": true,
	}
	names := 0
	look := func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		s, ok := spec.Type.(*ast.StructType)
		if !ok || inner[spec.Name.Name] {
			return false
		}
		for _, f := range s.Fields.List {
			if f.Tag == nil {
				continue
			}
			name, _, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
			names++
			_, err := thread.Scan([]byte(`{"` + name + `":"1","` + name + `":"2"}`))
			if err == nil || !strings.Contains(err.Error(), "once") {
				t.Errorf("%s of %s: Scan takes it for a member without a meaning: %v", name, spec.Name.Name, err)
			}
		}
		return false
	}
	for _, name := range []string{"payload.go", "dispatch.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, look)
	}
	if names < 60 {
		t.Errorf("only %d names were found", names)
	}
}

func TestRunOf(t *testing.T) {
	for id, want := range map[string]string{
		"r1.running": "r1", "r1.sandbox": "r1", "r1.started": "r1", "r1.prompt": "r1", "r1.beat.0": "r1",
		"r1.waiting.12": "r1", "r1.refused.1": "r1",
		"r1.end.0": "r1", "r1.orphan.1": "r1", "r1.push.0": "r1", "r1.sync.0": "r1", "r1.setup.3": "r1",
		"run.end.0": "run",
		"":          "", "r1": "", "r1.": "", ".end.0": "", "r1.end": "", "r1.end.": "", "r1.end.x": "",
		"r1.end.0.0": "", "r1.running.0": "", "pi:s.end.0": "",
		"a.b.end.0": "", "run.3": "", "hello.world": "",
	} {
		if got, ok := thread.RunOf(id); got != want || ok != (want != "") {
			t.Errorf("RunOf(%q) = %q, %v, want %q", id, got, ok, want)
		}
	}
	for id, want := range map[string]bool{
		"run.1": true, "run.12": true, "run.": false, "run": false, "run.x": false, "run.1.2": false, "r.1": false,
	} {
		if thread.IsClaim(id) != want {
			t.Errorf("IsClaim(%q) is %v", id, !want)
		}
	}
}

// An entry is measured as a server stores and sends it, and all of it is bounded.
func TestEntrySize(t *testing.T) {
	at := "2026-06-01T12:00:00.000Z"
	for _, e := range []thread.Entry{
		{ID: "a", TS: at, Payload: []byte(`{"type":"chat"}`)},
		{
			ID: strings.Repeat("x", 200), TS: "2026-06-01T12:00:00.123456789Z", AuthorID: strings.Repeat("\u2028", 85),
			Payload: []byte(`{"type":"chat","text":"é"}`),
		},
	} {
		sent := strings.TrimSuffix(string(e.AppendJSON(nil)), "}") + `,"at":"` + at + `"}`
		if e.Size() != len(sent) {
			t.Errorf("size %d of %d bytes: %s", e.Size(), len(sent), sent)
		}
		if err := e.Check(); err != nil {
			t.Error(err)
		}
		// An entry that is small enough for the mirror is small enough for every writer.
		fill := thread.MaxEntry - 1<<10 - len(e.Payload) - len(`,"x":""`)
		e.Payload = []byte(strings.TrimSuffix(string(e.Payload), "}") + `,"x":"` + strings.Repeat("x", fill) + `"}`)
		if err := e.Check(); err != nil {
			t.Error(err)
		}
		e.Payload = append(e.Payload, make([]byte, 2<<10)...)
		var size *thread.SizeError
		if err := e.Check(); !errors.As(err, &size) || size.Size != e.Size() {
			t.Errorf("%d bytes: %v", e.Size(), err)
		}
	}
	for name, e := range map[string]thread.Entry{
		"authorId": {ID: "a", TS: at, AuthorID: strings.Repeat("x", 257), Payload: []byte(`{"type":"chat"}`)},
		"control":  {ID: "a", TS: at, AuthorID: "a\nb", Payload: []byte(`{"type":"chat"}`)},
		"ts": {
			ID: "a", TS: "2026-06-01T12:00:00." + strings.Repeat("0", 1000) + "Z",
			Payload: []byte(`{"type":"chat"}`),
		},
	} {
		if err := e.Check(); err == nil ||
			!strings.Contains(err.Error(), strings.Replace(name, "control", "authorId", 1)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParseEntryIsExact(t *testing.T) {
	deep := func(n int) string {
		return `{"type":"chat","x":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`
	}
	entry := func(payload string) string {
		return `{"id":"a","ts":"2026-06-01T12:00:00.000Z","payload":` + payload + `}`
	}
	for _, tt := range []struct{ name, raw, want string }{
		{"as deep as may be", entry(deep(thread.MaxDepth - 2)), ""},
		{"too deep", entry(deep(thread.MaxDepth - 1)), "nested"},
		{"very deep", entry(deep(9000)), "nested"},
		{"brackets in a string", entry(`{"type":"chat","text":"` + strings.Repeat("[", 9000) + `"}`), ""},
		{"invalid UTF-8", entry("{\"type\":\"chat\",\"text\":\"\xff\"}"), "UTF-8"},
		{"invalid UTF-8 in a key", entry("{\"type\":\"chat\",\"\xc3\":1}"), "UTF-8"},
		{"authorId null", `{"authorId":null,` + entry(`{"type":"chat"}`)[1:], ""},
		{"id null", `{"id":null,"ts":"2026-06-01T12:00:00.000Z","payload":{"type":"chat"}}`, "id"},
		{"ID", strings.Replace(entry(`{"type":"chat"}`), `"id"`, `"ID"`, 1), "ID"},
		{"id twice", `{"id":"b",` + entry(`{"type":"chat"}`)[1:], "twice"},
		{"payload twice", `{"payload":{"type":"chat"},` + entry(`{"type":"chat"}`)[1:], "twice"},
		{"Payload", `{"Payload":{"type":"chat"},` + entry(`{"type":"chat"}`)[1:], "Payload"},
	} {
		for _, array := range []bool{false, true} {
			var err error
			if array {
				_, err = thread.ParseEntries([]byte("[" + tt.raw + "]"))
			} else {
				_, err = thread.ParseEntry([]byte(tt.raw))
			}
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s, array %v: %v, want %q", tt.name, array, err, tt.want)
			}
		}
	}
	if e, err := thread.ParseEntry([]byte(`{"id":"` + strings.Repeat("x", 1000) + `"}`)); err == nil || e.ID != "" {
		t.Errorf("an id that can be none is %d bytes long, %v", len(e.ID), err)
	}
}

// A log can hold entries of another time, which are read nevertheless.
func TestParseStored(t *testing.T) {
	old := `{"id":"a","ts":"2026-06-01T12:00:00.000Z","authorId":"` + strings.Repeat(
		"x",
		1000,
	) + `","payload":{"type":"chat","Type":1,"x":` +
		strings.Repeat(
			"[",
			600,
		) + strings.Repeat(
		"]",
		600,
	) + `}}`
	if _, err := thread.ParseEntry([]byte(old)); err == nil {
		t.Error("it can be posted")
	}
	if e, err := thread.ParseStored([]byte(old)); err != nil || e.ID != "a" || len(e.AuthorID) != 1000 {
		t.Errorf("%v, %v", e.ID, err)
	}
}
