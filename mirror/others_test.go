package mirror_test

import (
	"encoding/json"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/redact"
)

// encoded returns the entry of one line of another harness than pi, and its payload.
func encoded(t *testing.T, e *mirror.Encoder, line string) (thread.Entry, thread.Line) {
	t.Helper()
	entry, fresh := e.Encode(session.Line{Data: []byte(line)})
	if err := entry.Check(); err != nil || !fresh {
		t.Fatalf("%v, fresh %v", err, fresh)
	}
	var p thread.Line
	if err := json.Unmarshal(entry.Payload, &p); err != nil {
		t.Fatal(err)
	}
	return entry, p
}

// A message that is made of a line has no secret of the line, even one in arguments that are JSON in a text.
func TestMadeMessageHasNoSecret(t *testing.T) {
	const secret = `pa"ss\word-0123456789`
	inner := string(thread.Marshal(map[string]string{"cmd": "login " + secret}))
	line := `{"type":"response_item","payload":{"type":"function_call","call_id":"c1","name":"f","arguments":` + string(
		thread.Marshal(inner),
	) + `}}`
	e := &mirror.Encoder{
		Namer:  mirror.Namer{Dialect: session.Codex, Session: "s1"},
		Redact: redact.New([]string{"A_SECRET=" + secret}, nil),
	}
	entry, p := encoded(t, e, line)
	if all := string(entry.Payload); strings.Contains(all, "0123456789") ||
		strings.Count(all, "[redacted:A_SECRET]") != 2 {
		t.Errorf("got %s", all)
	}
	if !strings.Contains(string(p.Message), `"arguments":{"cmd":"login [redacted:A_SECRET]"}`) {
		t.Errorf("the message is %s", p.Message)
	}
}

// A line stands whole beside its message as long as the log takes both; the message is what is made shorter.
func TestLargeLineBesideItsMessage(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 5<<20/16)
	line := `{"type":"assistant","uuid":"u1","message":{"content":[{"type":"text","text":"` + text + `"}],"stop_reason":"end_turn"}}`
	e := &mirror.Encoder{Namer: mirror.Namer{Dialect: session.Claude, Session: "s1"}, Redact: &redact.Redactor{}}
	entry, p := encoded(t, e, line)
	if got := hydrate.Parse(entry, session.Claude).Line; string(got) != line || p.Truncated {
		t.Errorf("the line is not whole: %d bytes, truncated %v", len(got), p.Truncated)
	}
	if p.Type != "claude.assistant" || p.StopReason != "stop" ||
		!strings.Contains(string(p.Message), "[cut: 5242880 bytes, sha256 ") {
		t.Errorf("the message has %d bytes, and the entry is a %s", len(p.Message), p.Type)
	}
}

// A subagent's lines are marked, and are no chats; what the main session holds of one stays in it.
func TestSubagentLines(t *testing.T) {
	task := `{"isSidechain":true,"type":"user","uuid":"u1","sessionId":"s1","message":{"content":"a part"}}`
	assistant := `{"isSidechain":true,"type":"assistant","parentUuid":"u1","uuid":"u2","sessionId":"s1","message":{"content":[{"type":"text","text":"x"}],"stop_reason":"end_turn"}}`
	for _, tt := range []struct{ name, session, subagent string }{{"in a file of its own", "agent-a1", "s1"}, {"in the session", "s1", ""}} {
		e := &mirror.Encoder{
			Namer:    mirror.Namer{Dialect: session.Claude, Session: tt.session},
			Redact:   &redact.Redactor{},
			Subagent: tt.subagent,
		}
		for line, typ := range map[string]string{task: "claude.session", assistant: "claude.assistant"} {
			entry, p := encoded(t, e, line)
			if p.Type != typ || p.SubagentOf != "s1" ||
				thread.ParseLine(entry.Payload).IsSubagent() != (tt.subagent != "") {
				t.Errorf("%s: %s", tt.name, entry.Payload)
			}
		}
	}
}
