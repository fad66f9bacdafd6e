package runner

import (
	"context"
	"fmt"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/runner/stdio"
)

// busyCPU is the share of a core above which a tree of processes counts as working. An idle interpreter uses less.
const busyCPU = 0.02

// notePauses is the lost time above which a pause of the worker is recorded.
const notePauses = 10 * time.Second

// eyes count observed time: the time in which the worker could look at the agent. A frozen box, a stopped worker and
// a machine that slept leave a gap between two looks. A gap is no evidence about the agent: it counts as two looks.
type eyes struct {
	every time.Duration // between two looks
	last  time.Duration // the previous look: clock
	seen  time.Duration // observed time
}

// look returns the observed time at now (clock), and the time lost since the previous look.
func (e *eyes) look(now time.Duration) (seen, lost time.Duration) {
	gap := now - e.last
	counts := min(gap, 2*e.every)
	e.last, e.seen = now, e.seen+counts
	return e.seen, gap - counts
}

// sight is the result of one look at the agent.
type sight struct {
	line      time.Duration // when the follower read the last line: clock
	printed   bool          // its outputs have grown since the previous look
	subagents int64         // lines posted of its subagents' sessions
	cpu       time.Duration // processor time of its processes; negative where it was not measured
	offline   time.Duration // since when it waits for its provider: clock; 0 for one that does not
	resting   bool          // its turn has ended well and no tool is at work; in a live run before it reports that
	waiting   bool          // a live run's agent waits for a chat
}

// signs are when the agent last did what, in observed time.
type signs struct {
	began   time.Duration // start; negative where an earlier worker started it
	line    time.Duration // a line of its session
	output  time.Duration // bytes on stdout or stderr
	work    time.Duration // processor time, or a line of a subagent
	offline time.Duration // how long it has waited for its provider; 0 for one that does not wait
	resting bool          // its turn has ended well and no tool is at work
}

// after returns the signs after a look at the observed time now, passed after the previous one. What differs between
// the two sights happened now, as far as the worker can know.
func (s signs) after(prev, cur sight, now, passed time.Duration) signs {
	if cur.line != prev.line || cur.waiting { // an agent that waits neither lingers nor stalls
		s.line = now
	}
	if cur.printed {
		s.output = now
	}
	measured := prev.cpu >= 0 && cur.cpu >= 0
	if measured && float64(cur.cpu-prev.cpu) > busyCPU*float64(passed) || cur.subagents != prev.subagents {
		s.work = now
	}
	if cur.offline == 0 || cur.offline != prev.offline {
		s.offline = 0
	} else {
		s.offline += passed
	}
	s.resting = cur.resting
	return s
}

// limits are how long an agent may do what. 0 is no limit.
type limits struct {
	linger      time.Duration // after a turn that ended well, without a line or output
	stall       time.Duration // without a line, output or work
	unreachable time.Duration // waiting for its provider
	guard       time.Duration // in all
	guardWhy    string        // the reason for guard, for people; "" for none
}

// why returns the reason to end an agent with these signs at the observed time now. false: it has reached no limit.
func why(s signs, l limits, now time.Duration) (cause, bool) {
	still := now - max(s.line, s.output)
	quiet := now - max(s.line, s.output, s.work)
	reached := func(is, limit time.Duration) bool { return limit > 0 && is >= limit }
	switch {
	case s.resting && reached(still, l.linger):
		text := fmt.Sprintf("still running %v after its last turn ended", still.Round(time.Second))
		return cause{outcome.ActionLinger, text}, true
	case reached(quiet, l.stall):
		text := fmt.Sprintf("no line, no output and no work for %v", quiet.Round(time.Second))
		return cause{outcome.ActionStall, text}, true
	case reached(s.offline, l.unreachable):
		text := fmt.Sprintf("the agent has waited for it for %v", s.offline.Round(time.Second))
		return cause{outcome.ActionUnreachable, text}, true
	case reached(now-s.began, l.guard):
		text := fmt.Sprintf("it ran for %v", l.guard)
		if l.guardWhy != "" {
			text += ", and " + l.guardWhy
		}
		return cause{outcome.ActionTimeout, text}, true
	}
	return cause{}, false
}

