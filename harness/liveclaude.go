package harness

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"arbe.0sk.ar/runner/session"
)

// claudeLive is claude-code with stream-json input.
//
// It prints nothing before its first message. Its input must be JSON: it exits with 1 at a line that is not.
var claudeLive = Live{
	Least: "2.1.329",
	Stop:  syscall.SIGINT,
	Command: func(b Box, t Task) Invocation {
		t.Prompt, t.Person = "", false
		do := claudeCommand(b, t)
		do.Args = slices.Insert(do.Args, 1, "--input-format", "stream-json", "--replay-user-messages")
		do.Env = append(do.Env, "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS=1")
		return do
	},
	Put: func(_ Talk, m Message) []byte {
		content := []object{{"type": "text", "text": m.Text}}
		for _, i := range m.Images {
			source := object{"type": "base64", "media_type": i.MimeType, "data": i.Data}
			content = append(content, object{"type": "image", "source": source})
		}
		return encode(object{
			"type": "user", "uuid": m.ID, "message": object{"role": "user", "content": content},
		})
	},
	// What is queued would begin the next turn at once, before the message that is the reason of the interrupt. It is
	// taken back.
	Interrupt: func(t Talk, id string) (lines [][]byte) {
		for i, w := range t.Queue {
			lines = append(lines, claudeControl(id+".cancel."+strconv.Itoa(i),
				object{"subtype": "cancel_async_message", "message_uuid": w.id()}))
		}
		return append(lines, claudeControl(id, object{"subtype": "interrupt"}))
	},
	// It takes back a message that does not exist.
	Barrier: func(_ Talk, id string) []byte {
		return claudeControl(id, object{"subtype": "cancel_async_message", "message_uuid": MessageID(id, 0)})
	},
	Rounds: 1,
	// A command, or what may be one, waits for the end of the turn; a text behind it joins the turn.
	Apart:  func(text string) bool { return strings.HasPrefix(strings.TrimSpace(text), "/") },
	Answer: claudeAnswer,
	read:   claudeRead,
	taken:  claudeTaken,
}

// claudeControl is a request to claude.
func claudeControl(id string, request object) []byte {
	return encode(object{"type": "control_request", "request_id": id, "request": request})
}

func claudeRead(t *Talk, line []byte) (ev Event) {
	var e struct {
		Type, Subtype, State, Status string
		SessionID                    string `json:"session_id"`
		Command                      string `json:"command_uuid"`
		RequestID                    string `json:"request_id"`
		Request                      struct {
			Subtype  string
			ToolName string `json:"tool_name"`
			Input    json.RawMessage
		}
		Response struct {
			RequestID string `json:"request_id"`
			Response  struct {
				StillQueued []string `json:"still_queued"`
			}
		}
	}
	if !decode(line, &e) {
		return ev
	}
	if ev.Report = claudeReport(line); ev.Mark != session.NoMark {
		t.Wait = NoWait
	}
	if t.Session.ID == "" {
		t.Session.ID = e.SessionID
	}
	switch e.Type {
	case "result":
		t.Ending = false
	case "system":
		switch {
		case e.Subtype == "session_state_changed":
			t.Busy = e.State != "idle"
		case e.Subtype == "status" && e.Status == "compacting":
			t.Wait = Compaction
		case e.Subtype == "api_retry":
			t.Wait = Retry
		case e.Subtype == "status", e.Subtype == "compact_boundary":
			t.Wait = NoWait
		}
	case "assistant":
		t.Wait = NoWait
	case "command_lifecycle":
		is := func(w Waiting) bool { return w.id() == e.Command }
		switch e.State {
		case "queued":
			t.enqueue(e.Command, "")
			ev.Accepted = e.Command
		case "cancelled": // also of the message whose turn was interrupted
			ev.Dropped = t.dequeue(is)
		default: // started; completed, at once for an id that it has had
			t.dequeue(is)
			ev.Accepted = e.Command
		}
	case "control_response":
		ev.Answered = e.Response.RequestID
		if e.Response.Response.StillQueued != nil { // an interrupt's
			t.Ending = t.Busy
		}
	case "control_request":
		ev.Request = claudeRequest(e.RequestID, e.Request.Subtype, e.Request.ToolName, e.Request.Input)
	}
	return ev
}

// claudeRequest answers a request. Tools are allowed: the run skips permissions, and the agent asks only where the
// configuration of the box makes it.
func claudeRequest(id, subtype, tool string, input json.RawMessage) *Request {
	r := &Request{ID: id, Kind: subtype, Text: tool}
	response := object{"request_id": id}
	if subtype == "can_use_tool" && tool != "AskUserQuestion" {
		r.Decision = "allowed"
		response["subtype"], response["response"] = "success", object{"behavior": "allow", "updatedInput": input}
	} else if subtype == "can_use_tool" {
		r.Decision = "cancelled"
		response["subtype"] = "success"
		response["response"] = object{"behavior": "deny", "message": "Nobody is here to answer."}
	} else {
		r.Decision = "unsupported"
		response["subtype"], response["error"] = "error", "not supported: "+subtype
	}
	r.Reply = encode(object{"type": "control_response", "response": response})
	return r
}

// claudeTaken finds the message by its uuid: a user line has it, or, for one that was taken in during a turn, the
// attachment that holds it, or, for a command that claude refuses, a system line. A user line that joins queued
// messages has the uuid of the last one, and all their texts.
func claudeTaken(line []byte, _ session.Entry, sent []Message) []int {
	var e struct {
		Type, UUID string
		SubmitUUID string `json:"submitUuid"`
		Message    json.RawMessage
		Attachment struct {
			Type   string
			Source string `json:"source_uuid"`
		}
	}
	if !decode(line, &e) {
		return nil
	}
	id := ""
	switch {
	case e.Type == "user":
		id = e.UUID
	case e.Type == "attachment" && e.Attachment.Type == "queued_command":
		id = e.Attachment.Source
	case e.Type == "system":
		id = e.SubmitUUID
	}
	last := slices.IndexFunc(sent, func(m Message) bool { return m.ID == id })
	if last < 0 {
		return nil
	}
	var found []int
	if texts := textsOf(e.Message); len(texts) > 1 {
		for i, m := range sent[:last] {
			if slices.Contains(texts, m.Text) || slices.Contains(texts, m.Text+"\n") {
				found = append(found, i)
			}
		}
	}
	return append(found, last)
}
