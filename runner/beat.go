package runner

import (
	"context"
	"fmt"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/thread"
)

// beat says every few seconds that the runner lives, unless lines have just said so. Only the newest heartbeat is ever on its way: one that
// could not be posted is not worth a second try. Once the terminal is on its way it says more than a heartbeat does, which would come after the end
// where the terminal got through and the answer did not: then there is one a minute.
func (r *run) beat(ctx context.Context) error {
	last := clock() // the last heartbeat
	tick := time.NewTicker(r.Heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		spoke := time.Duration(r.acked.Load())
		if spoke == 0 && !r.progress.opened {
			continue // the thread doesn't know of the run yet
		}
		if (clock()-spoke < r.Heartbeat*9/10 || r.closing.Load()) && clock()-last < maxBeatless {
			continue
		}
		last = clock()
		r.beats++
		e := r.entry(fmt.Sprintf("%s.beat.%d", r.RunID, r.beatNumber()), r.heartbeat())
		if err := r.Client.Heartbeat(ctx, e); err != nil && ctx.Err() == nil {
			r.Log.Debug("a heartbeat was not posted", "beat", r.beats, "error", err)
		}
	}
}

// beatNumber counts the run's heartbeats. A worker doesn't know how many the one before has sent, so it begins in the next hundred thousand.
func (r *run) beatNumber() int64 { return int64(r.Restarts)*100_000 + r.beats }

func (r *run) heartbeat() thread.Heartbeat {
	// The lines of this run alone: what stood in the file before is on the thread or is not ours to count.
	posted := max(0, r.mirror.Posted()-int64(r.record.From.Index))
	seen := max(0, r.follower.seen()-int64(r.record.From.Index))
	h := thread.Heartbeat{
		Signal: r.signal(thread.TypeHeartbeat), Beat: r.beatNumber(), Posted: posted, Pending: max(0, seen-posted),
		UptimeMs: (clock() - r.record.Clock).Milliseconds(),
	}
	if p := r.agent.Load(); p != nil {
		if st, err := harness.ReadStat(p.PID()); err == nil {
			h.Agent = &thread.AgentProgress{
				PID: p.PID(), RSSBytes: st.RSS, CPUMs: st.CPU.Milliseconds(),
				QuietMs: (clock() - time.Duration(r.moved.Load())).Milliseconds(),
			}
		}
	}
	return h
}
