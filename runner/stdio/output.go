// Package stdio has what a run's agent reads and writes: a FIFO that is its stdin, and the files of its stdout and
// stderr. All three are in the run's folder, so the agent outlives the worker that started it. An agent whose own
// interface a person uses has a Terminal in their place.
//
// A Trimmer keeps the files within their bounds while the agent prints. Lines, Copy and CopyAnswers read them
// meanwhile, and leave out what was trimmed before they came to it.
package stdio

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/runner/runfolder"
)

// maxOutput is the size of the kept part of each of stdout and stderr, in bytes.
const maxOutput = 16 << 20

// Output is one of the agent's output streams: a file that the agent writes. There is no pipe, so the agent outlives
// its worker, and a process that keeps the stream open delays nothing.
type Output struct {
	Path string
	File *os.File      // the agent's end
	Keep *atomic.Int64 // the blocks from there on stay; nil: no such limit

	size int64 // at the last call of Grown
	base int64 // the blocks before it are freed; the Trimmer's
	was  int64 // size at the Trimmer's last look
}

// NewOutput opens the file of an output in the run's folder, and makes it where it is missing.
func NewOutput(folder, name string) (*Output, error) {
	path := filepath.Join(folder, name)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	return &Output{Path: path, File: f}, err
}

// Grown reports whether the file has grown since the last call.
func (o *Output) Grown() (bool, error) {
	st, err := o.File.Stat()
	if err != nil {
		return false, err
	}
	grew := st.Size() > o.size
	o.size = st.Size()
	return grew, nil
}

// Settle cuts the file of an agent that has ended to the part that is kept, and closes it.
func (o *Output) Settle() error {
	st, err := o.File.Stat()
	if err != nil || st.Size() <= maxOutput/2 {
		return errors.Join(err, o.File.Close())
	}
	begin, err := unix.Seek(int(o.File.Fd()), 0, unix.SEEK_DATA) // behind an earlier worker's hole
	if err != nil {
		begin = o.base
	}
	tail, err := Tail(o.Path, min(maxOutput/2, st.Size()-begin))
	if err == nil {
		err = runfolder.Replace(o.Path, tail)
	}
	return errors.Join(err, o.File.Close())
}

// Tail returns the last n bytes of a file.
func Tail(path string, n int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // read only: nothing to lose
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f, max(0, st.Size()-n), n))
}

// Lines reads the lines of an output while it is trimmed. One read takes at most the part that is kept.
type Lines struct {
	Path  string
	At    int64 // read so far
	Whole bool  // no block behind At is freed: nothing is left out

	f    *os.File
	part []byte // the beginning of a line without its end
	skip bool   // skip to the end of a line whose beginning is lost
}

// Taken returns the place behind the last whole line.
func (o *Lines) Taken() int64 { return o.At - int64(len(o.part)) }

// Read calls take for each new line. last: the agent has ended, so that an unterminated line counts, too.
func (o *Lines) Read(last bool, take func(line []byte)) error {
	if o.f == nil {
		f, err := os.Open(o.Path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		o.f = f
	}
	st, err := o.f.Stat()
	if err != nil {
		return err
	}
	end := st.Size()
	switch {
	case end < o.At: // shortened: read it from its start
		o.At, o.part, o.skip = 0, nil, false
	case end-o.At > maxOutput/4 && !o.Whole: // the blocks before may be freed
		o.At, o.part, o.skip = end-maxOutput/4, nil, true
	}
	b := make([]byte, 64<<10)
	for o.At < end {
		n, err := o.f.ReadAt(b[:min(int64(len(b)), end-o.At)], o.At)
		if n == 0 {
			return err
		}
		o.At += int64(n)
		o.split(b[:n], take)
	}
	if last && len(o.part) > 0 {
		take(o.part)
		o.part = nil
	}
	return nil
}

// split takes the next bytes.
func (o *Lines) split(b []byte, take func(line []byte)) {
	for len(b) > 0 {
		line, rest, whole := bytes.Cut(b, []byte{'\n'})
		switch {
		case !o.skip && whole && len(o.part) == 0:
			take(line)
		case !o.skip && whole:
			take(append(o.part, line...))
		case !o.skip:
			o.part = append(o.part, line...)
		}
		if whole {
			o.part, o.skip = o.part[:0], false
		} else if len(o.part) > maxOutput/4 {
			o.part, o.skip = nil, true
		}
		b = rest
	}
}

// Close closes the file, if it was opened.
func (o *Lines) Close() error {
	if o.f == nil {
		return nil
	}
	return o.f.Close()
}