// limits are those of this run. A person at the agent's own interface ends the agent: it may linger.
func (r *run) limits() limits {
	l := limits{linger: r.Timeout, stall: r.Stall, unreachable: r.Unreachable, guard: r.Guard, guardWhy: r.GuardWhy}
	if r.TTY != nil {
		l.linger = 0
	}
	return l
}

// watch looks at the agent in intervals until ctx is done, and ends it when it has reached a limit.
func (r *run) watch(ctx context.Context, tree harness.Tree, outputs []*stdio.Output) error {
	r.catchUp(ctx)
	w := watcher{run: r, tree: tree, outputs: outputs, eyes: eyes{every: r.intervals.lookEvery, last: runfolder.Clock()}}
	if s := r.progress.Spawned; s != nil {
		w.signs.began = -(runfolder.Clock() - s.Clock - r.progress.Paused)
	}
	w.sight = sight{line: r.follower.lastLine(), subagents: r.subagents.lines.Load(), cpu: -1}
	limits := r.limits()
	tick := time.NewTicker(r.intervals.lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if c, reached := why(w.look(), limits, w.eyes.seen); reached {
			r.end(c)
		}
	}
}

// A worker that replaces another one leaves the machine to the mirror for up to mirrorFirst, where more than
// manyBytes of the session are on the thread: the thread's readers wait for its next line.
const (
	manyBytes   = 16 << 20
	mirrorFirst = 30 * time.Second
)

// catchUp reads the lines that came under an earlier worker, after the mirror has posted its first.
func (r *run) catchUp(ctx context.Context) {
	long := r.adopted && r.cursor(r.record.Posted).Offset > manyBytes
	for began := runfolder.Clock(); long; {
		if posted, _ := r.trail.Counts(); posted > 0 {
			break
		}
		if path := r.session(); path == "" || ctx.Err() != nil || runfolder.Clock()-began > mirrorFirst {
			break
		}
		pause.For(ctx, locateEvery)
	}
	r.look()
}

// watcher holds the state between two looks of a watch.
type watcher struct {
	*run
	tree    harness.Tree
	outputs []*stdio.Output
	eyes    eyes
	sight   sight // of the previous look
	signs   signs
	lost    time.Duration // by pauses that are not recorded yet
}

// look looks at the agent, and returns its signs.
func (w *watcher) look() signs {
	now, before := runfolder.Clock(), w.eyes.seen
	seen, lost := w.eyes.look(now)
	w.notePause(lost)
	w.run.look()
	cur := w.see()
	if cur.offline != 0 && w.sight.offline == 0 {
		w.Log.Warn("the agent can't reach its provider and waits", "at_most", w.Unreachable.String())
	}
	w.signs = w.signs.after(w.sight, cur, seen, seen-before)
	w.sight = cur
	last := cur.line // when it came is known exactly
	if max(w.signs.output, w.signs.work) == seen {
		last = now
	}
	w.moved.Store(int64(max(last, time.Duration(w.moved.Load()))))
	return w.signs
}

// see takes a look at the agent.
func (w *watcher) see() sight {
	cur := sight{
		line: w.follower.lastLine(), subagents: w.subagents.lines.Load(), cpu: -1,
		offline: w.follower.offlineSince(), resting: w.follower.resting() && !w.live.between(),
		waiting: w.live.rests(),
	}
	for _, o := range w.outputs {
		grew, err := o.Grown()
		if err != nil {
			w.Log.Debug("stat agent output", "error", err)
		}
		cur.printed = cur.printed || grew
	}
	if w.Stall > 0 { // to read all processes is not for nothing
		cur.cpu = 0
		for _, m := range w.tree.Members() {
			cur.cpu += m.CPU
		}
	}
	return cur
}

// notePause records the time that pauses of the worker have cost, once it is more than notePauses.
func (w *watcher) notePause(lost time.Duration) {
	if w.lost += lost; w.lost < notePauses {
		return
	}
	w.Log.Info("worker was paused", "for", w.lost.Round(time.Millisecond))
	w.note(runfolder.Fact{Fact: runfolder.FactPaused, Lost: w.lost})
	w.lost = 0
}
