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

// Limit limits the open connections of all listeners that it is for. Above it a connection is accepted and closed at
// once: in the kernel's queue its client would wait, and delay those behind it.
type Limit struct {
	most  int64
	open  atomic.Int64
	count ConnCounter
}

// NewLimit returns a limit of most open connections.
func NewLimit(most int, count ConnCounter) *Limit { return &Limit{most: int64(most), count: count} }

// Of returns a listener with the limit.
func (l *Limit) Of(ln net.Listener) net.Listener { return &limitedListener{ln, l} }

// limitedListener closes connections above a limit.
type limitedListener struct {
	net.Listener
	*Limit
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
			return &limitedConn{Conn: c, limit: l.Limit}, nil
		}
		l.open.Add(-1)
		l.count.TurnedAway()
		_ = c.Close() // without an answer
	}
}

// limitedConn is a connection that its listener counts.
type limitedConn struct {
	net.Conn
	limit *Limit
	left  atomic.Bool
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	if !c.left.Swap(true) {
		c.limit.open.Add(-1)
		c.limit.count.Connected(-1)
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
