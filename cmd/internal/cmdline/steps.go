package cmdline

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Steps shows the steps of a long action. On a terminal the current step is one line with the seconds since it began;
// elsewhere each step is a line when it begins. The caller calls End.
type Steps struct {
	w       io.Writer
	columns int // of the terminal; 0: the output is no terminal

	mu    sync.Mutex
	step  string // the current one; "" for none
	began time.Time
	stop  func() // ends the goroutine that draws; nil: none runs
}

// NewSteps returns the steps of an action, which w shows.
func NewSteps(w io.Writer) *Steps {
	columns, terminal := Terminal(w)
	if terminal && columns == 0 {
		columns = 80 // one whose size is unknown
	}
	return &Steps{w: w, columns: columns}
}

// Begin ends the current step, and begins the next one.
func (s *Steps) Begin(step string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.columns == 0 {
		fmt.Fprintf(s.w, "· %s\n", step)
		return
	}
	s.finish()
	s.step, s.began = step, time.Now()
	s.draw()
	if s.stop == nil {
		s.stop = Every(time.Second, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.draw()
		})
	}
}

// Note prints a line about the current step.
func (s *Steps) Note(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.columns == 0 {
		fmt.Fprintf(s.w, "  %s\n", line)
		return
	}
	fmt.Fprintf(s.w, "\r\x1b[K  %s\n", clean(line))
	s.draw()
}

// End ends the current step and the drawing.
func (s *Steps) End() {
	s.mu.Lock()
	stop := s.stop
	s.stop = nil
	s.finish()
	s.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// finish leaves the line of the current step on the screen, with the time that it took. The caller holds mu.
func (s *Steps) finish() {
	if s.step == "" {
		return
	}
	took := time.Since(s.began).Round(100 * time.Millisecond)
	fmt.Fprintf(s.w, "\r\x1b[K%s\n", s.line(took))
	s.step = ""
}

// draw writes the line of the current step. The caller holds mu.
func (s *Steps) draw() {
	if s.step != "" {
		fmt.Fprintf(s.w, "\r\x1b[K%s", s.line(time.Since(s.began).Truncate(time.Second)))
	}
}

// line returns the current step with a duration, cut at the terminal's width.
func (s *Steps) line(took time.Duration) string {
	text, end := []rune("· "+clean(s.step)), ""
	if took > 0 {
		end = " (" + took.String() + ")"
	}
	if room := s.columns - 1 - len(end); len(text) > room && room > 0 {
		text = append(text[:room-1], '…')
	}
	return string(text) + end
}

// Every calls f each d until stop is called, which waits for a call that is under way.
func Every(d time.Duration, f func()) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				f()
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}
