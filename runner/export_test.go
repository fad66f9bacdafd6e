package runner

import (
	"context"
	"errors"
	"syscall"
	"time"

	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner/runfolder"
)

// RunAlone is Run without a keeper: in a folder of its own, unless cfg has one.
func RunAlone(ctx, abandon context.Context, cfg Config) (res Result, err error) {
	if cfg.Folder != nil {
		return Run(ctx, abandon, cfg)
	}
	if cfg.Folder, err = runfolder.New(cfg.State, cfg.ThreadID, cfg.RunID); err != nil {
		return res, err
	}
	if cfg.Folder.Used() {
		return res, errors.Join(ErrTaken, cfg.Folder.Close())
	}
	return Run(ctx, abandon, cfg)
}

// LookEvery is the time between two looks at the agent.
const LookEvery = lookEvery

// Fast returns cfg with short intervals: between two looks at the agent, between TERM and KILL, and before the thread
// or the prompt is read again.
func Fast(cfg Config) Config {
	cfg.intervals = intervals{
		lookEvery: 20 * time.Millisecond, grace: 300 * time.Millisecond, retryRead: 50 * time.Millisecond,
		retryPrompt: 50 * time.Millisecond,
	}
	return cfg
}

// Reaching returns cfg with a func that is called at the places at which a worker may die while it gives the agent a
// chat.
func Reaching(cfg Config, reached func(place, chat string)) Config {
	cfg.intervals.reached = reached
	return cfg
}

// Grace returns cfg with another time between TERM and KILL.
func Grace(cfg Config, d time.Duration) Config {
	cfg.intervals.grace = d
	return cfg
}

// Signs are signs, for tests.
type Signs struct {
	Began, Line, Output, Work, Offline time.Duration
	Resting                            bool
}

func (s Signs) signs() signs { return signs{s.Began, s.Line, s.Output, s.Work, s.Offline, s.Resting} }

// Limits are limits, for tests.
type Limits struct{ Linger, Stall, Unreachable, Guard time.Duration }

// Why is the action of why, for tests.
func Why(s Signs, l Limits, now time.Duration) (outcome.Action, bool) {
	c, reached := why(s.signs(), limits{l.Linger, l.Stall, l.Unreachable, l.Guard, ""}, now)
	return c.action, reached
}

// Sight is a sight, for tests.
type Sight struct {
	Line      time.Duration
	Printed   bool
	Subagents int64
	CPU       time.Duration
	Offline   time.Duration
	Resting   bool
	Waiting   bool
}

func (s Sight) sight() sight {
	return sight{s.Line, s.Printed, s.Subagents, s.CPU, s.Offline, s.Resting, s.Waiting}
}

// After is signs.after, for tests.
func (s Signs) After(prev, cur Sight, now, passed time.Duration) Signs {
	n := s.signs().after(prev.sight(), cur.sight(), now, passed)
	return Signs{n.began, n.line, n.output, n.work, n.offline, n.resting}
}

// Next is the step after the facts, for tests.
func Next(facts []runfolder.Fact, notStarted, stopped bool) string {
	return string(next(runfolder.Replay(facts), notStarted, stopped))
}

// Observed is the observed time after looks at the given times, and what was lost.
func Observed(looks ...time.Duration) (seen, lost time.Duration) {
	e := eyes{every: lookEvery, last: looks[0]}
	for _, at := range looks[1:] {
		var gap time.Duration
		seen, gap = e.look(at)
		lost += gap
	}
	return seen, lost
}

// Life is how a worker went, for tests.
type Life struct {
	Err           error
	Asked, Killed bool
	Lasted        time.Duration
}

// Restarts is how many workers follow one that goes as the lives by turns, at most most of them, and how long the
// waits are in all.
func Restarts(most int, lives ...Life) (n int, waited time.Duration) {
	var r restarts
	for i := 0; n < most; i++ {
		l := lives[i%len(lives)]
		how := outcome.ExitCode(2)
		if l.Killed {
			how = outcome.Signalled(9)
		}
		wait, more := r.next(life{err: l.Err, asked: l.Asked, lasted: l.Lasted, how: how})
		if !more {
			break
		}
		n++
		waited += wait
	}
	return n, waited
}

// Stillness returns the signal for each of the times at which a stopped worker is looked at; it stopped at the first.
func Stillness(looks ...time.Duration) (sent []syscall.Signal) {
	s := stillness{is: true, last: looks[0]}
	sent = []syscall.Signal{0}
	for _, at := range looks[1:] {
		sent = append(sent, s.look(at, true))
	}
	return sent
}
