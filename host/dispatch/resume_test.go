package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/thread"
)

// drive plays a test with a thread that piet drives, and on which gus answers where he is named.
func drive(t *testing.T, f func(s *stage)) {
	play(t, func(context.Context, int, model.Request, func(model.Event)) (model.Reply, error) {
		return text("hello"), nil
	}, func(s *stage) {
		s.room.Driver = piet
		f(s)
	})
}

// lines appends lines, whose clock is the thread's.
func (s *stage) lines(lines ...line) error {
	var all []thread.Entry
	for _, l := range lines {
		all = append(all, entry(l.id, l.author, l.payload))
	}
	return s.board.Append(context.Background(), all...)
}

// fold returns the thread's runs.
func (s *stage) fold() *thread.Fold {
	var f thread.Fold
	s.board.mu.Lock()
	defer s.board.mu.Unlock()
	for _, e := range s.board.list {
		f.Add(e)
	}
	return &f
}

// A chat on a driven thread is launched one run for, while other bots answer, and the next one when that run has ended.
func TestResume(t *testing.T) {
	drive(t, func(s *stage) {
		var launched []dispatch.Resume
		gate := make(chan bool)
		s.resume = func(ctx context.Context, _ *running, r dispatch.Resume) error {
			launched = append(launched, r)
			<-gate
			return s.lines(runs(r.Run), begun(r.Run))
		}
		s.host()
		s.say("m1", "ann", "go on, @gus")
		synctest.Wait()
		s.want("1 react driver, 3 react mention, claim 0, hello, answered")
		s.say("m2", "ann", "and then stop")
		s.say("m3", alma, "stop")
		time.Sleep(time.Hour)
		synctest.Wait()
		first := dispatch.RunOf("t1", "m1")
		if want := []dispatch.Resume{{Chat: "m1", Run: first, Author: "ann", Bot: piet}}; !slices.Equal(launched, want) {
			t.Fatalf("launched %+v, want %+v", launched, want)
		}
		gate <- true
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(launched) > 1 {
			t.Fatalf("launched %+v while a run is open", launched[1:])
		}
		if err := s.lines(has("m1"), ended(first, thread.StatusCompleted)); err != nil {
			t.Fatal(err)
		}
		gate <- true
		time.Sleep(time.Hour)
		synctest.Wait()
		if want := dispatch.RunOf("t1", "m2"); len(launched) != 2 || launched[1].Run != want {
			t.Errorf("launched %+v, want %s", launched, want)
		}
		if err := s.lines(has("m2"), ended(launched[1].Run, thread.StatusCompleted)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(launched) != 2 || len(s.settled) == 0 {
			t.Errorf("launched %+v; settled %v", launched, s.settled)
		}
	})
}

// What the answer of another bot has no part in remains for the run of the driver.
func TestResumeAnswered(t *testing.T) {
	drive(t, func(s *stage) {
		s.host()
		s.say("m1", "ann", "go on, @gus")
		synctest.Wait()
		for _, e := range s.board.list {
			if p, is := payload(e).(thread.Round); is && len(p.Chats) > 0 {
				t.Errorf("the reply delivers %v", p.Chats)
			}
		}
	})
}

// A launch that fails is tried again, with pauses that grow, and the tenth try is the last one. A busy thread is no
// failure.
func TestResumeAgain(t *testing.T) {
	drive(t, func(s *stage) {
		began := time.Now()
		var at []time.Duration
		s.resume = func(_ context.Context, _ *running, r dispatch.Resume) error {
			n := len(at)
			if r.Last != (n > 9) { // one try was busy
				t.Errorf("try %d: last %v", n, r.Last)
			}
			at = append(at, time.Since(began).Round(time.Second))
			switch {
			case n == 1:
				return fmt.Errorf("launch: %w", dispatch.ErrBusy)
			case r.Last:
				return s.lines(runs(r.Run), ended(r.Run, thread.StatusFailed))
			}
			return errors.New("the provider is away")
		}
		s.host()
		s.say("m1", "ann", "go on")
		time.Sleep(time.Hour)
		synctest.Wait()
		want := []time.Duration{0, 2, 12, 16, 24, 40, 72, 132, 192, 252, 312}
		for i := range want {
			want[i] *= time.Second
		}
		if !slices.Equal(at, want) {
			t.Errorf("tries at %v, want %v", at, want)
		}
	})
}

// Nothing is launched for somebody who is no member any more, nor while the thread is closed or its bots are off, nor
// where the bot does not drive it.
func TestResumeNot(t *testing.T) {
	for name, change := range map[string]func(r *dispatch.Room){
		"the author is gone": func(r *dispatch.Room) { r.Humans = nil },
		"closed":             func(r *dispatch.Room) { r.Closed = true },
		"off":                func(r *dispatch.Room) { r.Off = true },
		"another driver":     func(r *dispatch.Room) { r.Driver = alma },
		"the bot is gone":    func(r *dispatch.Room) { r.Bots = r.Bots[1:] },
	} {
		t.Run(name, func(t *testing.T) {
			drive(t, func(s *stage) {
				tried := 0
				s.resume = func(context.Context, *running, dispatch.Resume) error { tried++; return nil }
				change(&s.room)
				for _, l := range forDriver("m1") {
					if err := s.lines(l); err != nil {
						t.Fatal(err)
					}
				}
				s.host()
				time.Sleep(time.Hour)
				synctest.Wait()
				synctest.Wait()
				if tried > 0 {
					t.Errorf("%d launches", tried)
				}
			})
		})
	}
}

// A launch ends with its host.
func TestResumeStops(t *testing.T) {
	drive(t, func(s *stage) {
		stopped := 0
		s.resume = func(ctx context.Context, _ *running, _ dispatch.Resume) error {
			<-ctx.Done()
			stopped++
			return ctx.Err()
		}
		h := s.host()
		s.say("m1", "ann", "go on")
		synctest.Wait()
		if h.stop(); stopped != 1 {
			t.Errorf("%d launches were stopped", stopped)
		}
	})
}

// Two hosts that die and fail again and again: no run begins while another one is open, and none twice. Each chat is
// had by a run, or its own run has ended.
func TestResumeSchedules(t *testing.T) {
	var runsOf, given, continued int
	for seed := range uint64(30) {
		drive(t, func(s *stage) {
			l := &launches{stage: s, rnd: rand.New(rand.NewPCG(seed, 1)), until: time.Now().Add(10 * time.Minute)}
			s.resume = l.launch
			hosts := []*running{s.host(), s.host()}
			for n := range 12 {
				time.Sleep(l.some(90))
				s.say(fmt.Sprint("m", n), "ann", "go on")
				if i := l.n(4); i < 2 {
					hosts[i].stop()
					hosts[i] = s.host()
				}
			}
			time.Sleep(3 * time.Hour)
			synctest.Wait()
			l.judge()
			runsOf, given, continued = runsOf+s.fold().Len(), given+l.given, continued+l.continued
		})
	}
	t.Logf("%d runs, %d chats given up, %d launches continued", runsOf, given, continued)
	if runsOf == 0 || continued == 0 {
		t.Error("the schedules are too tame")
	}
}

// launches play launches on a thread, and the runs in their boxes. They fail at random until a time.
type launches struct {
	*stage
	until            time.Time
	given, continued int // chats whose run has ended without them, and launches that another host had begun

	mu  sync.Mutex
	rnd *rand.Rand
}

func (l *launches) n(most int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rnd.IntN(most)
}

// some returns a time of at most so many seconds.
func (l *launches) some(seconds int) time.Duration {
	return time.Duration(l.n(seconds*1000)) * time.Millisecond
}

// fails reports whether something fails that does so once in so many times.
func (l *launches) fails(times int) bool { return l.n(times) == 0 && time.Now().Before(l.until) }

// launch launches a run as package launch does: its claim and its beginning are one append.
func (l *launches) launch(ctx context.Context, h *running, r dispatch.Resume) error {
	pause.For(ctx, l.some(3))
	fold := l.fold()
	switch run, there := fold.Run(r.Run); {
	case there && (run.Status != thread.StatusRunning || run.Started != nil):
		return nil
	case there:
		l.mu.Lock()
		l.continued++
		l.mu.Unlock()
	case fold.Status() == thread.StatusRunning:
		return dispatch.ErrBusy
	default:
		claim := line{thread.ClaimID(fold.Len()), "", thread.Claim{
			Signal: thread.Signal{Type: thread.TypeClaim, RunID: r.Run, Harness: "pi"},
		}}
		if err := l.lines(claim, runs(r.Run)); errors.Is(err, dispatch.ErrTaken) {
			return dispatch.ErrBusy
		} else if err != nil {
			return err
		}
	}
	pause.For(ctx, l.some(20)) // the box is made
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case l.fails(6):
		return l.lines(status(r.Run, "orphan.0", thread.StatusFailed))
	case l.fails(3) && !r.Last:
		return errors.New("the provider is away")
	}
	go l.run(r.Run, h)
	return nil
}

