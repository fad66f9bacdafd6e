package dispatch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/thread"
)

// While the rows can't be read nothing is decided or claimed, and an open reaction ends its round. A call that needs
// them is given up after two minutes. Then all continues.
func TestRowsAway(t *testing.T) {
	const given = ", result " + givenUp
	var s *stage
	play(t, func(_ context.Context, n int, _ model.Request, _ func(model.Event)) (model.Reply, error) {
		if n == 0 {
			s.setRows(errors.New("the database is away"))
			return calls("echo"), nil
		}
		return text("well"), nil
	}, func(now *stage) {
		s = now
		tool := new(echo)
		s.tools = []dispatch.Tool{tool.tool()}
		s.host()
		s.say("m1", "ann", "@piet hello")
		synctest.Wait()
		s.say("m2", "ann", "@piet more")
		time.Sleep(2*time.Minute - time.Second)
		s.want("1 react mention, claim 0, call")
		time.Sleep(time.Hour)
		s.want("1 react mention, claim 0, call" + given)
		s.setRows(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		s.want("1 react mention, claim 0, call" + given + ", 1 react mention, claim 1, well, answered, claim 0, " +
			"well, answered")
		if len(tool.keys) > 0 {
			t.Errorf("calls that were given up have run: %v", tool.keys)
		}
	})
}

func (s *stage) setRows(err error) {
	s.board.mu.Lock()
	defer s.board.mu.Unlock()
	s.rows = err
}

// A thread that is deleted in the middle of a reaction ends the request to its model, and has no end.
func TestDeleted(t *testing.T) {
	ended := make(chan bool, 1)
	play(t, func(ctx context.Context, _ int, _ model.Request, _ func(model.Event)) (model.Reply, error) {
		<-ctx.Done()
		ended <- true
		return model.Reply{}, ctx.Err()
	}, func(s *stage) {
		s.host()
		s.say("m1", "ann", "@piet hello")
		synctest.Wait()
		s.failing(func([]thread.Entry) error { return dispatch.ErrGone })
		time.Sleep(time.Minute)
		synctest.Wait()
		s.want("1 react mention, claim 0")
		if len(ended) == 0 {
			t.Error("the request for a thread that is deleted is paid for")
		}
	})
}

// A round that the thread refuses ends its reaction: another host would pay for the same.
func TestRefused(t *testing.T) {
	play(t, func(context.Context, int, model.Request, func(model.Event)) (model.Reply, error) {
		return text("hello"), nil
	}, func(s *stage) {
		s.failing(func(entries []thread.Entry) error {
			for _, e := range entries {
				if _, is := payload(e).(thread.Round); is {
					return fmt.Errorf("%w: too large", dispatch.ErrRefused)
				}
			}
			return nil
		})
		s.host()
		s.say("m1", "ann", "@piet hello")
		time.Sleep(time.Hour)
		s.want("1 react mention, claim 0, failed refused")
		if s.n != 1 {
			t.Errorf("%d requests", s.n)
		}
	})
}

// Where rounds can't be appended any more, the holder lets go without an end, and another host continues.
func TestLetGo(t *testing.T) {
	play(t, func(context.Context, int, model.Request, func(model.Event)) (model.Reply, error) {
		return text("hello"), nil
	}, func(s *stage) {
		first := s.host()
		s.say("m0", "ann", "@piet hello")
		synctest.Wait()
		first.lost.Store(true)
		s.say("m1", "ann", "@piet hello")
		time.Sleep(10 * time.Second)
		if got := s.shown(); !strings.HasSuffix(got, "hello, answered") {
			t.Fatal(got)
		}
		s.host()
		time.Sleep(time.Minute)
		if got := s.shown(); strings.Count(got, "answered") != 2 || strings.Contains(got, "failed") {
			t.Error(got)
		}
	})
}

// A thread without a row is left alone, and is looked at once in a while as it grows.
func TestNoRow(t *testing.T) {
	play(t, nil, func(s *stage) {
		s.none = true
		s.failing(func(entries []thread.Entry) error {
			if entries == nil {
				t.Error("a thread without a row is read")
			}
			return nil
		})
		s.host()
		for i := range 100 {
			s.say(fmt.Sprint("m", i), "ann", "@piet hello")
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		s.want("")
		if s.looks < 2 || s.looks > 5 {
			t.Errorf("the rows of a thread without one were read %d times", s.looks)
		}
	})
}

// That nothing is open on a thread is noted once it is so, and again when the thread is quiet.
func TestSettled(t *testing.T) {
	play(t, func(context.Context, int, model.Request, func(model.Event)) (model.Reply, error) {
		return text("hello"), nil
	}, func(s *stage) {
		s.host()
		synctest.Wait()
		s.say("m1", "ann", "@piet hello")
		for i := range 5 {
			time.Sleep(time.Second)
			synctest.Wait()
			s.say(fmt.Sprint("n", i), "ann", "well")
		}
		synctest.Wait()
		s.board.mu.Lock()
		defer s.board.mu.Unlock()
		if got := fmt.Sprint(s.settled); got != "[0]" {
			t.Errorf("noted at %s", got)
		}
		s.board.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		s.board.mu.Lock()
		if got, want := fmt.Sprint(s.settled), fmt.Sprintf("[0 %d]", len(s.list)); got != want {
			t.Errorf("noted at %s, want %s", got, want)
		}
	})
}

// Hosts have a bound of workers: many threads that have grown at once are all worked on.
func TestManyThreads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const threads = 2000
		boards := map[string]*board{}
		for i := range threads {
			b := &board{t: t}
			boards[fmt.Sprint("t", i)] = b
			b.say("m1", "ann", "@piet hello")
		}
		most, api := 0, &api{}
		api.answer = func(context.Context, int, model.Request, func(model.Event)) (model.Reply, error) {
			return text("hello"), nil
		}
		r := room()
		for i := range r.Bots {
			r.Bots[i].Provider, r.Bots[i].Model, r.Bots[i].Joined = "p", "m", time.Unix(0, 0)
		}
		h := &dispatch.Host{
			Instance: "i", Reactions: 4, Log: discard(),
			Threads: func(id string) dispatch.Thread { return boards[id] },
			Room: func(context.Context, string) (dispatch.Room, time.Time, bool, error) {
				return r, time.Time{}, true, nil
			},
			Model: func(context.Context, string, string) (model.Model, error) { return api, nil },
		}
		grew := make(chan string)
		go func() {
			for id := range boards {
				grew <- id
				most = max(most, dispatch.Workers(h))
			}
			close(grew)
		}()
		h.Run(t.Context(), grew)
		for id, b := range boards {
			if got := b.shown(); !strings.HasSuffix(got, "answered") {
				t.Fatalf("%s: %s", id, got)
			}
		}
		if most > 300 || api.n != threads {
			t.Errorf("%d workers at once, %d requests", most, api.n)
		}
	})
}

