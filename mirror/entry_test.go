package mirror_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/redact"
)

// encode gives the entries of some lines, without a server.
func encode(e *mirror.Encoder, lines ...string) []thread.Entry {
	var out []thread.Entry
	for i, l := range lines {
		entry, _ := e.Encode(session.Line{Start: session.Position{Index: i}, Data: []byte(l)})
		out = append(out, entry)
	}
	return out
}

func newEncoder() *mirror.Encoder {
	return &mirror.Encoder{
		Namer:  mirror.Namer{Dialect: session.Pi, Session: "s0"},
		Redact: &redact.Redactor{},
		Author: "a1",
	}
}

func TestEncode(t *testing.T) {
	e := newEncoder()
	e.Prompt, e.RunFrom = "r1.prompt", 1
	entries := encode(
		e,
		header,
		message("u1", "", `{"role":"user","content":"do it"}`),
		message(
			"a1",
			"u1",
			`{"role":"assistant","content":[{"type":"text","text":"<ok> & so"}],"provider":"p","model":"m","usage":{"input":1},"stopReason":"stop"}`,
		),
		message("t1", "a1", `{"role":"toolResult","toolCallId":"c1","toolName":"bash","content":[],"isError":false}`),
		message("u2", "t1", `{"role":"user","content":"and this"}`),
		`{"type":"model_change","id":"m1","parentId":"u2","timestamp":"2026-01-01T00:00:02.000Z","provider":"p","modelId":"m"}`,
		`{"type":"model_change","id":"m1","parentId":"u2","timestamp":"2026-01-01T00:00:02.000Z","provider":"q","modelId":"m"}`,
		`{"no":"type"}`,
		`not JSON`,
	)
	var got []string
	for _, e := range entries {
		got = append(got, string(e.AppendJSON(nil)))
	}
	want := []string{
		`{"id":"pi:s1:s1","ts":"2026-01-01T00:00:00.000Z","authorId":"a1","payload":{"type":"pi.session","kind":"session","session":{"id":"s1","entry":"s1","parent":null,"index":0},"line":` + header + `}}`,
		`{"id":"pi:s1:u1","ts":"2026-01-01T00:00:01.500Z","authorId":"a1","payload":{"type":"pi.session","kind":"prompt","chat":"r1.prompt","session":{"id":"s1","entry":"u1","parent":null,"index":1},"line":` + message(
			"u1",
			"",
			`{"role":"user","content":"do it"}`,
		) + `}}`,
		`{"id":"pi:s1:a1","ts":"2026-01-01T00:00:01.500Z","authorId":"a1","payload":{"type":"pi.assistant","stopReason":"stop","provider":"p","model":"m","usage":{"input":1},"message":{"role":"assistant","content":[{"type":"text","text":"<ok> & so"}],"provider":"p","model":"m","usage":{"input":1},"stopReason":"stop"},"session":{"id":"s1","entry":"a1","parent":"u1","index":2}}}`,
		`{"id":"pi:s1:t1","ts":"2026-01-01T00:00:01.500Z","authorId":"a1","payload":{"type":"pi.tool_result","toolCallId":"c1","toolName":"bash","isError":false,"message":{"role":"toolResult","toolCallId":"c1","toolName":"bash","content":[],"isError":false},"session":{"id":"s1","entry":"t1","parent":"a1","index":3}}}`,
		`{"id":"pi:s1:u2","ts":"2026-01-01T00:00:01.500Z","authorId":"a1","payload":{"type":"chat","text":"and this","message":{"role":"user","content":"and this"},"session":{"id":"s1","entry":"u2","parent":"t1","index":4}}}`,
		`{"id":"pi:s1:m1","ts":"2026-01-01T00:00:02.000Z","authorId":"a1","payload":{"type":"pi.session","kind":"model_change","session":{"id":"s1","entry":"m1","parent":"u2","index":5},"line":{"type":"model_change","id":"m1","parentId":"u2","timestamp":"2026-01-01T00:00:02.000Z","provider":"p","modelId":"m"}}}`,
		`{"id":"pi:s1:m1.9321cfb4ded9","ts":"2026-01-01T00:00:02.000Z","authorId":"a1","payload":{"type":"pi.session","kind":"model_change","session":{"id":"s1","entry":"m1","parent":"u2","index":6},"line":{"type":"model_change","id":"m1","parentId":"u2","timestamp":"2026-01-01T00:00:02.000Z","provider":"q","modelId":"m"}}}`,
		`{"id":"pi:s1:7.ce3b0a22d9cc","ts":"2026-01-01T00:00:02.000Z","authorId":"a1","payload":{"type":"pi.session","kind":"other","session":{"id":"s1","entry":null,"parent":null,"index":7},"line":{"no":"type"}}}`,
		`{"id":"pi:s1:8.62b8125a6f6d","ts":"2026-01-01T00:00:02.000Z","authorId":"a1","payload":{"type":"pi.session","kind":"text","session":{"id":"s1","entry":null,"parent":null,"index":8},"line":"not JSON"}}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestEncodeOddIDs(t *testing.T) {
	e := newEncoder()
	long := strings.Repeat("x", 300)
	for _, entry := range encode(e, `{"type":"session","id":"a b/ü"}`, `{"type":"label","id":"`+long+`"}`, `{"type":"label","id":"ok:1~2"}`, `{"type":"label","id":"a b"}`) {
		if err := entry.Check(); err != nil {
			t.Errorf("%s: %v", entry.ID, err)
		}
	}
}

// What JSON can't carry as it stands still comes back.
func TestEncodeOddBytes(t *testing.T) {
	lines := []string{
		"", "\x00\x00\x00", "\x00" + header, "\xff\xfe", "caf\xe9", "tab\tand \"quotes\"\r", "\u2028", `"a string"`, `[1]`, `7`, `null`,
		message("a\u2028", "", `{"role":"user","content":"x`+"\u2028"+`y"}`),
		message("b", "", "{\"role\":\"user\",\"content\":\"caf\xe9\"}"), // JSON, but for one byte
		message(
			"c",
			"",
			`{"role":"assistant","content":[{"type":"text","text":"\ud800 \u0000"}],"stopReason":"stop"}`,
		) + "\r",
		`{"type":"message","id":"d","parentId":null,"timestamp":"2026-01-01T00:00:01Z","message":{"role":"user","content":"odd time"}}`,
		`{"type":"custom","data":{"n":12345678901234567890.123456789e1}}`,
	}
	e := newEncoder()
	for i, entry := range encode(e, lines...) {
		if err := entry.Check(); err != nil {
			t.Errorf("%q: %v", lines[i], err)
		}
		got := hydrate.Parse(entry, session.Pi).Line
		if got == nil || string(got) != lines[i] && !sameJSON(got, []byte(lines[i])) {
			t.Errorf("%q came back as %q", lines[i], got)
		}
	}
}

func TestRedaction(t *testing.T) {
	e := newEncoder()
	e.Redact = redact.New(
		[]string{"A_KEY=secret-value-1", "SOME_TOKEN=s1-with \"quotes\"\n", "ID_SECRET=entry-id-1"},
		nil,
	)
	entries := encode(
		e,
		message(
			"entry-id-1",
			"",
			`{"role":"toolResult","toolCallId":"entry-id-1","content":[{"type":"text","text":"x secret-value-1 y \u0073ecret-value-1 entry-id-1"}],"details":{"entry-id-1":"s1-with \"quotes\"\n"}}`,
		),
		"no JSON: secret-value-1",
	)
	first := string(entries[0].Payload)
	for _, want := range []string{
		`x [redacted:A_KEY] y [redacted:A_KEY] [redacted:ID_SECRET]`, `"details":{"entry-id-1":"[redacted:SOME_TOKEN]"}`, `"toolCallId":"entry-id-1"`, `"entry":"entry-id-1"`,
	} {
		if !strings.Contains(first, want) {
			t.Errorf("want %s in %s", want, first)
		}
	}
	if entries[0].ID != "pi:s0:entry-id-1" {
		t.Errorf("id %s", entries[0].ID)
	}
	if got := string(entries[1].Payload); !strings.Contains(got, `"no JSON: [redacted:A_KEY]"`) {
		t.Errorf("got %s", got)
	}
}

// A line that is larger than the log takes is cut, not refused, and what is no text in it stays.
func TestLargeLine(t *testing.T) {
	big := strings.Repeat("é\n", 5<<20)
	quoted, _ := json.Marshal(big)
	e := newEncoder()
	e.Redact = redact.New([]string{"A_KEY=secret-value-1"}, nil)
	line := message(
		"a1",
		"u1",
		`{"role":"assistant","content":[{"type":"text","text":`+string(
			quoted,
		)+`},{"type":"toolCall","id":"c1","name":"bash","arguments":{"command":"secret-value-1"}}],"stopReason":"toolUse"}`,
	)
	entry := encode(e, line)[0]
	if n := len(entry.AppendJSON(nil)); n > thread.MaxEntry {
		t.Fatalf("the entry has %d bytes", n)
	}
	var p thread.Line
	if err := json.Unmarshal(entry.Payload, &p); err != nil {
		t.Fatal(err)
	}
	var m struct {
		Content []struct {
			ID, Text  string
			Arguments struct{ Command string }
		}
	}
	if err := json.Unmarshal(p.Message, &m); err != nil {
		t.Fatal(err)
	}
	if !p.Truncated || p.Type != "pi.assistant" || p.StopReason != "toolUse" || m.Content[1].ID != "c1" ||
		m.Content[1].Arguments.Command != "[redacted:A_KEY]" {
		t.Errorf("got %+v %+v", p, m.Content[1])
	}
	mark := fmt.Sprintf("[cut: %d bytes, sha256 ", len(big))
	if !strings.Contains(m.Content[0].Text, mark) || !strings.HasPrefix(m.Content[0].Text, "é\né\n") {
		t.Errorf(
			"the text begins %.20q and ends %q",
			m.Content[0].Text,
			m.Content[0].Text[len(m.Content[0].Text)-120:],
		)
	}
	again := newEncoder()
	again.Redact = e.Redact
	if other := encode(again, line)[0]; !bytes.Equal(other.Payload, entry.Payload) {
		t.Error("the same line was cut in another way the second time")
	}
}

// A large line with structure alone has no string to cut.
func TestLargeLineWithoutStrings(t *testing.T) {
	line := `{"type":"custom","data":[` + strings.Repeat("1,", 5<<20) + `1]}`
	entry := encode(newEncoder(), line)[0]
	if n := len(entry.AppendJSON(nil)); n > thread.MaxEntry {
		t.Fatalf("the entry has %d bytes", n)
	}
	if !strings.Contains(string(entry.Payload), `"truncated":true`) ||
		!strings.Contains(string(entry.Payload), fmt.Sprintf(`"bytes":%d`, len(line))) {
		t.Errorf("got %.300s", entry.Payload)
	}
}
