package runner

import (
	"context"
	"fmt"
	"sync"
	"time"

	"arbe.0sk.ar/runner/internal/procfs"
	"arbe.0sk.ar/runner/thread"
)

// Bounds of heartbeats.
const (
	silentBeats = 3               // a run is silent when so many are missing, and so long one may wait for its answer
	fewestBeat  = 4 * time.Second // but at least so long
	mostBeats   = 4               // on their way at the same time
)

// beat posts a heartbeat whenever the server has acknowledged no other entry for r.Heartbeat, and once a minute in
// any case. One that could not be posted is not worth a second try, and a slow answer to one does not hold up the
// next. While the terminal is on its way the last heartbeats announce that from now on there is one a minute: a
// heartbeat that comes after the end, where the terminal got through and its answer did not, is noise on the thread.
func (r *run) beat(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-r.opened: // until then the thread doesn't know of the run
	}
	p := pulse{every: r.Heartbeat, spoke: clock(), last: clock()}
	var flying sync.WaitGroup
	defer flying.Wait()
	room := make(chan struct{}, mostBeats)
	for {
		p.spoke = max(p.spoke, time.Duration(r.acked.Load()))
		if wait := p.due(r.closing.Load()) - clock(); wait > 0 {
			timer := time.NewTimer(min(wait, r.Heartbeat)) // meanwhile lines may be acknowledged, or the end begin
			select {
			case <-ctx.Done():
				timer.Stop()
				return nil
			case <-timer.C:
			}
			continue
		}
		r.beats++
		next := p.beat(clock(), r.closing.Load())
		e := r.entry(fmt.Sprintf("%s.beat.%d", r.RunID, r.beatNumber()), r.heartbeat(next))
		select {
		case room <- struct{}{}:
			flying.Go(func() {
				defer func() { <-room }()
				r.postBeat(ctx, e)
			})
		default: // the server takes too long for any of them to be news
		}
	}
}

// pulse decides when the next heartbeat is due. Its times are of one clock, whichever that is.
type pulse struct {
	every     time.Duration // the time without an entry after which a heartbeat is due
	spoke     time.Duration // when an entry was acknowledged, or a heartbeat sent
	last      time.Duration // when a heartbeat was sent
	announced bool          // it said that the next one is due in a minute
}

// due is when the next heartbeat is due. While the run's end is on its way that is as late as the heartbeats before
// allow: the end mostly gets through, and needs none.
func (p pulse) due(closing bool) time.Duration {
	switch {
	case closing && p.announced:
		return p.last + maxBeatless
	case closing:
		return min(p.spoke+(silentBeats-1)*p.every, p.last+maxBeatless)
	}
	return min(p.spoke+p.every, p.last+maxBeatless)
}

// beat notes that a heartbeat is sent now, and returns after which time it says that the next one is due.
func (p *pulse) beat(now time.Duration, closing bool) (next time.Duration) {
	p.spoke, p.last, p.announced = now, now, closing
	if closing {
		return maxBeatless
	}
	return p.every
}

// postBeat posts a heartbeat once.
func (r *run) postBeat(ctx context.Context, e thread.Entry) {
	ctx, cancel := context.WithTimeout(ctx, max(silentBeats*r.Heartbeat, fewestBeat))
	defer cancel()
	if err := r.Client.Heartbeat(ctx, e); err != nil && ctx.Err() == nil {
		r.Log.Debug("a heartbeat was not posted", "id", e.ID, "error", err)
	}
}

// beatNumber counts the run's heartbeats. A worker doesn't know how many the one before has sent, so it begins in the
// next hundred thousand.
func (r *run) beatNumber() int64 { return int64(r.Restarts)*100_000 + r.beats }

// heartbeat is what there is to say of the run now. The next heartbeat is due after next, where no entry comes before.
func (r *run) heartbeat(next time.Duration) thread.Heartbeat {
	// The lines of this run alone: what stood in the file before is on the thread or is not ours to count.
	posted := max(0, r.mirror.Posted()-int64(r.record.From.Index))
	seen := max(0, r.mirror.Seen()-int64(r.record.From.Index))
	h := thread.Heartbeat{
		Signal: r.signal(thread.TypeHeartbeat), Beat: r.beatNumber(), Posted: posted, Pending: max(0, seen-posted),
		UptimeMs: (clock() - r.record.Clock).Milliseconds(), NextMs: next.Milliseconds(),
	}
	if p := r.agent.Load(); p != nil {
		if st, err := procfs.Read(p.PID()); err == nil {
			h.Agent = &thread.AgentProgress{
				PID: p.PID(), RSSBytes: st.RSS, CPUMs: st.CPU.Milliseconds(),
				QuietMs: (clock() - time.Duration(r.moved.Load())).Milliseconds(),
			}
		}
	}
	return h
}
