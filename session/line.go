package session

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
)

// MaxLine is the length in bytes up to which a line is read whole: about the size of an entry. A longer one is cut
// while it is read, and is never in memory as a whole.
const MaxLine = 8 << 20

// Sizes of a Reader's buffers. A line that fits into the window costs no memory of its own.
const (
	window     = 256 << 10
	longSample = 64 << 10 // kept of a line over MaxLine that can't be cut as JSON
	anchorSize = 64       // bytes before the position that are compared to detect a change
)

// Position is a position in a session file: the start of a line, and that line's index.
type Position struct {
	Offset int64 `json:"offset"` // bytes from the start of the file
	Index  int   `json:"index"`  // lines before it
}

// Line is one line of a session file and its position.
type Line struct {
	Start Position
	End   Position // the position after the line and its newline
	Data  []byte   // without the newline; valid until the next call on the Reader
	Torn  bool     // it has no newline: the last line of a file whose writer is gone

	// Of a line over MaxLine: its length in bytes and the SHA-256 of all of it. Data is the line's JSON then, with
	// its long strings cut (see CutMark), or where Cut is not set no more than its beginning.
	Long int64
	Sum  [sha256.Size]byte
	Cut  bool
}

// Held reports whether Data is the line's JSON: whole, or with its strings cut.
func (l Line) Held() bool { return l.Long == 0 || l.Cut }

// ChangedError reports that a file was changed other than by appending: lines that were read may be gone.
type ChangedError struct {
	Path string
	How  string // "replaced", "truncated", "rewritten"
}

func (e *ChangedError) Error() string { return fmt.Sprintf("session file %s was %s", e.Path, e.How) }

// Reader returns the lines of a file that another process appends to. It splits at \n only (U+2028 is data) and reads
// from its own offset; a last line without a newline is not a line yet. It holds one window of the file, or one long
// line, in memory. A Reader is not safe for concurrent use. Close it when done.
type Reader struct {
	path string
	pos  Position

	known func(line []byte) bool // of a session reader: the dialect understands a line; nil for any file
	proof *proof                 // nil while no line is known
	gate  *Reader                // searches for the first known line; shares f

	until   int // index of the first line that is not read; 0 for the file's end
	f       *os.File
	win     []byte // win[lo:hi] are the file's bytes from pos.Offset on
	lo, hi  int
	scanned int64  // bytes from pos.Offset on that hold no newline
	anchor  []byte // the last bytes before pos.Offset, as they were read
}

// NewReader returns a Reader of path from a position on. The file need not exist yet.
func NewReader(path string, from Position) *Reader {
	return &Reader{path: path, pos: from}
}

// NewSessionReader returns a Reader of a file that should be a session of dialect d, from its start. It returns no line
// before the dialect understands one of them, and the same after the file has changed: any other file is empty for it.
func NewSessionReader(path string, d Dialect) *Reader {
	return &Reader{path: path, known: func(line []byte) bool { return d.Decode(line).Known }}
}

// Until ends the file for the Reader before the line with this index, which is at least 1.
func (r *Reader) Until(index int) { r.until = index }

// proof is the offset and the beginning of a known line.
type proof struct {
	at   int64
	head []byte
}

// Position returns the start of the next line.
func (r *Reader) Position() Position { return r.pos }

// Close closes the file. A closed Reader that is used again opens it at its position.
func (r *Reader) Close() error {
	r.forget()
	if r.f == nil {
		return nil
	}
	f := r.f
	r.f, r.proof, r.gate = nil, nil, nil
	return f.Close()
}

// Fork returns an independent Reader at the same position of the same open file, with the same bytes in its window.
// Close it, too.
func (r *Reader) Fork() (*Reader, error) {
	fork := &Reader{
		path: r.path, pos: r.pos, known: r.known, proof: r.proof, until: r.until, anchor: bytes.Clone(r.anchor),
		scanned: r.scanned,
	}
	if r.win != nil {
		fork.win = make([]byte, window)
		fork.hi = copy(fork.win, r.win[r.lo:r.hi])
	}
	if r.f == nil {
		return fork, nil
	}
	var err error
	if fork.f, err = duplicate(r.f); err != nil {
		return nil, fmt.Errorf("duplicate %s: %w", r.path, err)
	}
	return fork, nil
}

// Reset goes back to the start of the file, whichever file now has the path.
func (r *Reader) Reset() error {
	r.pos, r.anchor = Position{}, nil
	return r.Close()
}

// Resume moves the Reader to a position that another Reader of the file has reached. It returns false where the file is
// missing or shorter; the Reader is at its start then. Equal Prints mean that it is the same file.
func (r *Reader) Resume(at Position) (bool, error) {
	if err := r.open(); errors.Is(err, io.EOF) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	anchor := make([]byte, min(at.Offset, anchorSize))
	if _, err := r.f.ReadAt(anchor, at.Offset-int64(len(anchor))); err != nil {
		return false, r.Reset() // Next returns an error that lasts
	}
	r.pos, r.anchor = at, anchor
	return true, nil
}

