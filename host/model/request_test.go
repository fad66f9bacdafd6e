package model_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/host/model/provider"
	script "arbe.0sk.ar/runner/internal/test/model"
)

// message returns a message of a role.
func message(r model.Role, parts ...model.Part) model.Message {
	return model.Message{Role: r, Parts: parts}
}

func text(s string) model.Part { return model.Part{Text: s} }

func result(id, text string, isError bool) model.Part {
	return model.Part{Result: &model.Result{CallID: id, Text: text, IsError: isError}}
}

func called(c *model.Call) model.Part { return model.Part{Call: c} }

func thought(th model.Thinking) model.Part { return model.Part{Thinking: &th} }

// sent returns the JSON of a request as the provider gets it, indented.
func sent(t *testing.T, a adapter, base string, r model.Request) string {
	t.Helper()
	server := &script.Server{Script: script.Script{Replies: []script.Reply{{Text: "one"}}}}
	m, err := a.make(provider.Config{BaseURL: base, Key: key, Transport: serve(t, server)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Stream(t.Context(), r, func(model.Event) {}); err != nil {
		t.Fatal(err)
	}
	return indented(t, server.Requests()[0].Body)
}

func indented(t *testing.T, raw []byte) string {
	t.Helper()
	var v any
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestRequest has what each provider gets.
func TestRequest(t *testing.T) {
	look := &model.Call{ID: "c1", Name: "look", Arguments: json.RawMessage(`{"at":"it"}`)}
	broken := &model.Call{ID: "c2", Name: "look", Broken: `{"at`}
	png := model.Part{Image: &model.Image{MIME: "image/png", Data: []byte("png")}}
	tool := model.Tool{
		Name: "look", Description: "Looks.",
		Schema: json.RawMessage(`{"type":"object","properties":{"at":{"type":"string","maxLength":9}},"required":["at"],"additionalProperties":false}`),
	}
	for _, tt := range []struct {
		name            string
		request         model.Request
		anthropic, chat string
	}{
		{
			"all that a request has",
			model.Request{
				Model: "m", System: "Be.", MaxTokens: 50, Must: "look",
				Tools:    []model.Tool{tool, {Name: "hello_world", Schema: json.RawMessage(`{"type":"object","properties":{}}`)}},
				Messages: []model.Message{message(model.User, text("hi"), png)},
			},
			`{"model":"m","max_tokens":50,"stream":true,
			"system":[{"type":"text","text":"Be.","cache_control":{"type":"ephemeral"}}],
			"tool_choice":{"type":"tool","name":"look"},
			"tools":[
				{"name":"look","description":"Looks.","input_schema":{"type":"object","properties":{"at":{"type":"string","maxLength":9}},"required":["at"],"additionalProperties":false}},
				{"name":"hello_world","input_schema":{"type":"object","properties":{}}}],
			"messages":[{"role":"user","content":[{"type":"text","text":"hi"},
				{"type":"image","source":{"type":"base64","media_type":"image/png","data":"cG5n"}}]}]}`,
			`{"model":"m","max_tokens":50,"stream":true,"stream_options":{"include_usage":true},
			"tool_choice":{"type":"function","function":{"name":"look"}},
			"tools":[
				{"type":"function","function":{"name":"look","description":"Looks.","parameters":{"type":"object","properties":{"at":{"type":"string","maxLength":9}},"required":["at"],"additionalProperties":false}}},
				{"type":"function","function":{"name":"hello_world","parameters":{"type":"object","properties":{}}}}],
			"messages":[{"role":"system","content":"Be."},
				{"role":"user","content":[{"type":"text","text":"hi"},{"type":"image_url","image_url":{"url":"data:image/png;base64,cG5n"}}]}]}`,
		},
		{
			"no calls any more",
			model.Request{
				Model: "m", MaxTokens: 50, NoCalls: true,
				Tools:    []model.Tool{{Name: "hello_world", Schema: json.RawMessage(`{"type":"object","properties":{}}`)}},
				Messages: []model.Message{message(model.User, text("hi"))},
			},
			`{"model":"m","max_tokens":50,"stream":true,"tool_choice":{"type":"none"},
			"tools":[{"name":"hello_world","input_schema":{"type":"object","properties":{}},"cache_control":{"type":"ephemeral"}}],
			"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}`,
			`{"model":"m","max_tokens":50,"stream":true,"stream_options":{"include_usage":true},"tool_choice":"none",
			"tools":[{"type":"function","function":{"name":"hello_world","parameters":{"type":"object","properties":{}}}}],
			"messages":[{"role":"user","content":"hi"}]}`,
		},
		{
			"no calls, and no tools",
			model.Request{Model: "m", MaxTokens: 50, NoCalls: true, Messages: []model.Message{message(model.User, text("hi"))}},
			`{"model":"m","max_tokens":50,"stream":true,
			"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}`,
			`{"model":"m","max_tokens":50,"stream":true,"stream_options":{"include_usage":true},
			"messages":[{"role":"user","content":"hi"}]}`,
		},
		{
			"a turn with calls, in messages that follow each other",
			model.Request{
				Model: "m", MaxTokens: 50, Tools: []model.Tool{tool},
				Messages: []model.Message{
					message(model.User, text("first")), message(model.User, text("second"), text(" ")),
					message(model.Assistant, thought(model.Thinking{Text: "hm", Signature: "sig"}), text("I look.")),
					message(model.Assistant, text(""), called(look), called(broken)),
					message(model.User, text("meanwhile")),
					message(model.User, result("c1", "seen", false), result("c2", "", true)),
				},
			},
			`{"model":"m","max_tokens":50,"stream":true,
			"tools":[{"name":"look","description":"Looks.","cache_control":{"type":"ephemeral"},
				"input_schema":{"type":"object","properties":{"at":{"type":"string","maxLength":9}},"required":["at"],"additionalProperties":false}}],
			"messages":[
				{"role":"user","content":[{"type":"text","text":"first"},{"type":"text","text":"second"}]},
				{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"sig"},{"type":"text","text":"I look."},
					{"type":"tool_use","id":"c1","name":"look","input":{"at":"it"}},{"type":"tool_use","id":"c2","name":"look","input":{}}]},
				{"role":"user","content":[
					{"type":"tool_result","tool_use_id":"c1","is_error":false,"content":[{"type":"text","text":"seen"}]},
					{"type":"tool_result","tool_use_id":"c2","is_error":true,"content":[{"type":"text","text":"(no output)"}]},
					{"type":"text","text":"meanwhile"}]}]}`,
			`{"model":"m","max_tokens":50,"stream":true,"stream_options":{"include_usage":true},
			"tools":[{"type":"function","function":{"name":"look","description":"Looks.","parameters":{"type":"object","properties":{"at":{"type":"string","maxLength":9}},"required":["at"],"additionalProperties":false}}}],
			"messages":[
				{"role":"user","content":[{"type":"text","text":"first"},{"type":"text","text":"second"}]},
				{"role":"assistant","content":"I look.","tool_calls":[
					{"id":"c1","type":"function","function":{"name":"look","arguments":"{\"at\":\"it\"}"}},
					{"id":"c2","type":"function","function":{"name":"look","arguments":"{}"}}]},
				{"role":"tool","tool_call_id":"c1","content":"seen"},
				{"role":"tool","tool_call_id":"c2","content":"Error: (no output)"},
				{"role":"user","content":"meanwhile"}]}`,
		},
		{
			"thinking alone, blank messages, thinking that is redacted or not signed",
			model.Request{
				Model: "m", MaxTokens: 50,
				Messages: []model.Message{
					message(model.User, text("a")),
					message(model.Assistant, thought(model.Thinking{Text: "hm"}), text("\n")),
					message(model.User, text("b")),
					message(model.Assistant, thought(model.Thinking{Signature: "xyz", Redacted: true})),
				},
			},
			`{"model":"m","max_tokens":50,"stream":true,"messages":[
				{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
				{"role":"assistant","content":[{"type":"redacted_thinking","data":"xyz"}]}]}`,
			`{"model":"m","max_tokens":50,"stream":true,"stream_options":{"include_usage":true},"messages":[
				{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			forEach(t, func(t *testing.T, a adapter) {
				before, err := json.Marshal(tt.request)
				if err != nil {
					t.Fatal(err)
				}
				want := map[string]string{"anthropic": tt.anthropic, "openai": tt.chat}[a.name]
				if diff := cmp.Diff(indented(t, []byte(want)), sent(t, a, a.base, tt.request)); diff != "" {
					t.Error(diff)
				}
				if after, err := json.Marshal(tt.request); err != nil || !bytes.Equal(before, after) {
					t.Errorf("the request was changed: %s", after)
				}
			})
		})
	}
}

// TestRoundTrip holds that a reply goes back as it came: thinking with its signature, and the calls.
func TestRoundTrip(t *testing.T) {
	forEach(t, func(t *testing.T, a adapter) {
		server := &script.Server{Script: script.Script{Replies: []script.Reply{
			{Thinking: "hm hm", Text: "I look.", Tools: []script.Tool{{Name: "look", Arguments: map[string]any{"at": "it"}}}}, {Text: "one"},
		}}}
		m := a.model(t, serve(t, server))
		r := hello
		reply, err := m.Stream(t.Context(), r, func(model.Event) {})
		if err != nil {
			t.Fatal(err)
		}
		call := reply.Parts[len(reply.Parts)-1].Call
		r.Messages = append(slices.Clone(r.Messages),
			message(model.Assistant, reply.Parts...), message(model.User, result(call.ID, "seen", false)))
		if _, err := m.Stream(t.Context(), r, func(model.Event) {}); err != nil {
			t.Fatal(err)
		}
		var got struct{ Messages []json.RawMessage }
		if err := json.Unmarshal(server.Requests()[1].Body, &got); err != nil {
			t.Fatal(err)
		}
		want, at := `{"role":"assistant","content":[{"type":"thinking","thinking":"hm hm","signature":"c2NyaXB0ZWQ="},
			{"type":"text","text":"I look."},{"type":"tool_use","id":"`+call.ID+`","name":"look","input":{"at":"it"}}]}`, 1
		if a.name == "openai" {
			want, at = `{"role":"assistant","content":"I look.","tool_calls":[{"id":"`+call.ID+`","type":"function",
				"function":{"name":"look","arguments":"{\"at\":\"it\"}"}}]}`, 2
		}
		if diff := cmp.Diff(indented(t, []byte(want)), indented(t, got.Messages[at])); diff != "" {
			t.Error(diff)
		}
	})
}

// TestPrefix holds that equal requests are equal byte for byte: providers cache what they begin with.
func TestPrefix(t *testing.T) {
	forEach(t, func(t *testing.T, a adapter) {
		server := &script.Server{Script: script.Script{Replies: []script.Reply{{Text: "one", Times: -1}}}}
		m := a.model(t, serve(t, server))
		r := hello
		schema := json.RawMessage(`{"type":"object","properties":{"d":{},"b":{},"c":{},"a":{},"e":{}}}`)
		r.Tools = []model.Tool{{Name: "look", Schema: schema}}
		for range 20 {
			if _, err := m.Stream(t.Context(), r, func(model.Event) {}); err != nil {
				t.Fatal(err)
			}
		}
		for _, got := range server.Requests() {
			if first := server.Requests()[0].Body; !bytes.Equal(got.Body, first) {
				t.Fatalf("%s\n%s", got.Body, first)
			}
		}
	})
}

// TestOwnLimit holds that OpenAI gets the name of the limit that its newer models take, and others the older one.
func TestOwnLimit(t *testing.T) {
	forEach(t, func(t *testing.T, a adapter) {
		if a.name != "openai" {
			return
		}
		var got struct {
			Old int `json:"max_tokens"`
			New int `json:"max_completion_tokens"`
		}
		err := json.Unmarshal([]byte(sent(t, a, "http://api.openai.com/v1", hello)), &got)
		if err != nil || got.New != 100 || got.Old != 0 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// TestSchema holds that a tool whose schema is no JSON is an error before anything is sent.
func TestSchema(t *testing.T) {
	forEach(t, func(t *testing.T, a adapter) {
		server := &script.Server{}
		r := hello
		r.Tools = []model.Tool{{Name: "look", Schema: json.RawMessage(`{`)}}
		_, err := a.model(t, serve(t, server)).Stream(t.Context(), r, func(model.Event) {})
		if e := refusal(t, err); e.Kind != model.Invalid || len(server.Requests()) > 0 {
			t.Errorf("%+v, %d requests", e, len(server.Requests()))
		}
	})
}
