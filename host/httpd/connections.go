package httpd

import (
	"net"
	"sync/atomic"
)

// ConnCounter counts connections.
type ConnCounter interface {
	Connected(n float64) // one was opened (1) or closed (-1)
	TurnedAway()         // one was closed at once
}

// uncounted is a ConnCounter that counts nothing.
type uncounted struct{}

func (uncounted) Connected(float64) {}
func (uncounted) TurnedAway()       {}

// LimitConnections limits the open connections of ln to most. Above the limit it accepts and closes a connection at
// once: in the kernel's queue its client would wait, and delay those behind it.
func LimitConnections(ln net.Listener, most int, count ConnCounter) net.Listener {
	return &limitedListener{Listener: ln, most: int64(most), count: count}
}

// limitedListener closes connections above a limit.
type limitedListener struct {
	net.Listener
	most  int64
	open  atomic.Int64
	count ConnCounter
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.most {
			l.count.Connected(1)
			return &limitedConn{Conn: c, listener: l}, nil
		}
		l.open.Add(-1)
		l.count.TurnedAway()
		_ = c.Close() // without an answer
	}
}

// limitedConn is a connection that its listener counts.
type limitedConn struct {
	net.Conn
	listener *limitedListener
	left     atomic.Bool
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	if !c.left.Swap(true) {
		c.listener.open.Add(-1)
		c.listener.count.Connected(-1)
	}
	return c.Conn.Close()
}

// CloseWrite is for net/http: without it the connection of a client that is still sending is reset, and its 413 lost.
func (c *limitedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
