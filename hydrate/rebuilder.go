// Package hydrate rebuilds an agent's session file from the entries of a thread.
//
// It is the way back of package mirror. The two share no code but the vocabulary of session and thread: a Line's
// payload (thread.Line) and an agent's dialect. A thread that our mirror wrote gives the file back line by line, equal
// as JSON but for text that was redacted or cut. Turns that another harness or another mirror wrote become lines that
// the agent can load. The package reads no thread and knows no network: its caller feeds it the entries. It writes the
// file that Write names, and temporary files in one folder until Close.
package hydrate

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"arbe.0sk.ar/runner/internal/durable"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// Rebuilder makes an agent's session file out of a thread: feed it the thread's entries in their order, and Write the file.
//
// What our own mirror has written gives the file back line by line. What other mirrors wrote (turns, and nothing of the file) becomes a conversation without
// branches that the agent loads. A thread may hold several sessions; the one that its last line belongs to is the one that goes on. Each is kept in a file
// of its own until that is known: memory doesn't grow with a thread, but for a hash of each line's id.
type Rebuilder struct {
	Dialect session.Dialect
	Cwd     string // where the agent is to work; "" for where it worked
	Here    string // where it is to work where the thread doesn't say
	Skip    string // the id of a chat that is no turn yet: the prompt of the run to come
	Dir     string // for files that are gone after Close

	all   map[string]*draft
	last  *draft
	chats []thread.Entry // that nobody has answered yet
	left  int            // chats that are no turns of the session
	count int            // lines so far
}

// Rebuilt is what a Rebuilder made of a thread.
type Rebuilt struct {
	Session  string         `json:"session"`          // its id
	Lines    int            `json:"lines"`            // the header included
	Turns    int            `json:"turns"`            // of people, of agents, and tools' results
	Branches int            `json:"branches"`         // turns that go on from another one than the last before them
	Made     int            `json:"made"`             // lines made of entries that had none: another mirror's
	Redacted int            `json:"redacted"`         // lines with a secret taken out
	Cut      int            `json:"cut"`              // lines with text cut out
	Unsaid   map[string]int `json:"unsaid,omitempty"` // what the lines that were made don't say of their turns: how many turns, by what
	Lost     []string       `json:"lost"`             // lines that the thread doesn't hold, and why
	Aside    int            `json:"aside"`            // chats on the thread that are no part of the session
	OldCwd   string         `json:"oldCwd"`           // where the agent worked
	Cwd      string         `json:"cwd"`              // where it will
	Leaf     string         `json:"leaf"`             // the line that goes on
	Began    time.Time      `json:"-"`                // when the session began, as its header says; zero where it doesn't
	Size     int64          `json:"bytes"`            // of the file
	Last     string         `json:"lastEntry"`        // the id of the last entry that is in it
}

// ErrNoSession says that a thread holds nothing to go on from.
var ErrNoSession = errors.New("the thread holds no session")

// What is kept in memory, or open, is bounded. Of more chats in a row than this the older ones are left out, and of more sessions those that were silent longest.
const (
	maxChats     = 1000
	maxChatBytes = 16 << 20
	maxSessions  = 32
)

// Add takes the thread's next entry.
func (r *Rebuilder) Add(e thread.Entry) error {
	p := thread.ParseLine(e.Payload)
	if strings.HasPrefix(p.Type, "signal.") {
		return nil // an entry of no session
	}
	if p.IsSubagent() {
		return nil
	}
	ours := strings.HasPrefix(p.Type, r.Dialect.Prefix+".")
	switch {
	case p.Session != nil && (ours || p.Type == thread.TypeChat && strings.HasPrefix(e.ID, r.Dialect.Prefix+":")):
		for _, chat := range r.chats {
			if chat.ID != p.Chat { // which is this very line
				r.left++
			}
		}
		r.chats = nil
		return r.line(e, p)
	case p.Type == thread.TypeChat:
		if e.ID == r.Skip {
			return nil
		}
		r.chats = append(r.chats, e)
		for size := r.chatBytes(); len(r.chats) > maxChats || size > maxChatBytes; r.left++ {
			size -= len(r.chats[0].Payload)
			r.chats = r.chats[1:]
		}
		return nil
	case p.SubagentOf != "":
		return nil
	case turnKind(p.Type) != session.Other:
		if err := r.spoken(); err != nil {
			return err
		}
		return r.turn(e, p)
	}
	return nil
}

