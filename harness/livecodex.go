package harness

import (
	"encoding/json"
	"strings"
	"syscall"

	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/session"
)

// codexLive is codex app-server, which speaks JSON-RPC.
//
// The session's file comes with its first turn. A turn takes in what it has accepted at its next step; what it has not
// taken in at an interrupt is lost without notice, but for the turn's end.
var codexLive = Live{
	Least: "0.169.0",
	// On TERM app-server ends its tools, records the abort and exits with 0. On INT it dies at once and its tools keep
	// running. exec does it the other way round.
	Stop: syscall.SIGTERM,
	Command: func(b Box, t Task) Invocation {
		args := []string{"app-server"}
		return Invocation{Args: append(append(args, codexSettings(b)...), t.Args...)}
	},
	Open: codexOpen,
	// turn/start joins a running turn, too, or begins one where that has failed meanwhile: it would overtake what the
	// failed turn had accepted. turn/steer is refused then, and the message is put again, in its order.
	Put: func(t Talk, m Message) []byte {
		input := []object{{"type": "text", "text": m.Text, "text_elements": []string{}}}
		for _, i := range m.Images {
			input = append(input, object{"type": "image", "url": "data:" + i.MimeType + ";base64," + i.Data})
		}
		params := object{"threadId": t.Session.ID, "clientUserMessageId": m.ID, "input": input}
		if turn := t.codexTurn(); turn != "" {
			params["expectedTurnId"] = turn
			return codexRequest(m.ID, "turn/steer", params)
		}
		return codexRequest(m.ID, "turn/start", params)
	},
	Interrupt: func(t Talk, id string) [][]byte {
		turn := t.codexTurn()
		if turn == "" {
			return nil
		}
		return [][]byte{codexRequest(id, "turn/interrupt", object{"threadId": t.Session.ID, "turnId": turn})}
	},
	// Requests about one thread are answered in order; one about no thread overtakes a turn/start.
	Barrier: func(t Talk, id string) []byte {
		if !t.Opened {
			return codexRequest(id, "thread/loaded/list", object{})
		}
		return codexRequest(id, "thread/backgroundTerminals/list", object{"threadId": t.Session.ID})
	},
	Rounds:  1,
	MaxText: 1 << 20,
	Answer:  codexLiveAnswer,
	read:    codexRead,
	taken: func(_ []byte, e session.Entry, sent []Message) []int {
		if e.Kind != session.User {
			return nil
		}
		return byText(e, sent)
	},
}

// codexTurn is the id of the running turn, or of the one that is about to start; "" for none.
func (t Talk) codexTurn() string {
	if t.Turn == "" && len(t.Queue) > 0 {
		return t.Queue[len(t.Queue)-1].turn()
	}
	return t.Turn
}

// Ids of the requests that open a session. No message's id is like them.
const (
	codexInitialize = "open.initialize"
	codexThread     = "open.thread"
)

// codexNoise are the notifications that codex is not to send: parts of what another one has whole.
var codexNoise = []string{
	"item/agentMessage/delta", "item/commandExecution/outputDelta", "item/fileChange/outputDelta",
	"item/reasoning/summaryTextDelta", "item/reasoning/textDelta", "turn/diff/updated",
}

func codexOpen(t Talk, task Task, dir string) (lines [][]byte) {
	if t.Opened {
		return nil
	}
	if !t.Initialized {
		lines = append(lines, codexRequest(codexInitialize, "initialize", object{
			"clientInfo": object{"name": "arbe", "version": "1"},
			"capabilities": object{
				"experimentalApi": true, "optOutNotificationMethods": codexNoise,
			},
		}), encode(object{"method": "initialized"}))
	}
	params := object{"cwd": dir, "approvalPolicy": "never", "sandbox": "danger-full-access"}
	if task.Model != "" {
		params["model"] = task.Model
	}
	method := "thread/start"
	if task.Resume {
		method = "thread/resume"
		params["threadId"], params["excludeTurns"] = task.ID, true
	}
	return append(lines, codexRequest(codexThread, method, params))
}

func codexRequest(id, method string, params object) []byte {
	return encode(object{"id": id, "method": method, "params": params})
}

// codexLine is a response, a notification or a request of codex.
type codexLine struct {
	ID     json.RawMessage
	Method string
	Params struct {
		ThreadID  string
		WillRetry bool
		Turn      codexTurn
		Item      struct{ Type, ClientID string }
		Error     struct{ Message string }
		Reason    string
		Command   json.RawMessage
		Message   string
	}
	Result struct {
		Turn   *codexTurn
		TurnID string // of a message that has joined the turn
		Thread *struct{ ID, Path string }
		Data   json.RawMessage // a barrier's
	}
	Error *struct{ Message string }
}

type codexTurn struct {
	ID, Status string
	Error      struct{ Message string }
}

