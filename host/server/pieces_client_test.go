package server_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// cutter breaks each answer to a read off after some bytes, and counts them.
type cutter struct {
	http.ResponseWriter
	left int
	sent *atomic.Int64
}

func (c *cutter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *cutter) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b[:min(len(b), c.left)])
	c.sent.Add(int64(n))
	if c.left -= n; c.left <= 0 {
		_ = http.NewResponseController(c.ResponseWriter).Flush() // the client may be gone
		panic(http.ErrAbortHandler)
	}
	return n, err
}

// The project's own client reads a thread in pieces, by types, backwards, and an entry by its id, over connections that
// all break off after 64 KiB.
func TestClientReadsPieces(t *testing.T) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sent atomic.Int64
			url := serveBehind(t, open(t), func(*server.Server) {}, func(h http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodGet {
						w = &cutter{w, 64 << 10, &sent}
					}
					h.ServeHTTP(w, r)
				})
			})
			c := &client.Client{
				Base: thread.BaseURL(url), Thread: "t1", Token: client.StaticToken(writer(t, "t1")),
			}
			if _, _, err := c.Entry(t.Context(), "e0"); !client.NotFound(err) {
				t.Errorf("an entry of a thread that was never written: %v", err)
			}
			const n = 1500
			var all, signals []string
			for from := 0; from < n; from += 500 {
				var batch []thread.Entry
				for i := from; i < from+500; i++ {
					var payload any = thread.Chat{Type: thread.TypeChat, Text: strings.Repeat("x", 400)}
					if i%100 == 50 {
						payload = thread.Signal{Type: thread.TypeHeartbeat, RunID: "r1", Harness: "pi"}
						signals = append(signals, fmt.Sprintf("e%d", i))
					}
					all = append(all, fmt.Sprintf("e%d", i))
					batch = append(batch, thread.Entry{
						ID: all[i], TS: "2026-01-01T00:00:00.000Z", Payload: thread.Marshal(payload),
					})
				}
				if _, err := c.Append(t.Context(), batch); err != nil {
					t.Fatal(err)
				}
			}
			var got []string
			add := func(e thread.Entry) error { got = append(got, e.ID); return nil }
			page, err := c.Read(t.Context(), "0", false, add)
			if err != nil || !page.UpToDate || strings.Join(got, " ") != strings.Join(all, " ") {
				t.Errorf("read %d of %d entries, %+v, %v", len(got), n, page, err)
			}
			sent.Store(0)
			got = nil
			_, err = c.Only("signal.").Read(t.Context(), "0", false, add)
			if err != nil || strings.Join(got, " ") != strings.Join(signals, " ") || sent.Load() > 16<<10 {
				t.Errorf("signals: read %v, %d bytes, %v", got, sent.Load(), err)
			}
			got = nil
			next, err := c.Only("signal.").ReadBack(t.Context(), "now", func(e thread.Entry) error {
				got = append([]string{e.ID}, got...)
				return nil
			})
			if err != nil || next != page.Next || strings.Join(got, " ") != strings.Join(signals, " ") {
				t.Errorf("backwards: read %v, next %s, %v", got, next, err)
			}
			e, ok, err := c.Entry(t.Context(), "e777")
			if err != nil || !ok || e.ID != "e777" {
				t.Errorf("an entry: %+v, %v, %v", e, ok, err)
			}
			sent.Store(0)
			if _, ok, err := c.Entry(t.Context(), "e1.another"); ok || err != nil || sent.Load() > 2<<10 {
				t.Errorf("an entry that is not there: %v, %v, %d bytes", ok, err, sent.Load())
			}
			_, err = c.Read(t.Context(), "00000000000000999999", false, add)
			if !errors.Is(err, client.ErrRewound) {
				t.Errorf("beyond the tail: %v", err)
			}
			err = c.Only("signal.").Follow(t.Context(), "00000000000000999999", add, nil)
			if !errors.Is(err, client.ErrRewound) {
				t.Errorf("followed beyond the tail: %v", err)
			}
		})
	}
}
