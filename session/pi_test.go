package session_test

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/session"
)

func sameJSON(t testing.TB, a, b []byte) bool {
	t.Helper()
	decode := func(raw []byte) (v any) {
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.UseNumber()
		if err := dec.Decode(&v); err != nil {
			t.Fatalf("%v in %.200s", err, raw)
		}
		return v
	}
	return reflect.DeepEqual(decode(a), decode(b))
}

func TestPiDecode(t *testing.T) {
	msg := func(message string) string {
		return `{"type":"message","id":"e1","parentId":"e0","timestamp":"2026-11-20T12:09:27.370Z","message":` + message + `}`
	}
	tests := []struct {
		name string
		line string
		want session.Entry
	}{
		{
			"header", `{"type":"session","version":3,"id":"s1","timestamp":"2026-11-20T12:09:26.844Z","cwd":"/w"}`,
			session.Entry{Kind: session.Header, Type: "session", Known: true, ID: "s1", SessionID: "s1", Cwd: "/w"},
		},
		{
			"header of version 1", `{"type":"session","id":"s1","cwd":"/w"}`,
			session.Entry{
				Kind:      session.Header,
				Type:      "session",
				Known:     true,
				ID:        "s1",
				SessionID: "s1",
				Cwd:       "/w",
				Old:       true,
			},
		},
		{"header without id", `{"type":"session","version":3}`, session.Entry{Type: "session"}},
		{
			"user", msg(`{"role":"user","content":[{"type":"text","text":"a"},{"type":"image","data":"AA=="},{"type":"text","text":"\u0062"}]}`),
			session.Entry{
				Kind:   session.User,
				Type:   "user",
				Known:  true,
				Mark:   session.Prompt,
				ID:     "e1",
				Parent: "e0",
				Text:   "a\nb",
				Whole:  true,
			},
		},
		{
			"user, a plain string", msg(`{"role":"user","content":"a\n\"b\""}`),
			session.Entry{
				Kind:   session.User,
				Type:   "user",
				Known:  true,
				Mark:   session.Prompt,
				ID:     "e1",
				Parent: "e0",
				Text:   "a\n\"b\"",
				Whole:  true,
			},
		},
		{
			"assistant, stop", msg(`{"role":"assistant","content":[{"type":"text","text":"x"}],"provider":"p","model":"m","usage":{"input":1},"stopReason":"stop"}`),
			session.Entry{
				Kind: session.Assistant, Type: "assistant", Known: true, Mark: session.End, ID: "e1", Parent: "e0",
				StopReason: "stop",
				Provider:   "p", Model: "m", Usage: json.RawMessage(`{"input":1}`), Whole: true,
			},
		},
		{
			"assistant, tools", msg(`{"role":"assistant","content":[{"type":"toolCall","id":"c1","name":"bash","arguments":{"type":"toolCall","id":"no"}},{"type":"toolCall","id":"c2"}],"stopReason":"toolUse"}`),
			session.Entry{
				Kind: session.Assistant, Type: "assistant", Known: true, Mark: session.Output, ID: "e1", Parent: "e0",
				StopReason: "toolUse",
				Calls:      []session.Call{{ID: "c1", Name: "bash"}, {ID: "c2"}}, Whole: true,
			},
		},
		{
			"assistant, error", msg(`{"role":"assistant","content":[],"stopReason":"error","errorMessage":"500 no"}`),
			session.Entry{
				Kind:         session.Assistant,
				Type:         "assistant",
				Known:        true,
				Mark:         session.Failure,
				ID:           "e1",
				Parent:       "e0",
				StopReason:   "error",
				ErrorMessage: "500 no",
				Whole:        true,
			},
		},
		{
			"assistant, aborted", msg(`{"role":"assistant","content":[],"stopReason":"aborted"}`),
			session.Entry{
				Kind:       session.Assistant,
				Type:       "assistant",
				Known:      true,
				Mark:       session.Abort,
				ID:         "e1",
				Parent:     "e0",
				StopReason: "aborted",
				Whole:      true,
			},
		},
		{
			"assistant, deferred (1.x)", msg(`{"role":"assistant","content":[],"stopReason":"deferred"}`),
			session.Entry{
				Kind:       session.Assistant,
				Type:       "assistant",
				Known:      true,
				Mark:       session.Output,
				ID:         "e1",
				Parent:     "e0",
				StopReason: "deferred",
				Whole:      true,
			},
		},
		{
			"tool result", msg(`{"role":"toolResult","toolCallId":"c1","toolName":"bash","content":[],"isError":true}`),
			session.Entry{
				Kind:       session.ToolResult,
				Type:       "toolResult",
				Known:      true,
				Mark:       session.Answer,
				ID:         "e1",
				Parent:     "e0",
				ToolCallID: "c1",
				ToolName:   "bash",
				IsError:    true,
				Whole:      true,
			},
		},
		{
			"system (1.x)", msg(`{"role":"system","content":""}`),
			session.Entry{Type: "system", Known: true, ID: "e1", Parent: "e0", Whole: true},
		},
		{
			"a role that is not known",
			msg(`{"role":"alien"}`),
			session.Entry{Type: "alien", ID: "e1", Parent: "e0", Whole: true},
		},
		{
			"model change", `{"type":"model_change","id":"e1","parentId":null,"provider":"p","modelId":"m"}`,
			session.Entry{Type: "model_change", Known: true, ID: "e1"},
		},
		{
			"custom, id not second", `{"type":"custom","customType":"x","data":{"id":"no"},"id":"e1","parentId":"e0"}`,
			session.Entry{Type: "custom", Known: true, ID: "e1", Parent: "e0"},
		},
		{
			"a type that is not known",
			`{"type":"future","id":"e1","parentId":"e0"}`,
			session.Entry{Type: "future", ID: "e1", Parent: "e0"},
		},
		{"message without a message", `{"type":"message","id":"e1"}`, session.Entry{Type: "message", ID: "e1"}},
		{"no type", `{"hello":1}`, session.Entry{}},
		{"no object", `[1,2]`, session.Entry{Kind: session.Text, Type: "text"}},
		{"no JSON", `{"type":"mess`, session.Entry{Kind: session.Text, Type: "text"}},
		{"empty", ``, session.Entry{Kind: session.Text, Type: "text"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := session.Pi.Decode([]byte(tt.line))
			got.Time, got.Message = tt.want.Time, nil
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// Only what Line gives back exactly is Whole.
func TestPiNotWhole(t *testing.T) {
	for name, line := range map[string]string{
		"a member more":             `{"type":"message","id":"a","parentId":null,"timestamp":"2026-11-20T12:09:27.370Z","message":{"role":"user"},"more":1}`,
		"no parent":                 `{"type":"message","id":"a","timestamp":"2026-11-20T12:09:27.370Z","message":{"role":"user"}}`,
		"an empty parent":           `{"type":"message","id":"a","parentId":"","timestamp":"2026-11-20T12:09:27.370Z","message":{"role":"user"}}`,
		"a parent that is a number": `{"type":"message","id":"a","parentId":7,"timestamp":"2026-11-20T12:09:27.370Z","message":{"role":"user"}}`,
		"no id":                     `{"type":"message","parentId":null,"timestamp":"2026-11-20T12:09:27.370Z","message":{"role":"user"}}`,
		"an id that is half a pair": `{"type":"message","id":"\ud800","parentId":null,"timestamp":"2026-11-20T12:09:27.370Z","message":{"role":"user"}}`,
		"another form of time":      `{"type":"message","id":"a","parentId":null,"timestamp":"2026-11-20T12:09:27Z","message":{"role":"user"}}`,
		"no time":                   `{"type":"message","id":"a","parentId":null,"message":{"role":"user"}}`,
	} {
		if e := session.Pi.Decode([]byte(line)); e.Whole {
			t.Errorf("%s: whole, but can't be given back", name)
		}
	}
}

func TestPiLine(t *testing.T) {
	n := 0
	for _, path := range recorded(t, "pi") {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(content) {
			e := session.Pi.Decode(line)
			if !e.Known {
				t.Errorf("%s: not known: %.100s", path, line)
			}
			if !e.Whole {
				continue
			}
			n++
			if got := session.Pi.Line(e.ID, e.Parent, e.Time, e.Message); !sameJSON(t, line, got) {
				t.Errorf("%s:\ngot  %s\nwant %s", path, got, line)
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d messages in all recordings", n)
	}
}

// FuzzPi: Decode takes everything, and what it calls whole comes back equal.
func FuzzPi(f *testing.F) {
	for _, path := range recorded(f, "pi") {
		content, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for line := range bytes.Lines(content) {
			f.Add(line)
		}
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		e := session.Pi.Decode(line)
		if !json.Valid(line) && e.Kind != session.Text {
			t.Errorf("no JSON is of kind %d", e.Kind)
		}
		if e.Whole && !sameJSON(t, line, session.Pi.Line(e.ID, e.Parent, e.Time, e.Message)) {
			t.Error("a whole line did not come back")
		}
	})
}

// FuzzRewrite: what is not changed keeps its bytes, what is changed stays JSON with the same keys.
func FuzzRewrite(f *testing.F) {
	for _, path := range recorded(f, "*") {
		content, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for line := range bytes.Lines(content) {
			f.Add(bytes.TrimSpace(line))
		}
	}
	f.Add([]byte(`{"a":"\ud83d\ude00 \"x\" \\ \/ \u0000","b":["y",{"id":"keep","arguments":{"id":"change"}}]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if !json.Valid(line) {
			return
		}
		if got := new(session.Rewriter).Rewrite(line, func([]byte) []byte { return nil }); !bytes.Equal(got, line) {
			t.Fatalf("nothing was changed, and yet %q became %q", line, got)
		}
		// Each string unchanged: decoding and quoting it again must give the same text.
		same := new(session.Rewriter).Rewrite(line, func(s []byte) []byte { return append([]byte{}, s...) })
		if !sameJSON(t, line, same) {
			t.Fatalf("%s\nbecame %s", line, same)
		}
	})
}

func TestRewriteLeavesIDs(t *testing.T) {
	line := `{"type":"message","id":"X","parentId":"X","x":["X",{"X":"X"}],"message":{"role":"X","toolCallId":"X","content":[{"type":"X","id":"X","text":"X","arguments":{"id":"X","type":"X"}}]}}`
	want := `{"type":"message","id":"X","parentId":"X","x":["Y",{"X":"Y"}],"message":{"role":"X","toolCallId":"X","content":[{"type":"X","id":"X","text":"Y","arguments":{"id":"Y","type":"Y"}}]}}`
	got := new(session.Rewriter).Rewrite([]byte(line), func(s []byte) []byte {
		if string(s) == "X" {
			return []byte("Y")
		}
		return nil
	})
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