func codexRead(t *Talk, line []byte) (ev Event) {
	var e codexLine
	if !decode(line, &e) {
		return ev
	}
	switch {
	case e.Method == "":
		codexAnswered(t, &ev, unquote(e.ID), e)
	case len(e.ID) > 0:
		ev.Request = codexAsks(e)
	case e.Params.ThreadID == t.Session.ID: // others are subagents'
		codexNotified(t, &ev, e)
	}
	return ev
}

// codexLiveAnswer takes the replies of a turn, and its end.
func codexLiveAnswer(line []byte) (text string, final bool) {
	var e struct {
		Method string
		Params struct {
			Item struct{ Type, Text string }
			Turn struct{ Status string }
		}
	}
	if !decode(line, &e) {
		return "", false
	}
	if e.Method == "item/completed" && e.Params.Item.Type == "agentMessage" {
		text = e.Params.Item.Text
	}
	return text, e.Method == "turn/completed" && e.Params.Turn.Status == "completed"
}

// codexAnswered takes a response.
func codexAnswered(t *Talk, ev *Event, id string, e codexLine) {
	switch {
	case id == codexInitialize:
		t.Initialized = true // an error means that it was before
	case id == codexThread && e.Error != nil:
		if !t.Opened {
			ev.OpenError = e.Error.Message
		}
	case id == codexThread:
		if thread := e.Result.Thread; thread != nil && !t.Opened {
			t.Opened, t.Session = true, Session{ID: thread.ID, Path: thread.Path}
			ev.SessionID = thread.ID
		}
	case e.Error != nil: // of a message, or of an interrupt that came too late
		ev.Answered, ev.Refused, ev.Reason = id, id, e.Error.Message
		late := strings.Contains(ev.Reason, "active turn to steer") ||
			strings.Contains(ev.Reason, "expected active turn")
		ev.Again = (t.Busy || late) && !strings.Contains(ev.Reason, "exceeds the maximum")
	case e.Result.Turn != nil:
		ev.Accepted = id
		t.enqueue(id, e.Result.Turn.ID)
	case e.Result.TurnID != "":
		ev.Accepted = id
		t.enqueue(id, e.Result.TurnID)
	default:
		ev.Answered = id
		if e.Result.Data == nil { // an interrupt's; the end of the turn comes later
			t.Ending = t.Busy
		}
	}
}

// codexNotified takes a notification about the session's thread.
func codexNotified(t *Talk, ev *Event, e codexLine) {
	p := e.Params
	switch e.Method {
	case "turn/started":
		t.Busy, t.Turn, t.Wait = true, p.Turn.ID, NoWait
		ev.Mark = session.Begin
	case "turn/completed":
		ev.Dropped = t.dequeue(func(w Waiting) bool { return w.turn() == p.Turn.ID })
		if p.Turn.ID != t.Turn {
			return
		}
		t.Busy, t.Turn, t.Wait = false, "", NoWait
		switch p.Turn.Status {
		case "completed":
			ev.Mark, ev.StopReason = session.End, outcome.StopStop
		case "interrupted":
			ev.Mark, ev.StopReason = session.Abort, outcome.StopAborted
		default:
			ev.Mark, ev.StopReason, ev.Message = session.Failure, outcome.StopError, p.Turn.Error.Message
			if strings.Contains(ev.Message, "max_output_tokens") {
				ev.StopReason = outcome.StopLength
			}
		}
	case "item/started":
		t.Wait = NoWait
		switch p.Item.Type {
		case "userMessage":
			t.dequeue(func(w Waiting) bool { return w.id() == p.Item.ClientID })
		case "contextCompaction":
			t.Wait = Compaction
		}
	case "item/completed":
		t.Wait = NoWait
	case "error":
		ev.Offline = strings.Contains(p.Error.Message, "waiting for network")
		if p.WillRetry {
			t.Wait = Retry
		}
	}
}

// codexAsks answers a request of codex. Approvals are given: the run bypasses them, and codex asks only where the box's
// configuration makes it.
func codexAsks(e codexLine) *Request {
	r := &Request{ID: string(e.ID), Kind: e.Method, Text: e.Params.Reason, Decision: "allowed"}
	if r.Text == "" {
		r.Text = e.Params.Message
	}
	reply := object{"id": e.ID}
	switch e.Method {
	case "item/commandExecution/requestApproval", "item/fileChange/requestApproval":
		reply["result"] = object{"decision": "accept"}
	case "execCommandApproval", "applyPatchApproval":
		reply["result"] = object{"decision": "approved"}
	case "item/tool/requestUserInput":
		r.Decision, reply["result"] = "cancelled", object{"answers": object{}}
	case "mcpServer/elicitation/request":
		r.Decision, reply["result"] = "cancelled", object{"action": "cancel"}
	default:
		r.Decision = "unsupported"
		reply["error"] = object{"code": -32601, "message": "not supported: " + e.Method}
	}
	r.Reply = encode(reply)
	return r
}