// Print returns what identifies the file and the position: device, inode, and the bytes before the position.
func (r *Reader) Print() ([]byte, error) {
	st, err := r.f.Stat()
	if err != nil {
		return nil, err
	}
	return append(bytes.Clone(r.anchor), identity(st)...), nil
}

// forget drops the window: what was not consumed is read again.
func (r *Reader) forget() { r.lo, r.hi, r.scanned = 0, 0, 0 }

// Next returns the next line that ends in a newline. io.EOF means that none has come yet: the file may be missing, or
// end in a torn line. A *ChangedError means that the file changed under the reader, which stays where it is until
// Reset.
func (r *Reader) Next() (Line, error) {
	if r.ended() {
		return Line{}, io.EOF
	}
	for {
		if have := int64(r.hi - r.lo); r.scanned < have {
			if i := bytes.IndexByte(r.win[r.lo+int(r.scanned):r.hi], '\n'); i >= 0 {
				return r.take(int(r.scanned)+i, true), nil
			}
			r.scanned = have
		}
		if r.scanned >= window {
			return r.nextLong()
		}
		n, err := r.fill()
		if err != nil {
			return Line{}, err
		}
		if n == 0 {
			// Bytes without a newline are read again next time: their writer may still replace them.
			r.forget()
			return Line{}, r.replaced()
		}
	}
}

// Rest returns the next line, also a last one without a newline; io.EOF at the end of the file. It is for a file whose
// writer is gone: a torn line will not be completed.
func (r *Reader) Rest() (Line, error) {
	line, err := r.Next()
	if !errors.Is(err, io.EOF) || r.f == nil || r.ended() {
		return line, err
	}
	if ok, err := r.proven((*Reader).Rest); !ok {
		return Line{}, cmp.Or(err, io.EOF)
	}
	end, err := r.f.Seek(0, io.SeekEnd)
	if err != nil {
		return Line{}, err
	}
	n := end - r.pos.Offset
	if n <= 0 {
		return Line{}, io.EOF
	}
	if n > window {
		return r.long(n, false)
	}
	if _, err := r.fill(); err != nil {
		return Line{}, err
	}
	return r.take(r.hi-r.lo, false), nil
}

// Lines returns the lines of a file from a position on, also a last one without a newline, up to the first error. The
// file's writer is gone. A missing file has no lines.
func Lines(path string, from Position) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		r := NewReader(path, from)
		defer r.Close() // read only: nothing to lose
		for {
			line, err := r.Rest()
			if errors.Is(err, io.EOF) || !yield(line, err) || err != nil {
				return
			}
		}
	}
}

func (r *Reader) ended() bool { return r.until > 0 && r.pos.Index >= r.until }

// take consumes the first n bytes of the window as a line, and its newline.
func (r *Reader) take(n int, newline bool) Line {
	line := Line{Start: r.pos, Data: r.win[r.lo : r.lo+n : r.lo+n], Torn: !newline}
	end := n
	if newline {
		end++
	}
	r.advance(int64(end), r.win[r.lo:r.lo+end])
	r.lo += end
	line.End = r.pos
	return line
}

// advance moves the position over n bytes, the last of which are tail.
func (r *Reader) advance(n int64, tail []byte) {
	r.pos.Offset += n
	r.pos.Index++
	r.scanned = 0
	if len(tail) > anchorSize {
		tail = tail[len(tail)-anchorSize:]
	}
	if extra := len(r.anchor) + len(tail) - anchorSize; extra > 0 {
		r.anchor = append(r.anchor[:0], r.anchor[extra:]...)
	}
	r.anchor = append(r.anchor, tail...)
}

// open opens the file where it is not open; io.EOF where it is missing.
func (r *Reader) open() error {
	if r.f != nil {
		return nil
	}
	f, err := Open(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return io.EOF
	}
	r.f = f
	return err
}

// proven reports whether a line of the open file is known; always true for a Reader of any file. next returns the lines
// to look at.
func (r *Reader) proven(next func(*Reader) (Line, error)) (bool, error) {
	if r.known == nil || r.proof != nil {
		return true, nil
	}
	if r.gate == nil {
		r.gate = &Reader{path: r.path, f: r.f}
	}
	for {
		line, err := next(r.gate)
		var changed *ChangedError
		switch {
		case errors.As(err, &changed) && changed.How != "replaced":
			r.gate = &Reader{path: r.path, f: r.f}
		case errors.Is(err, io.EOF), errors.As(err, &changed):
			r.gate.win = nil // there may be no more for long
			return false, nil
		case err != nil:
			return false, err
		case r.known(line.Data):
			r.proof = &proof{line.Start.Offset, bytes.Clone(line.Data[:min(len(line.Data), anchorSize)])}
			r.gate = nil
			return true, nil
		}
	}
}

