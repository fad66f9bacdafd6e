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

// notes is the file from which the next Mirror of the same session file resumes: it reads no line again that is before
// the last note. The file takes 8 bytes for each line, and some 60 for each post.
//
// The file only grows. It begins with its version and the key of the hashes. A note follows for each acknowledged post:
// a noteHead, the hashes of the ids since the note before, and the words that have changed since. A note is valid where
// its checksum and those of all notes before it are right. So the file needs no sync: after a crash a lost note costs a
// repeated post, and a damaged file costs one reading of the session.
type notes struct {
	f     *os.File // nil as long as nothing is written
	end   int64    // of the last note
	words words    // of the last note
	buf   []byte
}

// notesMagic begins the file and names its format. It changes with the format, and with how ids or their hashes are
// made.
const notesMagic = "arbe mirror 001\n"

// noteHead begins a note.
type noteHead struct {
	sum      uint64 // checksum of the note's offset and of the rest of the note
	ids      uint32 // number of hashes behind the head
	words    uint32 // bytes of words behind the hashes
	at       session.Position
	prompted bool   // the line of the run's prompt is before at
	print    uint64 // hash of the Reader's Print at at
	last     time.Time
}

const noteHeadSize = 7 * 8

// put writes the head into the beginning of b, a note at the offset at of the file.
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

// readHead returns the head at the beginning of b.
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

// noteSum returns the checksum of the note b at the offset at of the file.
func noteSum(b []byte, at int64) uint64 {
	h := sha256.New()
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(at))) // a hash takes everything
	_, _ = h.Write(b[8:])
	return binary.LittleEndian.Uint64(h.Sum(nil))
}

// words are the texts that an Encoder remembers of the lines so far.
type words struct {
	session string
	session.Context
}

// The tags of words. A call has two: its id, then its name.
const (
	tagSession = iota
	tagProvider
	tagModel
	tagReply
	tagCall
	tagName
)

// note notes that the lines so far are on the thread. Where it can't be written, the notes end: the next Mirror resumes
// from the last note in the file.
func (m *Mirror) note(r *session.Reader) {
	if !m.noting {
		return
	}
	if m.old || m.Restarted() {
		// Names now depend on more than notes hold: on the lines' content, or on an earlier file's ids.
		if err := os.Remove(m.Notes); err != nil && !errors.Is(err, fs.ErrNotExist) {
			m.Log.Debug("remove mirror notes", "error", err)
		}
		m.stopNoting()
		return
	}
	if err := m.writeNote(r); err != nil {
		m.Log.Debug("write mirror notes; no further ones", "error", err)
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
	now := words{m.Session, m.decoder.Context()}
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

// window is the size of the read buffer, and of the largest buffer that is kept for the next note.
const window = 64 << 10

// appendWord appends a word that has changed.
func appendWord(b []byte, tag byte, was, is string) []byte {
	if was == is {
		return b
	}
	return word(b, tag, is)
}

func word(b []byte, tag byte, s string) []byte {
	return append(binary.AppendUvarint(append(b, tag), uint64(len(s))), s...)
}

// recall brings the Encoder and the reader to the last note, and reports whether the notes are of this session file.
// Where they are not, the Encoder's state is undefined.
func (m *Mirror) recall(r *session.Reader) (bool, error) {
	f, err := os.OpenFile(m.Notes, os.O_RDWR, 0)
	if err != nil {
		return false, nil // no notes, or unreadable ones
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
		m.notes = notes{f: f, end: end, words: words{m.Session, m.decoder.Context()}}
		return true, nil
	}
	return false, errors.Join(err, f.Close())
}

// readNotes applies the notes in f, and returns the head and the end of the last valid one.
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

// takeNote applies one note to the Encoder.
func (m *Mirror) takeNote(head noteHead, b []byte) {
	for range head.ids {
		m.used.add(binary.LittleEndian.Uint64(b))
		b = b[8:]
	}
	var h session.Context
	id := ""
	for len(b) > 1 {
		n, size := binary.Uvarint(b[1:])
		from := 1 + size
		if size <= 0 || n > uint64(len(b)-from) {
			break // no Mirror writes this: the checksum is right
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
	m.decoder.Add(h)
	m.prompted, m.last = head.prompted, head.last
}
