package dispatch_test

import (
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"sync"
	"testing"

	"arbe.0sk.ar/runner/internal/test/botchaos"
)

// front stands between one host and the server. It sees each append, and can hold one.
type front struct {
	srv *httptest.Server

	mu     sync.Mutex
	to     *httputil.ReverseProxy
	life   int            // of the host
	lives  map[string]int // by the instance that its claims have
	struck map[int]bool   // lives to which something happened
	trap   *trap
}

// trap holds an append.
type trap struct {
	kind  botchaos.Kind
	at    []byte
	held  chan struct{} // closed when it is there
	freed chan struct{}
}

func newFront(t *testing.T, addr string) *front {
	f := &front{lives: map[string]int{}, struck: map[int]bool{}}
	f.lead(addr)
	f.srv = httptest.NewServer(f)
	t.Cleanup(func() {
		f.srv.CloseClientConnections()
		f.srv.Close()
	})
	return f
}

// lead makes addr the server behind the front.
func (f *front) lead(addr string) {
	to := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: addr})
	to.FlushInterval = -1
	to.ErrorLog = log.New(io.Discard, "", 0) // hosts that are killed
	f.mu.Lock()
	defer f.mu.Unlock()
	f.to = to
}

// cut breaks the connections of the host.
func (f *front) cut() { f.srv.CloseClientConnections() }

// set sets a trap for the next append of an entry of a type.
func (f *front) set(kind botchaos.Kind, at string) *trap {
	tr := &trap{kind: kind, at: []byte(`"type":"` + at + `"`), held: make(chan struct{}), freed: make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trap = tr
	return tr
}

// unset takes a trap away, and reports whether nothing has come into it.
func (f *front) unset(tr *trap) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	empty := f.trap == tr
	f.trap = nil
	return empty
}

var instance = regexp.MustCompile(`"instance":"([^"]+)"`)

// note notes whose claims pass, and returns the trap that an append comes into; nil for none.
func (f *front) note(body []byte) *trap {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range instance.FindAllSubmatch(body, -1) {
		if _, known := f.lives[string(m[1])]; !known {
			f.lives[string(m[1])] = f.life
		}
	}
	tr := f.trap
	if tr == nil || !bytes.Contains(body, tr.at) {
		return nil
	}
	f.trap = nil
	return tr
}

// ServeHTTP implements http.Handler.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	to := f.to
	f.mu.Unlock()
	if r.Method != http.MethodPost {
		to.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the host is gone
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	tr := f.note(body)
	if tr == nil {
		to.ServeHTTP(w, r)
		return
	}
	r = r.WithContext(context.WithoutCancel(r.Context())) // what is on its way arrives without its host
	if tr.kind == botchaos.Applied {
		to.ServeHTTP(httptest.NewRecorder(), r)
	}
	close(tr.held)
	<-tr.freed
	switch tr.kind {
	case botchaos.Drop, botchaos.Applied:
		panic(http.ErrAbortHandler)
	default:
		to.ServeHTTP(w, r)
	}
}

// strike records that something happens to the host's present life.
func (f *front) strike() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.struck[f.life] = true
}

// begin begins the host's next life.
func (f *front) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.life++
}

// wasStruck reports whether the life with an instance was struck, and whether it is one of this host's.
func (f *front) wasStruck(instance string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	life, is := f.lives[instance]
	return is && f.struck[life]
}

// listening is the address of the front.
func (f *front) listening() net.Addr { return f.srv.Listener.Addr() }
