package model_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/model"
	script "arbe.0sk.ar/runner/internal/test/model"
)

// show writes a reply in one line. Ids of calls are not shown, but checked.
func show(t *testing.T, r model.Reply) string {
	t.Helper()
	ids := map[string]bool{}
	var all []string
	for _, p := range r.Parts {
		switch {
		case p.Call != nil:
			if p.Call.ID == "" || ids[p.Call.ID] {
				t.Errorf("call %s has the id %q: empty, or that of another call", p.Call.Name, p.Call.ID)
			}
			ids[p.Call.ID] = true
			all = append(all, fmt.Sprintf("%s%s%s", p.Call.Name, p.Call.Arguments, cross(p.Call.Broken)))
		case p.Thinking != nil:
			all = append(all, fmt.Sprintf("(%s %s %v)", p.Thinking.Text, p.Thinking.Signature, p.Thinking.Redacted))
		default:
			all = append(all, fmt.Sprintf("%q", p.Text))
		}
	}
	return strings.Join(append(all, string(r.Stop)), " ")
}

func cross(broken string) string {
	if broken == "" {
		return ""
	}
	return "✗" + broken
}

// sse is a stream of Messages' events, or of chunks: each line is the JSON of one.
func sse(lines string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		var e struct{ Type string }
		if json.Unmarshal([]byte(line), &e) == nil && e.Type != "" {
			fmt.Fprintf(&b, "event: %s\n", e.Type)
		}
		fmt.Fprintf(&b, "data: %s\n\n", strings.TrimSpace(line))
	}
	return b.String()
}

// A stream of Messages begins with start, and ends with end.
const (
	start = `{"type":"message_start","message":{"model":"m","role":"assistant","content":[],"usage":{"input_tokens":7}}}` + "\n"
	end   = `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}` + "\n" +
		`{"type":"message_stop"}`
)

// TestReply has a row for each reply: what the caller gets, and the events meanwhile.
func TestReply(t *testing.T) {
	for _, tt := range []struct {
		name  string
		reply script.Reply
		// the stream of each API, in place of a scripted reply; "" is not sent
		messages, chat string
		want           string
		wantChat       string // where it is another one
		events         string
	}{
		{name: "text", reply: script.Reply{Text: "one two"}, want: `"one two" stop`, events: "one |two"},
		{name: "nothing", want: "stop"},
		{name: "white space", reply: script.Reply{Text: " \n"}, want: "stop", events: " |\n"},
		{
			name:  "calls",
			reply: script.Reply{Text: "I call.", Tools: []script.Tool{{Name: "look", Arguments: map[string]any{"at": "it"}}, {Name: "wait"}}},
			want:  `"I call." look{"at":"it"} wait{} toolUse`, events: "I |call.|<look>|<wait>",
		},
		{
			name:  "a forced call that ends like a text",
			reply: script.Reply{Tools: []script.Tool{{Name: "decide"}}, Finish: "stop"}, want: "decide{} toolUse", events: "<decide>",
		},
		{
			name:  "arguments that are no JSON",
			reply: script.Reply{Tools: []script.Tool{{Name: "look", Raw: `{"at":"i`}, {Name: "wait"}}},
			want:  `look✗{"at":"i wait{} toolUse`, events: "<look>|<wait>",
		},
		{
			name:  "arguments that are no object",
			reply: script.Reply{Tools: []script.Tool{{Name: "look", Raw: `["it"]`}}}, want: `look✗["it"] toolUse`, events: "<look>",
		},
		{
			name:  "calls without ids",
			reply: script.Reply{Tools: []script.Tool{{Name: "look", NoID: true}, {Name: "wait", NoID: true}}},
			want:  "look{} wait{} toolUse", events: "<look>|<wait>",
		},
		{
			name:  "thinking",
			reply: script.Reply{Thinking: "hm hm", Text: "yes"},
			want:  `(hm hm c2NyaXB0ZWQ= false) "yes" stop`, wantChat: `"yes" stop`, events: "yes",
		},
		{
			name:  "the output limit",
			reply: script.Reply{Text: "cut o", Finish: "length"}, want: `"cut o" length`, events: "cut |o",
		},
		{
			name:  "the output limit in a call",
			reply: script.Reply{Tools: []script.Tool{{Name: "look", Raw: `{"at":`}}, Finish: "length"},
			want:  `look✗{"at": length`, events: "<look>",
		},
		{
			name:  "a filter",
			reply: script.Reply{Text: "I", Finish: "content_filter"}, want: `"I" refusal`, events: "I",
		},
		{
			name:     "the end of the context",
			messages: start + `{"type":"message_delta","delta":{"stop_reason":"model_context_window_exceeded"},"usage":{}}`, want: "length",
		},
		{
			name: "redacted thinking, and a sign of life",
			messages: start + `{"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking","data":"xyz"}}` + "\n" +
				`{"type":"ping"}` + "\n" + `{"type":"content_block_stop","index":0}` + "\n" + end,
			want: "( xyz true) stop",
		},
		{
			name: "a refusal in words",
			chat: `{"choices":[{"index":0,"delta":{"refusal":"I can"}}]}` + "\n" +
				`{"choices":[{"index":0,"delta":{"refusal":"not."},"finish_reason":"stop"}]}` + "\n[DONE]",
			want: `"I cannot." refusal`, events: "I can|not.",
		},
		{
			name: "calls of one index",
			chat: `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"look","arguments":"{}"}}]}}]}` + "\n" +
				`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"b","function":{"name":"wait","arguments":"{"}}]}}]}` + "\n" +
				`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]},"finish_reason":"stop"}]}`,
			want: "look{} wait{} toolUse", events: "<look>|<wait>",
		},
		{
			name: "calls of one id",
			chat: `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"look"}},` +
				`{"index":1,"id":"a","function":{"name":"wait"}}]},"finish_reason":"tool_calls"}]}`,
			want: "look{} wait{} toolUse", events: "<look>|<wait>",
		},
		{
			name: "another choice",
			chat: `{"choices":[{"index":1,"delta":{"content":"no"}},{"index":0,"delta":{"content":"yes"},"finish_reason":"end"}]}`,
			want: `"yes" stop`, events: "yes",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			forEach(t, func(t *testing.T, a adapter) {
				reply, want := tt.reply, tt.want
				if tt.messages+tt.chat != "" {
					reply.Raw = sse(map[string]string{"anthropic": tt.messages, "openai": tt.chat}[a.name])
				}
				if tt.messages+tt.chat != "" && reply.Raw == "" {
					return
				}
				if a.name == "openai" && tt.wantChat != "" {
					want = tt.wantChat
				}
				m := a.model(t, serve(t, &script.Server{Script: script.Script{Replies: []script.Reply{reply}}}))
				var events []model.Event
				got, err := m.Stream(t.Context(), hello, into(&events))
				if err != nil {
					t.Fatal(err)
				}
				if got := show(t, got); got != want {
					t.Errorf("got  %s\nwant %s", got, want)
				}
				var all []string
				for _, e := range events {
					if e.Tool != "" {
						e.Text += "<" + e.Tool + ">"
					}
					all = append(all, e.Text)
				}
				if got := strings.Join(all, "|"); got != tt.events {
					t.Errorf("events %q, want %q", got, tt.events)
				}
			})
		})
	}
}