// run plays a runner, of which a run may have two. It has the chats that are pending while it lasts.
func (l *launches) run(id string, h *running) {
	time.Sleep(l.some(2))
	if l.fails(9) { // the box dies: reconcile ends the run
		time.Sleep(2 * time.Minute)
		l.end(id, thread.StatusFailed)
		return
	}
	start := begun(id)
	p := start.payload.(thread.Started)
	p.Instance = fmt.Sprint(l.n(1 << 30))
	start.payload = p
	if err := l.lines(start); errors.Is(err, dispatch.ErrTaken) {
		return // another runner has the run
	} else if err != nil {
		l.t.Error(err)
	}
	for range l.n(3) {
		time.Sleep(l.some(60))
		for _, chat := range l.pending() {
			if err := l.lines(has(chat)); err != nil {
				l.t.Error(err)
			}
		}
	}
	l.end(id, thread.StatusCompleted)
}

func (l *launches) end(id, how string) {
	if err := l.lines(ended(id, how)); err != nil && !errors.Is(err, dispatch.ErrTaken) {
		l.t.Error(err)
	}
}

// pending returns the chats that no run has had.
func (l *launches) pending() (ids []string) {
	var p thread.Pending
	l.board.mu.Lock()
	defer l.board.mu.Unlock()
	for _, e := range l.board.list {
		p.Add(e)
	}
	for _, c := range p.Chats() {
		ids = append(ids, c.ID)
	}
	return ids
}

