package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// answers answers requests with the results of a func, without a network.
type answers func(r *http.Request) (*http.Response, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// reply returns an answer with a status, a content type and a body.
func reply(status int, kind string, body io.Reader) *http.Response {
	return &http.Response{
		StatusCode: status, Status: fmt.Sprint(status), Body: io.NopCloser(body),
		Header: http.Header{"Content-Type": {kind}, "Date": {"Sat, 01 Jan 2000 00:00:10 GMT"}},
	}
}

func listOf(a answers) client.List {
	return client.NewList(&client.Client{
		Base: thread.BaseURL("http://server"), Token: client.StaticToken("x"), HTTP: &http.Client{Transport: a},
	})
}

// Which answers are pages of a list, and which are those of another server.
func TestListPage(t *testing.T) {
	for _, tt := range []struct {
		name    string
		status  int
		body    string
		threads int
		none    bool // ErrNoList
		foreign bool
	}{
		{"a page", 200, `{"threads":[{"id":"t1"}],"cursor":"c"}`, 1, false, false},
		{"an empty page", 200, `{"threads":[]}`, 0, false, false},
		{"something else", 200, `{"ok":true}`, 0, true, false},
		{"an older server", 404, "404 page not found\n", 0, true, true},
		{"a page of HTML", 404, "<html>", 0, true, true},
		{"no index", 501, `{"error":{"code":"no_index","message":"x"}}`, 0, true, false},
		{"a bad token", 401, `{"error":{"code":"invalid_token","message":"x"}}`, 0, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := listOf(func(r *http.Request) (*http.Response, error) {
				const want = "http://server/api/threads?cursor=c&harness=pi%2Ccodex&limit=7&" +
					"since=2000-01-01T00%3A00%3A00.000Z&status=failed"
				if r.URL.String() != want || r.Header.Get("Authorization") != "Bearer x" {
					t.Errorf("got %s", r.URL)
				}
				return reply(tt.status, "application/json", strings.NewReader(tt.body)), nil
			})
			page, err := l.Page(t.Context(), client.Filter{
				Statuses: []string{"failed"}, Harnesses: []string{"pi", "codex"},
				Since: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
			}, 7, "c")
			good := tt.status == 200 && !tt.none
			if len(page.Threads) != tt.threads || (err == nil) != good || errors.Is(err, client.ErrNoList) != tt.none ||
				client.Foreign(err) != tt.foreign || good && page.Now.Unix() != 946684810 {
				t.Errorf("got %+v, %v", page, err)
			}
		})
	}
}

// A list ends at an error, at the last page, and where the reader has enough.
func TestListPages(t *testing.T) {
	n := 0
	l := listOf(func(r *http.Request) (*http.Response, error) {
		n++
		body := fmt.Sprintf(`{"threads":[{"id":"t%d"}],"cursor":"%d"}`, n, n)
		if r.URL.Query().Get("cursor") == "3" {
			return reply(400, "", strings.NewReader(`{"error":{"code":"cursor","message":"x"}}`)), nil
		}
		return reply(200, "", strings.NewReader(body)), nil
	})
	var last error
	for _, err := range l.Pages(t.Context(), client.Filter{}) {
		last = err
	}
	if n != 4 || last == nil {
		t.Errorf("%d pages, and then %v", n, last)
	}
	n = 0
	for range l.Pages(t.Context(), client.Filter{}) {
		break
	}
	if n != 1 {
		t.Errorf("%d requests for a reader of one page", n)
	}
}

// A watch outlives a server that is away, silent or ends the connection, and ends where another try is of no use.
func TestListWatch(t *testing.T) {
	const page = "event: thread\ndata:{\"id\":\"old\",\"status\":\"running\"}\n\n" +
		"event: thread\ndata: {\"id\":\"new\",\"status\":\"running\"}\n\n: waiting\n\n" +
		"event: control\ndata:{\"upToDate\":true}\n\n"
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		tries := 0
		l := listOf(func(r *http.Request) (*http.Response, error) {
			if r.URL.Query().Get("live") != "sse" || r.URL.Query().Get("limit") != "9" {
				t.Errorf("got %s", r.URL)
			}
			switch tries++; tries {
			case 1, 2:
				return nil, errors.New("away")
			case 3:
				return reply(503, "", strings.NewReader(`{"error":{"code":"building","message":"x"}}`)), nil
			case 4: // silent, in the middle of the page
				silent, w := io.Pipe()
				go func() { <-r.Context().Done(); w.CloseWithError(r.Context().Err()) }()
				return reply(200, "text/event-stream", io.MultiReader(strings.NewReader(page[:30]), silent)), nil
			case 5, 6:
				change := "event: news\ndata:{}\n\nevent: deleted\ndata:{\"id\":\"old\"}\n\n"
				return reply(200, "text/event-stream", strings.NewReader(page+change)), nil
			}
			return reply(403, "", strings.NewReader(`{"error":{"code":"missing_scope","message":"x"}}`)), nil
		})
		var got []string
		err := l.Watch(t.Context(), client.Filter{}, 9, func(p client.ListPage) error {
			text := fmt.Sprintf("%s %s of %d at %d", p.Threads[0].ID, p.Threads[1].ID, len(p.Threads), p.Now.Unix())
			got = append(got, text)
			return nil
		}, func(c client.Change) error {
			got = append(got, fmt.Sprintf("%s deleted %v", c.Summary.ID, c.Deleted))
			return nil
		})
		const once = "new old of 2 at 946684810, old deleted true"
		if strings.Join(got, ", ") != once+", "+once || !client.Refused(err) {
			t.Errorf("got %v, %v", got, err)
		}
		if took := time.Since(began); took < time.Minute || took > 3*time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}

// A watch of a server that has none ends, and so does one whose reader is gone.
func TestListWatchEnds(t *testing.T) {
	nothing := listOf(func(*http.Request) (*http.Response, error) {
		return reply(200, "application/json", strings.NewReader(`{"threads":[]}`)), nil
	})
	if err := nothing.Watch(t.Context(), client.Filter{}, 1, nil, nil); !errors.Is(err, client.ErrNoList) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := nothing.Watch(ctx, client.Filter{}, 1, nil, nil); err != nil {
		t.Errorf("got %v", err)
	}
}

// A thread is made by a server that can; on an older one its first entry makes it.
func TestCreate(t *testing.T) {
	for status, want := range map[int]bool{200: true, 201: true, 405: true, 404: false, 403: false, 501: false} {
		c := &client.Client{
			Base: thread.BaseURL("http://server"), Thread: "t1", Token: client.StaticToken("x"),
			HTTP: &http.Client{Transport: answers(func(r *http.Request) (*http.Response, error) {
				if r.Method != http.MethodPut || r.URL.Path != "/api/stream/arbe-thread-t1" || r.ContentLength > 0 {
					t.Errorf("got %s %s", r.Method, r.URL)
				}
				return reply(status, "text/plain", strings.NewReader("")), nil
			})},
		}
		if err := c.Create(t.Context()); (err == nil) != want {
			t.Errorf("%d: %v", status, err)
		}
	}
}
