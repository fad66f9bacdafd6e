package dispatch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/thread"
)

// A mention is answered, and the reply is a trigger.
func TestAnswer(t *testing.T) {
	play(t, func(context.Context, int, model.Request, func(model.Event)) (model.Reply, error) {
		return text("hello ann"), nil
	}, func(s *stage) {
		s.host()
		s.say("m1", "ann", "@piet hello")
		synctest.Wait()
		s.want("1 react mention, claim 0, hello ann, answered")
		if s.n != 1 {
			t.Errorf("%d requests", s.n)
		}
	})
}

// A round with calls is on the thread before they run, and their results are before the next round.
func TestCalls(t *testing.T) {
	play(t, func(_ context.Context, n int, r model.Request, _ func(model.Event)) (model.Reply, error) {
		if n == 0 {
			r := calls("echo", "sing", "echo")
			r.Parts[2].Call.Arguments, r.Parts[2].Call.Broken = nil, `{"text`
			return r, nil
		}
		last := r.Messages[len(r.Messages)-1].Parts[0].Result
		_, output, _ := strings.Cut(last.Text, "\n")
		return text("the last result is: " + strings.TrimSuffix(output, "\n</tool_output>")), nil
	}, func(s *stage) {
		tool := &echo{}
		s.tools = []dispatch.Tool{tool.tool()}
		s.host()
		s.say("m1", "ann", "@piet hello")
		synctest.Wait()
		const broken = "the arguments are no JSON object, or were cut: call it again"
		s.want("1 react mention, claim 0, call, result echoed, result there is no tool sing, result " + broken +
			", the last result is: " + broken + ", answered")
		if want := thread.CallKey(thread.ReactionID("t1", piet, 0), 0, 0); !slices.Equal(tool.keys, []string{want}) {
			t.Errorf("effects %v, want %s", tool.keys, want)
		}
	})
}

// Of three hosts one answers.
func TestHosts(t *testing.T) {
	play(t, func(context.Context, int, model.Request, func(model.Event)) (model.Reply, error) {
		return text("hello"), nil
	}, func(s *stage) {
		for range 3 {
			s.host()
		}
		for i := range 5 {
			s.say(fmt.Sprint("m", i), "ann", "@piet hello")
			synctest.Wait()
		}
		if got := strings.Count(s.shown(), "answered"); got != 5 || s.n != 5 {
			t.Errorf("%d answers by %d requests: %s", got, s.n, s.shown())
		}
	})
}

// What was posted while nobody dispatched is answered together.
func TestCatchUp(t *testing.T) {
	play(t, func(context.Context, int, model.Request, func(model.Event)) (model.Reply, error) {
		return text("hello"), nil
	}, func(s *stage) {
		for i := range 5 {
			s.say(fmt.Sprint("m", i), "ann", "@piet hello")
		}
		s.host()
		synctest.Wait()
		if got := strings.Count(s.shown(), "answered"); got != 1 || s.n != 1 {
			t.Errorf("%d answers by %d requests: %s", got, s.n, s.shown())
		}
	})
}