// turnKind is which turn a payload of any harness is, Other for one that is none.
func turnKind(typ string) session.Kind {
	if typ == thread.TypeChat {
		return session.User
	}
	prefix, kind, _ := strings.Cut(typ, ".")
	switch {
	case !slices.ContainsFunc(session.Dialects(), func(d session.Dialect) bool { return d.Prefix == prefix }):
	case kind == thread.KindAssistant:
		return session.Assistant
	case kind == thread.KindToolResult:
		return session.ToolResult
	}
	return session.Other
}

func (r *Rebuilder) chatBytes() (n int) {
	for _, e := range r.chats {
		n += len(e.Payload)
	}
	return n
}

// line takes an entry that our mirror made of a line.
func (r *Rebuilder) line(e thread.Entry, p thread.Line) error {
	d := r.all[p.Session.ID]
	switch {
	case d != nil:
	case p.Session.Index > 0 && r.all[""] != nil:
		// It goes on where a file ended that was made of turns.
		d = r.all[""]
		delete(r.all, "")
	default:
		var err error
		if d, err = r.begin(p.Session.ID); err != nil {
			return err
		}
	}
	r.count++
	d.Session, d.touched, r.all[p.Session.ID], r.last = p.Session.ID, r.count, d, d
	if p.Kind == thread.KindMigrated {
		return d.moved(e, p, r.Dialect)
	}
	line, ok := Rebuild(e, p, r.Dialect)
	if !ok {
		d.lose(p)
		if p.Session.Entry == nil {
			return nil
		}
		if r.Dialect.Filler == nil {
			return nil
		}
		line = r.Dialect.Filler(*p.Session.Entry, deref(p.Session.Parent), e.Time()) // so that what follows it finds its way back
	}
	dec := r.Dialect.Decode(line)
	if dec.Kind == session.Header {
		d.header, d.old = true, dec.Old
	}
	if p.Truncated && ok {
		d.Cut++
	}
	if d.lost > 0 && dec.Parent != "" && !d.has(dec.Parent) && r.Dialect.Filler != nil {
		// The line that it follows was lost, and with it its id.
		filler := r.Dialect.Filler(dec.Parent, d.Leaf, e.Time())
		if err := d.put(filler, r.Dialect.Decode(filler), e.ID); err != nil {
			return err
		}
	}
	d.lost, d.made, d.reply = 0, false, ""
	if !ok {
		d.lost = 1
	}
	if d.old {
		d.places[e.ID] = [2]int64{d.Size, int64(len(line))}
	}
	return d.put(line, dec, e.ID)
}

// spoken makes turns of the chats that came before an answer.
func (r *Rebuilder) spoken() error {
	chats := r.chats
	r.chats = nil
	for _, e := range chats {
		if err := r.turn(e, thread.ParseLine(e.Payload)); err != nil {
			return err
		}
	}
	return nil
}

// turn makes a line of an entry that has none.
func (r *Rebuilder) turn(e thread.Entry, p thread.Line) error {
	d := r.last
	if d == nil {
		var err error
		if d, err = r.begin(""); err != nil {
			return err
		}
		r.all[""], r.last = d, d
	}
	t := session.Turn{
		Kind: turnKind(p.Type), Text: p.Text, Message: p.Message, ToolCallID: p.ToolCallID, ToolName: p.ToolName, IsError: p.IsError != nil && *p.IsError,
		StopReason: p.StopReason, Provider: p.Provider, Model: p.Model, Usage: p.Usage, Time: e.Time(),
	}
	sum := sha256.Sum256([]byte(e.ID))
	id := hex.EncodeToString(sum[:4])
	for n := 5; d.has(id) && n <= len(sum); n++ {
		id = hex.EncodeToString(sum[:n])
	}
	if t.Kind != session.Assistant {
		d.reply = ""
	} else if d.reply == "" {
		d.reply = id
	}
	lines, unsaid := r.Dialect.Turn(t, session.Place{ID: id, Parent: d.Leaf, Reply: d.reply, Next: d.next})
	if unsaid != "" {
		if d.Unsaid == nil {
			d.Unsaid = map[string]int{}
		}
		d.Unsaid[unsaid]++
	}
	if len(lines) == 0 && unsaid == "" {
		d.Lost = append(d.Lost, fmt.Sprintf("entry %s: it says nothing that %s could go on from", e.ID, r.Dialect.Prefix))
	}
	for _, line := range lines {
		dec := r.Dialect.Decode(line)
		if dec.Kind == session.ToolResult && !d.calls[dec.ToolCallID] {
			d.Lost = append(d.Lost, fmt.Sprintf("entry %s: the result of a tool call that is not on the thread", e.ID))
			return nil // a model would refuse it
		}
		delete(d.calls, dec.ToolCallID)
		for _, call := range dec.Calls {
			d.calls[call.ID] = true
		}
		d.Made++
		d.made, d.own[MadeKey(line, dec)] = true, true
		if err := d.put(line, dec, e.ID); err != nil {
			return err
		}
	}
	return nil
}

