package model_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/host/model/provider"
	script "arbe.0sk.ar/runner/internal/test/model"
)

// TestErrors has a row for each way in which a request fails.
func TestErrors(t *testing.T) {
	const stop = `{"type":"content_block_stop","index":0}` + "\n"
	for _, tt := range []struct {
		name           string
		reply          script.Reply
		messages, chat string // as in TestReply
		kind           model.Kind
		status         int
		message        string // in it
		after          time.Duration
	}{
		{name: "429", reply: script.Reply{Status: 429, Message: "slow down", RetryAfter: "7"}, kind: model.Again, status: 429, message: "slow down", after: 7 * time.Second},
		{name: "a long Retry-After", reply: script.Reply{Status: 429, RetryAfter: "86400"}, kind: model.Again, status: 429, after: 5 * time.Minute},
		{name: "529", reply: script.Reply{Status: 529, Message: "overloaded"}, kind: model.Again, status: 529, message: "overloaded"},
		{name: "500", reply: script.Reply{Status: 500, Message: "oh"}, kind: model.Again, status: 500, message: "oh"},
		{name: "401", reply: script.Reply{Status: 401, Message: "who are you"}, kind: model.Denied, status: 401, message: "who are you"},
		{name: "403", reply: script.Reply{Status: 403, Message: "not you"}, kind: model.Denied, status: 403, message: "not you"},
		{name: "404", reply: script.Reply{Status: 404, Message: "model: m"}, kind: model.Denied, status: 404, message: "model: m"},
		{name: "400", reply: script.Reply{Status: 400, Message: "tools.0: no name"}, kind: model.Invalid, status: 400, message: "tools.0"},
		{name: "422", reply: script.Reply{Status: 422, Message: "oh no"}, kind: model.Invalid, status: 422},
		{name: "too long", reply: script.Reply{Status: 400, Message: "prompt is too long: 213462 tokens > 200000 maximum"}, kind: model.TooLong, status: 400},
		{name: "too long by code", reply: script.Reply{Status: 400, Code: "context_length_exceeded"}, kind: model.TooLong, status: 400},
		{name: "too large", reply: script.Reply{Status: 413}, kind: model.TooLong, status: 413},
		{name: "cut off", reply: script.Reply{Text: "one two", Cut: 1}, kind: model.Again, message: "broke"},
		{name: "an error in the stream", reply: script.Reply{Text: "one two", Cut: 1, Error: "Overloaded"}, kind: model.Again, message: "Overloaded"},
		{name: "an endless message", reply: script.Reply{Status: 400, Message: strings.Repeat("ä b\n", 1000)}, kind: model.Invalid, status: 400, message: "ä b ä b"},
		{name: "no JSON", messages: start + `{oh`, chat: `{oh`, kind: model.Garbage},
		{name: "an empty stream", messages: ": hi", chat: "[DONE]", kind: model.Garbage},
		{name: "no stop reason", messages: start, chat: `{"choices":[{"index":0,"delta":{"content":"one"}}]}` + "\n[DONE]", kind: model.Garbage},
		{name: "another stop reason", messages: start + strings.Replace(end, "end_turn", "pause_turn", 1), chat: `{"choices":[{"index":0,"delta":{},"finish_reason":"network_error"}]}`, kind: model.Garbage, message: "_"},
		{name: "no beginning", messages: end, kind: model.Garbage, message: "message_delta"},
		{name: "two beginnings", messages: start + start + end, kind: model.Garbage, message: "message_start"},
		{name: "a part of no block", messages: start + `{"type":"content_block_delta","index":3,"delta":{"type":"text_delta","text":"one"}}` + "\n" + end, kind: model.Garbage, message: "index 3"},
		{
			name: "a text in a call", messages: start + `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"look","input":{}}}` + "\n" +
				`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"one"}}` + "\n" + stop + end,
			kind: model.Garbage, message: "text_delta",
		},
		{name: "denied in the stream", messages: start + `{"type":"error","error":{"type":"permission_error","message":"not you"}}`, chat: `{"error":{"code":403,"message":"not you"}}`, kind: model.Denied, message: "not you"},
		{name: "too long in the stream", messages: start + `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long"}}`, chat: `{"error":{"code":"context_length_exceeded","message":"oh"}}`, kind: model.TooLong},
	} {
		t.Run(tt.name, func(t *testing.T) {
			forEach(t, func(t *testing.T, a adapter) {
				reply := tt.reply
				if tt.messages+tt.chat != "" {
					reply.Raw = sse(map[string]string{"anthropic": tt.messages, "openai": tt.chat}[a.name])
				}
				if tt.messages+tt.chat != "" && reply.Raw == "" {
					return
				}
				server := &script.Server{Script: script.Script{Replies: []script.Reply{reply}}}
				_, err := a.model(t, serve(t, server)).Stream(t.Context(), hello, func(model.Event) {})
				e := refusal(t, err)
				brief := len(e.Message) <= 1000 && !strings.Contains(e.Message, "\n")
				if e.Kind != tt.kind || e.Status != tt.status || e.RetryAfter != tt.after ||
					!strings.Contains(e.Message, tt.message) || !brief {
					t.Errorf("%d %d %v: %s", e.Kind, e.Status, e.RetryAfter, e.Message)
				}
				if n := len(server.Requests()); n != 1 {
					t.Errorf("%d requests", n)
				}
			})
		})
	}
}

