package sandbox

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// pipes carry the two outputs of a local command.
type pipes struct {
	write [2]*os.File // the command's ends
	read  [2]*os.File
	out   *output
	over  atomic.Bool // the command has ended
	wg    sync.WaitGroup
}

// pipes makes the pipes. begin and end must be called.
func (o *output) pipes() (*pipes, error) {
	p := &pipes{out: o}
	for i := range p.write {
		var err error
		if p.read[i], p.write[i], err = os.Pipe(); err != nil {
			p.close(p.read[:i])
			p.close(p.write[:i])
			return nil, err
		}
	}
	return p, nil
}

func (p *pipes) close(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // nothing was buffered
	}
}

// begin starts reading. It closes the ends to write to, of which the command has its own copies.
func (p *pipes) begin() {
	p.close(p.write[:])
	for i := range p.read {
		p.wg.Go(func() { p.copy(Stdout+Stream(i), p.read[i]) })
	}
}

// end returns when the outputs of a command that has ended are read. Processes that the command left behind may keep
// the outputs open for ever, so end reads until no output comes for outputGrace, and at most what fits into a pipe.
func (p *pipes) end() {
	p.over.Store(true)
	for _, r := range p.read {
		_ = r.SetReadDeadline(time.Now().Add(outputGrace)) // pipes have deadlines
	}
	p.wg.Wait()
	p.close(p.read[:])
}

// pipeSize is the capacity of a pipe on Linux, in bytes.
const pipeSize = 64 << 10

func (p *pipes) copy(s Stream, r *os.File) {
	buf := make([]byte, 32<<10)
	for left, late := pipeSize, 0; left > 0 && late < 2; {
		over := p.over.Load()
		n, err := r.Read(buf)
		p.out.add(s, buf[:n])
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			late++ // once may mean that the output's reader was slow
			_ = r.SetReadDeadline(time.Now().Add(outputGrace))
		case err != nil:
			return
		default:
			late = 0
		}
		if over {
			left -= n
		}
	}
}
