package httpd

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
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
			Paced(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
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

// A body that is announced and does not come is not waited for for ever where nobody reads it.
func TestPacedBody(t *testing.T) {
	var until time.Time
	w := &readDeadline{ResponseRecorder: httptest.NewRecorder(), until: &until}
	Paced(http.NotFoundHandler(), time.Second).ServeHTTP(w, httptest.NewRequest("POST", "/nothing",
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
	srv := httptest.NewUnstartedServer(Paced(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
