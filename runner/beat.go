package runner

import (
	"context"
	"fmt"
	"sync"
	"time"

	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/internal/procfs"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/thread"
)

// Bounds of heartbeats.
const (
	silentBeats = 3               // a run is silent when so many are missing; timeout of one, in intervals
	fewestBeat  = 4 * time.Second // shortest timeout of one
	mostBeats   = 4               // unanswered at the same time
)

// beat posts a heartbeat whenever the server has acknowledged no other entry for r.Heartbeat, and at least once a
// minute. It does not repeat one that failed, and a slow answer does not delay the next. While the terminal is being
// posted, heartbeats announce an interval of a minute: if the terminal arrived and its answer was lost, heartbeats
// after the end are noise on the thread.
func (r *run) beat(ctx context.Context) error {
	if r.awaitOpen(ctx) != nil {
		return nil
	}
	p := pulse{every: r.Heartbeat, spoke: runfolder.Clock(), last: runfolder.Clock()}
	var flying sync.WaitGroup
	defer flying.Wait()
	room := make(chan struct{}, mostBeats)
	for {
		p.spoke, p.waiting = max(p.spoke, time.Duration(r.acked.Load())), r.live.waits()
		if wait := p.due(r.closing.Load()) - runfolder.Clock(); wait > 0 {
			if !pause.For(ctx, min(wait, r.Heartbeat)) { // lines may be acknowledged meanwhile, or the end begin
				return nil
			}
			continue
		}
		r.beats++
		next := p.beat(runfolder.Clock(), r.closing.Load())
		e := r.entry(fmt.Sprintf("%s.beat.%d", r.RunID, r.beatNumber()), r.heartbeat(next))
		select {
		case room <- struct{}{}:
			flying.Go(func() {
				defer func() { <-room }()
				r.postBeat(ctx, e)
			})
		default: // the server is too slow: skip this one
		}
	}
}

// pulse decides when the next heartbeat is due. All its times are of one clock.
type pulse struct {
	every     time.Duration // the time without an entry after which a heartbeat is due
	spoke     time.Duration // when an entry was acknowledged, or a heartbeat sent
	last      time.Duration // when a heartbeat was sent
	announced bool          // the last one announced an interval of a minute
	waiting   bool          // a live run's agent waits: one heartbeat announces that, and then one a minute is due
}

// due is when the next heartbeat is due. While the terminal is being posted, that is as late as the previous heartbeats
// allow: mostly the terminal arrives, and no further heartbeat is needed.
func (p pulse) due(closing bool) time.Duration {
	switch {
	case p.announced && (closing || p.waiting):
		return p.last + maxBeatless
	case p.waiting && !closing:
		return p.last
	case closing:
		return min(p.spoke+(silentBeats-1)*p.every, p.last+maxBeatless)
	}
	return min(p.spoke+p.every, p.last+maxBeatless)
}

// beat notes that a heartbeat is sent now, and returns the interval that it announces.
func (p *pulse) beat(now time.Duration, closing bool) (next time.Duration) {
	p.spoke, p.last, p.announced = now, now, closing || p.waiting
	if p.announced {
		return maxBeatless
	}
	return p.every
}

// postBeat posts a heartbeat once.
func (r *run) postBeat(ctx context.Context, e thread.Entry) {
	ctx, cancel := context.WithTimeout(ctx, max(silentBeats*r.Heartbeat, fewestBeat))
	defer cancel()
	if err := r.Client.Heartbeat(ctx, e); err != nil && ctx.Err() == nil {
		r.Log.Debug("post heartbeat", "id", e.ID, "error", err)
	}
}

// beatNumber is the number of the next heartbeat. A worker does not know how many the one before has sent, so each
// begins at another hundred thousand.
func (r *run) beatNumber() int64 { return int64(r.Restarts)*100_000 + r.beats }

// heartbeat returns the state of the run now. next is the interval that it announces.
func (r *run) heartbeat(next time.Duration) thread.Heartbeat {
	// The lines of this run alone, without those that the file had before.
	posted, seen := r.trail.Counts()
	posted, seen = max(0, posted-int64(r.record.From.Index)), max(0, seen-int64(r.record.From.Index))
	h := thread.Heartbeat{
		Signal: r.signal(thread.TypeHeartbeat), Beat: r.beatNumber(), Posted: posted, Pending: max(0, seen-posted),
		UptimeMs: (runfolder.Clock() - r.record.Clock).Milliseconds(), NextMs: next.Milliseconds(),
	}
	if p := r.agent.Load(); p != nil {
		if st, err := procfs.Read(p.PID()); err == nil {
			h.Agent = &thread.AgentProgress{
				PID: p.PID(), RSSBytes: st.RSS, CPUMs: st.CPU.Milliseconds(),
				QuietMs: (runfolder.Clock() - time.Duration(r.moved.Load())).Milliseconds(),
			}
		}
	}
	return h
}
