package server

import (
	"cmp"
	"net"
	"sync/atomic"

	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/internal/openfiles"
)

// otherFiles are what the process opens beside connections and the engine's tables: logs, certificates, profiles, backups, and the connections of a
// reconciler.
const otherFiles = 96

// most is how many connections may be open where the process may have so many files open, each of which takes files of them. A process without a file left
// could not write its log.
func (l Limits) most(files, each int) int {
	return min(cmp.Or(l.Connections, 20_000), max(1, (files-pebble.MostFiles(files)-otherFiles)/each))
}

// listener is ln with a limit on the connections that are open at the same time. What comes above it is accepted and closed at once: left in the
// kernel's queue it would hold up those who come when there is room again, and nobody would know why.
func (l Limits) listener(ln net.Listener, m *metrics) net.Listener {
	return &limitedListener{Listener: ln, most: int64(l.most(openfiles.Limit(), 1)), metrics: m}
}

// limitedListener closes connections above a limit.
type limitedListener struct {
	net.Listener
	most    int64
	open    atomic.Int64
	metrics *metrics
}

// Accept is net.Listener's.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.most {
			l.metrics.connected(1)
			return &limitedConn{Conn: c, listener: l}, nil
		}
		l.open.Add(-1)
		l.metrics.turnedAway()
		_ = c.Close() // nothing was said on it
	}
}

// limitedConn is a connection that counts for its listener's limit.
type limitedConn struct {
	net.Conn
	listener *limitedListener
	left     atomic.Bool
}

// Close is net.Conn's.
func (c *limitedConn) Close() error {
	if !c.left.Swap(true) {
		c.listener.open.Add(-1)
		c.listener.metrics.connected(-1)
	}
	return c.Conn.Close()
}

// CloseWrite lets the server say its last word to a client that is still sending: without it a 413 can be lost in a reset connection.
func (c *limitedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
