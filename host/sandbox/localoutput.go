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

// begin begins to read. The command, if it has started, has its own copies of the ends to write to.
func (p *pipes) begin() {
	p.close(p.write[:])
	for i := range p.read {
		p.wg.Go(func() { p.copy(Stdout+Stream(i), p.read[i]) })
	}
}

// end returns when the outputs of a command that has ended were read. What the command left behind may keep them open
// for ever: what comes after its end is read until nothing comes for a while, and no more than was in the pipe at the
// end.
func (p *pipes) end() {
	p.over.Store(true)
	for _, r := range p.read {
		_ = r.SetReadDeadline(time.Now().Add(lingering)) // pipes have deadlines
	}
	p.wg.Wait()
	p.close(p.read[:])
}

// pipeSize is how much a pipe of Linux holds.
const pipeSize = 64 << 10

func (p *pipes) copy(s Stream, r *os.File) {
	buf := make([]byte, 32<<10)
	for left, late := pipeSize, 0; left > 0 && late < 2; {
		over := p.over.Load()
		n, err := r.Read(buf)
		p.out.add(s, buf[:n])
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			late++ // or the output's reader took its time
			_ = r.SetReadDeadline(time.Now().Add(lingering))
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
