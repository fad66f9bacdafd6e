package screen

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/thread"
)

// tick is how often the live line is written anew, mostDraws how soon an entry does.
const (
	tick      = time.Second
	mostDraws = tick / 10
)

// pulse is a screen's record of the run's signs of life, and of the server's clock.
type pulse struct {
	line   bool          // the last line on the screen is the live line
	silent time.Duration // of the last heartbeat that was written as a line of its own
	beat   time.Time     // when the last heartbeat came, by the local clock; zero where another run has begun
	quiet  time.Time     // when the last line of the session came, by the local clock
	came   time.Time     // when the last entry came, by the local clock
	ahead  time.Duration // of the local clock, before the server's
	dead   bool          // it was written that the run is dead
	away   bool          // the server did not answer
	drawn  time.Time     // when the live line was written
	ending string        // the run that was asked to end, if it has not; "*" for the one that runs

	stop func() // ends what Start started; nil where nothing runs
}

// Start writes the live line each second, until Stop.
func (s *Screen) Start() {
	stop := cmdline.Every(tick, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.flush()
		s.breathe(time.Now())
	})
	if s.stop = stop; !s.Live || s.Task == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopTasks := cmdline.Every(taskTick, func() { s.look(ctx) })
	s.stop = func() {
		cancel()
		stopTasks()
		stop()
	}
}

// Stop ends what Start began, and leaves nothing but items on the screen. Call it after the last entry. A second call
// does nothing.
func (s *Screen) Stop() {
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flush()
	s.cutOff()
	s.clear()
}

// Check writes that the run is dead, if it is, and that chats wait. It is for a reader that has read all entries and
// does not wait for more.
func (s *Screen) Check() {
	s.look(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flush()
	if l := s.watch.Pulse().At(time.Now().Add(-s.ahead)); l.State == view.Dead {
		s.deadLine(l)
	} else if l.State != view.Ended {
		s.undelivered(" yet")
	}
	s.lines(dim, "", s.besides("… "))
}

// clear removes the live line.
func (s *Screen) clear() {
	if s.line && s.err == nil {
		_, s.err = io.WriteString(s.w, "\r\x1b[K")
	}
	s.line = false
}

// received takes what an entry shows of the run's life.
func (s *Screen) received(e thread.Entry) {
	now := time.Now()
	if at := e.Received(); !at.IsZero() {
		// An entry that comes after a pause was not read with older ones: it is new.
		if d := now.Sub(at); d < s.ahead || !s.came.IsZero() && now.Sub(s.came) > tick {
			s.ahead = d
		}
	}
	s.came = now
	switch p, _ := thread.ParseMirrored(e.Payload); {
	case p.Type == thread.TypeHeartbeat:
		s.beat = now
		if !s.Live && !s.Typed {
			s.beaten()
		}
		return
	case p.Type == thread.TypeStarted:
		s.beat, s.quiet = time.Time{}, time.Time{}
	case p.Session != nil:
		s.quiet = now
	}
	s.silent = 0
}

// beaten writes a heartbeat as a line of its own, fewer of them the longer nothing else comes.
func (s *Screen) beaten() {
	up := time.Duration(s.watch.Beat().UptimeMs) * time.Millisecond
	if s.silent == 0 || up >= 2*s.silent {
		s.silent = max(up, tick)
		line := s.progress(time.Now())
		if s.watch.Pulse().Waiting {
			line += " · waiting for a chat"
		}
		s.printf("%s\n", clip(line, s.width))
	}
}

// waits writes for a person who types that the agent waits for a chat, unless the run was asked to end.
func (s *Screen) waits(e thread.Entry) {
	if !s.Typed {
		return
	}
	f, err := thread.Scan(e.Payload)
	switch {
	case err != nil:
	case f.Type == thread.TypeCancel || f.Type == thread.TypeEnd:
		s.ending = cmp.Or(f.RunID, "*")
	case f.Type == thread.TypeStatus && s.ending == "*":
		s.ending = "" // the run has ended, or another one begins
	case f.Type == thread.TypeWaiting && s.ending != f.RunID && s.ending != "*" && s.watch.Pulse().Waiting:
		s.printf("\n")
		mark, _ := cmdline.Mark(string(view.Waiting))
		s.lines(dim, "", mark+" waiting for a chat; Ctrl-D ends the run")
	}
}

// breathe writes how the run does: its progress as a line that changes in place, and when it is dead.
func (s *Screen) breathe(now time.Time) {
	away := s.Away != nil && s.Away()
	if away || s.away { // the runner's entries can't be read, and its next ones need a time to come
		s.came = now
	}
	s.away = away
	pulse := s.watch.Pulse()
	live := pulse.At(now.Add(-s.ahead))
	if silent, _ := pulse.Limits(); now.Sub(s.came) < silent.Sub(pulse.Last) {
		// The entries may be old ones that are still being read, and the clocks may differ. The next heartbeat
		// shows it.
		live = pulse.At(pulse.Last)
	}
	switch {
	case live.State == view.Dead && !s.dead:
		s.dead = true
		s.deadLine(live)
	case live.State != view.Dead && s.dead && !away:
		s.dead = false
		if live.State != view.Ended {
			s.lines(green, "", "the runner posts entries again")
		}
	}
	if !s.Live {
		return
	}
	style, line := s.status(live, now)
	s.measure()
	s.clear()
	if line != "" && s.err == nil {
		_, s.err = io.WriteString(s.w, s.paint(style, clip(line, s.room(1))))
		s.line, s.drawn = true, now
	}
}

// status returns the live line: how the run does, and which bots answer; "" for nothing to see.
func (s *Screen) status(live view.Live, now time.Time) (style, line string) {
	style = dim
	switch state := live.State; {
	case s.away:
		style, line = red, "✗ no answer from "+s.Server+"; retrying"
	case s.coming.rest != "":
		style, line = "", s.coming.rest
	case state == view.Idle, state == view.Ended:
		line = s.besides("… ")
	case state == view.Waiting:
		line = s.progress(now) + " · waiting for a chat" + s.besides(" · ")
	case state == view.Dead:
		mark, red := cmdline.Mark(string(state))
		style, line = red, mark+" no entry from the runner for "+live.Silence.Truncate(tick).String()
	default:
		if line = s.progress(now) + s.besides(" · "); state == view.Silent {
			style, line = yellow, line+" · silent for "+live.Silence.Truncate(tick).String()
		}
	}
	return style, line
}

// deadLine writes that the run is dead, and what to do.
func (s *Screen) deadLine(l view.Live) {
	mark, style := cmdline.Mark(string(l.State))
	then := fmt.Sprintf("if its box is gone, arbe reconcile %s ends the run", s.Thread)
	if s.Ends {
		then = "the run ends if its process or its box is gone"
	}
	s.lines(style, "", fmt.Sprintf("%s no entry from the runner for %s: %s", mark, l.Silence.Truncate(tick), then))
}

// Dead reports whether three heartbeats are missing, as the screen shows it.
func (s *Screen) Dead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead
}

