package answer_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/host/answer"
	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// server answers requests by a function.
type server func(r *http.Request) (status int, header, body string)

func (s server) RoundTrip(r *http.Request) (*http.Response, error) {
	status, date, body := s(r)
	if status == 0 {
		return nil, errors.New("connection refused")
	}
	resp := &http.Response{
		StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r,
	}
	resp.Header.Set("Content-Type", "application/json")
	resp.Header.Set("Stream-Up-To-Date", "true")
	resp.Header.Set("Stream-Next-Offset", "7")
	resp.Header.Set("Date", date)
	return resp, nil
}

// of returns a thread of the server.
func of(s server) dispatch.Thread {
	return answer.ThreadOf(&answer.Dispatcher{Client: func(id string) (*client.Client, error) {
		return &client.Client{
			Base: "http://server/api/stream", Thread: id, Token: client.StaticToken("t"),
			HTTP: &http.Client{Transport: s},
		}, nil
	}}, "t1")
}

func problem(code string) string { return `{"error":{"code":"` + code + `","message":"no"}}` }

// What an answer of the server to an append means for a reaction.
func TestAppend(t *testing.T) {
	for name, tt := range map[string]struct {
		status int
		want   error
	}{
		"taken":     {http.StatusConflict, dispatch.ErrTaken},
		"deleted":   {http.StatusGone, dispatch.ErrGone},
		"too large": {http.StatusRequestEntityTooLarge, dispatch.ErrRefused},
		"bad":       {http.StatusBadRequest, dispatch.ErrRefused},
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			err := of(func(*http.Request) (int, string, string) {
				n++
				return tt.status, "", problem("no")
			}).Append(t.Context(), thread.Entry{ID: "e1"})
			if !errors.Is(err, tt.want) || n != 1 {
				t.Errorf("%v after %d requests, want %v", err, n, tt.want)
			}
		})
	}
}

// An append waits for a server that is away, for ten minutes: then the holder lets go.
func TestAppendAway(t *testing.T) {
	for name, away := range map[string]time.Duration{"for a while": 8 * time.Minute, "for long": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				err := of(func(*http.Request) (int, string, string) {
					if time.Since(began) < away {
						return 0, "", ""
					}
					return http.StatusOK, "", `{"nextOffset":"8"}`
				}).Append(t.Context(), thread.Entry{ID: "e1"})
				took := time.Since(began)
				switch well := away < 10*time.Minute; {
				case well && (err != nil || took > away+10*time.Second):
					t.Errorf("after %v: %v", took, err)
				case !well && (err == nil || took < 10*time.Minute || took > 11*time.Minute):
					t.Errorf("after %v: %v", took, err)
				}
			})
		})
	}
}

// The time is the server's: that of its answer, which is in whole seconds, or that of the last entry.
func TestRead(t *testing.T) {
	const date = "Mon, 01 Jun 2026 12:00:00 GMT"
	for name, tt := range map[string]struct{ at, want string }{
		"an old entry": {"2026-06-01T11:00:00.500Z", "2026-06-01T12:00:00Z"},
		"a fresh one":  {"2026-06-01T12:00:00.500Z", "2026-06-01T12:00:00.5Z"},
	} {
		t.Run(name, func(t *testing.T) {
			var query string
			var got []string
			next, now, err := of(func(r *http.Request) (int, string, string) {
				query = r.URL.RawQuery
				return http.StatusOK, date, fmt.Sprintf(
					`{"id":"e1","authorId":"","ts":%q,"at":%[1]q,"payload":{"type":"chat"}}`+"\n", tt.at)
			}).Read(t.Context(), "3", func(e thread.Entry) { got = append(got, e.ID) })
			if err != nil || next != "7" || now.UTC().Format(time.RFC3339Nano) != tt.want || len(got) != 1 {
				t.Errorf("%v, next %s, now %v, %v", got, next, now, err)
			}
			if !strings.Contains(query, "offset=3") || !strings.Contains(query, "without="+thread.TypeDelta) {
				t.Errorf("the query is %s: text as it comes is not for dispatchers", query)
			}
		})
	}
	if _, _, err := of(func(*http.Request) (int, string, string) {
		return http.StatusGone, date, problem("gone")
	}).Read(t.Context(), "0", func(thread.Entry) {}); !errors.Is(err, dispatch.ErrGone) {
		t.Errorf("a deleted thread: %v", err)
	}
	next, _, err := of(func(*http.Request) (int, string, string) {
		return http.StatusNotFound, date, problem("not_found")
	}).Read(t.Context(), "0", func(thread.Entry) {})
	if err != nil || next != "0" {
		t.Errorf("a thread without an entry: %s, %v", next, err)
	}
}
