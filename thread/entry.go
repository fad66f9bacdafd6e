// Package thread has what a run and its thread exchange: the entry, the types of its payload, and the fold of a
// thread's entries into runs (Fold), chats that wait (Pending) and tasks (Tasks). It uses no network: package client
// posts and reads.
//
// The writer chooses an entry's id, so a post may be repeated, and is repeated whenever its answer was lost. Before an
// entry leaves the process or is written to disk, its writer redacts secrets (package redact) and cuts a payload that
// is too large.
package thread

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"arbe.0sk.ar/runner/internal/jsonscan"
)

// Limits of the log.
const (
	MaxEntry   = 8 << 20  // bytes of one entry, by Entry.Size
	MaxBody    = 64 << 20 // bytes of one post
	MaxEntries = 1000     // entries of one post
	MaxID      = 200      // characters of an entry's id
	MaxAuthor  = 256      // bytes of an authorId
	maxTS      = len("2006-01-02T15:04:05.123456789Z")
)

// TimeFormat is the form of ts and at: RFC 3339 in UTC with milliseconds.
const TimeFormat = "2006-01-02T15:04:05.000Z"

// Stamp returns t as an entry's ts.
func Stamp(t time.Time) string { return t.UTC().Format(TimeFormat) }

// Entry is one record on a thread.
type Entry struct {
	ID       string          `json:"id"`
	TS       string          `json:"ts"` // the writer's clock; of a mirrored line the line's own time
	AuthorID string          `json:"authorId,omitempty"`
	Payload  json.RawMessage `json:"payload"`
	At       string          `json:"at,omitempty"` // the server's clock at receipt; only in what is read
}

// Time returns ts as a time; the zero time where it is not one.
func (e Entry) Time() time.Time { return parseTime(e.TS) }

// Received returns at as a time; the zero time where the entry has none.
func (e Entry) Received() time.Time { return parseTime(e.At) }

func parseTime(s string) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, s) // the zero time for any other string
	return t
}

// AppendJSON appends the entry as JSON, without at. Unlike json.Marshal it leaves the payload's bytes as they are.
func (e Entry) AppendJSON(b []byte) []byte {
	b = jsonscan.QuoteString(append(b, `{"id":`...), e.ID)
	b = jsonscan.QuoteString(append(b, `,"ts":`...), e.TS)
	if e.AuthorID != "" {
		b = jsonscan.QuoteString(append(b, `,"authorId":`...), e.AuthorID)
	}
	b = append(b, `,"payload":`...)
	b = append(b, e.Payload...)
	return append(b, '}')
}

// NewEntry returns the entry of an author, "" for none, at this time.
func NewEntry(id, author string, payload any) Entry {
	return Entry{ID: id, TS: Stamp(time.Now()), AuthorID: author, Payload: Marshal(payload)}
}

// Marshal returns v as JSON with <, > and & as they are. It is for payloads of this project, which always marshal.
func Marshal(v any) json.RawMessage {
	b, err := jsonscan.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("thread: a payload of our own doesn't marshal: %v", err))
	}
	return b
}

// ParseEntry reads one entry from JSON and checks it. Members are read by their exact names, each is there once, and
// unknown ones are an error, for they would be lost; at is allowed and dropped, so that what was read can be posted
// again. A *json.SyntaxError is returned for what is no JSON. With an error, too, the entry has a valid id or none. The
// payload is a copy.
func ParseEntry(raw []byte) (Entry, error) {
	e, err := parse(raw, nil)
	e.Payload = bytes.Clone(e.Payload)
	return e, err
}

// ParsePosted reads an entry as a writer posts it to a server. It is stricter than ParseEntry: at is the server's, and
// a parent is a thread. The payload may be a part of raw.
func ParsePosted(raw []byte) (Entry, error) { return parse(raw, Entry.posted) }

func parse(raw []byte, more func(Entry) error) (Entry, error) {
	unfit := CheckJSON(raw, MaxDepth)
	if syntax := (*json.SyntaxError)(nil); errors.As(unfit, &syntax) {
		return Entry{}, fmt.Errorf("not an entry: %w", unfit)
	}
	e, err := settled(raw, more) // of one that is unfit for its id: its writer has to know which one it is
	if unfit != nil {
		err = fmt.Errorf("not an entry: %w", unfit)
	}
	if !ValidID(e.ID) {
		e.ID = ""
	}
	return e, err
}

