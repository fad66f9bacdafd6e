package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/host/model/price"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/thread"
)

// purse is a budget in memory.
type purse struct {
	mu       sync.Mutex
	most     int64 // millionths of a dollar
	reserved int64
	spent    int64
	answers  int
	away     error
}

func (p *purse) reserve(_ context.Context, s dispatch.Spend) (func(context.Context, int64), error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.away != nil:
		return nil, p.away
	case p.reserved+p.spent+s.Micros > p.most:
		return nil, &dispatch.Unpaid{Message: "today's budget of the house is used up"}
	}
	p.reserved += s.Micros
	if s.First {
		p.answers++
	}
	return func(_ context.Context, used int64) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.reserved -= s.Micros
		p.spent += used
	}, nil
}

func (p *purse) setAway(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = err
}

// dear has a model that costs $1 for 1,000 tokens, whatever they are for.
func (s *stage) dear() {
	s.room.Prices = map[string]price.Price{"p/m": {Input: 1e9, Output: 1e9, CacheRead: 1e9, CacheWrite: 1e9}}
	s.caps(rows.Caps{OutputTokens: new(int64(100)), Cost: new(float64(1000))})
}

// caps sets the limits of the bots' answers.
func (s *stage) caps(c rows.Caps) {
	for i := range s.room.Bots {
		s.room.Bots[i].Caps = c
	}
}

// used is a reply with what it has used.
func used(r model.Reply, input, output int64) model.Reply {
	r.Usage = model.Usage{Input: input, Output: output}
	return r
}

// end returns the last end of a reaction on the thread.
func (s *stage) end() (end thread.ReactionFinished) {
	for _, e := range s.list {
		if p, is := payload(e).(thread.ReactionFinished); is {
			end = p
		}
	}
	return end
}

// busy calls a tool as long as it may, and then answers. Each reply has used 1,000 tokens.
func busy(_ context.Context, _ int, r model.Request, _ func(model.Event)) (model.Reply, error) {
	if r.NoCalls {
		return used(text("that is all"), 900, 100), nil
	}
	return used(calls("echo"), 900, 100), nil
}

// Each limit of an answer ends its calls of tools, and the bot answers with what it has.
func TestCaps(t *testing.T) {
	for name, tt := range map[string]struct {
		caps     rows.Caps
		requests int
	}{
		"rounds":             {rows.Caps{Rounds: new(int64(3))}, 4},
		"no rounds":          {rows.Caps{Rounds: new(int64(0))}, 1},
		"calls":              {rows.Caps{Calls: new(int64(2))}, 3},
		"time":               {rows.Caps{WallMs: new(int64(90_000))}, 3}, // a call takes a minute
		"tokens":             {rows.Caps{Tokens: new(int64(2500))}, 4},
		"cost":               {rows.Caps{Cost: new(2.9)}, 3}, // with a third one it might be above
		"the usual rounds":   {rows.Caps{Cost: new(1000.), WallMs: new(int64(3_600_000))}, 26},
		"the usual time":     {rows.Caps{Cost: new(1000.)}, 16},
		"a limit of 0 calls": {rows.Caps{Calls: new(int64(0))}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, busy, func(s *stage) {
				s.dear()
				if tt.caps.Cost == nil {
					tt.caps.Cost = new(1000.)
				}
				tt.caps.OutputTokens = new(int64(100))
				s.caps(tt.caps)
				s.tools = []dispatch.Tool{(&echo{slow: time.Minute}).tool()}
				s.host()
				s.say("m1", "ann", "@piet hello")
				time.Sleep(time.Hour)
				synctest.Wait()
				if got := s.shown(); !strings.HasSuffix(got, "that is all, answered") || s.n != tt.requests {
					t.Errorf("%d requests, want %d: %s", s.n, tt.requests, got)
				}
			})
		})
	}
}

// The limit of a reply's tokens is that of the provider.
func TestOutputCap(t *testing.T) {
	asked := make(chan int, 2)
	play(t, func(_ context.Context, _ int, r model.Request, _ func(model.Event)) (model.Reply, error) {
		asked <- r.MaxTokens
		return text("well"), nil
	}, func(s *stage) {
		s.room.Bots[1].Caps.OutputTokens = new(int64(99))
		s.host()
		s.say("m1", "ann", "@piet @alma hello")
		synctest.Wait()
		if a, b := <-asked, <-asked; min(a, b) != 99 || max(a, b) != 8000 {
			t.Errorf("tokens of replies: %d and %d", a, b)
		}
	})
}

// The limits of the first claim hold for later holders, whatever the house has then.
func TestCapsStay(t *testing.T) {
	play(t, func(ctx context.Context, n int, r model.Request, f func(model.Event)) (model.Reply, error) {
		if n == 2 {
			<-ctx.Done()
			return model.Reply{}, ctx.Err()
		}
		return busy(ctx, n, r, f)
	}, func(s *stage) {
		s.caps(rows.Caps{Rounds: new(int64(3))})
		s.tools = []dispatch.Tool{new(echo).tool()}
		h := s.host()
		s.say("m1", "ann", "@piet hello")
		synctest.Wait()
		s.caps(rows.Caps{Rounds: new(int64(20))})
		h.stop()
		s.host()
		synctest.Wait()
		s.want("1 react mention, claim 0, call, result echoed, call, result echoed, claim 1, call, result echoed, " +
			"that is all, answered")
	})
}

