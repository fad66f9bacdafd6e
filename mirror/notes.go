package mirror

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"arbe.0sk.ar/runner/session"
)

// notes is the file in which a Mirror keeps what the next one of the same session file needs to go on where this one
// was: with it no line before that place is read again. It takes 8 bytes for each line, and some 60 for each post.
//
// The file only grows. It begins with its version and the key of the hashes; a note follows for each place that was
// reached: a noteHead, the hashes of the ids since the note before, and the words that have changed since. A note
// counts when its checksum fits, and those before it do. So the file needs no sync: what a crash has torn off costs a
// repeat, and a file that makes no sense costs one reading of the session.
type notes struct {
	f     *os.File // nil as long as nothing is written
	end   int64    // of the last note
	words words    // as they are written
	buf   []byte
}

// notesMagic begins the file and names its format. Another format, or another way to make ids or their hashes, has
// another name.
const notesMagic = "arbe mirror 001\n"

// noteHead begins a note.
type noteHead struct {
	sum      uint64 // checksum of the note's place in the file and of all that follows
	ids      uint32 // how many hashes follow
	words    uint32 // how many bytes of words follow them
	at       session.Position
	prompted bool   // the line of the run's prompt has come
	print    uint64 // hash of what the Reader knows the session file by, there
	last     time.Time
}

const noteHeadSize = 7 * 8

