package model_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/host/model/anthropic"
	"arbe.0sk.ar/runner/host/model/openai"
	"arbe.0sk.ar/runner/host/model/provider"
)

const key = "sk-the-key-of-the-house"

// adapter is an adapter under test. The tests of this package are those of all adapters.
type adapter struct {
	name string
	own  string // where it connects to without a base URL
	base string // a base URL, of the scripted server
	make func(provider.Config) (model.Model, error)
}

var adapters = []adapter{
	{
		"anthropic", "api.anthropic.com:443", "http://model.example",
		func(c provider.Config) (model.Model, error) { return anthropic.New(c) },
	},
	{
		"openai", "api.openai.com:443", "http://model.example/v1",
		func(c provider.Config) (model.Model, error) { return openai.New(c) },
	},
}

// forEach runs f in virtual time, with each adapter.
func forEach(t *testing.T, f func(t *testing.T, a adapter)) {
	t.Helper()
	for _, a := range adapters {
		t.Run(a.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, a) })
		})
	}
}

// network has one server, at all addresses. Its connections are pipes, so that time is virtual.
type network struct {
	http.Transport
	conns chan net.Conn
	done  chan struct{}

	mu     sync.Mutex
	dialed []string
}

// serve starts a server, which ends with the test.
func serve(t *testing.T, h http.Handler) *network {
	t.Helper()
	n := &network{conns: make(chan net.Conn), done: make(chan struct{})}
	n.DialContext = n.dial
	srv := &http.Server{Handler: h}
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(n) })
	t.Cleanup(func() {
		n.CloseIdleConnections()
		_ = srv.Close()
		serving.Wait()
		synctest.Wait()
	})
	return n
}

func (n *network) dial(_ context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	n.dialed = append(n.dialed, address)
	n.mu.Unlock()
	here, there := net.Pipe()
	select {
	case n.conns <- there:
		return here, nil
	case <-n.done:
		return nil, io.ErrClosedPipe
	}
}

// hosts are the addresses that were dialed.
func (n *network) hosts() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.dialed)
}

func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.done:
		return nil, net.ErrClosed
	}
}

func (n *network) Addr() net.Addr { return &net.UnixAddr{} }

func (n *network) Close() error {
	close(n.done)
	return nil
}

// model returns the adapter's model on the network.
func (a adapter) model(t *testing.T, n *network) model.Model {
	t.Helper()
	m, err := a.make(provider.Config{BaseURL: a.base, Key: key, Transport: n})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// hello is a request.
var hello = model.Request{
	Model: "m", System: "You are a bot.", MaxTokens: 100,
	Messages: []model.Message{{Role: model.User, Parts: []model.Part{{Text: "hello"}}}},
}

// into collects events.
func into(events *[]model.Event) func(model.Event) {
	return func(e model.Event) { *events = append(*events, e) }
}

// refusal returns the *model.Error that err has to be.
func refusal(t *testing.T, err error) *model.Error {
	t.Helper()
	var e *model.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %T %v, want a *model.Error", err, err)
	}
	return e
}