// progress returns how far the run is: its age, the tool that runs, and the figures of the last heartbeat.
func (s *Screen) progress(now time.Time) string {
	run, _ := s.watch.Run()
	b := s.watch.Beat()
	var since time.Duration // the heartbeat
	up := now.Add(-s.ahead).Sub(run.FirstSignal)
	if !s.beat.IsZero() {
		since = now.Sub(s.beat)
		up = time.Duration(b.UptimeMs)*time.Millisecond + since
	}
	line := "… " + max(0, up).Round(tick).String()
	if step := s.watch.Step(); step != "" {
		line += " · " + view.Visible(step)
	}
	if calls := s.builder.Running(); len(calls) > 0 {
		line += " · " + view.Visible(labelOf(*calls[0].Call))
		if len(calls) > 1 {
			line += fmt.Sprintf(" and %d more", len(calls)-1)
		}
	}
	if s.beat.IsZero() {
		return line
	}
	if a := b.Agent; a != nil {
		quiet := time.Duration(a.QuietMs)*time.Millisecond + since
		if s.quiet.After(s.beat) {
			quiet = now.Sub(s.quiet)
		}
		line += fmt.Sprintf(" · quiet for %s · cpu %s · %s", quiet.Round(tick),
			(time.Duration(a.CPUMs) * time.Millisecond).Round(100*time.Millisecond), view.Size(a.RSSBytes))
	}
	if n := s.builder.Undelivered(); n > 0 {
		line += " · " + view.Count(int64(n), "chat") + " not delivered yet"
	}
	if b.Pending > 0 {
		line += " · " + view.Count(b.Pending, "line") + " not posted yet"
	}
	return line
}
