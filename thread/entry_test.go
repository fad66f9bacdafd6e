package thread_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/thread"
)

const good = `{"id":"a:1.b~-_","ts":"2026-06-01T12:00:00.000Z","authorId":"me","payload":{"type":"chat","text":"hi <b> & \u00e9"}}`

func TestParseEntry(t *testing.T) {
	e, err := thread.ParseEntry([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(e.AppendJSON(nil)); got != good {
		t.Errorf("written again:\ngot  %s\nwant %s", got, good)
	}
	// What was read from a server can be posted again.
	e, err = thread.ParseEntry([]byte(strings.TrimSuffix(good, "}") + `,"at":"2026-06-01T12:00:01.000Z"}`))
	if err != nil || e.At != "" {
		t.Errorf("got %+v, %v", e, err)
	}
}

func TestParseEntryRefuses(t *testing.T) {
	for _, tt := range []struct{ name, old, new, want string }{
		{"no id", `"id":"a:1.b~-_",`, ``, "id"},
		{"empty id", `a:1.b~-_`, ``, "id"},
		{"long id", `a:1.b~-_`, strings.Repeat("x", 201), "id"},
		{"odd id", `a:1.b~-_`, `a/b`, "id"},
		{"id with a newline", `a:1.b~-_`, `a\n`, "id"},
		{"no ts", `"ts":"2026-06-01T12:00:00.000Z",`, ``, "ts"},
		{"ts with an offset", `00.000Z`, `00.000+02:00`, "ts"},
		{"ts in words", `2026-06-01T12:00:00.000Z`, `yesterday`, "ts"},
		{"no payload", `,"payload":{"type":"chat","text":"hi <b> & \u00e9"}`, ``, "payload"},
		{"payload is text", `{"type":"chat","text":"hi <b> & \u00e9"}`, `"x"`, "payload"},
		{"no type", `"type":"chat",`, ``, "payload.type"},
		{"type is a number", `"chat"`, `7`, "payload.type"},
		{"unknown type", `"chat"`, `"nonsense"`, "payload.type"},
		{"prefix in capitals", `"chat"`, `"Pi.assistant"`, "payload.type"},
		{"no prefix", `"chat"`, `".assistant"`, "payload.type"},
		{"prefix alone", `"chat"`, `"pi."`, "payload.type"},
		{"signal without what", `"chat"`, `"signal.thread"`, "payload.type"},
		{"text is a number", `"hi <b> & \u00e9"`, `7`, "payload.text"},
		{"a member that would be lost", `"authorId"`, `"author"`, "author"},
		{"two values", good, good + good, "more than one"},
		{"no JSON", good, `{`, "not an entry"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bad := strings.Replace(good, tt.old, tt.new, 1)
			if bad == good {
				t.Fatal("the test changes nothing")
			}
			if _, err := thread.ParseEntry([]byte(bad)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error about %q", err, tt.want)
			}
		})
	}
}

func TestBaseURL(t *testing.T) {
	for url, want := range map[string]string{
		"http://h:1":             "http://h:1/api/stream",
		"http://h:1/":            "http://h:1/api/stream",
		"https://h/api/stream":   "https://h/api/stream",
		"https://h/api/stream/":  "https://h/api/stream",
		"https://h/fn/stream-pr": "https://h/fn/stream-pr/api/stream",
	} {
		if got := thread.BaseURL(url); got != want {
			t.Errorf("BaseURL(%q) = %q, want %q", url, got, want)
		}
	}
}

// A Line writes itself as json.Marshal would.
func TestLineAppendJSON(t *testing.T) {
	text, yes, odd := "a \"b\" \u2028\n<&>", true, "é"
	for _, l := range []thread.Line{
		{Type: "chat", Text: &text, Message: json.RawMessage(`{"role":"user"}`), Session: &thread.SessionRef{ID: "s", Index: 3}},
		{Type: "pi.tool_result", ToolCallID: "c", ToolName: odd, IsError: &yes, Session: &thread.SessionRef{ID: odd, Entry: &text, Parent: &odd, Index: 70000}},
		{Type: "pi.assistant", StopReason: "stop", Provider: "p", Model: "m", Usage: json.RawMessage(`{"a":1}`)},
		{Type: "pi.session", Kind: "stub", Chat: "x", Chats: []string{"y", odd}, Supersedes: "y", Encoding: "base64", Line: json.RawMessage(`"AA=="`), Truncated: true, Bytes: 1 << 40, SHA256: "00", Reason: text},
		{},
	} {
		if got, want := string(l.AppendJSON(nil)), string(thread.Marshal(l)); got != want {
			t.Errorf("\ngot  %s\nwant %s", got, want)
		}
	}
}

// ParseLine reads what AppendJSON wrote, all of it, and finds nothing in payloads that are no lines.
func TestParseLine(t *testing.T) {
	text, yes, odd := "a \"b\" \u2028\n<&>", true, "é"
	want := thread.Line{
		Type: "pi.session", Kind: "migrated", Chat: "c", Chats: []string{odd, "d"}, Supersedes: "w", Text: &text, ToolCallID: "tc", ToolName: odd,
		IsError:    &yes,
		StopReason: "stop", Provider: "p", Model: "m", Usage: json.RawMessage(`{"a":1}`), Message: json.RawMessage(`{"b":[]}`),
		Session: &thread.SessionRef{
			ID:     "s",
			Entry:  &text,
			Parent: &odd,
			Index:  7,
		}, SubagentOf: "root", Encoding: "base64",
		Line: json.RawMessage(`"AA=="`), Truncated: true, Bytes: 1 << 40, SHA256: "00", Reason: "r",
		Reaction: "x_1",
	}
	for i := range reflect.TypeFor[thread.Line]().NumField() {
		if reflect.ValueOf(want).Field(i).IsZero() {
			t.Fatalf("%s is not tested", reflect.TypeFor[thread.Line]().Field(i).Name)
		}
	}
	payload := append(bytes.TrimSuffix(want.AppendJSON(nil), []byte("}")), `,"reaction":{"id":"x_1"}}`...)
	if diff := cmp.Diff(want, thread.ParseLine(payload)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, other := range []string{`[]`, `"x"`, `null`, `{}`, `{"type":1,"session":[],"text":null}`} {
		if diff := cmp.Diff(thread.Line{}, thread.ParseLine([]byte(other))); diff != "" {
			t.Errorf("%s: %s", other, diff)
		}
	}
}

// An entry is one line of NDJSON, however it was written.
func TestParseEntryTakesLineBreaksOut(t *testing.T) {
	e, err := thread.ParseEntry(
		[]byte(
			"{\"id\":\"a\",\r\n\"ts\":\"2026-06-01T12:00:00.000Z\",\n\"payload\":{\n\"type\": \"chat\",\r\n" +
				"\"text\":\"a b\"}}",
		),
	)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(e.Payload), `{"type":"chat","text":"a b"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