// MadeKey tells a line that was made from others: its own id, or what it says.
func MadeKey(line []byte, dec session.Entry) string {
	if dec.ID != "" {
		return dec.ID
	}
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}

// begin begins a session.
func (r *Rebuilder) begin(id string) (*draft, error) {
	if len(r.all) >= maxSessions {
		silent := ""
		for id, d := range r.all {
			if old := r.all[silent]; d != r.last && (old == nil || old == r.last || d.touched < old.touched) {
				silent = id
			}
		}
		if err := r.all[silent].file.Close(); err != nil {
			return nil, err
		}
		delete(r.all, silent)
	}
	if err := os.MkdirAll(r.Dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(r.Dir, ".rebuild-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil { // open, it lives on
		return nil, errors.Join(err, f.Close())
	}
	if r.all == nil {
		r.all = map[string]*draft{}
	}
	d := &draft{file: f, out: bufio.NewWriterSize(f, 256<<10), seed: maphash.MakeSeed(), ids: map[uint64]struct{}{}, calls: map[string]bool{}, own: map[string]bool{}, places: map[string][2]int64{}}
	d.Session = id
	if r.Dialect.Header != nil { // which is made in the end, unless a line of the thread is one
		d.next = r.Dialect.Decode(r.Dialect.Header("made", "", time.Time{})).Next
	}
	return d, nil
}

// MadeLines are the keys (MadeKey) of the lines that would be made: of turns that the thread has and a file of our mirror's may not have.
func (r *Rebuilder) MadeLines() map[string]bool {
	if r.last == nil {
		return nil
	}
	return r.last.own
}

// Write makes the file at path: complete or not at all, for nobody else to read. With path "" it only tells what the file would be. ErrNoSession where the
// thread holds none. sessionID names a session that has no name yet, as one that is made of turns.
func (r *Rebuilder) Write(path, sessionID string, now time.Time) (Rebuilt, error) {
	if r.last == nil && len(r.chats) > 0 || r.last != nil && r.last.made {
		if err := r.spoken(); err != nil {
			return Rebuilt{}, err
		}
	}
	d := r.last
	if d == nil {
		return Rebuilt{}, ErrNoSession
	}
	if err := d.out.Flush(); err != nil {
		return d.Rebuilt, err
	}
	d.Aside, d.Cwd = r.left+len(r.chats), cmp.Or(r.Cwd, d.OldCwd, r.Here)
	if d.Session == "" {
		d.Session = sessionID
	}
	body := bufio.NewReaderSize(io.NewSectionReader(d.file, d.start(), d.Size-d.start()), 256<<10)
	var first []byte
	switch {
	case d.header || d.anew != nil:
		line, err := body.ReadBytes('\n')
		if err != nil {
			return d.Rebuilt, err
		}
		if first = line; d.Cwd != d.OldCwd && r.Dialect.SetCwd != nil && r.Dialect.Decode(first).Kind == session.Header {
			first = append(r.Dialect.SetCwd(bytes.TrimSpace(first), d.Cwd), '\n')
		}
	case r.Dialect.Header != nil:
		first = append(r.Dialect.Header(d.Session, d.Cwd, now), '\n')
		d.Lines++
	}
	done := d.Rebuilt
	done.Size -= d.start()
	if path == "" {
		return done, nil
	}
	if err := durable.MkdirAll(filepath.Dir(path)); err != nil {
		return done, err
	}
	var err error
	done.Size, err = durable.Write(path, io.MultiReader(bytes.NewReader(first), body))
	return done, err
}

// Close gives up what the Rebuilder has on disk.
func (r *Rebuilder) Close() error {
	var err error
	for _, d := range r.all {
		err = errors.Join(err, d.file.Close())
	}
	return err
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
