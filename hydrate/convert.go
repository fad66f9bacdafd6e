package hydrate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// A turn without a line of this harness is converted: the dialect makes lines of it. That is a turn that another
// harness or another mirror wrote, and a chat that such a turn answers.

// turnKind returns which turn a payload type of a harness, known or not, is; Other for none.
func turnKind(typ string) session.Kind {
	if typ == thread.TypeChat {
		return session.User
	}
	switch _, kind, _ := strings.Cut(typ, "."); kind {
	case thread.KindAssistant:
		return session.Assistant
	case thread.KindToolResult:
		return session.ToolResult
	}
	return session.Other
}

// turnOf returns an entry as a turn.
func turnOf(e Entry) session.Turn {
	p := thread.ParseLine(e.Payload)
	return session.Turn{
		Kind: turnKind(p.Type), Text: p.Text, Message: p.Message, ToolCallID: p.ToolCallID, ToolName: p.ToolName,
		IsError: p.IsError != nil && *p.IsError, StopReason: p.StopReason, Provider: p.Provider, Model: p.Model,
		Usage: p.Usage, Time: e.Time(),
	}
}

// convertChats converts the chats before a turn without a line. turnsAlone keeps those that may be pending: a mirrored
// turn answers the chats that its session has on record, while a turn of another mirror answers all.
func (r *Rebuilder) convertChats(turnsAlone bool) error {
	if turnsAlone && !r.hasTurn() {
		return nil
	}
	chats := r.chats
	r.chats, r.chatBytes = nil, 0
	for _, e := range chats {
		if turnsAlone && !e.turn {
			r.keepChat(e)
			continue
		}
		if err := r.convert(e); err != nil {
			return err
		}
	}
	return nil
}

// isTurn reports whether a chat is a turn as it stands: a mirrored line. Another one, a run's prompt among them, is a
// turn where a session has it on record.
func isTurn(e Entry) bool {
	if _, prompt := thread.ParsePrompt(e.Entry); prompt {
		return false
	}
	_, queued := thread.ParseChat(e.Entry, "")
	return !queued
}

// isDelivery reports whether an entry is a line that repeats chats.
func isDelivery(e Entry) bool { return e.Fields.Session != nil && e.Fields.Names() }

// convertDelivery converts a line of another harness that repeats chats: the line is the turn, and they are not. Where
// the line is no turn, as one that was cut, or claude-code's of a chat that a turn has taken in, they are.
func (r *Rebuilder) convertDelivery(e Entry) error {
	chats, named := r.chats, e.Fields.Named()
	var repeated []Entry
	r.chats, r.chatBytes = nil, 0
	for _, chat := range chats {
		if slices.Contains(named, chat.ID) {
			repeated = append(repeated, chat)
		} else {
			r.keepChat(chat)
		}
	}
	if err := r.convertChats(true); err != nil {
		return err
	}
	d, known := r.Harnesses.Of(e.Fields.Type)
	if !known {
		return nil
	}
	dec := d.Decode(Parse(e.Entry, d).Line)
	if dec.Command && r.of != "" && r.of != e.Fields.Session.ID { // it began another session: claude-code's /clear
		r.fresh, r.unrelated = true, r.unrelated+len(named)
		return nil
	}
	if dec.Kind != session.User {
		r.unrelated += len(named) - len(repeated)
		for _, chat := range repeated {
			if err := r.convert(chat); err != nil {
				return err
			}
		}
		return nil
	}
	turn := thread.Line{Type: thread.TypeChat, Text: &dec.Text, Message: dec.Message}
	e.Payload = turn.AppendJSON(nil)
	return r.convert(e)
}

// convert converts a turn and adds its lines to the current session, or to a new one without an id.
func (r *Rebuilder) convert(e Entry) error {
	d := r.current()
	if at := e.Fields.Session; at != nil {
		r.of = at.ID
	}
	if d == nil {
		r.fresh = false
		var err error
		if d, err = r.newDraft(""); err != nil {
			return err
		}
	}
	for _, line := range d.linesOf(e) {
		dec := d.dialect.Decode(line)
		if dec.Kind == session.ToolResult && !d.calls[dec.ToolCallID] { // a model would refuse it
			d.Lost = append(d.Lost, fmt.Sprintf("entry %s: the result of a tool call that is not on the thread", e.ID))
			return nil
		}
		d.Converted++
		d.convertedLast, d.converted[Key(line, dec)] = true, true
		if err := d.put(line, dec, e.ID); err != nil {
			return err
		}
	}
	return nil
}

// linesOf returns the lines of a turn, and reports what they leave out.
func (d *draft) linesOf(e Entry) [][]byte {
	turn, id := turnOf(e), d.newID(e.ID)
	if turn.Kind != session.Assistant {
		d.reply = ""
	} else if d.reply == "" {
		d.reply = id
	}
	lines, omitted := d.dialect.Turn(turn, session.Place{ID: id, Parent: d.Leaf, Reply: d.reply, Next: d.next})
	switch {
	case omitted != "":
		if d.Omitted == nil {
			d.Omitted = map[string]int{}
		}
		d.Omitted[omitted]++
	case len(lines) == 0:
		d.Lost = append(d.Lost, fmt.Sprintf("entry %s: nothing in it that %s can load", e.ID, d.dialect.Prefix))
	}
	return lines
}

// newID returns an id for a line of an entry, which no line has. It is the same in each rebuild.
func (d *draft) newID(entryID string) string {
	sum := sha256.Sum256([]byte(entryID))
	id := hex.EncodeToString(sum[:4])
	for n := 5; d.ids.has(id) && n <= len(sum); n++ {
		id = hex.EncodeToString(sum[:n])
	}
	return id
}

// Key identifies a converted line, which decodes to dec: by its own id, or by its SHA-256 where it has none.
func Key(line []byte, dec session.Entry) string {
	if dec.ID != "" {
		return dec.ID
	}
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}
