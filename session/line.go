package session

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// MaxLine is the length in bytes up to which a line is read whole: about what an entry holds. A longer one is cut
// as it is read, so that it takes no memory of its length.
const MaxLine = 8 << 20

// Sizes of a Reader's buffers. A line that fits into the window costs no memory of its own.
const (
	window     = 256 << 10
	longSample = 64 << 10 // what is kept of a line over MaxLine
	anchorSize = 64       // bytes before the position that must stay what they were
)

// Position is a place in a session file: the first byte that is not yet consumed, which is the start of a line, and
// that line's index.
type Position struct {
	Offset int64 `json:"offset"` // bytes from the start of the file
	Index  int   `json:"index"`  // lines before it
}

// Line is one line of a session file and where it stood.
type Line struct {
	Start Position
	End   Position // the position after the line and its newline
	Data  []byte   // without the newline; valid until the next call on the Reader
	Torn  bool     // it had no newline: the last line of a file whose writer is gone

	// Of a line over MaxLine: its length in bytes and the SHA-256 of all of it. Data is the line's JSON then, with
	// its long strings cut (see CutMark), or where Cut is not set no more than its beginning.
	Long int64
	Sum  [sha256.Size]byte
	Cut  bool
}

// Held reports whether Data says what the line says: all of it, or what is left where its strings were cut.
func (l Line) Held() bool { return l.Long == 0 || l.Cut }

// ChangedError says that a file is not the one that was read so far: what was consumed is no longer there.
type ChangedError struct {
	Path string
	How  string // "replaced", "truncated", "rewritten"
}

func (e *ChangedError) Error() string { return fmt.Sprintf("session file %s was %s", e.Path, e.How) }

// Reader gives the lines of a file that somebody else is still writing. It splits on \n and on nothing else (U+2028 is
// data), reads from its own offset, and takes a last line without a newline for "not yet". It holds one window of the
// file, or one long line, in memory. A Reader is not safe for concurrent use. Close it when done.
type Reader struct {
	path string
	pos  Position

	known func(line []byte) bool // of a reader of a session, whether a line is one of its dialect's; nil for any file
	proof *proof                 // nil as long as no line was known
	gate  *Reader                // looks for the first line that is known; shares f

	until   int // the index of the line that is not read any more; 0 for none
	f       *os.File
	win     []byte // win[lo:hi] are the file's bytes from pos.Offset on
	lo, hi  int
	scanned int64  // bytes from pos.Offset on that are known to hold no newline
	anchor  []byte // the last bytes before pos.Offset, as they were read
}

// NewReader reads path from the position from on. The file need not exist yet.
func NewReader(path string, from Position) *Reader {
	return &Reader{path: path, pos: from}
}

// NewSessionReader is NewReader for a file that is to be a session of the dialect d, from its start. It returns no
// line of the file before one of them is known to the dialect, and again after the file has changed: of any other
// file there is only io.EOF.
func NewSessionReader(path string, d Dialect) *Reader {
	return &Reader{path: path, known: func(line []byte) bool { return d.Decode(line).Known }}
}

// Until makes the file end for the reader before the line with this index, from 1 on.
func (r *Reader) Until(index int) { r.until = index }

// proof is where the line stands that shows a file to be a session, and how it begins.
type proof struct {
	at   int64
	head []byte
}

// Position is the start of the line that Next gives next.
func (r *Reader) Position() Position { return r.pos }

// Close releases the file. A closed Reader that is used again opens it anew, at its position.
func (r *Reader) Close() error {
	r.forget()
	if r.f == nil {
		return nil
	}
	f := r.f
	r.f, r.proof, r.gate = nil, nil, nil
	return f.Close()
}

// Fork returns a Reader that continues where this one is, with what this one has read ahead and the same open file.
// Close both.
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
	fd, err := unix.FcntlInt(r.f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate %s: %w", r.path, err)
	}
	fork.f = os.NewFile(uintptr(fd), r.path)
	return fork, nil
}

// Reset goes back to the start of the file, whichever file now has the path.
func (r *Reader) Reset() error {
	r.pos, r.anchor = Position{}, nil
	return r.Close()
}

// Resume makes the Reader go on at a position of the file that another Reader has reached. false says that the file
// is not there, or has not so much any more; the Reader is at its start then. Whether the file is the same one shows
// Print.
func (r *Reader) Resume(at Position) (bool, error) {
	if err := r.open(); errors.Is(err, io.EOF) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	anchor := make([]byte, min(at.Offset, anchorSize))
	if _, err := r.f.ReadAt(anchor, at.Offset-int64(len(anchor))); err != nil {
		return false, r.Reset() // the reading of the file will show an error that lasts
	}
	r.pos, r.anchor = at, anchor
	return true, nil
}

// Print is what the Reader knows the file by: which one it is, and what stands before the position.
func (r *Reader) Print() ([]byte, error) {
	st, err := r.f.Stat()
	if err != nil {
		return nil, err
	}
	mark := bytes.Clone(r.anchor)
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		mark = fmt.Appendf(mark, "\n%d %d", sys.Dev, sys.Ino)
	}
	return mark, nil
}

// forget drops what was read and not consumed, so that it is read again.
func (r *Reader) forget() { r.lo, r.hi, r.scanned = 0, 0, 0 }

// Next returns the next line that ends in a newline. io.EOF means that there is none yet: the file may be missing, or
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
			// What stands there without a newline is read again next time: until the newline comes its writer may take
			// it back.
			r.forget()
			return Line{}, r.replaced()
		}
	}
}

// Rest returns the next line, also one that no newline ends; io.EOF where there is nothing left. It is for a file whose
// writer is gone: only then is it sure that the rest of a torn line will not come.
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

// open opens the file if that has not been done; io.EOF where there is none yet.
func (r *Reader) open() error {
	if r.f != nil {
		return nil
	}
	f, err := Open(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return io.EOF
	}
	if err != nil {
		return err
	}
	r.f = f
	return nil
}

// proven reports whether the open file is a session, as far as that is asked: next gives the lines that are looked
// at.
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
			r.gate.win = nil // it may be long until there is more
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

// fill reads on into the window and returns how many bytes came. It makes room by moving what is left to the front.
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
	// Looked at after the read: if what was consumed was still there then, what was read is what follows.
	if err := r.intact(); err != nil {
		r.forget()
		return 0, err
	}
	r.hi += n
	return n, nil
}

// nextLong looks for the end of a line that is longer than the window, without holding what it passes over.
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
		// The torn end that was passed over has been written anew since, and is more than one line now.
		return r.Next()
	}
	r.advance(size, tail)
	line.End = r.pos
	return line, nil
}

// intact returns a *ChangedError where the open file no longer has what was consumed of it.
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

// replaced returns io.EOF, or a *ChangedError where the name now belongs to another file. It is asked at the end of the
// open one: until then its lines count. A name that is gone belongs to none: nothing more will come, until somebody
// makes it anew.
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
