package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// A redirect is followed by nobody: the 200 at its end would be that of a GET. The error names the other address.
func TestRedirect(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			var there atomic.Int64
			other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				there.Add(1)
				_, _ = io.WriteString(w, `{"nextOffset":"1"}`)
			}))
			defer other.Close()
			server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
				return fakethread.Fault{Status: status, Header: header("Location", other.URL+c.Path+"?token=hidden")}
			})
			c := server.Client()
			_, appended := c.Append(t.Context(), chats(2))
			beat := c.Heartbeat(t.Context(), chats(1)[0])
			finished := c.Finish(t.Context(), chats(2))
			_, read := c.Read(t.Context(), "0", false, func(thread.Entry) error { return nil })
			all := map[string]error{"append": appended, "heartbeat": beat, "finish": finished, "read": read}
			for what, err := range all {
				if !client.Redirected(err) {
					t.Errorf("%s: got %v", what, err)
					continue
				}
				to := "redirected to " + other.URL + "/api/stream, and"
				if got := err.Error(); !strings.Contains(got, to) || strings.Contains(got, "hidden") {
					t.Errorf("%s: the message is %q", what, got)
				}
			}
			if n := there.Load(); n != 0 {
				t.Errorf("%d requests were sent to the other address", n)
			}
		})
	}
}

// A network's login page is no acknowledgement, with any content type. An older server's answer is one.
func TestPageIsNoAcknowledgement(t *testing.T) {
	const page = "<!DOCTYPE html>\n<html><body>Log in to the network</body></html>"
	for _, tt := range []struct {
		name, kind, body string
		acked            bool
	}{
		{"a page", "text/html; charset=utf-8", page, false},
		{"an empty page", "text/html", "", false},
		{"a page that claims to be text", "text/plain", "\n\t " + page, false},
		{"a page behind a mark of the byte order", "", "\ufeff" + page, false},
		{"a page that claims to be JSON", "application/json", page, false},
		{"nothing", "", "", true},
		{"a word", "text/plain", "ok", true},
		{"JSON", "application/json", `{"ok":true}`, true},
		{"JSON with an offset", "application/json", `{"nextOffset":"7"}`, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := tripClient(func(*http.Request) (*http.Response, error) {
					resp := answer(200, "Content-Type", tt.kind)
					resp.Body = io.NopCloser(strings.NewReader(tt.body))
					return resp, nil
				})
				_, err := c.Append(t.Context(), chats(1))
				if (err == nil) != tt.acked {
					t.Errorf("got %v", err)
				}
				if err != nil && !strings.Contains(err.Error(), "a page of HTML") {
					t.Errorf("the message is %q", err)
				}
			})
		})
	}
}

// An acknowledgement that breaks off is none.
func TestBrokenAcknowledgement(t *testing.T) {
	c, _ := tripClient(func(*http.Request) (*http.Response, error) {
		resp := answer(200)
		resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"next`), &failing{}))
		return resp, nil
	})
	if _, err := c.Append(t.Context(), chats(1)); err == nil {
		t.Error("half an answer was taken for one")
	}
}

type failing struct{}

func (*failing) Read([]byte) (int, error) { return 0, errors.New("reset") }

// What is refused without a list is found: the first refused entry is listed, those before it are there in their
// order, and none behind it.
func TestAppendFindsTheRefused(t *testing.T) {
	for _, status := range []int{400, 409, 413} {
		for bad := range 7 {
			t.Run(fmt.Sprintf("%d for entry %d", status, bad), func(t *testing.T) {
				id := fmt.Sprintf("c%d", bad)
				calls := 0
				server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
					calls++
					if slices.ContainsFunc(c.Entries, func(e thread.Entry) bool { return e.ID == id }) {
						return fakethread.Fault{Status: status, Body: "no"}
					}
					return fakethread.Fault{}
				})
				_, err := server.Client().Append(t.Context(), chats(7))
				var se *client.StatusError
				want := thread.BadEntry{Index: bad, ID: id, Reason: "no", Status: status}
				if !errors.As(err, &se) || len(se.Entries) != 1 || se.Entries[0] != want {
					t.Fatalf("got %#v", err)
				}
				if got, want := ids(server.Entries()), ids(chats(7)[:bad]); got != want {
					t.Errorf("the thread has %s, want %s", got, want)
				}
				if calls > 7 {
					t.Errorf("%d calls", calls)
				}
			})
		}
	}
}

// Behind a proxy that refuses large posts the client sends small ones, with any status of the refusal, in order.
func TestAppendTooLargeTogether(t *testing.T) {
	server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
		if len(c.Entries) > 3 {
			return fakethread.Fault{Status: 413, Header: header("Content-Type", "text/html"), Body: "<html>"}
		}
		return fakethread.Fault{}
	})
	ack, err := server.Client().Append(t.Context(), chats(20))
	if err != nil || ack.Next != "20" {
		t.Fatalf("got %+v, %v", ack, err)
	}
	if got, want := ids(server.Entries()), ids(chats(20)); got != want {
		t.Errorf("the thread has %s, want %s", got, want)
	}
}

// A page of HTML with 400 or 409 is not the thread server's word on an entry: nothing is taken for bad or for
// delivered.
func TestProxyRefusesNoEntry(t *testing.T) {
	for _, status := range []int{400, 409} {
		for _, n := range []int{1, 3} {
			server := fakethread.New(t, func(fakethread.Call) fakethread.Fault {
				const body = "<html>The plain HTTP request was sent to HTTPS port</html>"
				return fakethread.Fault{Status: status, Header: header("Content-Type", "text/html"), Body: body}
			})
			_, err := server.Client().Append(t.Context(), chats(n))
			var se *client.StatusError
			if !errors.As(err, &se) || len(se.Entries) != 0 {
				t.Errorf("%d entries, %d: got %#v", n, status, err)
			}
		}
	}
}

// A server that needs a quarter of a minute for each answer gets the terminal.
func TestFinishAtASlowServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := tripClient(func(r *http.Request) (*http.Response, error) {
			select {
			case <-time.After(15 * time.Second): // the bubble's time
				return answer(200), nil
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := c.Finish(ctx, chats(1)); err != nil {
			t.Error(err)
		}
	})
}

// All clients of a process share its connections, and are named as it is.
func TestSharedConnections(t *testing.T) {
	var opened atomic.Int64
	var agent atomic.Value
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		agent.Store(r.UserAgent())
		_, _ = io.WriteString(w, "{}")
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	shared := client.NewHTTPOf("arbe/1")
	for _, hc := range []*http.Client{nil, shared} {
		opened.Store(0)
		for i := range 100 {
			c := &client.Client{Base: thread.BaseURL(server.URL), Thread: fmt.Sprint("t", i), HTTP: hc}
			c.Token = client.StaticToken("x")
			if _, err := c.Append(t.Context(), chats(1)); err != nil {
				t.Fatal(err)
			}
		}
		if n := opened.Load(); n > 2 {
			t.Errorf("100 threads, one after the other, took %d connections", n)
		}
	}
	if got := agent.Load(); got != "arbe/1" {
		t.Errorf("the user agent is %q", got)
	}
}

func header(name, value string) map[string]string { return map[string]string{name: value} }

func ids(entries []thread.Entry) string {
	var all []string
	for _, e := range entries {
		all = append(all, e.ID)
	}
	return strings.Join(all, " ")
}
