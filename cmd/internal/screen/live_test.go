package screen

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// safeBuffer is a buffer for a writer and a reader at the same time.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// take returns what was written since the last time, with ESC as ␛.
func (b *safeBuffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.b.Reset()
	return strings.ReplaceAll(b.b.String(), "\x1b", "␛")
}

// received returns an entry that the server receives now, by a clock that is ahead of the local one.
func received(id string, ahead time.Duration, payload string) thread.Entry {
	at := thread.Stamp(time.Now().Add(ahead))
	return thread.Entry{ID: id, TS: at, At: at, Payload: json.RawMessage(payload)}
}

func beat(n int) string {
	return fmt.Sprintf(`{"type":"signal.dispatch.heartbeat","runId":"r1","harness":"pi","beat":%d,"nextMs":5000,`+
		`"uptimeMs":%d,"agent":{"quietMs":1000,"cpuMs":500,"rssBytes":1048576}}`, n, n*5000)
}

const working = `{"type":"claude.assistant","model":"m","message":{"content":[` +
	`{"type":"toolCall","id":"c","name":"Bash","arguments":{"command":"make test"}}]},"session":{"id":"s","index":1}}`

// The last line ticks by the local clock, whatever the server's is, names the tool that runs, and turns red when three
// heartbeats are missing; it returns when entries come again, and is gone at the end.
func TestLiveLine(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			utc(t)
			var out safeBuffer
			s := New(&out, Options{Live: true, Color: true, Thread: "t1", Columns: func() int { return 100 }})
			s.Start()
			give := func(id, payload string) {
				t.Helper()
				if err := s.Entry(received(id, ahead, payload)); err != nil {
					t.Fatal(err)
				}
			}
			after := func(d time.Duration, want string) {
				t.Helper()
				time.Sleep(d)
				synctest.Wait()
				got := out.take()
				if !strings.HasSuffix(got, want) {
					t.Errorf("ahead %s: got %q, want it to end in %q", ahead, got, want)
				}
			}
			give(
				"r1.running",
				`{"type":"signal.thread.status_changed","runId":"r1","harness":"pi","status":"running"}`,
			)
			give("a", working)
			time.Sleep(4500 * time.Millisecond)
			give("r1.beat.1", beat(1))
			after(0, "\r␛[K␛[2m… 5s · Bash make test · quiet for 1s · cpu 500ms · 1 MiB␛[0m")
			after(2*time.Second, "\r␛[K␛[2m… 7s · Bash make test · quiet for 3s · cpu 500ms · 1 MiB␛[0m")
			time.Sleep(3 * time.Second)
			give("r1.beat.2", beat(2))
			out.take()
			after(9*time.Second,
				"\r␛[K␛[33m… 19s · Bash make test · quiet for 10s · cpu 500ms · 1 MiB · silent for 8s␛[0m")
			time.Sleep(8 * time.Second)
			synctest.Wait()
			got := out.take()
			const dead = "␛[31m! no entry from the runner for 15s: if its box is gone, " +
				"arbe reconcile t1 ends the run␛[0m\n"
			if !strings.Contains(got, dead) ||
				!strings.HasSuffix(got, "\r␛[K␛[31m! no entry from the runner for 16s␛[0m") {
				t.Errorf("ahead %s: got %q", ahead, got)
			}
			give("r1.beat.3", beat(3))
			if got := out.take(); !strings.Contains(got, "the runner posts entries again") {
				t.Errorf("got %q", got)
			}
			give(
				"r1.end.0",
				`{"type":"signal.thread.status_changed","runId":"r1","harness":"pi","status":"completed"}`,
			)
			s.Stop()
			if got := out.take(); !strings.HasSuffix(got, "␛[32m✔ completed␛[0m\n") {
				t.Errorf("got %q", got)
			}
		})
	}
}

// In a pipe a dead run is reported once, too, and a read without waiting reports it at its end.
func TestDeadInPipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out safeBuffer
		s := New(&out, Options{Thread: "t1"})
		s.Start()
		if err := s.Entry(received("r1.beat.1", 0, beat(1))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		s.Stop()
		const want = "… 5s · quiet for 1s · cpu 500ms · 1 MiB\n" +
			"! no entry from the runner for 15s: if its box is gone, arbe reconcile t1 ends the run\n"
		if got := out.take(); got != want {
			t.Errorf("got %q", got)
		}

		s = New(&out, Options{Thread: "t1"})
		e := received("r1.beat.1", -40*time.Second, beat(1))
		if err := s.Entry(e); err != nil {
			t.Fatal(err)
		}
		s.Check()
		if got := out.take(); !strings.Contains(got, "! no entry from the runner for 40s: ") {
			t.Errorf("got %q", got)
		}
	})
}

