package faults_test

import (
	"bytes"
	"net"
	"sync"
	"testing"

	"arbe.0sk.ar/runner/internal/test/port"
)

// front is a way to the server that can be cut.
type front struct {
	addr   string
	target string

	mu     sync.Mutex
	l      *net.TCPListener // nil while it is down
	trap   []byte           // what is held back until freed is closed
	held   chan struct{}
	freed  chan struct{}
	frozen chan struct{}
	conns  map[net.Conn]bool
}

func newFront(t *testing.T, target string) *front {
	f := &front{addr: port.Reserve(t), target: target, conns: map[net.Conn]bool{}}
	f.up(t)
	t.Cleanup(func() {
		f.thaw()
		f.down()
	})
	return f
}

// lead makes target the server that is behind it.
func (f *front) lead(target string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.target = target
}

// up lets connections come.
func (f *front) up(t *testing.T) {
	l, err := net.Listen("tcp", f.addr)
	if err != nil {
		t.Error(err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.l = l.(*net.TCPListener)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // down
			}
			go f.serve(c)
		}
	}()
}

// down refuses new connections and breaks the open ones.
func (f *front) down() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.l != nil {
		_ = port.Close(f.l) // a listener holds nothing back
		f.l = nil
	}
	for c := range f.conns {
		_ = c.Close() // that is the fault
	}
}

// hold lets the first bytes that have text in them wait, and all that follow on their connection. held is closed when
// they have come.
func (f *front) hold(text string, held, freed chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trap, f.held, f.freed = []byte(text), held, freed
}

// freeze passes nothing on and closes nothing, as a network does that loses all packets.
func (f *front) freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.frozen == nil {
		f.frozen = make(chan struct{})
	}
}

// thaw ends a freeze. The connections that it met are gone.
func (f *front) thaw() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.frozen == nil {
		return
	}
	close(f.frozen)
	f.frozen = nil
	for c := range f.conns {
		_ = c.Close() // that is the fault
	}
}

func (f *front) serve(c net.Conn) {
	f.mu.Lock()
	target := f.target
	f.mu.Unlock()
	to, err := net.Dial("tcp", target)
	if err != nil {
		_ = c.Close() // so is its other end
		return
	}
	f.mu.Lock()
	f.conns[c], f.conns[to] = true, true
	f.mu.Unlock()
	done := make(chan struct{}, 2)
	pass := func(from, to net.Conn) {
		defer func() { done <- struct{}{} }()
		b := make([]byte, 64<<10)
		for {
			n, err := from.Read(b)
			f.mu.Lock()
			frozen := f.frozen
			if f.trap != nil && bytes.Contains(b[:n], f.trap) {
				f.trap, frozen = nil, f.freed
				close(f.held)
			}
			f.mu.Unlock()
			if frozen != nil {
				<-frozen
			}
			if _, werr := to.Write(b[:n]); err != nil || werr != nil {
				return
			}
		}
	}
	go pass(c, to)
	go pass(to, c)
	<-done
	_, _ = c.Close(), to.Close()
	<-done
	f.mu.Lock()
	delete(f.conns, c)
	delete(f.conns, to)
	f.mu.Unlock()
}
