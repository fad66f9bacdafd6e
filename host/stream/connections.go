package stream

import (
	"cmp"
	"net"
	"sync/atomic"
)

// listener is ln with a limit on the connections that are open at the same time. What comes above it is accepted and closed at once: left in the
// kernel's queue it would hold up those who come when there is room again, and nobody would know why.
func (l Limits) listener(ln net.Listener, m *metrics) net.Listener {
	return &door{Listener: ln, most: int64(cmp.Or(l.Connections, 20_000)), metrics: m}
}

type door struct {
	net.Listener
	most    int64
	open    atomic.Int64
	metrics *metrics
}

// Accept is net.Listener's.
func (d *door) Accept() (net.Conn, error) {
	for {
		c, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if d.open.Add(1) <= d.most {
			d.metrics.connected(1)
			return &guest{Conn: c, door: d}, nil
		}
		d.open.Add(-1)
		d.metrics.turnedAway()
		_ = c.Close() // nothing was said on it
	}
}

// guest is a connection that counts.
type guest struct {
	net.Conn
	door *door
	left atomic.Bool
}

// Close is net.Conn's.
func (g *guest) Close() error {
	if !g.left.Swap(true) {
		g.door.open.Add(-1)
		g.door.metrics.connected(-1)
	}
	return g.Conn.Close()
}

// CloseWrite lets the server say its last word to a client that is still sending: without it a 413 can be lost in a reset connection.
func (g *guest) CloseWrite() error {
	if c, ok := g.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}
