package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// deadlines is an answer that notes the deadlines that it gets, and takes its time for each write.
type deadlines struct {
	*httptest.ResponseRecorder
	each  time.Duration
	until time.Time
	late  int
	most  int
}

func (d *deadlines) SetWriteDeadline(t time.Time) error { d.until = t; return nil }

func (d *deadlines) Write(b []byte) (int, error) {
	time.Sleep(d.each)
	d.most = max(d.most, len(b))
	if time.Now().After(d.until) {
		d.late++
		return 0, errors.New("deadline exceeded")
	}
	return d.ResponseRecorder.Write(b)
}

// Each 64 KiB have the whole time, so that a slow link gets a large entry; less than that they don't, and what is
// written after the handler has its time.
func TestPaced(t *testing.T) {
	for _, tt := range []struct {
		each time.Duration
		ok   bool
	}{{8 * time.Second, true}, {11 * time.Second, false}} {
		synctest.Test(t, func(t *testing.T) {
			d := &deadlines{ResponseRecorder: httptest.NewRecorder(), each: tt.each}
			var err error
			began := time.Now()
			paced(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				time.Sleep(time.Minute) // as a waiting reader's does
				_, err = w.Write(make([]byte, 8<<20))
			}), 10*time.Second).ServeHTTP(d, httptest.NewRequest("GET", "/", nil))
			if (err == nil) != tt.ok || d.most > writeAtOnce {
				t.Errorf("%v for each 64 KiB: %v, after %v", tt.each, err, time.Since(began))
			}
			if left := time.Until(d.until); tt.ok && left < 9*time.Second {
				t.Errorf("%v are left for the end", left)
			}
		})
	}
}

// Clients that ask for one thing after the other and read nothing are let go, whatever they ask for, and the
// measurements are there for others.
func TestPipelinedReadsNothing(t *testing.T) {
	b := besiege(t)
	m := newMetrics("test", nil, "")
	b.Server.metrics = m
	srv := httptest.NewUnstartedServer(paced(front(b.handler(), m, Limits{Rate: 1, Burst: 1}, nil, nobody),
		500*time.Millisecond))
	var mu sync.Mutex
	active := map[net.Conn]bool{}
	srv.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateNew { // few answers fill the way to a client that reads none
			if err := c.(*net.TCPConn).SetWriteBuffer(4 << 10); err != nil {
				t.Error(err)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if active[c] = state == http.StateActive; !active[c] {
			delete(active, c)
		}
	}
	srv.Start()
	defer srv.Close()
	for _, path := range []string{
		"/metrics", "/metrics", "/metrics", "/metrics", "/metrics", "/healthz",
		"/api/stream/arbe-thread-x", "/v1/stream/x",
	} {
		c, err := net.Dial("tcp", strings.TrimPrefix(srv.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for request := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err == nil; {
				_, err = io.WriteString(c, request)
			}
		}()
		defer func() {
			_ = c.Close()
			<-ended
		}()
	}
	for range 3 { // while they are there
		resp, err := http.Get(srv.URL + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != http.StatusOK ||
			!strings.Contains(string(text), "arbe_memory_budget_bytes") {
			t.Errorf("measurements: %s %v", resp.Status, err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	b.until(
		"rid of them",
		func() bool { // some wait for a request that the client's own buffers hold back: those are idle
			mu.Lock()
			defer mu.Unlock()
			return len(active) == 0
		},
	)
}

// A body that is announced and does not come is not waited for for ever where nobody reads it.
func TestPacedBody(t *testing.T) {
	var until time.Time
	w := &readDeadline{ResponseRecorder: httptest.NewRecorder(), until: &until}
	paced(http.NotFoundHandler(), time.Second).ServeHTTP(w, httptest.NewRequest("POST", "/nothing",
		strings.NewReader("x")))
	if left := time.Until(until); left <= 0 || left > bodyTimeout {
		t.Errorf("%v are left", left)
	}
}

type readDeadline struct {
	*httptest.ResponseRecorder
	until *time.Time
}

func (r *readDeadline) SetReadDeadline(t time.Time) error { *r.until = t; return nil }

// A stream of HTTP/2 that waits for something to write is not reset for it; one whose reader takes nothing is.
func TestPacedHTTP2(t *testing.T) {
	const timeout = 200 * time.Millisecond
	stuck := make(chan error, 1)
	srv := httptest.NewUnstartedServer(paced(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stuck" {
			_, err := w.Write(make([]byte, 64<<20))
			stuck <- err
			return
		}
		for range 2 {
			time.Sleep(2 * timeout)
			if _, err := io.WriteString(w, "x"); err != nil {
				t.Error(err)
			}
			w.(http.Flusher).Flush()
		}
		time.Sleep(2 * timeout)
	}), timeout))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	resp, err := srv.Client().Get(srv.URL + "/waits")
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil || string(b) != "xx" || resp.ProtoMajor != 2 {
		t.Errorf("%s: %q %v", resp.Proto, b, err)
	}
	resp, err = srv.Client().Get(srv.URL + "/stuck")
	if err != nil {
		t.Fatal(err)
	}
	if err := <-stuck; err == nil {
		t.Error("an answer that nobody takes has no end")
	}
	_ = resp.Body.Close()
}
