package server_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// load sends requests on several connections, on each the next one when the last is answered, until more returns false.
// It returns the duration of each. It is one loop around epoll: an ordinary client would take as much of two cores as
// the server does. request makes the nth request.
func load(
	addr string,
	conns int,
	more func(done int) bool,
	request func(buf []byte, n int) []byte,
) (took []time.Duration, err error) {
	return loadOf(addr, conns, more, request, func(answer []byte) bool {
		return bytes.HasPrefix(answer, []byte("HTTP/1.1 200")) && bytes.HasSuffix(answer, []byte("}\n"))
	})
}

// loadOf is load for a server of any protocol. good reports whether an answer is whole, and a success.
func loadOf(
	addr string,
	conns int,
	more func(done int) bool,
	request func(buf []byte, n int) []byte,
	good func(answer []byte) bool,
) (took []time.Duration, err error) {
	tcp, err := net.ResolveTCPAddr("tcp4", addr)
	if err != nil {
		return nil, err
	}
	ep, err := unix.EpollCreate1(0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unix.Close(ep)) }()
	sent := map[int]time.Time{} // by connection
	var buf []byte
	n := 0
	next := func(fd int) error {
		buf = request(buf[:0], n)
		n++
		sent[fd] = time.Now()
		for rest := buf; len(rest) > 0; {
			wrote, err := unix.Write(fd, rest)
			if err != nil && !errors.Is(err, unix.EAGAIN) {
				return err
			}
			rest = rest[max(wrote, 0):]
		}
		return nil
	}
	for range conns {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, unix.Close(fd)) }()
		err = errors.Join(unix.Connect(fd, &unix.SockaddrInet4{Port: tcp.Port, Addr: [4]byte(tcp.IP.To4())}),
			unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1), unix.SetNonblock(fd, true),
			unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}))
		if err == nil {
			err = next(fd)
		}
		if err != nil {
			return nil, err
		}
	}
	events, in := make([]unix.EpollEvent, conns), make([]byte, 64<<10)
	for more(len(took)) {
		ready, err := unix.EpollWait(ep, events, 10_000)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || ready == 0 {
			return took, fmt.Errorf("no answer: %w", err)
		}
		for _, e := range events[:ready] {
			fd := int(e.Fd)
			got, err := unix.Read(fd, in)
			if err != nil {
				return took, err
			}
			// The answers are small: each comes as one piece.
			if answer := in[:got]; !good(answer) {
				return took, fmt.Errorf("an answer is %q", answer)
			}
			took = append(took, time.Since(sent[fd]))
			if err := next(fd); err != nil {
				return took, err
			}
		}
	}
	return took, nil
}
