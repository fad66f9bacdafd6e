package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

func chats(n int) []thread.Entry {
	var entries []thread.Entry
	for i := range n {
		entries = append(entries, thread.Entry{
			ID: fmt.Sprintf(
				"c%d",
				i,
			), TS: "2026-01-01T00:00:00.000Z", Payload: thread.Marshal(thread.Chat{Type: "chat", Text: fmt.Sprint(i)}),
		})
	}
	return entries
}

func TestClientAppend(t *testing.T) {
	server := fakethread.New(t, nil)
	c := server.Client()
	if _, err := c.Append(t.Context(), chats(3)); err != nil {
		t.Fatal(err)
	}
	var ids []string
	if _, err := c.Read(t.Context(), "0", false,
		func(e thread.Entry) error { ids = append(ids, e.ID); return nil }); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(ids, " "); got != "c0 c1 c2" {
		t.Errorf("read %s", got)
	}
}

// An older server takes single entries only. The client finds out once.
func TestClientOldServer(t *testing.T) {
	for _, answer := range []int{400, 404, 405, 415, 422, 501} {
		t.Run(fmt.Sprint(answer), func(t *testing.T) {
			arrays, most := 0, 1
			if answer == 400 {
				most = 2 // which may also be about one of the entries
			}
			server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
				if c.Array {
					arrays++
					return fakethread.Fault{Status: answer, Body: "what is this"}
				}
				return fakethread.Fault{}
			})
			c := server.Client()
			for range 2 {
				if _, err := c.Append(t.Context(), chats(3)); err != nil {
					t.Fatal(err)
				}
			}
			if n := len(server.Entries()); n != 3 || arrays != most {
				t.Errorf("%d entries after %d arrays", n, arrays)
			}
		})
	}
}

// A server that refuses entries of an array is not an older one.
func TestClientRefusedEntries(t *testing.T) {
	server := fakethread.New(t, nil)
	server.Allow("c1")
	server.Put(
		thread.Entry{ID: "c1", TS: "2026-01-01T00:00:00.000Z", Payload: []byte(`{"type":"chat","text":"other"}`)},
	)
	for range 2 {
		_, err := server.Client().Append(t.Context(), chats(3))
		var se *client.StatusError
		if !errors.As(err, &se) || se.Status != 409 || len(se.Entries) != 1 || se.Entries[0].ID != "c1" ||
			se.Entries[0].Index != 1 ||
			se.Entries[0].Status != 409 {
			t.Fatalf("got %#v", err)
		}
	}
	if n := len(server.Entries()); n != 1 {
		t.Errorf("%d entries: some of a refused array were appended", n)
	}
}

// One by one, the first that is refused is listed, and those before it are there.
func TestClientOldServerConflict(t *testing.T) {
	server := fakethread.New(t, nil).Old()
	server.Allow("c1")
	server.Put(
		thread.Entry{ID: "c1", TS: "2026-01-01T00:00:00.000Z", Payload: []byte(`{"type":"chat","text":"other"}`)},
	)
	_, err := server.Client().Append(t.Context(), chats(3))
	var se *client.StatusError
	if !errors.As(err, &se) || len(se.Entries) != 1 || se.Entries[0].Index != 1 || se.Entries[0].Status != 409 {
		t.Fatalf("got %#v", err)
	}
	if n := len(server.Entries()); n != 2 {
		t.Errorf("%d entries, want 2: c0, and what somebody else has posted", n)
	}
}

func TestClientErrors(t *testing.T) {
	for _, tt := range []struct {
		fault   fakethread.Fault
		want    string
		refused bool
	}{
		{fakethread.Fault{Status: 401, Body: `{"error":{"code":"expired","message":"token is expired"}}`}, "401 the token is missing, wrong or expired: token is expired", true},
		{fakethread.Fault{Status: 403, Body: "not yours\nat all"}, "403 the token does not allow this: not yours", true},
		{fakethread.Fault{Status: 410, Body: ""}, "410 Gone", false},
		{fakethread.Fault{Status: 501, Body: "<html>"}, "501 Not Implemented: <html>", false},
	} {
		server := fakethread.New(t, func(fakethread.Call) fakethread.Fault { return tt.fault })
		_, err := server.Client().Append(t.Context(), chats(1))
		if err == nil || err.Error() != tt.want || client.Refused(err) != tt.refused {
			t.Errorf("got %q (refused %v), want %q", err, client.Refused(err), tt.want)
		}
		if server.Calls() != 1 {
			t.Errorf("%s: tried %d times", tt.want, server.Calls())
		}
	}
}

// trip is a transport whose answers a test makes up, inside a bubble of virtual time.
type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(status int, header ...string) *http.Response {
	rec := &http.Response{StatusCode: status, Status: fmt.Sprint(status), Header: http.Header{}, Body: http.NoBody}
	for i := 0; i+1 < len(header); i += 2 {
		rec.Header.Set(header[i], header[i+1])
	}
	return rec
}

func tripClient(f trip) (*client.Client, *bytes.Buffer) {
	var log bytes.Buffer
	return &client.Client{
		Base: "http://thread.test/api/stream", Thread: "t1", Token: client.StaticToken("x"),
		HTTP: &http.Client{Transport: f},
		Log:  slog.New(slog.NewTextHandler(&log, nil)),
	}, &log
}

