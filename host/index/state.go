package index

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/internal/jsonscan"
	"arbe.0sk.ar/runner/thread"
)

// state is a thread's entries, folded. Its JSON is all of it: it continues with the thread's next entry.
type state struct {
	Fold   thread.Fold `json:"fold"`
	Title  string      `json:"title,omitempty"`
	First  time.Time   `json:"first,omitzero"` // at of the first entry
	Last   time.Time   `json:"last,omitzero"`  // at of the last entry that is not passing
	Lines  int64       `json:"lines,omitempty"`
	Usage  *usage      `json:"usage,omitempty"` // of all replies
	Unread unread      `json:"unread,omitzero"`

	Reactions thread.Reactions `json:"reactions,omitzero"` // their signs of life left out

	// Of the latest run.
	Runs    int       `json:"runs,omitempty"` // its number, from 1
	Model   string    `json:"model,omitempty"`
	Waiting time.Time `json:"waiting,omitzero"` // at of the signal since which it waits; zero where it does not
	Beat    time.Time `json:"beat,omitzero"`    // at of the last heartbeat
	NextMs  int64     `json:"nextMs,omitempty"`
}

// usage is the tokens and the cost of replies, added up.
type usage struct {
	thread.Usage
	Cost *float64 `json:"cost,omitempty"`
}

// passing reports whether a record changes no summary: the text of a bot as it comes, or a sign of life of its
// reaction. There are many, and each would have the summary stored, and sent to all who watch the list. A thread's
// first record always counts.
func passing(r engine.Record) bool {
	i := jsonscan.Find(r.Data, "payload")
	if i < 0 {
		return false
	}
	payload := r.Data[i:]
	if !thread.IsPassing(thread.TypeOf(payload)) {
		return false
	}
	// A reaction that is released is another host's at once, and that host may watch the list.
	i = jsonscan.Find(payload, "released")
	return i < 0 || string(payload[i:jsonscan.Skip(payload, i)]) != "true"
}

// changing reports whether a record is not passing.
func changing(r engine.Record) bool { return !passing(r) }

// add adds the thread's next record, which is not passing.
func (s *state) add(r engine.Record) {
	at := r.At.UTC().Truncate(time.Millisecond)
	if s.First.IsZero() {
		s.First = at
	}
	s.Last = at
	var id, ts, payload []byte
	jsonscan.Members(r.Data, func(key, v []byte) {
		switch string(key) {
		case "id":
			id = v
		case "ts":
			ts = v
		case "payload":
			payload = v
		}
	})
	var m members
	sig, err := thread.ScanMembers(payload, m.set)
	if err != nil {
		return // the current server refuses it, and thread.Fold leaves it out
	}
	if sig.Signal() {
		e := thread.Entry{
			ID: jsonscan.String(id), TS: jsonscan.String(ts), Payload: short(payload), At: thread.Stamp(at),
		}
		s.Fold.AddScanned(sig, e)
		s.Reactions.Add(e)
		if sig.Type == thread.TypeReactionFinished && string(m.rounds) == "0" { // what no reply of it has
			s.use(m.usage)
			s.pay(m.cost)
		}
		s.signal(sig, m, at)
		s.Unread.Tasks.Signal(sig)
		if sig.Type == thread.TypeRefused {
			s.Unread.drop(jsonscan.String(m.chat))
		}
		return
	}
	s.Fold.AddLine(sig, at)
	if _, mirrored := m.ref(); sig.Type == thread.TypeChat && !mirrored {
		s.Unread.add(jsonscan.String(id), payload, sig.RunID == "" && m.session == nil && visible(m.text))
	}
	s.line(sig, m, payload)
}

// members are those members of a payload that a state has something of, raw; nil for those that the payload lacks.
type members struct {
	text, session, subagentOf, kind, chat, model, usage, cost, rounds, pending, nextMs []byte
}

func (m *members) set(key, v []byte) {
	switch string(key) {
	case "text":
		m.text = v
	case "session":
		m.session = v
	case "subagentOf":
		m.subagentOf = v
	case "kind":
		m.kind = v
	case "chat":
		m.chat = v
	case "model":
		m.model = v
	case "usage":
		m.usage = v
	case "cost":
		m.cost = v
	case "rounds":
		m.rounds = v
	case "pending":
		m.pending = v
	case "nextMs":
		m.nextMs = v
	}
}

