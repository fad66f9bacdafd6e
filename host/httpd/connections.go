package server

import (
	"cmp"
	"net"
	"sync/atomic"

	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/internal/openfiles"
)

// otherFiles is how many files the process opens beside connections and the engine's tables: logs, certificates,
// profiles, backups, and the connections of a reconciler.
const otherFiles = 96

// most returns how many connections may be open in a process that may have so many files open, with so many for each
// connection. The rest is for the log.
func (l Limits) most(files, each int) int {
	return min(cmp.Or(l.Connections, 20_000), max(1, (files-pebble.MostFiles(files)-otherFiles)/each))
}

// listener limits the open connections of ln. Above the limit it accepts and closes a connection at once: in the
// kernel's queue its client would wait, and delay those behind it.
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
		_ = c.Close() // without an answer
	}
}

// limitedConn is a connection that its listener counts.
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

// CloseWrite is for net/http: without it the connection of a client that is still sending is reset, and its 413 lost.
func (c *limitedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