// TestNoStream has answers of servers that are no provider's.
func TestNoStream(t *testing.T) {
	for _, tt := range []struct {
		name, kind, body string
		status           int
		want             model.Kind
		message          string
	}{
		{"a page", "text/html", "<html>log in", 200, model.Garbage, `"text/html"`},
		{"no type", "", "", 200, model.Garbage, `""`},
		{"a page of a gateway", "text/html", "<html>502", 502, model.Again, "Bad Gateway"},
		{"a text", "text/plain; charset=utf-8", "404 page not found\n", 404, model.Denied, "404 page not found"},
		{"an error of status 200", "application/json", `{"error":{"message":"busy","code":503}}`, 200, model.Again, "busy"},
		{"a list of errors", "application/json", `[{"error":{"code":400,"message":"The input token count (9) exceeds the maximum"}}]`, 400, model.TooLong, "input token"},
		{"an endless text", "text/plain", strings.Repeat("x", 1<<20), 400, model.Invalid, "xxx"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			forEach(t, func(t *testing.T, a adapter) {
				n := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header()["Content-Type"] = []string{tt.kind}
					w.WriteHeader(tt.status)
					_, _ = w.Write([]byte(tt.body)) // the client reads as much as it likes
				}))
				_, err := a.model(t, n).Stream(t.Context(), hello, func(model.Event) {})
				e := refusal(t, err)
				has := strings.Contains(e.Message, tt.message)
				if e.Kind != tt.want || e.Status != tt.status || !has || len(e.Message) > 1000 {
					t.Errorf("%d %d: %s", e.Kind, e.Status, e.Message)
				}
			})
		})
	}
}

// TestAway holds that a provider that can't be reached is asked again later.
func TestAway(t *testing.T) {
	forEach(t, func(t *testing.T, a adapter) {
		n := serve(t, nil)
		refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")} // as of a net.Dialer
		n.DialContext = func(context.Context, string, string) (net.Conn, error) { return nil, refused }
		_, err := a.model(t, n).Stream(t.Context(), hello, func(model.Event) {})
		e := refusal(t, err)
		if e.Kind != model.Again || e.Status != 0 || !e.Unsent || !strings.Contains(e.Message, refused.Error()) {
			t.Errorf("%+v", e)
		}
		n = serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
		_, err = a.model(t, n).Stream(t.Context(), hello, func(model.Event) {})
		if e := refusal(t, err); e.Kind != model.Again || e.Unsent { // the provider has the request
			t.Errorf("%+v", e)
		}
	})
}

// TestRedirect holds that the key goes nowhere but to the configured host.
func TestRedirect(t *testing.T) {
	for _, status := range []int{301, 302, 307, 308} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			forEach(t, func(t *testing.T, a adapter) {
				requests := 0
				n := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					requests++
					http.Redirect(w, r, "http://elsewhere.example/"+key, status)
				}))
				_, err := a.model(t, n).Stream(t.Context(), hello, func(model.Event) {})
				e := refusal(t, err)
				if e.Kind != model.Invalid || e.Message != "a redirect to elsewhere.example, which is not followed" {
					t.Errorf("%+v", e)
				}
				if got := n.hosts(); requests != 1 || !slices.Equal(got, []string{"model.example:80"}) {
					t.Errorf("%d requests to %v", requests, got)
				}
			})
		})
	}
}

