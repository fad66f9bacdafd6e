package stdio

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// Terminal connects the agent's own interface with the terminal of the person who started the runner: a pseudo-terminal
// for the agent, whose bytes are passed both ways.
type Terminal struct {
	Agent  *os.File // the agent's end, until Started
	person *os.File // the person's terminal
	master *os.File // the runner's end
	was    *unix.Termios
}

// drainFor is the timeout for the agent's last output after its end: a leftover process may keep its end open.
const drainFor = time.Second

// NewTerminal makes a pseudo-terminal of the size of the person's terminal, and makes the person's terminal raw.
func NewTerminal(person *os.File) (*Terminal, error) {
	master, agent, err := pty.Open()
	if err != nil {
		return nil, err
	}
	t := &Terminal{Agent: agent, person: person, master: master}
	_ = pty.InheritSize(person, master) // else it has the default size
	if t.was, err = raw(person); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// raw makes a terminal pass on every key unchanged, and returns its previous state.
func raw(f *os.File) (was *unix.Termios, err error) {
	was, err = unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return nil, err
	}
	now := *was // as cfmakeraw(3) does
	now.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP
	now.Iflag &^= unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	now.Oflag &^= unix.OPOST
	now.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	now.Cflag = now.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 1, 0
	return was, unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, &now)
}

// Restore sets a terminal's state. It does not wait for the terminal's pending output, which may be held.
func Restore(f *os.File, was *unix.Termios) error {
	return unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, was)
}

// Pass passes bytes and sizes on until ctx is done, and then the agent's last output.
func (t *Terminal) Pass(ctx context.Context) error {
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		t.show()
	}()
	stop := make(chan struct{})
	var typing sync.WaitGroup
	typing.Go(func() { t.typed(stop) })
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-resized:
			_ = pty.InheritSize(t.person, t.master) // without the size nothing changes
		}
	}
	close(stop)
	_ = t.master.SetWriteDeadline(time.Now()) // ends typed if the agent reads nothing more
	typing.Wait()
	drained := time.NewTicker(drainFor)
	defer drained.Stop()
	select {
	case <-shown: // the agent's end is closed
		return nil
	case <-drained.C:
		_ = t.master.SetReadDeadline(time.Now()) // ends show
	}
	select {
	case <-shown:
	case <-drained.C: // the person's terminal is held: it does not get the rest
	}
	return nil
}

// show copies the agent's output. The read error EIO means that all have closed the agent's end.
func (t *Terminal) show() {
	b := make([]byte, 32<<10)
	for {
		n, err := t.master.Read(b)
		if n > 0 {
			if _, werr := t.person.Write(b[:n]); werr != nil {
				return // the person's terminal is gone
			}
		}
		if err != nil {
			return
		}
	}
}

// typed copies the person's input until stop is closed.
func (t *Terminal) typed(stop <-chan struct{}) {
	b := make([]byte, 4<<10)
	for {
		select {
		case <-stop:
			return
		default:
		}
		ready := []unix.PollFd{{Fd: int32(t.person.Fd()), Events: unix.POLLIN}}
		n, err := unix.Poll(ready, 50) // bounded, to look at stop
		if errors.Is(err, unix.EINTR) || err == nil && n == 0 {
			continue
		}
		if err != nil {
			return
		}
		k, err := unix.Read(int(t.person.Fd()), b)
		if k <= 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return // the terminal is gone: the agent gets HUP from the runner
		}
		if _, err := t.master.Write(b[:k]); err != nil {
			return
		}
	}
}

// Started closes the runner's copy of the agent's end.
func (t *Terminal) Started() error {
	err := t.Agent.Close()
	t.Agent = nil
	return err
}

// Close restores the person's terminal and closes the pseudo-terminal.
func (t *Terminal) Close() error {
	var err error
	if t.was != nil {
		err = Restore(t.person, t.was)
	}
	if t.Agent != nil {
		err = errors.Join(err, t.Agent.Close())
	}
	return errors.Join(err, t.master.Close())
}
