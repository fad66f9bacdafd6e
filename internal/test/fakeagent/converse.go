package fakeagent

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// talk is the fake of pi's --mode rpc. A message's text may begin with an instruction:
//
//	hold FILE      its turn lasts until there is such a file, or until it is interrupted
//	deaf FILE      it is accepted once there is such a file, and the messages behind it are not read before
//	ask            its turn lasts until a dialog of an extension is answered
//	fail           its turn fails
//	flood BYTES    it prints so much of what means nothing
//	refuse REASON  it is not accepted, for the reason
//	/…             an extension handles it: it leaves no line, and begins no turn
type talk struct {
	*agent
	out *json.Encoder

	mu      sync.Mutex
	cond    *sync.Cond
	queue   []string // accepted, not taken in
	busy    bool
	aborted bool
	ended   bool          // its input has
	answers int           // to dialogs
	over    chan struct{} // closed when the turn is aborted or the input ends; nil afterwards
}

// request is a line of its input.
type request struct{ ID, Type, Message string }

// converse talks until its input ends. Each message that it reads is added to the file.
func (a *agent) converse(file string) error {
	t := &talk{agent: a, out: json.NewEncoder(os.Stdout)}
	t.cond = sync.NewCond(&t.mu)
	log, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	read := make(chan error, 1)
	go func() { read <- t.read(log) }()
	t.mu.Lock()
	for {
		for len(t.queue) == 0 && !t.ended {
			t.cond.Wait()
		}
		if t.ended {
			t.mu.Unlock()
			return <-read
		}
		if err := t.turn(); err != nil {
			t.mu.Unlock()
			return err
		}
	}
}

// print prints an event. The caller has the lock.
func (t *talk) print(event map[string]any) { _ = t.out.Encode(event) }

// read reads the input.
func (t *talk) read(log *os.File) error {
	defer func() {
		t.mu.Lock()
		t.ended = true
		t.endTurn()
		t.mu.Unlock()
	}()
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var s request
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return fmt.Errorf("a line of %d bytes: %w", len(lines.Bytes()), err)
		}
		if s.Type == "prompt" {
			if _, err := fmt.Fprintf(log, "%q\n", s.Message); err != nil {
				return err
			}
			if file, deaf := strings.CutPrefix(s.Message, "deaf "); deaf {
				await(file, nil)
			}
		}
		t.mu.Lock()
		t.take(s)
		t.mu.Unlock()
	}
	return lines.Err()
}

func (t *talk) take(s request) {
	response := map[string]any{"id": s.ID, "type": "response", "command": s.Type, "success": true}
	switch s.Type {
	case "prompt":
		if why, refuse := strings.CutPrefix(s.Message, "refuse "); refuse {
			response["success"], response["error"] = false, why
		} else if !strings.HasPrefix(s.Message, "/") {
			t.queue = append(t.queue, s.Message)
		}
		t.print(response)
		t.cond.Broadcast()
	case "abort":
		if t.busy {
			t.aborted = true
		}
		t.endTurn()
		for t.busy {
			t.cond.Wait()
		}
		t.print(response)
	case "extension_ui_response":
		t.answers++
		t.cond.Broadcast()
	default:
		t.print(response)
	}
}

// endTurn ends the waits of the turn. The caller has the lock.
func (t *talk) endTurn() {
	if t.over != nil {
		close(t.over)
		t.over = nil
	}
	t.cond.Broadcast()
}

// turn works off the queue. The caller has the lock.
func (t *talk) turn() error {
	t.busy, t.aborted, t.over = true, false, make(chan struct{})
	t.print(map[string]any{"type": "agent_start"})
	stop := "stop"
	for len(t.queue) > 0 {
		text := t.queue[0]
		t.queue = slices.Delete(t.queue, 0, 1)
		quoted, err := json.Marshal(text)
		if err == nil {
			err = t.message(`{"role":"user","content":` + string(quoted) + `}`)
		}
		if err != nil {
			return err
		}
		stop = t.work(text)
		if err := t.message(fmt.Sprintf(`{"role":"assistant","content":[{"type":"text","text":"Fine."}],`+
			`"stopReason":%q,"errorMessage":"This operation was aborted"}`, stop)); err != nil {
			return err
		}
	}
	t.print(map[string]any{
		"type": "message_end", "message": map[string]any{"role": "assistant", "stopReason": stop},
	})
	t.print(map[string]any{"type": "agent_end", "willRetry": false})
	t.print(map[string]any{"type": "agent_settled"})
	t.busy = false
	t.cond.Broadcast()
	return nil
}

// work does what a message asks for, and returns how the reply ends.
func (t *talk) work(text string) (stop string) {
	verb, rest, _ := strings.Cut(text, " ")
	switch verb {
	case "fail":
		return "error"
	case "flood":
		n, _ := strconv.Atoi(rest) // 0 prints nothing
		part := strings.Repeat("x", 4<<10)
		for ; n > 0; n -= len(part) {
			fmt.Printf("{\"type\":\"message_update\",\"text\":%q}\n", part)
		}
	case "hold":
		if over := t.over; over != nil {
			t.mu.Unlock()
			await(rest, over)
			t.mu.Lock()
		}
	case "ask":
		before := t.answers
		t.print(
			map[string]any{
				"type":   "extension_ui_request",
				"id":     "q" + t.parent,
				"method": "confirm",
				"title":  "Sure?",
			},
		)
		for t.answers == before && !t.ended {
			t.cond.Wait()
		}
	}
	if t.aborted {
		return "error" // as pi 0.87.1 does
	}
	return "stop"
}