// put writes the head over the beginning of b, which is the note that stands at the place at.
func (h noteHead) put(b []byte, at int64) {
	prompted := uint64(0)
	if h.prompted {
		prompted = 1
	}
	for i, v := range []uint64{
		0, uint64(h.ids)<<32 | uint64(h.words), uint64(h.at.Offset), uint64(h.at.Index)<<1 | prompted, h.print,
		uint64(h.last.Unix()), uint64(h.last.Nanosecond()),
	} {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
	binary.LittleEndian.PutUint64(b, noteSum(b, at))
}

// readHead is the head that begins b.
func readHead(b []byte) noteHead {
	var v [noteHeadSize / 8]uint64
	for i := range v {
		v[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return noteHead{
		sum: v[0], ids: uint32(v[1] >> 32), words: uint32(v[1]),
		at:       session.Position{Offset: int64(v[2]), Index: int(v[3] >> 1)},
		prompted: v[3]&1 == 1, print: v[4], last: time.Unix(int64(v[5]), int64(v[6])),
	}
}

// noteSum is the checksum of the note b that stands at the place at.
func noteSum(b []byte, at int64) uint64 {
	h := sha256.New()
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(at))) // a hash takes everything
	_, _ = h.Write(b[8:])
	return binary.LittleEndian.Uint64(h.Sum(nil))
}

// words are the texts that an Encoder knows of the lines so far.
type words struct {
	session string
	session.Heard
}

// The tags of words. A call is its id, and its name behind that.
const (
	tagSession = iota
	tagProvider
	tagModel
	tagReply
	tagCall
	tagName
)

// note writes down that the lines so far are on the thread. What can't be written is left out: the next Mirror
// goes on from the last note that is there.
func (m *Mirror) note(r *session.Reader) {
	if !m.noting {
		return
	}
	if m.old || m.Restarted() {
		// The names of what is to come hang on more than notes hold: on what the lines say, or on an earlier file's.
		if err := os.Remove(m.Notes); err != nil && !errors.Is(err, fs.ErrNotExist) {
			m.Log.Debug("the mirror's notes were not removed", "error", err)
		}
		m.stopNoting()
		return
	}
	if err := m.writeNote(r); err != nil {
		m.Log.Debug("the mirror's notes end here", "error", err)
		m.stopNoting()
	}
}

func (m *Mirror) stopNoting() { m.noting, m.fresh, m.calls = false, nil, nil }

func (m *Mirror) writeNote(r *session.Reader) error {
	mark, err := r.Print()
	if err != nil {
		return err
	}
	n := &m.notes
	if n.f == nil {
		if n.f, err = os.OpenFile(m.Notes, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
			return err
		}
		head := append([]byte(notesMagic), m.seed[:]...)
		if _, err := n.f.WriteAt(head, 0); err != nil {
			return err
		}
		n.end = int64(len(head))
	}
	b := append(n.buf[:0], make([]byte, noteHeadSize)...)
	for _, id := range m.fresh {
		b = binary.LittleEndian.AppendUint64(b, id)
	}
	ids := len(b)
	now := words{m.Session, m.decoder.Heard()}
	b = appendWord(b, tagSession, n.words.session, now.session)
	b = appendWord(b, tagProvider, n.words.Provider, now.Provider)
	b = appendWord(b, tagModel, n.words.Model, now.Model)
	b = appendWord(b, tagReply, n.words.Reply, now.Reply)
	for _, c := range m.calls {
		b = word(word(b, tagCall, c.ID), tagName, c.Name)
	}
	noteHead{
		ids: uint32(len(m.fresh)), words: uint32(len(b) - ids), at: r.Position(), prompted: m.prompted,
		print: m.hash(string(mark)), last: m.last,
	}.put(b, n.end)
	if _, err := n.f.WriteAt(b, n.end); err != nil {
		return err
	}
	n.end += int64(len(b))
	n.words, n.buf, m.fresh, m.calls = now, b[:0], m.fresh[:0], m.calls[:0]
	if cap(n.buf) > window {
		n.buf = nil
	}
	return nil
}

// window is how much of a buffer is kept for the next note.
const window = 64 << 10

// appendWord appends a word where it has changed.
func appendWord(b []byte, tag byte, was, is string) []byte {
	if was == is {
		return b
	}
	return word(b, tag, is)
}

func word(b []byte, tag byte, s string) []byte {
	return append(binary.AppendUvarint(append(b, tag), uint64(len(s))), s...)
}

// recall brings the Encoder and the reader to the last of the notes, where they are of this session file. It reports
// whether it has; the Encoder may be anywhere where it has not.
func (m *Mirror) recall(r *session.Reader) (bool, error) {
	f, err := os.OpenFile(m.Notes, os.O_RDWR, 0)
	if err != nil {
		return false, nil // there are none, or none that can be read
	}
	last, end := m.readNotes(f)
	fits := last.at.Index > 0 && last.at.Offset > 0
	if fits {
		fits, err = r.Resume(last.at)
	}
	if fits && err == nil {
		var mark []byte
		mark, err = r.Print()
		fits = err == nil && m.hash(string(mark)) == last.print
	}
	if fits && f.Truncate(end) == nil {
		m.notes = notes{f: f, end: end, words: words{m.Session, m.decoder.Heard()}}
		return true, nil
	}
	return false, errors.Join(err, f.Close())
}

// readNotes takes the notes in f, and returns the head of the last good one and where it ends.
func (m *Mirror) readNotes(f *os.File) (last noteHead, end int64) {
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return last, 0
	}
	in := bufio.NewReaderSize(f, window)
	magic := make([]byte, len(notesMagic))
	if _, err := io.ReadFull(in, magic); err != nil || string(magic) != notesMagic {
		return last, 0
	}
	if _, err := io.ReadFull(in, m.seed[:]); err != nil {
		return last, 0
	}
	m.used = &idSet{}
	end = int64(len(magic) + len(m.seed))
	var b []byte
	for {
		b = append(b[:0], make([]byte, noteHeadSize)...)
		if _, err := io.ReadFull(in, b); err != nil {
			return last, end
		}
		head := readHead(b)
		size := 8*int64(head.ids) + int64(head.words)
		if size > st.Size()-end {
			return last, end
		}
		b = append(b, make([]byte, size)...)
		if _, err := io.ReadFull(in, b[noteHeadSize:]); err != nil || noteSum(b, end) != head.sum {
			return last, end
		}
		m.takeNote(head, b[noteHeadSize:])
		last, end = head, end+int64(len(b))
	}
}

// takeNote brings the Encoder to where a note was made.
func (m *Mirror) takeNote(head noteHead, b []byte) {
	for range head.ids {
		m.used.add(binary.LittleEndian.Uint64(b))
		b = b[8:]
	}
	var h session.Heard
	id := ""
	for len(b) > 1 {
		n, size := binary.Uvarint(b[1:])
		from := 1 + size
		if size <= 0 || n > uint64(len(b)-from) {
			break // not of our writing, for the checksum fits
		}
		s := string(b[from : from+int(n)])
		switch b[0] {
		case tagSession:
			m.Session = s
		case tagProvider:
			h.Provider = s
		case tagModel:
			h.Model = s
		case tagReply:
			h.Reply = s
		case tagCall:
			id = s
		case tagName:
			h.Calls = append(h.Calls, session.Call{ID: id, Name: s})
		}
		b = b[from+int(n):]
	}
	m.decoder.Hear(h)
	m.prompted, m.last = head.prompted, head.last
}
