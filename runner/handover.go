package runner

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The messages of a worker to its keeper, a line each.
const (
	wordReady  = "ready"   // the worker is hidden and has its threads: it asks for its job
	wordClose  = "close"   // the input of a live run's agent ends: the keeper closes its end
	wordStatus = "status " // the run has ended, with this exit status
)

// talk is the keeper's end of the socket to one worker.
type talk struct {
	conn       *os.File
	stderr     *crashPipe
	job        []byte
	closeInput func() error
	running    sync.WaitGroup // of run, which ends when the worker has closed its end

	// Valid once run has ended.
	asked  bool // the worker has asked for its job
	status int
	ended  bool // status is valid
}

// newTalk makes the socket between keeper and worker.
func newTalk(job []byte) (t *talk, worker *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil { // so that the keeper needs no thread for it
		return nil, nil, errors.Join(err, unix.Close(fds[0]), unix.Close(fds[1]))
	}
	t = &talk{conn: os.NewFile(uintptr(fds[0]), "worker"), job: job}
	return t, os.NewFile(uintptr(fds[1]), "keeper"), nil
}

// run reads the worker's messages until its end of the socket is closed. It sends the job only after the worker is
// ready: until a process has hidden, others of the same user can read its memory.
func (t *talk) run() {
	words := bufio.NewScanner(t.conn)
	for words.Scan() {
		switch word := words.Text(); {
		case word == wordReady && !t.asked:
			t.asked = true
			if _, err := t.conn.Write(t.job); err != nil {
				return // it is dead
			}
			if err := t.shutdown(); err != nil {
				return
			}
		case word == wordClose:
			_ = t.closeInput() // nothing is left in it that the agent is to read
		case strings.HasPrefix(word, wordStatus):
			n, err := strconv.Atoi(strings.TrimPrefix(word, wordStatus))
			t.status, t.ended = n, err == nil
		}
	}
}

// shutdown closes the socket for writing, which ends the job for the worker.
func (t *talk) shutdown() error {
	raw, err := t.conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.Shutdown(int(fd), unix.SHUT_WR) })
	return errors.Join(err, failed)
}

// crashPipe is the keeper's end of a worker's stderr. Neither end blocks (CrashesFreely): bytes that the pipe can't
// take are lost, so that a crashing worker ends even if nobody reads the runner's own stderr.
type crashPipe struct{ fd int }

func newCrashPipe() (p *crashPipe, worker *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, nil, fmt.Errorf("pipe: %w", err)
	}
	return &crashPipe{fds[0]}, os.NewFile(uintptr(fds[1]), "stderr"), nil
}

// WriteTo writes the pipe's content to w, and closes the pipe.
func (p *crashPipe) WriteTo(w io.Writer) (n int64, err error) {
	b := make([]byte, 64<<10)
	k, err := unix.Read(p.fd, b)
	if k > 0 {
		k, err = w.Write(b[:k])
		n = int64(k)
	}
	if errors.Is(err, unix.EAGAIN) {
		err = nil // it is empty, and another process has its other end open
	}
	return n, errors.Join(err, p.Close())
}

// Close closes the pipe.
func (p *crashPipe) Close() error { return unix.Close(p.fd) }

// CrashesFreely makes this process's stderr, a pipe to its keeper, non-blocking.
func CrashesFreely() error { return unix.SetNonblock(syscall.Stderr, true) }

// lastWords is the timeout for reading the last messages of a dead worker.
const lastWords = time.Second

// close ends the talk with a dead worker. It does not wait for another process that has the worker's end open.
func (t *talk) close() error {
	err := t.conn.SetReadDeadline(time.Now().Add(lastWords))
	t.running.Wait()
	return errors.Join(err, t.conn.Close())
}

// Handover is a worker's end of the socket to its keeper, which the worker has inherited.
type Handover struct{ Conn *os.File }

// Job asks the keeper for the job, and returns it. The process must have hidden before (Hide).
func (h Handover) Job() ([]byte, error) {
	if _, err := io.WriteString(h.Conn, wordReady+"\n"); err != nil {
		return nil, fmt.Errorf("ask the keeper for the job: %w", err)
	}
	job, err := io.ReadAll(h.Conn)
	if err == nil && len(job) == 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("read the job: %w", err)
	}
	return job, nil
}

// CloseInput has the keeper close its end of the agent's input.
func (h Handover) CloseInput() error {
	_, err := io.WriteString(h.Conn, wordClose+"\n")
	return err
}

// Report reports to the keeper that the run has ended, with the exit status, and closes the socket.
func (h Handover) Report(status int) error {
	_, err := fmt.Fprintf(h.Conn, "%s%d\n", wordStatus, status)
	return errors.Join(err, h.Conn.Close())
}