// The terminal is tried for as long as its budget lasts, a heartbeat once, and an append for a moment.
func TestClientPatience(t *testing.T) {
	for _, tt := range []struct {
		name     string
		call     func(c *client.Client, ctx context.Context) error
		min, max int
	}{
		{"heartbeat", func(c *client.Client, ctx context.Context) error { return c.Heartbeat(ctx, chats(1)[0]) }, 1, 1},
		{"append", func(c *client.Client, ctx context.Context) error { _, err := c.Append(ctx, chats(1)); return err }, 6, 6},
		{"finish", func(c *client.Client, ctx context.Context) error { return c.Finish(ctx, chats(1)) }, 700, 1500},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				c, _ := tripClient(func(*http.Request) (*http.Response, error) {
					tries++
					return nil, errors.New("connection refused")
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				if err := tt.call(c, ctx); err == nil {
					t.Error("no error from a server that is away")
				}
				if tries < tt.min || tries > tt.max {
					t.Errorf("%d tries in an hour, want %d to %d", tries, tt.min, tt.max)
				}
			})
		})
	}
}

func TestClientRetryAfter(t *testing.T) {
	for _, tt := range []struct {
		name     string
		header   []string
		min, max time.Duration
	}{
		{"none", nil, 50 * time.Millisecond, 100 * time.Millisecond},
		{"seconds", []string{"Retry-After", "7"}, 7 * time.Second, 7 * time.Second},
		{"too long", []string{"Retry-After", "86400"}, 30 * time.Second, 30 * time.Second},
		{"nonsense", []string{"Retry-After", "soon"}, 50 * time.Millisecond, 100 * time.Millisecond},
		{"negative", []string{"Retry-After", "-5"}, 50 * time.Millisecond, 100 * time.Millisecond},
		{"a date, by the server's clock", []string{"Retry-After", "Wed, 21 Oct 2015 07:28:09 GMT", "Date", "Wed, 21 Oct 2015 07:28:00 GMT"}, 9 * time.Second, 9 * time.Second},
		{"a date without a clock", []string{"Retry-After", "Wed, 21 Oct 2095 07:28:09 GMT"}, 50 * time.Millisecond, 100 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var at []time.Time
				c, _ := tripClient(func(*http.Request) (*http.Response, error) {
					at = append(at, time.Now())
					if len(at) == 1 {
						return answer(503, tt.header...), nil
					}
					return answer(200), nil
				})
				if _, err := c.Append(t.Context(), chats(1)); err != nil {
					t.Fatal(err)
				}
				if wait := at[1].Sub(at[0]); wait < tt.min || wait > tt.max {
					t.Errorf("waited %v, want %v to %v", wait, tt.min, tt.max)
				}
			})
		})
	}
}

// A server that is away for a while is two lines in the log: that it is, and that it was.
func TestClientLogsAnOutageOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		c, log := tripClient(func(*http.Request) (*http.Response, error) {
			if tries++; tries < 20 {
				return answer(502), nil
			}
			return answer(200), nil
		})
		if err := c.Finish(t.Context(), chats(1)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Append(t.Context(), chats(1)); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], "no answer from the thread server; retrying") ||
			!strings.Contains(lines[1], "answers again") ||
			!strings.Contains(lines[1], "failed_tries=19") {
			t.Errorf("the log is:\n%s", log)
		}
	})
}

// A connection that is open and dead costs one try's time, not the run's.
func TestClientHalfOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		c, _ := tripClient(func(r *http.Request) (*http.Response, error) {
			if tries++; tries == 1 {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return answer(200), nil
		})
		began := time.Now()
		if err := c.Finish(t.Context(), chats(1)); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d > 11*time.Second {
			t.Errorf("took %v", d)
		}
	})
}

func TestClientReadBrokenOff(t *testing.T) {
	server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
		return fakethread.Fault{
			Status: 200,
			Body:   `{"id":"a","ts":"2026-01-01T00:00:00.000Z","payload":{"type":"chat","te`,
		}
	})
	synctest.Test(t, func(t *testing.T) {
		_, err := direct(server).Read(t.Context(), "0", false, func(thread.Entry) error { return nil })
		if err == nil {
			t.Error("half an entry was read without an error")
		}
	})
}

func TestFileToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	token := client.FileToken(path)
	if _, err := token(); err == nil {
		t.Error("no error for a file that is not there")
	}
	for _, want := range []string{"one", "two"} {
		if err := os.WriteFile(path, []byte(want+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := token(); got != want || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got, err := token(); got != "two" || err != nil {
		t.Errorf("while the file is being replaced: %q, %v", got, err)
	}
}

// The token is in no error and no log line.
func TestClientTokenStaysSecret(t *testing.T) {
	var seen atomic.Bool
	c, log := tripClient(func(r *http.Request) (*http.Response, error) {
		seen.Store(r.Header.Get("Authorization") == "Bearer very-secret-token")
		return nil, errors.New("refused")
	})
	c.Token = client.StaticToken("very-secret-token")
	err := c.Heartbeat(t.Context(), chats(1)[0])
	if !seen.Load() || err == nil {
		t.Fatalf("sent %v, error %v", seen.Load(), err)
	}
	if strings.Contains(err.Error()+log.String(), "very-secret-token") {
		t.Errorf("the token is in %v or in %s", err, log)
	}
}