// judge finds what is wrong with the thread in the end.
func (l *launches) judge() {
	var fold thread.Fold
	for _, e := range l.board.list {
		before := fold.Status()
		if n := fold.Len(); strings.HasSuffix(e.ID, ".running") && before == thread.StatusRunning {
			l.t.Errorf("run %d begins while another one is open", n)
		}
		fold.Add(e)
	}
	if fold.Status() == thread.StatusRunning {
		l.t.Error("a run is open for ever")
	}
	for _, chat := range l.pending() {
		if run, there := fold.Run(dispatch.RunOf("t1", chat)); !there || run.Status == thread.StatusRunning {
			l.t.Errorf("no run has had %s, and its own one is %q", chat, run.Status)
		}
		l.given++
	}
}

// A run whose house has no place for it waits, however long, and its thread has that once, also from two hosts. It is
// launched once there is a place.
func TestResumeHeld(t *testing.T) {
	drive(t, func(s *stage) {
		var mu sync.Mutex
		free, launched, looks := false, 0, 0
		s.resume = func(_ context.Context, _ *running, r dispatch.Resume) error {
			mu.Lock()
			defer mu.Unlock()
			if r.Last {
				t.Error("to wait is a failure")
			}
			if looks++; !free {
				return fmt.Errorf("launch: %w", &dispatch.Held{Reason: fmt.Sprint("the house runs ", looks)})
			}
			if launched++; launched > 1 {
				return nil // the other host has launched it
			}
			return s.lines(runs(r.Run), begun(r.Run))
		}
		s.host()
		s.host()
		s.say("m1", "ann", "go on")
		time.Sleep(time.Hour)
		synctest.Wait()
		mu.Lock()
		if looks < 3600 || looks > 3700 || launched > 0 {
			t.Errorf("%d looks in an hour, %d launches", looks, launched)
		}
		free = true
		mu.Unlock()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if fold := s.fold(); fold.Status() != thread.StatusRunning || fold.Len() != 1 {
			t.Errorf("%d runs, %s", fold.Len(), fold.Status())
		}
		waits := 0
		for _, e := range s.board.list {
			if w, is := thread.ParseWaits(e.Payload); is {
				waits++
				if e.ID != dispatch.RunOf("t1", "m1")+".waits" || w.Chat != "m1" ||
					w.Reason != "the house runs 1" && w.Reason != "the house runs 2" {
					t.Errorf("entry %s: %+v", e.ID, w)
				}
			}
		}
		if waits != 1 {
			t.Errorf("that it waits is on the thread %d times", waits)
		}
	})
}

// A host that answers what waits now does not wait for the runs of a house.
func TestResumeHeldOnce(t *testing.T) {
	drive(t, func(s *stage) {
		for _, l := range forDriver("m1") {
			if err := s.lines(l); err != nil {
				t.Fatal(err)
			}
		}
		s.resume = func(context.Context, *running, dispatch.Resume) error { return &dispatch.Held{Reason: "so"} }
		h := s.host()
		s.board.mu.Lock()
		s.board.grew = nil
		s.board.mu.Unlock()
		close(h.grew)
		select {
		case <-h.ended:
		case <-time.After(time.Minute):
			t.Fatal("the host waits")
		}
		if last := s.board.list[len(s.board.list)-1]; last.ID != dispatch.RunOf("t1", "m1")+".waits" {
			t.Errorf("the last entry is %+v", last)
		}
	})
}