// TestEvents holds that text arrives while the model still writes.
func TestEvents(t *testing.T) {
	forEach(t, func(t *testing.T, a adapter) {
		m := a.model(t, serve(t, &script.Server{Script: script.Script{Replies: []script.Reply{
			{Text: "one two three", Pace: script.Duration(time.Second)},
		}}}))
		begun := time.Now()
		var at []time.Duration
		_, err := m.Stream(t.Context(), hello, func(model.Event) { at = append(at, time.Since(begun)) })
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]time.Duration{0, time.Second, 2 * time.Second}, at); diff != "" {
			t.Error(diff)
		}
	})
}

// TestUsage holds what a request has cost, also one whose stream was cut: OpenAI counts at the end.
func TestUsage(t *testing.T) {
	forEach(t, func(t *testing.T, a adapter) {
		m := a.model(t, serve(t, &script.Server{Script: script.Script{Replies: []script.Reply{
			{Text: "one", InputTokens: 1000, CachedTokens: 900, OutputTokens: 5},
			{Text: "one two", InputTokens: 1000, CachedTokens: 900, Cut: 1},
		}}}))
		r, err := m.Stream(t.Context(), hello, func(model.Event) {})
		want := model.Usage{Input: 100, CacheRead: 900, Output: 5}
		if err != nil || r.Usage != want || r.Model == "" {
			t.Errorf("%+v of %q, %v, want %+v", r.Usage, r.Model, err, want)
		}
		want = model.Usage{Input: 100, CacheRead: 900, Output: 1}
		if a.name == "openai" {
			want = model.Usage{}
		}
		if r, err := m.Stream(t.Context(), hello, func(model.Event) {}); err == nil || r.Usage != want {
			t.Errorf("cut: %+v, %v, want %+v", r.Usage, err, want)
		}
	})
}

// TestConcurrent holds that one model serves many reactions.
func TestConcurrent(t *testing.T) {
	forEach(t, func(t *testing.T, a adapter) {
		m := a.model(t, serve(t, &script.Server{Script: script.Script{Replies: []script.Reply{
			{Text: "one two three", Pace: script.Duration(time.Second), Times: -1},
		}}}))
		errs := make(chan error)
		for range 20 {
			go func() {
				var text strings.Builder
				r, err := m.Stream(t.Context(), hello, func(e model.Event) { text.WriteString(e.Text) })
				if err == nil && (text.String() != "one two three" || r.Parts[0].Text != text.String()) {
					err = errors.New(text.String())
				}
				errs <- err
			}()
		}
		for range 20 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	})
}