// A provider that calls tools although it must not gets no more of them run: an answer ends.
func TestLastReply(t *testing.T) {
	play(t, func(context.Context, int, model.Request, func(model.Event)) (model.Reply, error) {
		r := calls("echo")
		r.Parts = append(r.Parts, model.Part{Text: "I look"})
		return r, nil
	}, func(s *stage) {
		s.caps(rows.Caps{Rounds: new(int64(1))})
		s.tools = []dispatch.Tool{new(echo).tool()}
		s.host()
		s.say("m1", "ann", "@piet hello")
		synctest.Wait()
		s.want("1 react mention, claim 0, call, result echoed, I look, answered")
	})
}

// Each reply has its tokens and its cost, and the end their sum, with what failed requests have used.
func TestUsage(t *testing.T) {
	play(t, func(ctx context.Context, n int, r model.Request, f func(model.Event)) (model.Reply, error) {
		switch n {
		case 0:
			return used(calls("echo"), 900, 100), nil
		case 1: // cut off: the rest is an estimate
			f(model.Event{Text: strings.Repeat("abc", 50)})
			return used(model.Reply{}, 1000, 1), &model.Error{Kind: model.Garbage}
		case 2:
			return model.Reply{}, &model.Error{Kind: model.Again, Status: 529}
		}
		return used(text("well"), 1000, 20), nil
	}, func(s *stage) {
		s.dear()
		s.tools = []dispatch.Tool{new(echo).tool()}
		s.host()
		s.say("m1", "ann", "@piet hello")
		time.Sleep(time.Minute)
		synctest.Wait()
		var got []string
		for _, e := range s.list {
			if p, is := payload(e).(thread.Round); is {
				got = append(got, fmt.Sprintf("%s $%v", p.Usage, *p.Cost))
			}
		}
		end := s.end()
		got = append(got, fmt.Sprintf("%s $%v", end.Usage, *end.Cost))
		const want = `{"input":900,"output":100,"cacheRead":0,"cacheWrite":0,"totalTokens":1000} $1` + "\n" +
			`{"input":2000,"output":70,"cacheRead":0,"cacheWrite":0,"totalTokens":2070} $2.07` + "\n" +
			`{"input":2900,"output":170,"cacheRead":0,"cacheWrite":0,"totalTokens":3070} $3.07`
		if got := strings.Join(got, "\n"); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

// Of a model whose price is not known the tokens are on the thread, and no cost; nothing is reserved.
func TestNoPrice(t *testing.T) {
	play(t, busy, func(s *stage) {
		s.purse = &purse{}
		s.caps(rows.Caps{Tokens: new(int64(1500))})
		s.tools = []dispatch.Tool{new(echo).tool()}
		s.host()
		s.say("m1", "ann", "@piet hello")
		synctest.Wait()
		s.want("1 react mention, claim 0, call, result echoed, call, result echoed, that is all, answered")
		if end := s.end(); end.Cost != nil || !strings.Contains(string(end.Usage), `"totalTokens":3000`) {
			t.Errorf("%s, %v", end.Usage, end.Cost)
		}
	})
}

// What a day's budget does not have is not asked of a model, and the thread has why. What was not used is given back.
func TestBudget(t *testing.T) {
	play(t, func(context.Context, int, model.Request, func(model.Event)) (model.Reply, error) {
		return used(text("well"), 400, 100), nil
	}, func(s *stage) {
		s.dear()
		s.purse = &purse{most: 1_400_000}
		s.host()
		for i := range 4 {
			s.say(fmt.Sprint("m", i), "ann", "@piet hello")
			synctest.Wait()
		}
		got, end := s.shown(), s.end()
		if n := strings.Count(got, "answered"); n < 2 || n != s.n || s.purse.answers != n ||
			s.purse.spent != int64(n)*500_000 || s.purse.reserved != 0 {
			t.Errorf("%d requests, %+v: %s", s.n, s.purse, got)
		}
		const want = "today's budget of the house is used up"
		if end.Outcome != thread.ReactionRefused || end.ErrorClass != "budget" || end.Message != want {
			t.Errorf("%+v", end)
		}
	})
}

// A limit of cost that allows nothing refuses the answer.
func TestNoCost(t *testing.T) {
	play(t, busy, func(s *stage) {
		s.dear()
		s.caps(rows.Caps{Cost: new(0.)})
		s.host()
		s.say("m1", "ann", "@piet hello")
		synctest.Wait()
		s.want("1 react mention, claim 0, refused budget")
		if got := s.end().Message; got != "the limit of an answer, $0.00, is used up" || s.n > 0 {
			t.Errorf("%d requests: %s", s.n, got)
		}
	})
}

// What stays reserved: all that the provider may have counted, and not reported.
func TestUnsettled(t *testing.T) {
	for name, tt := range map[string]struct {
		reply model.Reply
		err   error
		keeps bool
	}{
		"refused":                  {model.Reply{}, &model.Error{Kind: model.Denied, Status: 401}, false},
		"overloaded":               {model.Reply{}, &model.Error{Kind: model.Garbage, Status: 529}, false},
		"no connection":            {model.Reply{}, &model.Error{Kind: model.Garbage, Unsent: true}, false},
		"cut off":                  {used(model.Reply{}, 100, 1), &model.Error{Kind: model.Garbage}, true},
		"silent":                   {model.Reply{}, &model.Error{Kind: model.Garbage}, true},
		"a reply without a report": {text("well"), nil, true},
		"a reply":                  {used(text("well"), 100, 10), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(_ context.Context, n int, _ model.Request, _ func(model.Event)) (model.Reply, error) {
				if n > 0 {
					return model.Reply{}, &model.Error{Kind: model.Denied, Status: 401}
				}
				return tt.reply, tt.err
			}, func(s *stage) {
				s.dear()
				s.purse = &purse{most: 100_000_000}
				s.host()
				s.say("m1", "ann", "@piet hello")
				synctest.Wait()
				if s.purse.reserved > 0 != tt.keeps || s.n == 0 {
					t.Errorf("%+v after %s", s.purse, s.shown())
				}
			})
		})
	}
}

// A request that is stopped stays reserved: its provider may count it.
func TestStopStaysReserved(t *testing.T) {
	play(t, func(ctx context.Context, _ int, _ model.Request, _ func(model.Event)) (model.Reply, error) {
		<-ctx.Done()
		return model.Reply{}, ctx.Err()
	}, func(s *stage) {
		s.dear()
		s.purse = &purse{most: 100_000_000}
		s.host()
		s.say("m1", "ann", "@piet hello")
		synctest.Wait()
		s.post(entry("stop", "ann", thread.ReactionCancel{
			Type: thread.TypeReactionCancel, Reaction: thread.ReactionID("t1", piet, 0),
		}))
		synctest.Wait()
		end := s.end()
		if s.purse.reserved == 0 || end.Outcome != thread.ReactionCancelled || end.Cost == nil || *end.Cost == 0 {
			t.Errorf("%+v, %+v", s.purse, end)
		}
	})
}

// While nobody can reserve, nothing is asked, and the answer waits: also one whose gate is to be paid.
func TestPurseAway(t *testing.T) {
	for mode, requests := range map[string]int{rows.ModeMention: 1, rows.ModeAmbient: 2} {
		play(t, func(_ context.Context, _ int, r model.Request, _ func(model.Event)) (model.Reply, error) {
			if r.Must != "" {
				reply := calls(r.Must)
				reply.Parts[0].Call.Arguments = []byte(`{"respond":true,"why":""}`)
				return used(reply, 200, 20), nil
			}
			return used(text("well"), 100, 10), nil
		}, func(s *stage) {
			s.dear()
			s.room.Bots[0].Mode = mode
			s.purse = &purse{most: 100_000_000, away: errors.New("the database is away")}
			s.host()
			say := "hello"
			if mode == rows.ModeMention {
				say = "@piet hello"
			}
			s.say("m1", "ann", say)
			time.Sleep(time.Minute)
			for _, end := range []string{"refused", "failed", "declined"} {
				if got := s.shown(); s.n > 0 || strings.Contains(got, end) {
					t.Fatalf("%s: %d requests: %s", mode, s.n, got)
				}
			}
			s.purse.setAway(nil)
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := s.shown(); s.n != requests || !strings.HasSuffix(got, "well, answered") {
				t.Errorf("%s: %d requests: %s", mode, s.n, got)
			}
		})
	}
}

// A gate is paid for, too; one that nobody pays for shows nothing, since nobody has asked the bot.
func TestGatePays(t *testing.T) {
	for most, want := range map[int64]string{100_000_000: "hello, answered", 0: "declined"} {
		play(t, func(_ context.Context, _ int, r model.Request, _ func(model.Event)) (model.Reply, error) {
			if r.Must == "" {
				return used(text("hello"), 100, 10), nil
			}
			reply := calls(r.Must)
			reply.Parts[0].Call.Arguments = []byte(`{"respond":true,"why":""}`)
			return used(reply, 200, 20), nil
		}, func(s *stage) {
			s.room.Bots[0].Mode = rows.ModeAmbient
			s.dear()
			s.purse = &purse{most: most}
			s.host()
			s.say("m1", "ann", "hello")
			time.Sleep(10 * time.Second)
			synctest.Wait()
			s.want("1 react ambient, claim 0, " + want)
			if most == 0 && s.purse.answers > 0 {
				t.Errorf("%d answers", s.purse.answers)
			}
			if most > 0 && (s.purse.spent != 330_000 || s.purse.answers != 1 || *s.end().Cost != .33) {
				t.Errorf("%+v, $%v", s.purse, *s.end().Cost)
			}
		})
	}
}