// fill reads the next bytes into the window and returns their number. It moves unconsumed bytes to the front first.
func (r *Reader) fill() (int, error) {
	if err := r.open(); err != nil {
		return 0, err
	}
	if ok, err := r.proven((*Reader).Next); !ok {
		return 0, err
	}
	if r.win == nil {
		r.win = make([]byte, window)
	}
	if r.lo > 0 {
		r.hi = copy(r.win, r.win[r.lo:r.hi])
		r.lo = 0
	}
	n, err := r.f.ReadAt(r.win[r.hi:], r.pos.Offset+int64(r.hi))
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	// Checked after the read: where the consumed bytes are still there, those that were read follow them.
	if err := r.intact(); err != nil {
		r.forget()
		return 0, err
	}
	r.hi += n
	return n, nil
}

// nextLong returns a line that is longer than the window. It searches for its end without holding the line.
func (r *Reader) nextLong() (Line, error) {
	r.lo, r.hi = 0, 0
	for {
		n, err := r.f.ReadAt(r.win, r.pos.Offset+r.scanned)
		if i := bytes.IndexByte(r.win[:n], '\n'); i >= 0 {
			return r.long(r.scanned+int64(i), true)
		}
		r.scanned += int64(n)
		if err != nil && !errors.Is(err, io.EOF) {
			return Line{}, err
		}
		if n == 0 {
			return Line{}, r.replaced()
		}
	}
}

// long consumes a line of n bytes that is not in the window.
func (r *Reader) long(n int64, newline bool) (Line, error) {
	r.forget()
	line := Line{Start: r.pos, Torn: !newline}
	size := n
	if newline {
		size++
	}
	if n <= MaxLine {
		line.Data = make([]byte, n)
	} else {
		line.Data, line.Long = make([]byte, longSample), n
		sum := sha256.New()
		if _, err := io.Copy(sum, io.NewSectionReader(r.f, r.pos.Offset, n)); err != nil {
			return Line{}, err
		}
		sum.Sum(line.Sum[:0])
	}
	tail := make([]byte, anchorSize)
	if _, err := r.f.ReadAt(line.Data, r.pos.Offset); err != nil {
		return Line{}, errors.Join(r.intact(), err)
	}
	if line.Long > 0 {
		cut, err := cutLine(r.f, r.pos.Offset, n, r.win)
		if err != nil {
			return Line{}, errors.Join(r.intact(), err)
		}
		if cut != nil {
			line.Data, line.Cut = cut, true
		}
	}
	if _, err := r.f.ReadAt(tail, r.pos.Offset+size-anchorSize); err != nil {
		return Line{}, errors.Join(r.intact(), err)
	}
	if err := r.intact(); err != nil {
		return Line{}, err
	}
	if bytes.IndexByte(line.Data, '\n') >= 0 {
		// The file's torn end was rewritten meanwhile, and is more than one line now.
		return r.Next()
	}
	r.advance(size, tail)
	line.End = r.pos
	return line, nil
}

// intact returns a *ChangedError where the open file lacks the bytes before the position.
func (r *Reader) intact() error {
	st, err := r.f.Stat()
	if err != nil {
		return err
	}
	if st.Size() < r.pos.Offset {
		return &ChangedError{Path: r.path, How: "truncated"}
	}
	before := make([]byte, len(r.anchor))
	if _, err := r.f.ReadAt(before, r.pos.Offset-int64(len(before))); err != nil {
		return err
	}
	if !bytes.Equal(before, r.anchor) {
		return &ChangedError{Path: r.path, How: "rewritten"}
	}
	if p := r.proof; p != nil && r.pos.Offset <= p.at {
		head := make([]byte, len(p.head))
		if _, err := r.f.ReadAt(head, p.at); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if !bytes.Equal(head, p.head) {
			return &ChangedError{Path: r.path, How: "rewritten"}
		}
	}
	return nil
}

// replaced returns io.EOF, or a *ChangedError where the path now names another file. It is called at the end of the
// open file, whose lines are read before. Where the path names no file there is nothing more to read until it does.
func (r *Reader) replaced() error {
	if r.f == nil {
		return io.EOF
	}
	open, err := r.f.Stat()
	if err != nil {
		return err
	}
	named, err := os.Stat(r.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return io.EOF
	case err != nil:
		return err
	case !os.SameFile(open, named):
		return &ChangedError{Path: r.path, How: "replaced"}
	}
	return io.EOF
}