// TestKey holds that the key is in the request alone.
func TestKey(t *testing.T) {
	forEach(t, func(t *testing.T, a adapter) {
		server := &script.Server{Script: script.Script{Replies: []script.Reply{
			{Status: 401, Message: "Incorrect API key provided: " + key + "."},
			{Status: 401, Message: strings.Repeat("x", 980) + key}, // it would be cut
			{Text: "one", Error: "the key " + key + " was revoked"},
		}}}
		m := a.model(t, serve(t, server))
		for range 3 {
			_, err := m.Stream(t.Context(), hello, func(model.Event) {})
			text := fmt.Sprintf("%v %+v", err, refusal(t, err))
			if strings.Contains(text, key[:8]) || !strings.Contains(text, "[redacted:KEY]") {
				t.Error(text)
			}
		}
		for _, r := range server.Requests() {
			if strings.TrimPrefix(r.Auth, "Bearer ") != key || strings.Contains(string(r.Body), key) {
				t.Errorf("%s %s", r.Auth, r.Body)
			}
		}
		for _, bad := range []string{"", "sk-x\n", "sk x", "schlüssel"} {
			_, err := a.make(provider.Config{Key: bad})
			if err == nil || bad != "" && strings.Contains(err.Error(), bad) {
				t.Errorf("the key %q: %v", bad, err)
			}
		}
		for _, bad := range []string{"model.example", "ftp://model.example", "http://", "http://a:b@c.example", ":"} {
			if _, err := a.make(provider.Config{Key: key, BaseURL: bad}); err == nil {
				t.Errorf("the base URL %q is taken", bad)
			}
		}
	})
}

// TestEnvironment holds that nothing in the environment decides where a request goes, and with which key.
func TestEnvironment(t *testing.T) {
	home := t.TempDir()
	for name, value := range map[string]string{
		"ANTHROPIC_BASE_URL": "http://elsewhere.example", "ANTHROPIC_API_KEY": "hostile",
		"ANTHROPIC_AUTH_TOKEN": "hostile", "ANTHROPIC_PROFILE": "hostile",
		"ANTHROPIC_CUSTOM_HEADERS": "X-Hostile: hostile", "ANTHROPIC_CONFIG_DIR": home,
		"ANTHROPIC_FEDERATION_RULE_ID": "hostile", "ANTHROPIC_ORGANIZATION_ID": "hostile",
		"ANTHROPIC_IDENTITY_TOKEN": "hostile", "ANTHROPIC_OPEN_TELEMETRY_TRACES_CONTENT_MODE": "content",

		"OPENAI_BASE_URL": "http://elsewhere.example", "OPENAI_API_KEY": "hostile", "OPENAI_ADMIN_KEY": "hostile",
		"OPENAI_ORG_ID": "hostile", "OPENAI_PROJECT_ID": "hostile", "OPENAI_CUSTOM_HEADERS": "X-Hostile: hostile",
		"HOME": home, "XDG_CONFIG_HOME": home,
	} {
		t.Setenv(name, value)
	}
	// Anthropic's library takes the first credential that it finds, and looks no further.
	for _, without := range []string{"", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE"} {
		if err := os.Unsetenv(without); without != "" && err != nil { // t.Setenv restores it
			t.Fatal(err)
		}
		t.Run("without "+without, checkEnvironment)
	}
}

// checkEnvironment makes a request with each adapter, and looks where it goes and what it has.
func checkEnvironment(t *testing.T) {
	forEach(t, func(t *testing.T, a adapter) {
		var got http.Header
		server := &script.Server{Script: script.Script{Replies: []script.Reply{{Text: "one"}}}}
		n := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got = r.Header.Clone()
			server.ServeHTTP(w, r)
		}))
		if _, err := a.model(t, n).Stream(t.Context(), hello, func(model.Event) {}); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprint(got)
		if strings.Contains(strings.ToLower(text), "hostile") || strings.Count(text, key) != 1 {
			t.Error(text)
		}

		// The provider's own address, where none is configured. There is no TLS at its end.
		m, err := a.make(provider.Config{Key: key, Transport: n})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Stream(t.Context(), hello, func(model.Event) {}); refusal(t, err).Kind != model.Again {
			t.Error(err)
		}
		if got, want := n.hosts(), []string{"model.example:80", a.own}; !slices.Equal(got, want) {
			t.Errorf("requests to %v, want %v", got, want)
		}
	})
}
