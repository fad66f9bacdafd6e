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

	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/thread"
)

// A server that gives a thread in pieces is read to the tail.
func TestReadPaged(t *testing.T) {
	for _, wait := range []bool{false, true} {
		server := fakethread.New(t, nil).Paged(3)
		c := server.Client()
		if _, err := c.Append(t.Context(), chats(10)); err != nil {
			t.Fatal(err)
		}
		var got []thread.Entry
		page, err := c.Read(t.Context(), "0", wait, func(e thread.Entry) error { got = append(got, e); return nil })
		if err != nil || page.Next != "10" || !page.UpToDate || ids(got) != ids(chats(10)) {
			t.Errorf("read %s, %+v, %v", ids(got), page, err)
		}
	}
}

// stream is a body that a test writes, as a connection brings it.
func stream(r *http.Request, write func(w *io.PipeWriter)) *http.Response {
	body, w := io.Pipe()
	context.AfterFunc(r.Context(), func() { _ = body.CloseWithError(r.Context().Err()) })
	go write(w)
	resp := answer(
		200,
		"Content-Type",
		"application/x-ndjson",
		"Stream-Next-Offset",
		"n",
		"Stream-Up-To-Date",
		"true",
	)
	resp.Body = body
	return resp
}

func line(i int) string { return string(chats(i + 1)[i].AppendJSON(nil)) + "\n" }

// A long answer may take longer than any patience with silence, and a reader may take its time, too.
func TestReadIsNotLimitedInLength(t *testing.T) {
	for _, tt := range []struct {
		name           string
		server, reader time.Duration // between two entries
		want           bool
	}{
		{"a slow server", 25 * time.Second, 0, true},
		{"a slow reader", 0, time.Hour, true},
		{"a silent server", 31 * time.Second, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const entries = 20
				c, _ := tripClient(func(r *http.Request) (*http.Response, error) {
					return stream(r, func(w *io.PipeWriter) {
						for i := range entries {
							select {
							case <-time.After(tt.server): // the bubble's time
							case <-r.Context().Done():
								return
							}
							if _, err := io.WriteString(w, line(i)); err != nil {
								return
							}
						}
						_ = w.Close() // a pipe's end never fails
					}), nil
				})
				n := 0
				err := c.ReadAll(t.Context(), 30*time.Second, func(thread.Entry) error {
					n++
					time.Sleep(tt.reader) // the bubble's time
					return nil
				})
				if tt.want && (err != nil || n != entries) {
					t.Errorf("%d entries, %v", n, err)
				}
				if !tt.want && (err == nil || n != 0 || !strings.Contains(err.Error(), "nothing came for")) {
					t.Errorf("%d entries, %v", n, err)
				}
			})
		})
	}
}

// The page that a person reads for ten minutes is no silence of the server.
func TestReaderPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := tripClient(func(r *http.Request) (*http.Response, error) {
			return stream(r, func(w *io.PipeWriter) {
				_, err := io.WriteString(w, line(0)+line(1))
				_ = w.CloseWithError(err) // nil is a plain end
			}), nil
		})
		n := 0
		_, err := c.Read(t.Context(), "0", false, func(thread.Entry) error {
			n++
			time.Sleep(10 * time.Minute) // the bubble's time
			return nil
		})
		if err != nil || n != 2 {
			t.Errorf("%d entries, %v", n, err)
		}
	})
}

// A read that breaks off is resumed at its last entry: each entry is passed on once.
func TestReadResumes(t *testing.T) {
	for _, all := range []bool{false, true} {
		t.Run(fmt.Sprintf("all %v", all), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				c, _ := tripClient(func(r *http.Request) (*http.Response, error) {
					tries++
					most := 3 * tries
					return stream(r, func(w *io.PipeWriter) {
						for i := range 10 {
							if i == most {
								_, _ = io.WriteString(
									w,
									line(i)[:20],
								) // and then the connection is gone
								_ = w.CloseWithError(errors.New("connection reset")) // a pipe's end never fails
								return
							}
							if _, err := io.WriteString(w, line(i)); err != nil {
								return
							}
						}
						_ = w.Close() // a pipe's end never fails
					}), nil
				})
				var got []thread.Entry
				f := func(e thread.Entry) error { got = append(got, e); return nil }
				var err error
				if all {
					err = c.ReadAll(t.Context(), 30*time.Second, f)
				} else {
					_, err = c.Read(t.Context(), "0", false, f)
				}
				if err != nil || ids(got) != ids(chats(10)) || tries != 4 {
					t.Errorf("%d tries, read %s, %v", tries, ids(got), err)
				}
			})
		})
	}
}

// A server that is away is waited for as long as asked, and a clear answer is not asked for twice.
func TestReadAllPatience(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer func(since time.Duration) (*http.Response, error)
		least  time.Duration
		most   time.Duration
		good   bool
	}{
		{"away for ever", func(time.Duration) (*http.Response, error) {
			return nil, errors.New("no route to host")
		}, 30 * time.Second, 32 * time.Second, false},
		{"503 for a while", func(since time.Duration) (*http.Response, error) {
			if since < 25*time.Second {
				return answer(503), nil
			}
			return answer(200), nil
		}, 25 * time.Second, 30 * time.Second, true},
		{"404", func(time.Duration) (*http.Response, error) { return answer(404), nil }, 0, 0, false},
		{"403", func(time.Duration) (*http.Response, error) { return answer(403), nil }, 0, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				c, _ := tripClient(
					func(*http.Request) (*http.Response, error) { return tt.answer(time.Since(began)) },
				)
				err := c.ReadAll(t.Context(), 30*time.Second, func(thread.Entry) error { return nil })
				if took := time.Since(began); (err == nil) != tt.good || took < tt.least || took > tt.most {
					t.Errorf("after %v: %v", took, err)
				}
			})
		})
	}
}
