package runner_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/thread"
)

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	server := fakethread.New(t, nil)
	on := filepath.Join(t.TempDir(), "on")
	cfg := setup(t, server, "prompt", "wait "+on, "say done")
	cfg.Heartbeat = 100 * time.Millisecond
	done := make(chan error, 1)
	go func() { _, err := run(t, cfg); done <- err }()
	var b thread.Heartbeat
	atWork := 0                              // heartbeats of the agent at work
	server.Await(func(e thread.Entry) bool { // the agent has worked for half a second, and been quiet for 300 ms
		var p thread.Heartbeat
		_ = json.Unmarshal(e.Payload, &p) // what does not fit is no heartbeat
		if b = p; p.Posted == 2 {
			atWork++
		}
		return atWork >= 3 && p.UptimeMs >= 500 && p.Agent != nil && p.Agent.QuietMs >= 300
	})
	if err := os.WriteFile(on, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	var beats []thread.Heartbeat
	for _, e := range server.Entries() {
		if strings.HasPrefix(e.ID, "r1.beat.") {
			var p thread.Heartbeat
			if err := json.Unmarshal(e.Payload, &p); err != nil {
				t.Fatal(err)
			}
			if e.ID != "r1.beat."+strconv.FormatInt(p.Beat, 10) || p.RunID != "r1" || p.Harness != "pi" {
				t.Errorf("%s: %+v", e.ID, p)
			}
			if p.Posted == 2 { // while the agent is at work
				beats = append(beats, p)
			}
		}
	}
	if len(beats) < 3 {
		t.Fatalf("%d heartbeats", len(beats))
	}
	if b.Pending != 0 || b.Agent == nil || b.Agent.RSSBytes < 1<<20 || b.Agent.PID == 0 {
		t.Errorf("got %+v %+v", b, b.Agent)
	}
}

// A heartbeat whose answer takes long does not hold up the next one.
func TestHeartbeatsAtASlowServer(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	beats, third := 0, make(chan struct{})
	server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
		if len(c.Entries) != 1 || !strings.Contains(c.Entries[0].ID, ".beat.") {
			return fakethread.Fault{}
		}
		mu.Lock()
		if beats++; beats == 3 {
			close(third)
		}
		mu.Unlock()
		select {
		case <-third:
		case <-time.After(patience): // in vain
			t.Error("no heartbeat came while others waited for their answers")
		}
		return fakethread.Fault{}
	})
	on := filepath.Join(t.TempDir(), "on")
	cfg := setup(t, server, "prompt", "wait "+on, "say done")
	cfg.Heartbeat = 50 * time.Millisecond
	done := make(chan error, 1)
	go func() { _, err := run(t, cfg); done <- err }()
	select {
	case <-third:
	case err := <-done:
		t.Fatalf("the run has ended: %v", err)
	}
	if err := os.WriteFile(on, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, e := range server.Entries() {
		var p thread.Heartbeat
		if err := json.Unmarshal(e.Payload, &p); err != nil {
			t.Fatal(err)
		}
		// Once the agent has ended, and the end of the run is posted, heartbeats announce a minute.
		if p.Type == thread.TypeHeartbeat && p.Agent != nil && p.NextMs != 50 {
			t.Errorf("%s: the next one is due after %d ms", e.ID, p.NextMs)
		}
	}
}
