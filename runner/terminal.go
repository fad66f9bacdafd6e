package runner

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// terminal puts an agent's own interface into the terminal that we were started in: a pseudo-terminal for the agent, whose bytes go both ways.
type terminal struct {
	in, out *os.File // the person's
	master  *os.File // ours
	agent   *os.File // the agent's end, until it is started
	was     *unix.Termios
}

// drainFor is how long what the agent has still said is waited for when it is gone: somebody that it left may keep its end open.
const drainFor = time.Second

// newTerminal makes the pseudo-terminal, as large as the person's terminal, and makes that one pass every key on as it is.
func newTerminal(in, out *os.File) (*terminal, error) {
	master, agent, err := pty.Open()
	if err != nil {
		return nil, err
	}
	t := &terminal{in: in, out: out, master: master, agent: agent}
	_ = pty.InheritSize(in, master) // it is as large as it is, then
	if t.was, err = rawTerminal(in); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

// rawTerminal makes a terminal pass every key on as it is, and returns how it was.
func rawTerminal(f *os.File) (was *unix.Termios, err error) {
	was, err = unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return nil, err
	}
	raw := *was // as cfmakeraw(3) does
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	return was, unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, &raw)
}

// restoreTerminal makes a terminal what it was, without waiting for it to show what is still on its way there: it may
// be held.
func restoreTerminal(f *os.File, was *unix.Termios) error {
	return unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, was)
}

// pass passes bytes and sizes on until ctx is done, and then what the agent has still said.
func (t *terminal) pass(ctx context.Context) error {
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	said := make(chan struct{})
	go func() {
		defer close(said)
		t.show()
	}()
	typed, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(typed)
		t.typed(stop)
	}()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-resized:
			_ = pty.InheritSize(t.in, t.master) // a size that can't be had changes nothing
		}
	}
	close(stop)
	_ = t.master.SetWriteDeadline(time.Now()) // which ends typed, where the agent takes nothing more
	<-typed
	drained := time.NewTicker(drainFor)
	defer drained.Stop()
	select {
	case <-said: // the agent's end is closed
		return nil
	case <-drained.C:
		_ = t.master.SetReadDeadline(time.Now()) // which ends show
	}
	select {
	case <-said:
	case <-drained.C: // the person's terminal is held: the rest is not shown
	}
	return nil
}

// show copies what the agent says. A pseudo-terminal ends with an error (EIO) when nobody has its other end any more.
func (t *terminal) show() {
	b := make([]byte, 32<<10)
	for {
		n, err := t.master.Read(b)
		if n > 0 {
			if _, werr := t.out.Write(b[:n]); werr != nil {
				return // nobody looks
			}
		}
		if err != nil {
			return
		}
	}
}

// typed copies what the person types until stop is closed.
func (t *terminal) typed(stop <-chan struct{}) {
	b := make([]byte, 4<<10)
	for {
		select {
		case <-stop:
			return
		default:
		}
		ready := []unix.PollFd{{Fd: int32(t.in.Fd()), Events: unix.POLLIN}}
		n, err := unix.Poll(ready, 50) // so that stop is heard
		if errors.Is(err, unix.EINTR) || err == nil && n == 0 {
			continue
		}
		if err != nil {
			return
		}
		k, err := unix.Read(int(t.in.Fd()), b)
		if k <= 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return // the terminal is gone: the agent gets HUP from us
		}
		if _, err := t.master.Write(b[:k]); err != nil {
			return
		}
	}
}

// started closes our copy of the agent's end.
func (t *terminal) started() error {
	err := t.agent.Close()
	t.agent = nil
	return err
}

// close makes the person's terminal what it was.
func (t *terminal) close() error {
	var err error
	if t.was != nil {
		err = restoreTerminal(t.in, t.was)
	}
	if t.agent != nil {
		err = errors.Join(err, t.agent.Close())
	}
	return errors.Join(err, t.master.Close())
}
