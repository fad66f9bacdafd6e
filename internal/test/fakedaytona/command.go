package fakedaytona

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// The marks before the lines of a log.
const (
	stdoutMark = "\x01\x01\x01"
	stderrMark = "\x02\x02\x02"
)

// command is one command of a session, and its log.
type command struct {
	id, text     string
	dir          string
	in, out, err string // named pipes
	echo         bool   // what is put in, is in the log
	done         chan struct{}

	files   *sync.Mutex // the session's; it is held while a file is made in dir, and while dir is removed
	input   *os.File    // both ends of the input, so that it has no end
	holders []*os.File
	readers sync.WaitGroup
	freed   sync.Once

	mu   sync.Mutex
	log  []byte
	file *os.File
	grew chan struct{} // closed, and made anew, when the log has grown
	exit *int
}

func newCommand(dir, text string, echo bool) (*command, error) {
	c := &command{
		id: filepath.Base(dir), text: text, dir: dir, echo: echo, done: make(chan struct{}), grew: make(chan struct{}),
		in: filepath.Join(dir, "input"), out: filepath.Join(dir, "stdout"), err: filepath.Join(dir, "stderr"),
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for _, name := range []string{c.in, c.out, c.err} {
		if err := syscall.Mkfifo(name, 0o600); err != nil {
			return nil, err
		}
	}
	var err error
	if c.file, err = os.Create(filepath.Join(dir, "output.log")); err != nil {
		return nil, err
	}
	if c.input, err = os.OpenFile(c.in, os.O_RDWR|syscall.O_NONBLOCK, 0); err != nil {
		return nil, err
	}
	for _, o := range []struct{ name, mark string }{{c.out, stdoutMark}, {c.err, stderrMark}} {
		r, err := os.OpenFile(o.name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // does not wait for who writes
		if err != nil {
			c.release()
			return nil, err
		}
		w, err := os.OpenFile(o.name, os.O_WRONLY|syscall.O_NONBLOCK, 0) // so that it doesn't end before it has begun
		if err != nil {
			c.release()
			return nil, errors.Join(err, r.Close())
		}
		c.holders = append(c.holders, w)
		c.readers.Go(func() { c.read(r, o.mark) })
	}
	return c, nil
}

// read takes the lines of an output into the log, each when it is complete. It loses zero bytes, as the original's
// shell does.
func (c *command) read(r *os.File, mark string) {
	defer r.Close()
	for lines := bufio.NewReader(r); ; {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			c.add(mark, bytes.ReplaceAll(bytes.TrimSuffix(line, []byte{'\n'}), []byte{0}, nil))
		}
		if err != nil {
			return
		}
	}
}

func (c *command) add(mark string, line []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := len(c.log)
	c.log = append(append(append(c.log, mark...), line...), '\n')
	_, _ = c.file.Write(c.log[was:]) // the session may have been deleted
	close(c.grew)
	c.grew = make(chan struct{})
}

// release closes the pipes.
func (c *command) release() {
	c.freed.Do(func() {
		for _, f := range append(c.holders, c.input) {
			_ = f.Close() // nothing is lost with them
		}
	})
}

// finish waits until no process holds the outputs, and then records how the command ended.
func (c *command) finish(code int) {
	c.release()
	c.readers.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.file.Close()
	c.files.Lock()
	_ = os.WriteFile(
		filepath.Join(c.dir, "exit_code"),
		[]byte(strconv.Itoa(code)),
		0o644,
	) // for a person in the box
	c.files.Unlock()
	c.exit = &code
	close(c.done)
}

var errDone = errors.New("the command has ended")

// put gives the command a line to read.
func (c *command) put(data string) error {
	c.mu.Lock()
	done := c.exit != nil
	c.mu.Unlock()
	if done {
		return errDone
	}
	if _, err := c.input.WriteString(data + "\n"); err != nil {
		return errDone // meanwhile
	}
	if c.echo {
		c.add(stdoutMark, []byte(data))
	}
	return nil
}

func (c *command) view() map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := map[string]any{"id": c.id, "command": c.text}
	if c.exit != nil {
		v["exitCode"] = *c.exit
	}
	return v
}

// since is the log from an offset on, and a channel that is closed when there is more.
func (c *command) since(offset int) ([]byte, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.log[offset:]), c.grew
}

// splitLog takes a log apart. A mark counts wherever it stands, so bytes of a command that look like one switch the
// stream.
func splitLog(log []byte) (merged, stdout, stderr []byte) {
	to := &stdout
	for len(log) > 0 {
		switch {
		case bytes.HasPrefix(log, []byte(stdoutMark)):
			to, log = &stdout, log[len(stdoutMark):]
		case bytes.HasPrefix(log, []byte(stderrMark)):
			to, log = &stderr, log[len(stderrMark):]
		default:
			merged, *to = append(merged, log[0]), append(*to, log[0])
			log = log[1:]
		}
	}
	return merged, stdout, stderr
}
