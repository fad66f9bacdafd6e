package answer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/answer"
	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/thread/redact"
)

const login = "pg-login-8a7b6c5d4e3f"

// scripted is a model that sends pieces of text, and replies with parts.
type scripted struct {
	pieces []string
	parts  []model.Part
	err    error
}

func (s scripted) Stream(_ context.Context, _ model.Request, f func(model.Event)) (model.Reply, error) {
	for _, p := range s.pieces {
		f(model.Event{Text: p})
	}
	return model.Reply{Parts: s.parts, Stop: model.StopEnd}, s.err
}

// A secret does not leave, wherever the provider cuts the text.
func TestRedactedText(t *testing.T) {
	t.Parallel()
	hide := redact.New(nil, nil)
	hide.Add("DB_LOGIN", login)
	const whole = "it is " + login + ", and so on"
	for cut := range len(whole) {
		m := answer.Redacted(scripted{
			pieces: []string{whole[:cut], whole[cut:]}, parts: []model.Part{{Text: whole}},
		}, hide)
		var all string
		reply, err := m.Stream(t.Context(), model.Request{}, func(e model.Event) {
			for n := 4; n <= len(login); n++ { // the beginning of one, too
				if strings.HasSuffix(e.Text, login[:n]) {
					t.Errorf("cut at %d: a part ends with %q", cut, login[:n])
				}
			}
			all += e.Text
		})
		const want = "it is [redacted:DB_LOGIN], and so on"
		if err != nil || all != want || reply.Parts[0].Text != want {
			t.Errorf("cut at %d: %q, %+v, %v", cut, all, reply, err)
		}
	}
}

// Of the other parts of a reply: calls are redacted and stay JSON, and thinking that has a secret is dropped.
func TestRedactedParts(t *testing.T) {
	t.Parallel()
	hide := redact.New(nil, nil)
	hide.Add("DB_LOGIN", login)
	m := answer.Redacted(scripted{parts: []model.Part{
		{Thinking: &model.Thinking{Text: "hm", Signature: "a"}},
		{Thinking: &model.Thinking{Text: "use " + login, Signature: "b"}},
		{Call: &model.Call{ID: "c1", Name: "run", Arguments: json.RawMessage(`{"command":"psql ` + login + `"}`)}},
		{Call: &model.Call{ID: "c2", Name: "run", Broken: `{"command":"` + login}},
	}}, hide)
	reply, err := m.Stream(t.Context(), model.Request{}, func(model.Event) {})
	if err != nil || len(reply.Parts) != 3 {
		t.Fatalf("%+v, %v", reply, err)
	}
	if got := reply.Parts[0].Thinking; got == nil || got.Signature != "a" {
		t.Errorf("thinking is %+v", got)
	}
	if got := string(reply.Parts[1].Call.Arguments); got != `{"command":"psql [redacted:DB_LOGIN]"}` {
		t.Errorf("arguments are %s", got)
	}
	if got := reply.Parts[2].Call.Broken; got != `{"command":"[redacted:DB_LOGIN]` {
		t.Errorf("broken ones are %s", got)
	}
}

// An error that has a secret has none for the thread.
func TestRedactedError(t *testing.T) {
	t.Parallel()
	hide := redact.New(nil, nil)
	hide.Add("KEY", login)
	m := answer.Redacted(scripted{err: &model.Error{Kind: model.Denied, Message: "no such key: " + login}}, hide)
	_, err := m.Stream(t.Context(), model.Request{}, func(model.Event) {})
	failed, is := errors.AsType[*model.Error](err)
	if !is || failed.Kind != model.Denied || failed.Message != "no such key: [redacted:KEY]" {
		t.Errorf("%v", err)
	}
}

// lab is the rows of a house.
type lab struct {
	answer.Rows
	room rows.Room
}

func (l lab) Room(context.Context, string) (rows.Room, error) { return l.room, nil }

// dispatcher returns one of a house with secrets.
func dispatcher(room rows.Room, secrets map[string]string) *answer.Dispatcher {
	return &answer.Dispatcher{
		Rows: func(context.Context) (answer.Rows, error) { return lab{room: room}, nil },
		Models: answer.Models{"anthropic": func(key string) (model.Model, error) {
			return scripted{parts: []model.Part{{Text: "the key is " + key + ", the login " + login}}}, nil
		}},
		Secret: func(_ context.Context, _, name string) (string, error) {
			if v, is := secrets[name]; is {
				return v, nil
			}
			return "", rows.ErrAbsent
		},
		Secrets: func(context.Context, string) (map[string]string, error) {
			return map[string]string{"DB_LOGIN": login}, nil
		},
	}
}

// A model has the key of its house, by the provider's usual name or by the house's, and what it prints has neither that
// nor a secret of the environment.
func TestModel(t *testing.T) {
	t.Parallel()
	const key = "sk-7f6e5d4c3b2a"
	named := rows.HouseConfig{Dispatch: rows.HouseDispatch{
		Models: map[string]rows.ModelAccess{"anthropic": {Secret: "OTHER"}},
	}}
	for name, tt := range map[string]struct {
		config   rows.HouseConfig
		secrets  map[string]string
		provider string
		want     string
	}{
		"the usual name": {
			rows.HouseConfig{},
			map[string]string{"ANTHROPIC_API_KEY": key},
			"anthropic",
			"the key is [redacted:ANTHROPIC_API_KEY], the login [redacted:DB_LOGIN]",
		},
		"the house's name": {
			named,
			map[string]string{"OTHER": key},
			"anthropic",
			"the key is [redacted:OTHER], the login [redacted:DB_LOGIN]",
		},
		"no secret": {
			rows.HouseConfig{},
			nil, "anthropic",
			"the house has no secret ANTHROPIC_API_KEY: arbe secret set --house h1 ANTHROPIC_API_KEY",
		},
		"no provider": {
			rows.HouseConfig{},
			nil, "acme",
			`this host has no address of the provider "acme": start it with --model-url acme=URL`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			room := rows.Room{House: rows.House{ID: "h1", DefaultEnvironment: "e1"}, HouseConfig: tt.config}
			m, err := answer.ModelOf(dispatcher(room, tt.secrets), t.Context(), "t1", tt.provider)
			got := fmt.Sprint(err)
			if err == nil {
				reply, _ := m.Stream(t.Context(), model.Request{}, func(model.Event) {})
				got = reply.Parts[0].Text
			} else if failed, is := errors.AsType[*model.Error](err); !is || failed.Kind != model.Denied {
				t.Errorf("the reaction does not end: %v", err)
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// The result of a tool has no secret of the environment.
func TestTool(t *testing.T) {
	t.Parallel()
	d := dispatcher(rows.Room{Thread: rows.Thread{Environment: "e1"}}, nil)
	d.Tools = []dispatch.Tool{{Run: func(context.Context, dispatch.ToolCall) (dispatch.ToolResult, error) {
		return dispatch.ToolResult{Text: "DB_LOGIN=" + login}, nil
	}}}
	got, err := answer.ToolsOf(d)[0].Run(t.Context(), dispatch.ToolCall{Thread: "t1"})
	if err != nil || got.Text != "DB_LOGIN=[redacted:DB_LOGIN]" {
		t.Errorf("%+v, %v", got, err)
	}
}