// ref returns the session of a line: its id, and whether it has any.
func (m *members) ref() (id string, ok bool) {
	jsonscan.Members(m.session, func(key, v []byte) {
		ok = true
		if string(key) == "id" {
			id = jsonscan.String(v)
		}
	})
	return id, ok
}

// isSubagent is thread.Line.IsSubagent.
func (m *members) isSubagent() bool {
	of := jsonscan.String(m.subagentOf)
	if of == "" {
		return false
	}
	id, ok := m.ref()
	return !ok || id != of
}

// visible reports whether a raw JSON string begins with a sign of ASCII that is not blank, or has one behind blanks.
// Another string may be blank or not.
func visible(raw []byte) bool {
	if !jsonscan.IsString(raw) {
		return false
	}
	raw = bytes.TrimLeft(raw[1:], " ")
	return len(raw) > 0 && ' ' < raw[0] && raw[0] < 0x7f && raw[0] != '\\' && raw[0] != '"'
}

// Bounds of what a state keeps of a signal: the index needs no messages and outputs.
const (
	mostSignal = 8 << 10
	mostMember = 1 << 10
)

// short returns the payload of a signal, without its large members where it is large.
func short(payload []byte) []byte {
	if len(payload) <= mostSignal {
		return payload
	}
	b := []byte{'{'}
	jsonscan.Members(payload, func(key, v []byte) {
		if len(key)+len(v) > mostMember || len(b) > mostSignal {
			return
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(jsonscan.Quote(b, key), ':'), v...)
	})
	return append(b, '}')
}

// line adds a chat or a mirrored line.
func (s *state) line(sig thread.Fields, m members, payload []byte) {
	if sig.Type == thread.TypeChat {
		if s.Title == "" && jsonscan.IsString(m.text) {
			s.Title = title(jsonscan.String(m.text))
		}
		if _, ok := m.ref(); !ok {
			return
		}
	}
	s.use(m.usage)
	if sig.Reaction {
		s.pay(m.cost)
		fields, _ := thread.ParseMirrored(payload)
		s.Unread.deliver(fields.Delivers())
		return
	}
	s.Lines++
	if m.isSubagent() {
		return
	}
	s.receive(sig, m, payload)
	if strings.HasSuffix(sig.Type, "."+thread.KindAssistant) {
		if model := jsonscan.String(m.model); model != "" {
			s.Model = clip(model)
		}
	}
}

// receive updates the chats that wait, and whether the agent waits, from a line of the agent's own session.
func (s *state) receive(sig thread.Fields, m members, payload []byte) {
	if s.Waiting.IsZero() && s.Unread.none() {
		return
	}
	if _, kind, _ := strings.Cut(sig.Type, "."); kind == thread.KindSession {
		switch jsonscan.String(m.kind) {
		case thread.KindPrompt, thread.KindStub, thread.KindUser:
		default:
			return
		}
	}
	fields, _ := thread.ParseMirrored(payload)
	s.Unread.deliver(fields.Delivers())
	if fields.OpensTurn() {
		s.Waiting = time.Time{}
	}
}

// signal adds a signal, which the fold has.
func (s *state) signal(sig thread.Fields, m members, at time.Time) {
	run, ok := s.Fold.Latest()
	if n := s.Fold.Len(); n != s.Runs {
		s.Runs, s.Model, s.Waiting, s.Beat, s.NextMs = n, "", time.Time{}, time.Time{}, 0
	}
	if !ok || sig.RunID != run.ID {
		return
	}
	switch {
	case run.Status != thread.StatusRunning:
		s.Waiting = time.Time{}
	case sig.Type == thread.TypeWaiting:
		if n := string(m.pending); n == "" || n == "0" { // else the next turn begins at once
			s.Waiting = at
		}
	case sig.Type == thread.TypeHeartbeat:
		s.Beat = at
		s.NextMs, _ = strconv.ParseInt(string(m.nextMs), 10, 64) // 0 where it is no whole number
	}
}

// mostUsage bounds the usage of a reply that is added, in bytes.
const mostUsage = 4 << 10

