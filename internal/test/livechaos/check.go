package livechaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// Result is the outcome of a schedule.
type Result struct {
	Schedule
	Dialect session.Dialect
	IDs     []string       // of the chats' entries, in the order of the Schedule's Chats
	Thread  []thread.Entry // all of it
	File    []byte         // the sessions, as the last run left them
	Request []byte         // what the model was asked last, JSON
}

// Check returns what is broken: a chat that is neither delivered nor pending, or both; one that the thread, the file or
// the model has twice or not; two that have changed places; one that came before a clear and that the model has
// after it; a mirrored line that is a second chat; a run that has no end.
func (r Result) Check() (broken []string) {
	wrong := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	var pending thread.Pending
	var fold thread.Fold
	named := map[string]int{}
	var order []int // of the chats, as delivered
	for _, e := range r.Thread {
		pending.Add(e)
		fold.Add(e)
		p := thread.ParseLine(e.Payload)
		if p.Type == thread.TypeChat && p.Session != nil {
			wrong("%s is a second chat", e.ID)
		}
		if !p.Names() {
			continue
		}
		for _, id := range p.Named() {
			named[id]++
			if i := slices.Index(r.IDs, id); i >= 0 {
				order = append(order, i)
			}
		}
	}
	waits := map[string]bool{}
	for _, c := range pending.Chats() {
		waits[c.ID] = true
	}
	inFile, forgotten := r.inFile(), r.forgotten(order)
	for i, id := range r.IDs {
		switch {
		case named[id] > 1:
			wrong("chat %d is delivered %d times on the thread", i, named[id])
		case named[id] == 0 && !waits[id]:
			wrong("chat %d is neither delivered nor pending", i)
		case named[id] == 1 && waits[id]:
			wrong("chat %d is delivered and pending", i)
		}
		if inFile[i] != min(named[id], 1) {
			wrong("chat %d is %d times in the session's file, and %d times on the thread", i, inFile[i], named[id])
		}
		n := strings.Count(allText(r.Request), key(r.Chats[i].Text))
		switch {
		case forgotten[i] && n > 0:
			wrong("the model was told chat %d, which came before a clear", i)
		case !forgotten[i] && !r.Chats[i].Clears() && n != min(named[id], 1):
			wrong("the model was told chat %d %d times, and the thread has it %d times", i, n, named[id])
		}
	}
	for at, j := range order {
		for _, i := range order[at+1:] { // i came after j
			if i < j && !mayOvertake(r.Chats[j], r.Chats[i]) {
				wrong("chat %d came before chat %d", j, i)
			}
		}
	}
	for _, run := range fold.Runs() {
		if run.Status == thread.StatusRunning {
			wrong("run %s has no end", run.ID)
		}
	}
	return broken
}

// forgotten returns the chats before the last one that clears, given all in the order of their delivery.
func (r Result) forgotten(order []int) map[int]bool {
	before := map[int]bool{}
	for at, i := range slices.Backward(order) {
		if r.Chats[i].Clears() {
			for _, j := range order[:at] {
				before[j] = true
			}
			break
		}
	}
	return before
}

// mayOvertake reports whether a chat may come before one that was posted earlier.
func mayOvertake(c, earlier Chat) bool {
	return c.Deliver == thread.DeliverInterrupt ||
		earlier.Deliver == thread.DeliverFollowUp && c.Deliver != thread.DeliverFollowUp
}

// key returns the part of a text by which it is found: no other text has it.
func key(text string) string {
	text = strings.TrimPrefix(text, clear)
	return text[:strings.IndexByte(text, '.')+1]
}

// inFile counts, by their numbers, the chats in the sessions' files: in the lines that are the user's.
func (r Result) inFile() map[int]int {
	counts := map[int]int{}
	for line := range bytes.Lines(r.File) {
		e := r.Dialect.Decode(bytes.TrimSpace(line))
		var queued struct {
			Attachment struct {
				Type   string
				Prompt json.RawMessage
			}
		}
		text := ""
		switch {
		case json.Unmarshal(line, &queued) == nil && queued.Attachment.Type == "queued_command":
			text = allText(queued.Attachment.Prompt)
		case e.Kind == session.User && !e.Side:
			text = e.Text
		case e.Command:
			text = allText(line)
		}
		for i, c := range r.Chats {
			counts[i] += strings.Count(text, key(c.Text))
		}
	}
	return counts
}

// allText returns the strings of a JSON text.
func allText(b []byte) string {
	var v any
	if json.Unmarshal(b, &v) != nil {
		return ""
	}
	var all strings.Builder
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			all.WriteString(v)
			all.WriteByte('\n')
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(v)
	return all.String()
}
