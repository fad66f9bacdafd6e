package runner

import (
	"context"
	"fmt"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/outcome"
)

// busyCPU is how much of a core a tree uses that is at work: less is what an idle interpreter uses.
const busyCPU = 0.02

// notePauses is the time that has to be lost before it is written down.
const notePauses = 10 * time.Second

// eyes count the time in which the worker could look at the agent. A box that was frozen, a worker that was stopped
// and a machine that slept leave a gap between two looks, and a gap is no sign of the agent: it counts as two
// looks.
type eyes struct {
	last time.Duration // the look before: clock
	seen time.Duration // observed time
}

// look returns the observed time at the time now (clock), and how much was lost since the look before.
func (e *eyes) look(now time.Duration) (seen, lost time.Duration) {
	gap := now - e.last
	counts := min(gap, 2*lookEvery)
	e.last, e.seen = now, e.seen+counts
	return e.seen, gap - counts
}

// signs are what the worker has seen of the agent, in observed time.
type signs struct {
	now     time.Duration
	began   time.Duration // when it was started; negative where that was before this worker
	line    time.Duration // when its session last grew
	output  time.Duration // when it last printed
	work    time.Duration // when it last computed, or one of its subagents wrote
	away    time.Duration // for how long it has waited for its provider, 0 for one that does not wait
	resting bool          // its turn has ended well and no tool is at work
}

// limits are how long an agent may do what. 0 is no limit.
type limits struct {
	linger      time.Duration // after a turn that ended well, without a line or output
	stall       time.Duration // without a line, output or work
	unreachable time.Duration // waiting for its provider
	guard       time.Duration // altogether
}

// breach is the first limit that the signs break, nil for none.
func (l limits) breach(s signs) *cause {
	still := s.now - max(s.line, s.output)
	quiet := s.now - max(s.line, s.output, s.work)
	over := func(is, limit time.Duration) bool { return limit > 0 && is >= limit }
	switch {
	case s.resting && over(still, l.linger):
		why := fmt.Sprintf("still running %v after its last turn ended", still.Round(time.Second))
		return &cause{outcome.ActionLinger, why}
	case over(quiet, l.stall):
		return &cause{outcome.ActionStall, fmt.Sprintf("no line, no output and no work for %v", quiet.Round(time.Second))}
	case over(s.away, l.unreachable):
		why := fmt.Sprintf("the agent has waited for it for %v", s.away.Round(time.Second))
		return &cause{outcome.ActionUnreachable, why}
	case over(s.now-s.began, l.guard):
		return &cause{outcome.ActionTimeout, fmt.Sprintf("it ran for %v", l.guard)}
	}
	return nil
}

// limits are those of this run. A person at the agent's own interface ends the agent.
func (r *run) limits() limits {
	l := limits{linger: r.Patience, stall: r.Stall, unreachable: r.Unreachable, guard: r.Guard}
	if r.TTY != nil {
		l.linger = 0
	}
	return l
}

// watch looks at the agent every moment: whether it writes, prints or computes, and whether it is time to end it.
func (r *run) watch(ctx context.Context, tree harness.Tree, outputs []*output) error {
	r.catchUp(ctx)
	w := watcher{run: r, tree: tree, outputs: outputs, limits: r.limits(), eyes: eyes{last: clock()}}
	w.line = r.follower.lastLine()
	if s := r.progress.spawned; s != nil {
		w.signs.began = -(clock() - s.Clock - r.progress.paused)
	}
	w.moved = r.moved.Load()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		w.look()
		if d := w.limits.breach(w.signs); d != nil {
			r.end(*d)
		}
	}
}

// Where so much of a session is on the thread already, the mirror has the machine to itself for so long after a worker's
// death.
const (
	manyBytes   = 16 << 20
	mirrorFirst = 30 * time.Second
)

// catchUp reads what came under an earlier worker: after the mirror, for whose next line somebody waits.
func (r *run) catchUp(ctx context.Context) {
	long := r.follower.behind.Load() && r.cursor().Offset > manyBytes
	for began := clock(); long && r.mirror.Posted() == 0; {
		if path, _ := r.session(); path == "" || ctx.Err() != nil || clock()-began > mirrorFirst {
			break
		}
		pause(ctx, locateEvery)
	}
	r.look()
}

// watcher is a watch under way.
type watcher struct {
	*run
	tree    harness.Tree
	outputs []*output
	limits  limits
	eyes    eyes
	signs   signs

	lost  time.Duration // and not written down
	line  time.Duration // when the last line came, as the follower has it: clock
	moved int64         // the run's last sign of life at the look before: clock
	away  time.Duration // since when the agent waits for its provider, as the follower has it: clock
	since time.Duration // the same, observed
	used  time.Duration // processor time of the tree at the look before
}

// look takes the signs. What has changed since the look before has changed now: when exactly, only the clocks of
// others know.
func (w *watcher) look() {
	now := clock()
	before := w.signs.now
	seen, lost := w.eyes.look(now)
	w.signs.now = seen
	if w.lost += lost; w.lost >= notePauses {
		w.Log.Info("the worker stood still", "for", w.lost.Round(time.Millisecond))
		w.note(Fact{Fact: FactPaused, Lost: w.lost})
		w.lost = 0
	}
	w.run.look()
	moved := w.follower.lastLine()
	if moved != w.line {
		w.line, w.signs.line = moved, seen
	}
	for _, o := range w.outputs {
		switch grew, err := o.grown(); {
		case err != nil:
			w.Log.Debug("stat agent output", "error", err)
		case grew:
			w.signs.output, moved = seen, now
		}
	}
	if w.limits.stall > 0 {
		if w.busy(seen - before) {
			w.signs.work, moved = seen, now
		}
	}
	if w.run.moved.Load() != w.moved { // a subagent's line
		w.signs.work = seen
	}
	w.alive(moved)
	w.moved = w.run.moved.Load()
	switch away := w.follower.offlineSince(); {
	case away == 0:
		w.away, w.since, w.signs.away = 0, 0, 0
	case away != w.away:
		w.away, w.since, w.signs.away = away, seen, 0
	default:
		w.signs.away = seen - w.since
	}
	w.signs.resting = w.follower.resting()
}

// busy reports whether the tree has computed in the observed time that has passed since the look before.
func (w *watcher) busy(passed time.Duration) bool {
	var cpu time.Duration
	for _, m := range w.tree.Members() {
		cpu += m.CPU
	}
	was, known := w.used, w.signs.now > passed // there was a look before
	w.used = cpu
	return known && float64(cpu-was) > busyCPU*float64(passed)
}

// alive notes that the agent showed a sign of life at the time at.
func (r *run) alive(at time.Duration) {
	if int64(at) > r.moved.Load() {
		r.moved.Store(int64(at))
	}
}
