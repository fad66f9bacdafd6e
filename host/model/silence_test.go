package model_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/host/model"
	script "arbe.0sk.ar/runner/internal/test/model"
)

// TestSilence holds how long a provider may send nothing, and that the connection of one that is given up closes.
func TestSilence(t *testing.T) {
	for _, tt := range []struct {
		name   string
		reply  script.Reply
		silent bool
	}{
		{"59 s before the first byte", script.Reply{Text: "one", Wait: script.Duration(59 * time.Second)}, false},
		{"no first byte in 60 s", script.Reply{Text: "one", Wait: script.Duration(61 * time.Second)}, true},
		{"59 s between events", script.Reply{Text: "one two three", Pace: script.Duration(59 * time.Second)}, false},
		{"60 s between events", script.Reply{Text: "one two three", Pace: script.Duration(61 * time.Second)}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			forEach(t, func(t *testing.T, a adapter) {
				left := make(chan time.Time, 1)
				server := &script.Server{Script: script.Script{Replies: []script.Reply{tt.reply}}}
				n := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer func() { left <- time.Now() }()
					server.ServeHTTP(w, r)
				}))
				begun := time.Now()
				_, err := a.model(t, n).Stream(t.Context(), hello, func(model.Event) {})
				if !tt.silent {
					if err != nil {
						t.Error(err)
					}
					return
				}
				e := refusal(t, err)
				if e.Kind != model.Again || e.Message != "the provider has sent nothing for 1m0s" {
					t.Errorf("%+v", e)
				}
				if took := time.Since(begun); took != time.Minute {
					t.Errorf("given up after %v", took)
				}
				if gone := (<-left).Sub(begun); gone != time.Minute {
					t.Errorf("the connection closed after %v", gone)
				}
			})
		})
	}
}

// TestSlowReader holds that the time of the caller is not the provider's: what an event is used for may take long.
func TestSlowReader(t *testing.T) {
	forEach(t, func(t *testing.T, a adapter) {
		server := &script.Server{Script: script.Script{Replies: []script.Reply{{Text: "one two three"}}}}
		m := a.model(t, serve(t, server))
		if _, err := m.Stream(t.Context(), hello, func(model.Event) { time.Sleep(2 * time.Minute) }); err != nil {
			t.Error(err)
		}
	})
}

// TestPings holds that a provider that thinks for long, and shows it, is not given up.
func TestPings(t *testing.T) {
	forEach(t, func(t *testing.T, a adapter) {
		n := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
			for range 10 {
				_, _ = w.Write([]byte(": still here\n\n")) // the client is checked
				_ = http.NewResponseController(w).Flush()
				time.Sleep(30 * time.Second)
			}
			chat := `{"choices":[{"index":0,"delta":{"content":"one"},"finish_reason":"stop"}]}`
			_, _ = w.Write([]byte(sse(map[string]string{"anthropic": start + end, "openai": chat}[a.name])))
		}))
		if _, err := a.model(t, n).Stream(t.Context(), hello, func(model.Event) {}); err != nil {
			t.Error(err)
		}
	})
}

// TestStop holds that a request ends at once with its context, at each moment, and its connection with it.
func TestStop(t *testing.T) {
	for _, tt := range []struct {
		name  string
		reply script.Reply
	}{
		{"before the first byte", script.Reply{Text: "one", Wait: script.Duration(time.Hour)}},
		{"between events", script.Reply{Text: "one two", Pace: script.Duration(time.Hour)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			forEach(t, func(t *testing.T, a adapter) {
				left := make(chan struct{})
				server := &script.Server{Script: script.Script{Replies: []script.Reply{tt.reply}}}
				n := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer close(left)
					server.ServeHTTP(w, r)
				}))
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(10*time.Second, cancel)
				begun := time.Now()
				_, err := a.model(t, n).Stream(ctx, hello, func(model.Event) {})
				if !errors.Is(err, context.Canceled) || time.Since(begun) != 10*time.Second {
					t.Errorf("%v after %v", err, time.Since(begun))
				}
				synctest.Wait()
				select {
				case <-left:
				default:
					t.Error("the connection is open")
				}
			})
		})
	}
	forEach(t, func(t *testing.T, a adapter) {
		ctx, cancel := context.WithTimeout(t.Context(), 0)
		defer cancel()
		n := serve(t, &script.Server{})
		if _, err := a.model(t, n).Stream(ctx, hello, func(model.Event) {}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// TestConnections holds that requests after each other share a connection, and that an answer which does not end after
// its last event holds up nobody.
func TestConnections(t *testing.T) {
	forEach(t, func(t *testing.T, a adapter) {
		server := &script.Server{Script: script.Script{Replies: []script.Reply{{Text: "one", Times: -1}}}}
		hang := false
		n := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			server.ServeHTTP(w, r)
			if hang {
				<-r.Context().Done()
			}
		}))
		m := a.model(t, n)
		for range 5 {
			if _, err := m.Stream(t.Context(), hello, func(model.Event) {}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if got := len(n.hosts()); got != 1 {
			t.Errorf("%d connections", got)
		}
		hang = true
		begun := time.Now()
		if _, err := m.Stream(t.Context(), hello, func(model.Event) {}); err != nil || time.Since(begun) > time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

// TestEndless holds that a stream without an end is not read for ever.
func TestEndless(t *testing.T) {
	forEach(t, func(t *testing.T, a adapter) {
		n := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			line := []byte(":" + strings.Repeat("x", 1<<16) + "\n")
			for {
				if _, err := w.Write(line); err != nil {
					return
				}
			}
		}))
		_, err := a.model(t, n).Stream(t.Context(), hello, func(model.Event) {})
		if e := refusal(t, err); e.Kind != model.Garbage || !strings.Contains(e.Message, "too large") {
			t.Errorf("%+v", e)
		}
	})
}
