package model_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/model"
)

const (
	chat      = "/v1/chat/completions"
	responses = "/v1/responses"
	messages  = "/v1/messages"
)

func serve(t *testing.T, replies ...model.Reply) (*model.Server, string) {
	t.Helper()
	m := &model.Server{Script: model.Script{Replies: replies}}
	srv := httptest.NewServer(m)
	t.Cleanup(srv.Close)
	return m, srv.URL
}

// Each reply is sent in each API.
func TestReply(t *testing.T) {
	const text = "one two three four"
	tools := []model.Tool{{Name: "look", Arguments: map[string]any{"at": "it"}}, {Name: "wait"}}
	for _, tt := range []struct {
		name                      string
		reply                     model.Reply
		chat, responses, messages string
	}{
		{
			"text",
			model.Reply{Text: text},
			`"one two three four" end="stop"`,
			`"one two three four" end="completed"`, `"one two three four" end="end_turn"`,
		},
		{"nothing", model.Reply{}, `"" end="stop"`, `"" end="completed"`, `"" end="end_turn"`},
		{
			"tools",
			model.Reply{Text: "I call.", Tools: tools},
			`"I call." end="tool_calls" tools=[look{"at":"it"} wait{}]`, `"I call." end="completed" tools=[look{"at":"it"} wait{}]`, `"I call." end="tool_use" tools=[look{"at":"it"} wait{}]`,
		},
		{
			"a tool in a namespace",
			model.Reply{Tools: []model.Tool{{Name: "a.b.c"}}},
			`"" end="tool_calls" tools=[a.b.c{}]`, `"" end="completed" tools=[a.bc{}]`, `"" end="tool_use" tools=[a.b.c{}]`,
		},
		{
			"thinking",
			model.Reply{Thinking: "Let me think.", Text: "Thought."},
			`"Thought." end="stop" thinking="Let me think."`, `"Thought." end="completed" thinking="Let me think."`, `"Thought." end="end_turn" thinking="Let me think."`,
		},
		{
			"the output limit",
			model.Reply{Text: "cut o", Finish: "length"},
			`"cut o" end="length"`,
			`"cut o" end="incompletemax_output_tokens"`, `"cut o" end="max_tokens"`,
		},
		{
			"a refusal",
			model.Reply{Text: "I won't", Finish: "content_filter"},
			`"I won't" end="content_filter"`,
			`"I won't" end="incompletecontent_filter"`, `"I won't" end="refusal"`,
		},
		{
			"401",
			model.Reply{Status: 401, Message: "who are you"},
			`"" end="" error=401 scripted who are you`, `"" end="" error=401 invalid_request_error who are you`, `"" end="" error=401 authentication_error who are you`,
		},
		{
			"500",
			model.Reply{Status: 500, Message: "not now"},
			`"" end="" error=500 scripted not now`, `"" end="" error=500 server_error not now`, `"" end="" error=500 api_error not now`,
		},
		{
			"an error in the stream",
			model.Reply{Text: text, Cut: 2, Error: "it broke"},
			`"one two " end="" error=it broke`, `"one two " end="" error=it broke`, `"one two " end="" error=it broke`,
		},
		{
			"an error at once",
			model.Reply{Text: text, Error: "it broke"},
			`"" end="" error=it broke`,
			`"" end="" error=it broke`, `"" end="" error=it broke`,
		},
		{
			"an error instead of the end",
			model.Reply{Text: text, Cut: 9, Error: "it broke"},
			`"one two three four" end="" error=it broke`, `"one two three four" end="" error=it broke`, `"one two three four" end="" error=it broke`,
		},
		{
			"cut off",
			model.Reply{Text: text, Cut: 2},
			`"one two " end="" broken`, `"one two " end="" broken`,
			`"one two " end="" broken`,
		},
		{
			"cut off in thinking",
			model.Reply{Thinking: "a b", Text: text, Cut: 1},
			`"" end="" thinking="a " broken`,
			`"" end="" broken`, `"" end="" thinking="a " broken`,
		},
	} {
		for path, want := range map[string]string{chat: tt.chat, responses: tt.responses, messages: tt.messages} {
			t.Run(tt.name+path, func(t *testing.T) {
				_, url := serve(t, tt.reply)
				if got := ask(t, url, path, "hi").String(); got != want {
					t.Errorf("got  %s\nwant %s", got, want)
				}
			})
		}
	}
}

// Replies are used in their order, as often as their count; those with another condition are skipped.
func TestTake(t *testing.T) {
	m, url := serve(
		t,
		model.Reply{Text: "first"},
		model.Reply{Text: "twice", Times: 2},
		model.Reply{When: "main", Text: "main's"},
		model.Reply{When: "main", Text: "main's last"},
		model.Reply{Text: "anyone's"},
	)
	m.More(model.Reply{Text: "ever", Times: -1})
	for i, tt := range []struct{ prompt, want string }{
		{"main", "first"},
		{"sub", "twice"},
		{"main", "twice"},
		{"sub", "anyone's"},
		{"main", "main's"},
		{"sub", "ever"},
		{"main", "main's last"},
		{"main", "ever"},
	} {
		if got := ask(t, url, chat, tt.prompt).text; got != tt.want {
			t.Errorf("request %d: %s, want %s", i, got, tt.want)
		}
	}
	if all := m.Requests(); len(all) != 8 || all[0].Path != chat || all[0].Auth != "the-key" ||
		!strings.Contains(string(all[1].Body), "sub") {
		t.Errorf("%d requests: %+v", len(all), all)
	}
	if _, url := serve(t); ask(t, url, chat, "hi").err != "418 scripted the script has no more replies" {
		t.Error("an empty script answers")
	}
}

// What agents ask besides takes no reply, and an upgrade to a websocket is refused.
func TestAside(t *testing.T) {
	m, url := serve(
		t,
		model.Reply{Text: "whole", Tools: []model.Tool{{Name: "look"}}},
		model.Reply{Text: "one", Error: "it broke"},
	)
	for _, tt := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{http.MethodHead, "/api/hello", "", 200, ""},
		{http.MethodGet, responses, "", 426, ""},
		{http.MethodGet, "/v1/models", "", 404, ""},
		{http.MethodPost, messages, `{no JSON`, 400, ""},
		{http.MethodPost, messages, `{"model":"m"}`, 200, `"text":"whole"`}, // no stream
		{http.MethodPost, messages, `{"model":"m"}`, 500, `it broke`},
	} {
		req, err := http.NewRequest(tt.method, url+tt.path, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if err != nil || resp.StatusCode != tt.status || !strings.Contains(string(got), tt.want) {
			t.Errorf("%s %s: %d %s %v", tt.method, tt.path, resp.StatusCode, got, err)
		}
	}
	if n := len(m.Requests()); n != 2 {
		t.Errorf("%d requests took a reply", n)
	}
}

// A script that is mistyped is not played.
func TestParse(t *testing.T) {
	got, err := model.Parse([]byte(`{"replies":[{"text":"hi","pace":"20ms","when":"you","error":"no"}]}`))
	if err != nil || len(got.Replies) != 1 || got.Replies[0].Pace != model.Duration(20*time.Millisecond) ||
		got.Replies[0].When != "you" ||
		got.Replies[0].Error != "no" {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{`{"replies":[{"txt":"hi"}]}`, `{"replies":[{"pace":"fast"}]}`, ``} {
		if _, err := model.Parse([]byte(bad)); err == nil {
			t.Errorf("%s is a script", bad)
		}
	}
}