// settled reads the members of an entry and checks them, by more, too.
func settled(raw []byte, more func(Entry) error) (Entry, error) {
	e, err := parseExact(raw)
	if err == nil && more != nil {
		err = more(e)
	}
	if err == nil {
		err = e.settle()
	}
	return e, err
}

// posted returns what a server has against an entry beyond Check.
func (e Entry) posted() error {
	if e.At != "" {
		return errors.New("at: only the server sets it")
	}
	i := jsonscan.Find(e.Payload, "parent")
	if i < 0 {
		return nil
	}
	if f, err := Scan(e.Payload); err != nil || !f.Signal() {
		return err // of what is no signal a parent is anything
	}
	var p *Parent
	if err := json.Unmarshal(e.Payload[i:jsonscan.Skip(e.Payload, i)], &p); err != nil || p == nil {
		return errors.New("payload.parent: want an object with a threadId")
	}
	if !ValidThread(p.ThreadID) {
		return fmt.Errorf("payload.parent.threadId %.80q: want 1 to 128 characters of A-Z a-z 0-9 _ -", p.ThreadID)
	}
	return nil
}

// parseExact reads the members of an entry, unchecked. raw is JSON, and the payload is a part of it.
func parseExact(raw []byte) (e Entry, err error) {
	raw = raw[jsonscan.Space(raw, 0):]
	if !jsonscan.IsObject(raw) {
		return e, errors.New("not an entry: want an object")
	}
	var seen [5]bool
	jsonscan.Members(raw, func(key, v []byte) {
		i, to := -1, (*string)(nil)
		switch string(key) {
		case "id":
			i, to = 0, &e.ID
		case "ts":
			i, to = 1, &e.TS
		case "authorId":
			i, to = 2, &e.AuthorID
		case "payload":
			i = 3
		case "at":
			i, to = 4, &e.At
		}
		isNull := string(v) == "null" && (i == 2 || i == 4) // as if it were left out
		switch {
		case err != nil:
		case i < 0:
			err = fmt.Errorf("not an entry: unknown member %.40q", key)
		case seen[i]:
			err = fmt.Errorf("not an entry: %s twice", key)
		case to == nil:
			e.Payload = v[:len(v):len(v)]
		case !jsonscan.IsString(v) && !isNull:
			err = fmt.Errorf("not an entry: %s: want a string", key)
		default:
			*to = jsonscan.String(v)
		}
		if i >= 0 {
			seen[i] = true
		}
	})
	return e, err
}

// ParseStored reads an entry as a log keeps it and a server gives it, which has been checked by the rules of its time:
// those of today may be stricter. The payload is a copy.
func ParseStored(line []byte) (e Entry, err error) {
	_, whole := jsonscan.Members(line, func(key, v []byte) {
		switch string(key) {
		case "id":
			e.ID = jsonscan.String(v)
		case "ts":
			e.TS = jsonscan.String(v)
		case "authorId":
			e.AuthorID = jsonscan.String(v)
		case "at":
			e.At = jsonscan.String(v)
		case "payload":
			e.Payload = v
		}
	})
	if !whole || e.ID == "" || !jsonscan.IsObject(e.Payload) {
		return Entry{}, fmt.Errorf("not an entry: %.80q", line)
	}
	e.Payload = bytes.Clone(e.Payload)
	return e, nil
}

// ParseEntries reads an array of valid entries as a writer posts it to a server. Its error does not identify the bad
// one. The payloads may be parts of raw.
func ParseEntries(raw []byte) (entries []Entry, err error) {
	if err := CheckJSON(raw, MaxDepth+1); err != nil {
		return nil, err
	}
	if raw[jsonscan.Space(raw, 0)] != '[' {
		return nil, errors.New("not an array")
	}
	jsonscan.Elements(raw, func(v []byte) {
		if err != nil {
			return
		}
		var e Entry
		e, err = settled(v, Entry.posted)
		entries = append(entries, e)
	})
	return entries, err
}

// settle makes what was read from JSON an entry that can be stored and written as one line, and checks it.
func (e *Entry) settle() error {
	e.At = ""
	if bytes.IndexByte(e.Payload, '\n') >= 0 || bytes.IndexByte(e.Payload, '\r') >= 0 {
		// In JSON they are white space, and between entries they have a meaning.
		e.Payload = jsonscan.Compact(e.Payload)
	}
	return e.Check()
}

