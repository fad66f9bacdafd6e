package harness

import (
	"bytes"
	"encoding/json"
	"strings"
	"syscall"

	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/session"
)

// piLive is pi --mode rpc.
//
// 0.78.0 is refused: a message in its retry wait or compaction starts a second loop beside the first.
//
// A message is always a prompt with streamingBehavior: right for a busy and an idle pi, unlike its steer, which an idle
// pi queues without beginning a turn. What is queued at an abort is taken in anyway: after a tool by the ending turn,
// else behind the next prompt.
var piLive = Live{
	Least: "0.87.1",
	Stop:  syscall.SIGTERM,
	Command: func(_ Box, t Task) Invocation {
		args := []string{"--mode", "rpc", "--session", t.Path}
		if t.Model != "" {
			args = append(args, "--model", t.Model)
		}
		return Invocation{Args: append(args, t.Args...), Env: piEnv}
	},
	Put: func(_ Talk, m Message) []byte {
		o := object{"id": m.ID, "type": "prompt", "message": m.Text, "streamingBehavior": "steer"}
		if len(m.Images) > 0 {
			var images []object
			for _, i := range m.Images {
				images = append(images, object{"type": "image", "mimeType": i.MimeType, "data": i.Data})
			}
			o["images"] = images
		}
		return encode(o)
	},
	// An abort ends a compaction and a retry wait, too. pi answers once it is idle.
	Interrupt: func(_ Talk, id string) [][]byte { return [][]byte{encode(object{"id": id, "type": "abort"})} },
	Barrier:   func(_ Talk, id string) []byte { return encode(object{"id": id, "type": "get_state"}) },
	Rounds:    2,
	// Before it begins a turn pi may summarize the conversation; another message would then begin a second turn.
	Holds:   []Wait{Compaction},
	Handles: true,
	Answer:  piAnswer,
	read:    piRead,
	taken:   piTaken,
}

// piUpdate begins the lines of a reply's parts. They have nothing of a turn, and in sum may be longer than all others.
var piUpdate = []byte(`{"type":"message_update"`)

func piRead(t *Talk, line []byte) (ev Event) {
	if bytes.HasPrefix(line, piUpdate) {
		return ev
	}
	var e struct {
		ID, Type, Command, Error string
		Success                  bool
		WillRetry                bool
		Method, Title, Message   json.RawMessage
		Data                     struct{ SessionID, SessionFile string }
	}
	if !decode(line, &e) {
		return ev
	}
	switch e.Type {
	case "response":
		switch {
		case e.Command != "prompt":
			ev.Answered = e.ID
			if e.Data.SessionID != "" { // a barrier's; an extension may have begun another session
				t.Session = Session{Path: e.Data.SessionFile, ID: e.Data.SessionID}
				ev.SessionID = t.Session.ID
			}
		case e.Success:
			ev.Accepted = e.ID
		default:
			ev.Refused, ev.Reason = e.ID, e.Error
			ev.Again = strings.Contains(e.Error, "compaction is in progress")
		}
	case "agent_start":
		t.Busy, t.Wait, t.Last = true, NoWait, Report{}
		ev.Mark = session.Begin
	case "message_end":
		var m struct{ Role, StopReason, ErrorMessage string }
		if decode(e.Message, &m) && m.Role == "assistant" {
			t.Last = piReply(m.StopReason, m.ErrorMessage)
		}
	case "agent_end":
		if e.WillRetry {
			t.Wait = Retry
		}
	case "auto_retry_start":
		t.Wait = Retry
	case "auto_retry_end":
		t.Wait = NoWait
	case "compaction_start":
		t.Wait = Compaction
	case "compaction_end":
		t.Wait = NoWait
	case "agent_settled":
		ev.Report = t.Last
		t.Busy, t.Wait, t.Last = false, NoWait, Report{}
	case "extension_ui_request":
		ev.Request = piRequest(e.ID, unquote(e.Method), unquote(e.Title))
	}
	return ev
}

// piAnswer takes a reply, and its end if it calls no tool.
func piAnswer(line []byte) (text string, final bool) {
	var e struct {
		Type    string
		Message json.RawMessage
	}
	var m struct{ Role, StopReason string }
	if bytes.HasPrefix(line, piUpdate) || !decode(line, &e) || e.Type != "message_end" ||
		!decode(e.Message, &m) || m.Role != "assistant" || m.StopReason != outcome.StopStop {
		return "", false
	}
	return strings.Join(textsOf(e.Message), "\n"), true
}

// piReply is the report of a turn that ends with a reply.
func piReply(stop, message string) Report {
	switch stop {
	case "error":
		return Report{Mark: session.Failure, StopReason: outcome.StopError, Message: message}
	case "aborted":
		return Report{Mark: session.Abort, StopReason: outcome.StopAborted}
	}
	return Report{Mark: session.End, StopReason: stop}
}

// piRequest answers a dialog of an extension: it is cancelled, as in print mode, which has no user interface. Other
// methods expect no answer.
func piRequest(id, method, title string) *Request {
	switch method {
	case "select", "confirm", "input", "editor":
		reply := encode(object{"type": "extension_ui_response", "id": id, "cancelled": true})
		return &Request{ID: id, Kind: method, Text: title, Decision: "cancelled", Reply: reply}
	}
	return nil
}

// piTaken finds the message by its text: pi records no id of ours. A text that begins with a slash may be the name of a
// template or a skill, which pi records expanded. To a text with images it may add what it changed in them.
func piTaken(_ []byte, e session.Entry, sent []Message) []int {
	if e.Kind != session.User {
		return nil
	}
	if found := byText(e, sent); found != nil {
		return found
	}
	text := strings.Join(textsOf(e.Message), "\n")
	for i, m := range sent {
		if strings.HasPrefix(m.Text, "/") || len(m.Images) > 0 && strings.HasPrefix(text, m.Text+"\n") {
			return []int{i}
		}
	}
	return nil
}

// unquote returns a JSON string's value; "" for anything else.
func unquote(raw json.RawMessage) (s string) {
	_ = json.Unmarshal(raw, &s) // not a string
	return s
}