// use adds the usage of a reply.
func (s *state) use(raw []byte) {
	if len(raw) == 0 || len(raw) > mostUsage || !jsonscan.IsObject(raw) {
		return
	}
	if s.Usage == nil {
		s.Usage = &usage{}
	}
	u := s.Usage
	jsonscan.Members(raw, func(key, v []byte) {
		switch string(key) {
		case "input":
			u.Input += number(v)
		case "output":
			u.Output += number(v)
		case "cacheRead":
			u.CacheRead += number(v)
		case "cacheWrite":
			u.CacheWrite += number(v)
		case "totalTokens":
			u.TotalTokens += number(v)
		case "cost":
			jsonscan.Members(v, func(key, v []byte) {
				if string(key) != "total" {
					return
				}
				u.pay(v)
			})
		}
	})
}

// pay adds the cost of a bot's reply.
func (s *state) pay(raw []byte) {
	if len(raw) == 0 {
		return
	}
	if s.Usage == nil {
		s.Usage = &usage{}
	}
	s.Usage.pay(raw)
}

func (u *usage) pay(raw []byte) {
	if u.Cost == nil {
		u.Cost = new(float64)
	}
	*u.Cost += number(raw)
}

// number reads a number of JSON. It returns 0 for other values, and for numbers that a float64 can't have.
func number(raw []byte) float64 {
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return 0
	}
	return f
}

// mostTitle bounds a title, in characters.
const mostTitle = 120

// title returns the first line of a text that has visible characters, without control characters and those that change
// the direction of text.
func title(text string) string {
	for line := range strings.Lines(text[:min(len(text), 64<<10)]) {
		line = strings.Map(func(c rune) rune {
			switch {
			case c == '\t':
				return ' '
			case unicode.Is(unicode.C, c), c == '\u2028', c == '\u2029': // control, format, private use
				return -1
			}
			return c
		}, strings.ToValidUTF8(line, ""))
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if utf8.RuneCountInString(line) > mostTitle {
			line = string([]rune(line)[:mostTitle-1]) + "…"
		}
		return line
	}
	return ""
}

// started returns when the latest run began; before any the thread.
func (s *state) started() time.Time {
	if run, ok := s.Fold.Latest(); ok {
		return run.FirstSignal
	}
	return s.First
}

// summary returns the summary of the thread with this id, whose entries end at offset.
func (s *state) summary(id, offset string) thread.Summary {
	v := thread.Summary{
		ID: id, Status: s.Fold.Status(), Title: s.Title, Lines: s.Lines, Pending: s.Unread.count(),
		Waiting: !s.Waiting.IsZero(), WaitingAt: stamp(s.Waiting),
		StartedAt: stamp(s.started()), LastEntryAt: stamp(s.Last), LastBeatAt: stamp(s.Beat), NextMs: s.NextMs,
		Model: s.Model, Offset: offset,
	}
	for _, r := range s.Reactions.Open() {
		v.Reactions++
		if bot := clip(r.Bot); len(v.Answering) < mostAnswering && !slices.Contains(v.Answering, bot) {
			v.Answering = append(v.Answering, bot)
		}
	}
	if s.Usage != nil {
		v.Usage, v.Cost = &s.Usage.Usage, s.Usage.Cost
	}
	if run, ok := s.Fold.Latest(); ok {
		v.Run, v.Harness, v.EndedAt = clip(run.ID), clip(run.Harness), stamp(run.Ended)
		v.Live = run.Status == thread.StatusRunning && run.Started != nil && run.Started.Live
		if b := run.Box(); b != nil {
			v.Sandbox = &thread.Sandbox{Provider: clip(b.Provider), Ref: clip(b.Ref)}
		}
		if p := run.Parent; p != nil {
			v.Parent = &thread.Parent{ThreadID: clip(p.ThreadID), AuthorID: clip(p.AuthorID)}
		}
		if run.Cause != nil {
			v.ErrorClass = clip(run.Cause.ErrorClass)
		}
	}
	return v
}

// mostAnswering bounds the bots of a summary that answer.
const mostAnswering = 20

// mostText bounds the texts of a summary but the title, in bytes: a writer of another kind may have any.
const mostText = 256

func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), mostText)], "") }

// stamp is thread.Stamp; "" for the zero time.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return thread.Stamp(t)
}

// mostState bounds the stored form of a state. A thread with a larger one is folded from its start each time: it has
// thousands of runs.
const mostState = 4 << 20