// That the rows of no thread can be read is logged once, and so is that they can be again. What one thread alone has is
// logged for that thread.
func TestRowsAwayLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var mu sync.Mutex
		var failure error
		r := room()
		h := &dispatch.Host{
			Instance: "i", Reactions: 4, Log: slog.New(slog.NewTextHandler(&log, nil)),
			Threads: func(string) dispatch.Thread { return &board{t: t} },
			Room: func(context.Context, string) (dispatch.Room, time.Time, bool, error) {
				mu.Lock()
				defer mu.Unlock()
				return r, time.Time{}, true, failure
			},
		}
		set := func(err error) {
			mu.Lock()
			defer mu.Unlock()
			failure = err
		}
		ctx, stop := context.WithCancel(t.Context())
		grew, ended := make(chan string), make(chan bool)
		go func() {
			h.Run(ctx, grew)
			close(ended)
		}()
		for _, err := range []error{fmt.Errorf("read: %w", rows.ErrAway), nil, errors.New("broken")} {
			set(err)
			for i := range 20 {
				grew <- fmt.Sprint("t", i)
			}
			time.Sleep(time.Minute)
		}
		stop()
		<-ended
		for line, want := range map[string]int{
			"rows not read: threads wait": 1, "rows read again": 1, "a thread can't be worked on": 20,
		} {
			if got := strings.Count(log.String(), line); got != want {
				t.Errorf("%q is logged %d times, want %d", line, got, want)
			}
		}
	})
}

// Of two hosts that claim a reaction at the same moment, the second one does not note that nothing is open: a host that
// starts when both have died would not look at the thread.
func TestSecondClaim(t *testing.T) {
	play(t, func(ctx context.Context, _ int, _ model.Request, _ func(model.Event)) (model.Reply, error) {
		<-ctx.Done()
		return model.Reply{}, ctx.Err()
	}, func(s *stage) {
		first := s.host()
		s.say("m1", "ann", "@piet hello")
		synctest.Wait()
		second, third := s.host(), s.host()
		synctest.Wait()
		s.settled = nil
		second.slow.Store(true) // both read before the one or the other claims
		third.slow.Store(true)
		first.dead.Store(true)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		s.want("1 react mention, claim 0, claim 1")
		if len(s.settled) > 0 {
			t.Errorf("noted at %v, while a reaction is open", s.settled)
		}
	})
}

// Where the thread does not have yet what was appended, the host looks again later, and continues then.
func TestLagging(t *testing.T) {
	play(t, func(context.Context, int, model.Request, func(model.Event)) (model.Reply, error) {
		return text("well"), nil
	}, func(s *stage) {
		s.host()
		appends := 0
		s.failing(func(entries []thread.Entry) error {
			if len(entries) > 0 {
				appends++
			}
			return nil
		})
		s.lag(true)
		s.say("m1", "ann", "@piet hello")
		time.Sleep(time.Minute)
		synctest.Wait()
		if appends > 60 {
			t.Errorf("%d appends in a minute", appends)
		}
		s.lag(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		s.want("1 react mention, claim 0, well, answered")
	})
}

func (b *board) lag(lags bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lags = lags
}
