package index

import (
	"encoding/json"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/internal/jsonscan"
	"arbe.0sk.ar/runner/thread"
)

// typeWaiting is the signal of a live run whose agent waits for a chat.
const typeWaiting = "signal.dispatch.pi_waiting"

// state is a thread's entries, folded. Its JSON is all of it: it continues with the thread's next entry.
type state struct {
	Fold  thread.Fold `json:"fold"`
	Title string      `json:"title,omitempty"`
	First time.Time   `json:"first,omitzero"` // at of the first entry
	Last  time.Time   `json:"last,omitzero"`  // at of the last entry
	Lines int64       `json:"lines,omitempty"`
	Usage *usage      `json:"usage,omitempty"` // of all replies

	// Of the latest run.
	Runs    int       `json:"runs,omitempty"` // its number, from 1
	Model   string    `json:"model,omitempty"`
	Waiting bool      `json:"waiting,omitempty"`
	Beat    time.Time `json:"beat,omitzero"` // at of the last heartbeat
	NextMs  int64     `json:"nextMs,omitempty"`
}

// usage is what replies used.
type usage struct {
	thread.Usage
	Cost *float64 `json:"cost,omitempty"`
}

// add adds the thread's next record.
func (s *state) add(r engine.Record) {
	at := r.At.UTC().Truncate(time.Millisecond)
	if s.First.IsZero() {
		s.First = at
	}
	s.Last = at
	var id, ts string
	var payload []byte
	jsonscan.Members(r.Data, func(key, v []byte) {
		switch string(key) {
		case "id":
			id = jsonscan.String(v)
		case "ts":
			ts = jsonscan.String(v)
		case "payload":
			payload = v
		}
	})
	sig, err := thread.Scan(payload)
	if err != nil {
		return // the current server refuses it, and thread.Fold leaves it out
	}
	e := thread.Entry{ID: id, TS: ts, Payload: payload, At: thread.Stamp(at)}
	if !sig.Signal() {
		s.Fold.AddScanned(sig, e)
		s.line(sig, payload)
		return
	}
	e.Payload = short(payload)
	s.Fold.AddScanned(sig, e)
	s.signal(sig, e.Payload, at)
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
func (s *state) line(sig thread.Fields, payload []byte) {
	p := thread.ParseLine(payload)
	if sig.Type == thread.TypeChat {
		if s.Title == "" && p.Text != nil {
			s.Title = title(*p.Text)
		}
		if p.Session == nil {
			return
		}
	}
	s.Lines++
	if p.IsSubagent() {
		s.use(p.Usage)
		return
	}
	s.Waiting = false
	if p.Model != "" && strings.HasSuffix(sig.Type, "."+thread.KindAssistant) {
		s.Model = clip(p.Model)
	}
	s.use(p.Usage)
}

// signal adds a signal, which the fold has.
func (s *state) signal(sig thread.Fields, payload []byte, at time.Time) {
	run, ok := s.Fold.Latest()
	if n := s.Fold.Len(); n != s.Runs {
		s.Runs, s.Model, s.Waiting, s.Beat, s.NextMs = n, "", false, time.Time{}, 0
	}
	if !ok || sig.RunID != run.ID {
		return
	}
	switch {
	case run.Status != thread.StatusRunning:
		s.Waiting = false
	case sig.Type == typeWaiting:
		s.Waiting = true
	case sig.Type == thread.TypeHeartbeat:
		var p thread.Heartbeat
		if json.Unmarshal(payload, &p) == nil {
			s.Beat, s.NextMs = at, p.NextMs
		}
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
	number := func(v []byte) (f float64) {
		_ = json.Unmarshal(v, &f) // 0 where it is no number
		return f
	}
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
				if u.Cost == nil {
					u.Cost = new(float64)
				}
				*u.Cost += number(v)
			})
		}
	})
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
		ID: id, Status: s.Fold.Status(), Waiting: s.Waiting, Title: s.Title, Lines: s.Lines,
		StartedAt: stamp(s.started()), LastEntryAt: stamp(s.Last), LastBeatAt: stamp(s.Beat), NextMs: s.NextMs,
		Model: s.Model, Offset: offset,
	}
	if s.Usage != nil {
		v.Usage, v.Cost = &s.Usage.Usage, s.Usage.Cost
	}
	if run, ok := s.Fold.Latest(); ok {
		v.Run, v.Harness, v.EndedAt = clip(run.ID), clip(run.Harness), stamp(run.Ended)
		if b := run.Sandbox; b != nil {
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

// encode returns the stored form of a state.
func (s *state) encode() []byte { return thread.Marshal(s) }

// unmarshal reads the stored form of a state.
func unmarshal(b []byte, s *state) error { return json.Unmarshal(b, s) }