// Old entries are no dead run while they are being read.
func TestCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out safeBuffer
		s := New(&out, Options{Live: true, Thread: "t1"})
		s.Start()
		for i := range 30 {
			if err := s.Entry(received(fmt.Sprint("r1.beat.", i+1), -time.Hour, beat(i+1))); err != nil {
				t.Fatal(err)
			}
			time.Sleep(200 * time.Millisecond)
		}
		end := `{"type":"signal.thread.status_changed","runId":"r1","harness":"pi","status":"cancelled"}`
		if err := s.Entry(received("r1.end.0", -time.Hour, end)); err != nil {
			t.Fatal(err)
		}
		s.Stop()
		if got := out.take(); strings.Contains(got, "no entry") || !strings.HasSuffix(got, "- cancelled\n") {
			t.Errorf("got %q", got)
		}
	})
}

// A server that is away is not a runner that is dead. Without a live line the client's log has it.
func TestServerAway(t *testing.T) {
	for _, live := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var out safeBuffer
			var away atomic.Bool
			s := New(&out, Options{
				Live: live, Thread: "t1", Columns: func() int { return 100 }, Away: away.Load, Server: "http://h",
			})
			s.Start()
			defer s.Stop()
			shows := func(want, not string) {
				t.Helper()
				if !live && strings.HasPrefix(want, "no answer") {
					want = ""
				}
				if got := out.take(); !strings.Contains(got, want) || strings.Contains(got, not) {
					t.Errorf("live %v: want %q and no %q:\n%s", live, want, not, got)
				}
			}
			for n := range 2 {
				if err := s.Entry(received(fmt.Sprint("r1.beat.", n), 0, beat(n))); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
			}
			out.take()
			away.Store(true)
			time.Sleep(time.Minute)
			shows("no answer from http://h; retrying", "no entry from the runner")
			away.Store(false)
			time.Sleep(3 * time.Second)
			if got := out.take(); strings.Contains(got, "no entry from") {
				t.Errorf("live %v: dead as soon as the server is back: %s", live, got)
			}
			time.Sleep(30 * time.Second)
			shows("no entry from the runner for 1m", "posts entries again")
			away.Store(true)
			time.Sleep(2 * time.Second)
			shows("no answer from http://h; retrying", "posts entries again")
		})
	}
}

// A person who types reads that the agent waits, but not once the run was asked to end.
func TestWaitingForAChat(t *testing.T) {
	const waiting = `{"type":"signal.dispatch.pi_waiting","runId":"r1","harness":"pi","turn":%d,"outcome":"%s"}`
	const begin = `{"type":"signal.thread.status_changed","runId":"r1","harness":"pi","status":"running"}`
	const started = `{"type":"signal.dispatch.session_started","runId":"r1","harness":"pi","live":true}`
	for _, tt := range []struct {
		asked string
		want  bool
	}{
		{"", true},
		{`{"type":"signal.dispatch.cancel_requested","runId":"r1"}`, false},
		{`{"type":"signal.dispatch.cancel_requested"}`, false},
		{`{"type":"signal.dispatch.end_requested","runId":"r1"}`, false},
		{`{"type":"signal.dispatch.cancel_requested","runId":"r0"}`, true},
	} {
		var out safeBuffer
		s := New(&out, Options{Typed: true})
		payloads := []string{begin, started, fmt.Sprintf(waiting, 0, "completed")}
		if tt.asked != "" {
			payloads = append(payloads, tt.asked)
		}
		for i, payload := range append(payloads, fmt.Sprintf(waiting, 1, "cancelled")) {
			if i == len(payloads) {
				if first := out.take(); !strings.Contains(first, "waiting for a chat") {
					t.Errorf("before the request: %q", first)
				}
			}
			if err := s.Entry(received(fmt.Sprintf("e%d", i), 0, payload)); err != nil {
				t.Fatal(err)
			}
		}
		if got := strings.Contains(out.take(), "waiting for a chat"); got != tt.want {
			t.Errorf("after %q: waiting %v, want %v", tt.asked, got, tt.want)
		}
	}
}
