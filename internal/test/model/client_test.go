package model_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// answer is an answer as a client of any of the APIs reads it.
type answer struct {
	text, thinking string
	tools          []string // name and arguments
	end            string   // why it ended, in the API's words; "" is that it did not
	err            string   // the error in the answer, with the status where it is not 200
	broken         bool     // the connection broke off
}

func (a answer) String() string {
	s := fmt.Sprintf("%q end=%q", a.text, a.end)
	for _, extra := range []struct {
		is   bool
		text string
	}{{a.thinking != "", fmt.Sprintf(" thinking=%q", a.thinking)}, {a.tools != nil, fmt.Sprint(" tools=", a.tools)}, {a.err != "", " error=" + a.err}, {a.broken, " broken"}} {
		if extra.is {
			s += extra.text
		}
	}
	return s
}

// ask posts a request and reads its stream.
func ask(t *testing.T, url, path, prompt string) (a answer) {
	t.Helper()
	req, err := http.NewRequest(
		http.MethodPost,
		url+path,
		strings.NewReader(fmt.Sprintf(`{"model":"m","stream":true,"input":%q}`, prompt)),
	)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", "the-key")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var body struct {
			Error struct{ Message, Type string }
		}
		if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
			t.Fatal(err)
		}
		a.err = fmt.Sprint(resp.StatusCode, " ", body.Error.Type, " ", body.Error.Message)
		return a
	}
	in := bufio.NewReader(resp.Body)
	name := ""
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			a.broken = err != io.EOF
			return a
		}
		if rest, is := strings.CutPrefix(line, "event: "); is {
			name = strings.TrimSpace(rest)
		}
		if rest, is := strings.CutPrefix(line, "data: "); is && rest != "[DONE]\n" {
			a.read(t, path, name, []byte(rest))
		}
	}
}

// read takes in one event.
func (a *answer) read(t *testing.T, path, name string, data []byte) {
	t.Helper()
	type message struct{ Message string }
	var e struct {
		Type  string
		Error *message

		Choices []struct { // chat-completions
			Delta struct {
				Content   string
				Reasoning string `json:"reasoning_content"`
				Calls     []struct {
					Function struct{ Name, Arguments string }
				} `json:"tool_calls"`
			}
			Finish string `json:"finish_reason"`
		}

		Delta json.RawMessage // Responses have a text here, Messages an object
		Item  struct {
			Type, Name, Namespace, Arguments string
			Summary                          []struct{ Text string }
		}
		Response struct {
			Status     string
			Incomplete struct{ Reason string } `json:"incomplete_details"`
			Error      *message
		}

		Block struct{ Type, Name string } `json:"content_block"`
	}
	if err := json.Unmarshal(data, &e); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	if e.Type != name {
		t.Errorf("event %s has type %s", name, e.Type)
	}
	if e.Error != nil {
		a.err = e.Error.Message
	}
	for _, c := range e.Choices {
		a.text, a.thinking, a.end = a.text+c.Delta.Content, a.thinking+c.Delta.Reasoning, c.Finish
		for _, call := range c.Delta.Calls {
			a.tools = append(a.tools, call.Function.Name+call.Function.Arguments)
		}
	}
	switch e.Type {
	case "response.output_text.delta":
		var word string
		if err := json.Unmarshal(e.Delta, &word); err != nil {
			t.Fatal(err)
		}
		a.text += word
	case "response.output_item.done":
		if e.Item.Type == "function_call" {
			a.tools = append(a.tools, e.Item.Namespace+e.Item.Name+e.Item.Arguments)
		}
		for _, s := range e.Item.Summary {
			a.thinking += s.Text
		}
	case "response.completed", "response.incomplete", "response.failed":
		a.end = e.Response.Status + e.Response.Incomplete.Reason
		if e.Response.Error != nil {
			a.end, a.err = "", e.Response.Error.Message
		}
	case "content_block_start":
		if e.Block.Type == "tool_use" {
			a.tools = append(a.tools, e.Block.Name)
		}
	case "content_block_delta", "message_delta":
		var d struct {
			Text, Thinking string
			Partial        string `json:"partial_json"`
			Stop           string `json:"stop_reason"`
		}
		if err := json.Unmarshal(e.Delta, &d); err != nil {
			t.Fatal(err)
		}
		a.text, a.thinking, a.end = a.text+d.Text, a.thinking+d.Thinking, d.Stop
		if d.Partial != "" {
			a.tools[len(a.tools)-1] += d.Partial
		}
	}
}