// validType reports whether t is chat, signal.<area>.<what>, or <prefix>.<kind> of a harness. It is for others to know
// which harnesses there are.
func validType(t string) bool {
	prefix, kind, dotted := strings.Cut(t, ".")
	switch prefix {
	case "chat":
		return !dotted
	case "signal":
		area, what, _ := strings.Cut(kind, ".")
		return made(area, len(t), "_-") && made(what, len(t), "_-")
	}
	return made(prefix, len(t), "-") && prefix == strings.ToLower(prefix) && made(kind, len(t), "_-")
}

// made reports whether s has 1 to most characters, letters and digits and those of more.
func made(s string, most int, more string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte(more, c) < 0 {
			return false
		}
	}
	return s != "" && len(s) <= most
}

// ValidID reports whether id can be an entry's id.
func ValidID(id string) bool { return made(id, MaxID, "._:~-") }

// ValidThread reports whether id can be a thread's id.
func ValidThread(id string) bool { return made(id, 128, "_-") }

// ValidRun reports whether id can be a run's id: it begins the ids of the run's entries and has no ":" or "." in it.
func ValidRun(id string) bool { return made(id, 128, "_~-") }

// Check returns the first fault of the entry; nil for a valid one. It takes the payload for JSON, which parsing or
// encoding it has ensured.
func (e Entry) Check() error {
	if !ValidID(e.ID) {
		return fmt.Errorf("id %.80q: want 1 to %d characters of A-Z a-z 0-9 . _ : ~ -", e.ID, MaxID)
	}
	if _, err := time.Parse(time.RFC3339Nano, e.TS); err != nil || !strings.HasSuffix(e.TS, "Z") || len(e.TS) > maxTS {
		return fmt.Errorf("ts %.80q: want RFC 3339 in UTC, like %s", e.TS, TimeFormat)
	}
	if len(e.AuthorID) > MaxAuthor || strings.ContainsFunc(e.AuthorID, unicode.IsControl) {
		return fmt.Errorf("authorId %.80q: want at most %d bytes without control characters", e.AuthorID, MaxAuthor)
	}
	f, err := Scan(e.Payload)
	if err != nil {
		return err
	}
	if !validType(f.Type) {
		return fmt.Errorf("payload.type %.80q: want chat, <harness>.<kind> or signal.<area>.<what>", f.Type)
	}
	if n := e.Size(); n > MaxEntry {
		return &SizeError{Size: n}
	}
	return nil
}

// Size returns the entry's size in bytes as a server stores and sends it: as JSON with at.
func (e Entry) Size() int {
	var room [1 << 10]byte
	around := Entry{ID: e.ID, TS: e.TS, AuthorID: e.AuthorID}.AppendJSON(room[:0])
	return len(around) + len(e.Payload) + len(`,"at":""`) + len(TimeFormat)
}

// SizeError is the error for an entry that is larger than MaxEntry.
type SizeError struct{ Size int }

func (e *SizeError) Error() string {
	return fmt.Sprintf("the entry has %d bytes, more than %d", e.Size, MaxEntry)
}

// BadEntry is an entry that the server refuses, and why.
type BadEntry struct {
	Index  int    `json:"index"` // in the array that was posted
	ID     string `json:"id"`
	Reason string `json:"reason"`
	Status int    `json:"-"` // 400, 409 or 413
}

// StreamName returns the name of a thread's stream on a server, which is the subject of its tokens.
func StreamName(threadID string) string { return streamPrefix + threadID }

const streamPrefix = "arbe-thread-"

// OfStream returns the id of the thread whose stream has this name; false for another stream.
func OfStream(name string) (id string, ok bool) {
	id, ok = strings.CutPrefix(name, streamPrefix)
	return id, ok && ValidThread(id)
}

// apiPath is the path of the thread API on its server.
const apiPath = "/api/stream"

// Unix begins the address of a server that listens on a Unix socket: unix:///run/arbe.sock.
const Unix = "unix://"

// BaseURL returns the base of a server's thread API: its address, with /api/stream appended where it does not end in
// that. Behind the path of a Unix socket a colon stands first: unix:///run/arbe.sock:/api/stream.
func BaseURL(address string) string {
	address = strings.TrimSuffix(strings.TrimRight(address, "/"), apiPath)
	if strings.HasPrefix(address, Unix) {
		address = strings.TrimSuffix(address, ":") + ":"
	}
	return address + apiPath
}

// SocketOf returns the path of the Unix socket in a server's address or base; false for a server that has none.
func SocketOf(address string) (path string, is bool) {
	path, is = strings.CutPrefix(address, Unix)
	path, _, _ = strings.Cut(path, ":")
	return path, is && strings.HasPrefix(path, "/")
}
