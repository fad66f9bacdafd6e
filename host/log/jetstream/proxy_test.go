package jetstream_test

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"arbe.0sk.ar/runner/internal/test/enginetest"
)

// proxy is a connection between an engine and its server that tests break.
type proxy struct {
	listener net.Listener
	server   string
	lost     chan struct{} // closed when a loss has happened
	all      sync.WaitGroup

	mu    sync.Mutex
	away  bool // connections are refused
	mark  []byte
	loss  loss
	mute  bool // answers are dropped
	left  int  // bytes of answers until the connection ends, if above 0
	conns map[net.Conn]bool
}

// loss is the message to lose when a request with the mark passes.
type loss int

const (
	loseAnswer  loss = iota + 1 // the request is passed on, and nothing comes back any more
	loseRequest                 // the request is not passed on, and the connection ends
)

func startProxy(t testing.TB, s *server.Server) *proxy { return startProxyTo(t, s.Addr().String()) }

// startProxyTo starts a proxy to an address. Its server may start later.
func startProxyTo(t testing.TB, address string) *proxy {
	p := &proxy{
		listener: enginetest.Must(net.Listen("tcp", "127.0.0.1:0"))(t), server: address, lost: make(chan struct{}),
		conns: map[net.Conn]bool{},
	}
	p.all.Go(p.run)
	t.Cleanup(func() {
		if err := p.listener.Close(); err != nil {
			t.Error(err)
		}
		p.shut()
		p.all.Wait()
	})
	return p
}

func (p *proxy) url() string { return "nats://" + p.listener.Addr().String() }

// lose arms a loss.
func (p *proxy) lose(l loss, mark string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loss, p.mark = l, []byte(mark)
}

// cutAfter ends the connection once so many bytes of answers have passed.
func (p *proxy) cutAfter(bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = bytes
}

// shut closes all connections and refuses new ones.
func (p *proxy) shut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = true
	p.cut()
}

// open accepts connections again.
func (p *proxy) open() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away, p.mute = false, false
	p.cut()
}

// cut closes all connections. The caller holds mu.
func (p *proxy) cut() {
	for c := range p.conns {
		_ = c.Close() // it may be closed already
	}
	clear(p.conns)
}

func (p *proxy) run() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		upstream, err := net.Dial("tcp", p.server)
		p.mu.Lock()
		if err != nil || p.away {
			p.mu.Unlock()
			_ = client.Close()
			if err == nil {
				_ = upstream.Close()
			}
			continue
		}
		p.conns[client], p.conns[upstream] = true, true
		p.mu.Unlock()
		p.all.Go(func() { p.pass(client, upstream, p.request) })
		p.all.Go(func() { p.pass(upstream, client, p.answer) })
	}
}

var errLost = errors.New("lost")

// pass copies until either end is closed. check may drop or refuse each piece that is read; last has the end of the one
// before.
func (p *proxy) pass(from, to net.Conn, check func(last, b []byte) ([]byte, error)) {
	defer from.Close()
	defer to.Close()
	buf, last := make([]byte, 64<<10), []byte(nil)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		b, err := check(last, buf[:n])
		if err != nil {
			return
		}
		if _, err := to.Write(b); err != nil {
			return
		}
		last = append(last[:0], buf[max(0, n-64):n]...)
	}
}

func (p *proxy) request(last, b []byte) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.loss == 0 || !bytes.Contains(append(bytes.Clone(last), b...), p.mark) {
		return b, nil
	}
	l := p.loss
	p.loss = 0
	close(p.lost)
	if l == loseRequest {
		p.away = true
		return nil, errLost
	}
	p.mute = true
	return b, nil
}

func (p *proxy) answer(_, b []byte) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mute {
		return nil, nil
	}
	if p.left > 0 {
		if p.left -= len(b); p.left <= 0 {
			return nil, errLost
		}
	}
	return b, nil
}