// A host that stops releases its reaction, and another continues it at once.
func TestRelease(t *testing.T) {
	play(t, func(ctx context.Context, n int, _ model.Request, _ func(model.Event)) (model.Reply, error) {
		if n == 0 {
			<-ctx.Done()
			return model.Reply{}, ctx.Err()
		}
		return text("hello"), nil
	}, func(s *stage) {
		h := s.host()
		s.say("m1", "ann", "@piet hello")
		synctest.Wait()
		began := time.Now()
		h.stop()
		s.host()
		synctest.Wait()
		s.want("1 react mention, claim 0, claim 1, hello, answered")
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// A host that dies is followed by another one once its lease is over, and not before: a living one is left alone.
func TestTakeover(t *testing.T) {
	play(t, func(ctx context.Context, n int, _ model.Request, _ func(model.Event)) (model.Reply, error) {
		if n == 0 {
			<-ctx.Done()
			return model.Reply{}, ctx.Err()
		}
		return text("hello"), nil
	}, func(s *stage) {
		first := s.host()
		s.say("m1", "ann", "@piet hello")
		synctest.Wait()
		s.host()
		time.Sleep(10 * time.Minute)
		s.want("1 react mention, claim 0")
		first.dead.Store(true)
		time.Sleep(21 * time.Second)
		s.want("1 react mention, claim 0, claim 1, hello, answered")
	})
}

// A host that was frozen, and whose reaction another one has ended, ends its request to the model when it is back.
func TestZombie(t *testing.T) {
	ended := make(chan bool, 1)
	play(t, func(ctx context.Context, n int, _ model.Request, _ func(model.Event)) (model.Reply, error) {
		if n == 0 {
			<-ctx.Done()
			ended <- true
			return model.Reply{}, ctx.Err()
		}
		return text("hello"), nil
	}, func(s *stage) {
		first := s.host()
		s.say("m1", "ann", "@piet hello")
		synctest.Wait()
		s.host()
		first.dead.Store(true)
		time.Sleep(time.Minute)
		s.want("1 react mention, claim 0, claim 1, hello, answered")
		first.dead.Store(false)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if len(ended) == 0 {
			t.Error("the request of a reaction that has ended is paid for")
		}
	})
}

// A member's stop ends the request to the model, and the running tool.
func TestStop(t *testing.T) {
	for _, at := range []string{"model", "tool"} {
		t.Run(at, func(t *testing.T) {
			play(t, func(ctx context.Context, n int, _ model.Request, _ func(model.Event)) (model.Reply, error) {
				if at == "tool" {
					return calls("echo"), nil
				}
				<-ctx.Done()
				return model.Reply{}, ctx.Err()
			}, func(s *stage) {
				s.tools = []dispatch.Tool{(&echo{slow: time.Hour}).tool()}
				s.host()
				s.say("m1", "ann", "@piet hello")
				synctest.Wait()
				began := time.Now()
				s.post(entry("stop", "ann", thread.ReactionCancel{
					Type: thread.TypeReactionCancel, Reaction: thread.ReactionID("t1", piet, 0),
				}))
				synctest.Wait()
				if got := s.shown(); !strings.HasSuffix(got, "cancelled") || time.Since(began) > 0 {
					t.Errorf("after %v: %s", time.Since(began), got)
				}
			})
		})
	}
}

// The text of a reply is on the thread as it comes.
func TestDeltas(t *testing.T) {
	play(t, func(_ context.Context, _ int, _ model.Request, f func(model.Event)) (model.Reply, error) {
		for range 10 {
			time.Sleep(100 * time.Millisecond)
			f(model.Event{Text: "é "})
		}
		f(model.Event{Tool: "echo"})
		time.Sleep(time.Second)
		return text(strings.Repeat("é ", 10)), nil
	}, func(s *stage) {
		s.host()
		s.say("m1", "ann", "@piet hello")
		time.Sleep(time.Minute)
		synctest.Wait()
		var whole string
		var tools []string
		for _, e := range s.list {
			if !strings.Contains(e.ID, ".d.") {
				continue
			}
			p := parse[thread.Delta](e)
			if p.From != len([]rune(whole)) {
				t.Errorf("a delta from %d behind %d characters", p.From, len([]rune(whole)))
			}
			whole += p.Text
			tools = append(tools, p.Tools...)
		}
		if whole != strings.Repeat("é ", 10) || !slices.Equal(tools, []string{"echo"}) {
			t.Errorf("got %q, %v", whole, tools)
		}
	})
}

// What a provider does wrong, and how the reaction ends.
func TestProvider(t *testing.T) {
	fails := func(kind model.Kind, times int) scripted {
		return func(_ context.Context, n int, _ model.Request, _ func(model.Event)) (model.Reply, error) {
			if n < times {
				return model.Reply{}, &model.Error{Kind: kind, Message: "no"}
			}
			return text("well"), nil
		}
	}
	for name, tt := range map[string]struct {
		answer   scripted
		within   time.Duration
		requests int
		want     string
	}{
		"overloaded once":       {fails(model.Again, 1), time.Second, 2, "well, answered"},
		"overloaded four times": {fails(model.Again, 4), 15 * time.Second, 5, "well, answered"},
		"overloaded for ever":   {fails(model.Again, 1e6), 10 * time.Minute, 15, "failed provider_unreachable"},
		"it says when": {func(_ context.Context, n int, _ model.Request, _ func(model.Event)) (model.Reply, error) {
			if n == 0 {
				return model.Reply{}, &model.Error{Kind: model.Again, RetryAfter: time.Minute}
			}
			return text("well"), nil
		}, time.Minute, 2, "well, answered"},
		"denied":         {fails(model.Denied, 1), 0, 1, "failed denied"},
		"invalid":        {fails(model.Invalid, 1), 0, 1, "failed provider_error"},
		"too long once":  {fails(model.TooLong, 1), 0, 2, "well, answered"},
		"too long twice": {fails(model.TooLong, 2), 0, 2, "failed context"},
		"garbage twice":  {fails(model.Garbage, 2), 0, 3, "well, answered"},
		"garbage thrice": {fails(model.Garbage, 3), 0, 3, "failed provider_error"},
		"an empty reply": {func(context.Context, int, model.Request, func(model.Event)) (model.Reply, error) {
			return model.Reply{Stop: model.StopEnd}, nil
		}, 0, 2, "(no answer), answered"},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, tt.answer, func(s *stage) {
				s.host()
				s.say("m1", "ann", "@piet hello")
				synctest.Wait()
				time.Sleep(tt.within)
				synctest.Wait()
				s.want("1 react mention, claim 0, " + tt.want)
				if s.n != tt.requests {
					t.Errorf("%d requests, want %d", s.n, tt.requests)
				}
			})
		})
	}
}

