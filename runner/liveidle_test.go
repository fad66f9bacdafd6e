package runner_test

import (
	"sync/atomic"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/outcome"
)

// The end of a run by its idle time, and before its first chat.
func TestLiveIdle(t *testing.T) {
	t.Parallel()
	for _, prompt := range []string{"do it", ""} {
		server := fakethread.New(t, nil)
		cfg, read := liveSetup(t, server)
		cfg.Prompt, cfg.Idle = prompt, 100*time.Millisecond
		g := goLive(t, server, cfg, read)
		<-g.done
		if g.err != nil || g.res.Verdict.Outcome != outcome.Completed {
			t.Errorf("with the prompt %q: %+v, %v", prompt, g.res.Verdict, g.err)
		}
	}
}

// An agent that waits shortly for a chat gets those that are on the thread, also where its first read takes some tries.
func TestLiveIdleBeforeRead(t *testing.T) {
	t.Parallel()
	var began atomic.Bool
	var reads atomic.Int64
	server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
		for _, e := range c.Entries {
			if e.ID == "r1.started" {
				began.Store(true)
			}
		}
		if c.Method == "GET" && began.Load() && reads.Add(1) <= 5 {
			return fakethread.Fault{Status: 503}
		}
		return fakethread.Fault{}
	})
	cfg, read := liveSetup(t, server)
	cfg.Idle = time.Millisecond
	g := goLive(t, server, cfg, read)
	<-g.done
	got := delivered(server.Entries())
	if g.err != nil || g.res.Verdict.Outcome != outcome.Completed || len(got) != 1 || got[0] != "r1.prompt" {
		t.Errorf("got %+v, %v, and the chats %v", g.res.Verdict, g.err, got)
	}
}