// A gate decides whether an ambient bot answers, after a while, and one request is for all chats of that time.
func TestGate(t *testing.T) {
	for answer, want := range map[string]string{
		`{"respond":true,"why":""}`: "hello, answered", `{"respond":false,"why":""}`: "declined", `{}`: "declined",
		``: "declined",
	} {
		t.Run(answer, func(t *testing.T) {
			play(t, func(_ context.Context, _ int, r model.Request, _ func(model.Event)) (model.Reply, error) {
				if r.Must == "" {
					return text("hello"), nil
				}
				reply := calls(r.Must)
				reply.Parts[0].Call.Arguments = json.RawMessage(answer)
				return reply, nil
			}, func(s *stage) {
				s.room.Bots[0].Mode = rows.ModeAmbient
				s.host()
				s.say("m1", "ann", "hello")
				time.Sleep(3 * time.Second)
				s.say("m2", "ann", "anybody there?")
				time.Sleep(3 * time.Second)
				s.want("1 react ambient, 1 react ambient")
				time.Sleep(3 * time.Second)
				s.want("1 react ambient, 1 react ambient, claim 0, " + want)
			})
		})
	}
}

// Bots that answer each other come to an end alone.
func TestChain(t *testing.T) {
	play(t, func(_ context.Context, n int, _ model.Request, _ func(model.Event)) (model.Reply, error) {
		return text(fmt.Sprint("and you? @piet @alma @gus ", n)), nil
	}, func(s *stage) {
		for i := range 3 {
			s.room.Bots[i].Mode = rows.ModeAlways
		}
		s.host()
		s.host()
		s.say("m1", "ann", "go")
		time.Sleep(time.Hour)
		got := s.shown()
		if n := strings.Count(got, "answered"); n > 20+3 || n < 8 {
			t.Errorf("%d answers", n)
		}
		if !strings.Contains(got, "skip cap") && !strings.Contains(got, "skip depth") {
			t.Errorf("no refusal is on the thread: %s", got)
		}
	})
}

// A bot that is gone, and a thread that is closed, end a reaction before its next request.
func TestGone(t *testing.T) {
	for name, change := range map[string]func(*dispatch.Room){
		"bot":    func(r *dispatch.Room) { r.Bots = r.Bots[1:] },
		"thread": func(r *dispatch.Room) { r.Closed = true },
	} {
		t.Run(name, func(t *testing.T) {
			var s *stage
			play(t, func(context.Context, int, model.Request, func(model.Event)) (model.Reply, error) {
				s.board.mu.Lock()
				change(&s.room)
				s.board.mu.Unlock()
				return calls("echo"), nil
			}, func(now *stage) {
				s = now
				s.host()
				s.say("m1", "ann", "@piet hello")
				synctest.Wait()
				s.want("1 react mention, claim 0, call, cancelled")
			})
		})
	}
}

// Where the thread server is away for a while, all continues when it is back.
func TestServerAway(t *testing.T) {
	play(t, func(context.Context, int, model.Request, func(model.Event)) (model.Reply, error) {
		time.Sleep(time.Second)
		return text("hello"), nil
	}, func(s *stage) {
		s.host()
		s.say("m1", "ann", "@piet hello")
		synctest.Wait()
		s.setAway(true)
		time.Sleep(time.Minute)
		s.setAway(false)
		time.Sleep(time.Minute)
		if got := s.shown(); !strings.HasSuffix(got, "hello, answered") {
			t.Error(got)
		}
	})
}
