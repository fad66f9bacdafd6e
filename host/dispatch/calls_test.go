package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/thread"
)

// givenUp is the result of a call that is given up, and what one that acts has behind it.
const (
	givenUp = "This could not be done for two minutes, since the host does not reach what it needs: try later."
	perhaps = " It may have had its effect, or a part of it: look before you call it again."
)

// away is a tool that can't be run until some time has passed. What it has begun by then has its effect.
type away struct {
	echo
	until   time.Time
	tries   []string // keys
	stopped []string
}

func (a *away) tool() dispatch.Tool {
	t := a.echo.tool()
	t.Acts = true
	t.Run = func(ctx context.Context, c dispatch.ToolCall) (dispatch.ToolResult, error) {
		a.tries = append(a.tries, c.Key)
		result, err := a.run(ctx, c)
		if time.Now().Before(a.until) {
			return dispatch.ToolResult{}, errors.New("the answer of the database is lost")
		}
		return result, err
	}
	t.Stop = func(_ context.Context, c dispatch.ToolCall) error {
		a.stopped = append(a.stopped, c.Key)
		return nil
	}
	return t
}

// twice calls the tool twice in its first round.
func twice(_ context.Context, n int, _ model.Request, _ func(model.Event)) (model.Reply, error) {
	if n == 0 {
		return calls("echo", "echo"), nil
	}
	return text("well"), nil
}

// A call that can't be run is run again with its key, so it has one effect. Calls that can't be run for two minutes in
// all are given up, ended, and never run again; the answer continues.
func TestCallsAway(t *testing.T) {
	reaction := thread.ReactionID("t1", piet, 0)
	both := []string{thread.CallKey(reaction, 0, 0), thread.CallKey(reaction, 0, 1)}
	given := []string{givenUp + perhaps, givenUp + perhaps}
	for name, tt := range map[string]struct {
		away    time.Duration
		results []string
		effects []string
		stopped []string
	}{
		"for a moment":    {time.Second, []string{"echoed", "echoed"}, both, nil},
		"for long":        {115 * time.Second, []string{"echoed", "echoed"}, both, nil},
		"for too long":    {121 * time.Second, given, both, both},
		"for much longer": {time.Hour, given, both, both},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, twice, func(s *stage) {
				tool := &away{until: time.Now().Add(tt.away)}
				s.tools = []dispatch.Tool{tool.tool()}
				s.host()
				s.say("m1", "ann", "@piet hello")
				time.Sleep(121 * time.Second)
				synctest.Wait()
				s.want("1 react mention, claim 0, call, result " + strings.Join(tt.results, ", result ") +
					", well, answered")
				tries := len(tool.tries)
				s.host()
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				if !slices.Equal(tool.keys, tt.effects) || !slices.Equal(tool.stopped, tt.stopped) ||
					len(tool.tries) != tries {
					t.Errorf("%d tries, effects %v, want %v; stopped %v, want %v", len(tool.tries), tool.keys,
						tt.effects, tool.stopped, tt.stopped)
				}
			})
		})
	}
}

// A host whose version the rows refuse from some moment on gives up no call: it leaves its answer to hosts of another
// version at once, or until there is one.
func TestCallsOfOlderHost(t *testing.T) {
	for name, slow := range map[string]time.Duration{"before the call": 0, "while it runs": time.Minute} {
		t.Run(name, func(t *testing.T) {
			var first *running
			play(t, func(_ context.Context, n int, _ model.Request, _ func(model.Event)) (model.Reply, error) {
				if n > 0 {
					return text("well"), nil
				}
				if slow == 0 {
					first.older.Store(true)
				}
				return calls("echo"), nil
			}, func(s *stage) {
				tool := &echo{slow: slow}
				s.tools = []dispatch.Tool{tool.tool()}
				first = s.host()
				s.say("m1", "ann", "@piet hello")
				time.Sleep(10 * time.Second)
				first.older.Store(true)
				time.Sleep(time.Hour)
				if got := s.shown(); strings.Contains(got, "answered") || strings.Contains(got, givenUp) {
					t.Errorf("without another host: %s", got)
				}
				s.host()
				time.Sleep(slow + time.Second)
				synctest.Wait()
				want := "1 react mention, claim 0, call, claim 1, result echoed, well, answered"
				if slow > 0 {
					want = "1 react mention, claim 0, call, result echoed, claim 1, well, answered"
				}
				s.want(want)
				if len(tool.keys) != 1 {
					t.Errorf("the effects are %v", tool.keys)
				}
			})
		})
	}
}

// A member stops an answer whose call can't be run, or runs: it ends although the rows are away.
func TestCallAwayStopped(t *testing.T) {
	for name, tool := range map[string]*away{
		"it can't be run": {until: time.Unix(1<<40, 0)}, "it runs": {echo: echo{slow: time.Hour}},
	} {
		for _, ahead := range []time.Duration{0, time.Minute} {
			t.Run(fmt.Sprint(name, " ", ahead), func(t *testing.T) {
				play(t, twice, func(s *stage) {
					s.tools = []dispatch.Tool{tool.tool()}
					s.host()
					s.say("m1", "ann", "@piet hello")
					time.Sleep(31 * time.Second)
					s.setRows(errors.New("the database is away"))
					if ahead > 0 {
						s.say("m2", "ann", "nobody is named, and nobody sees it")
						time.Sleep(ahead)
					}
					s.post(entry("stop", "ann", thread.ReactionCancel{
						Type: thread.TypeReactionCancel, Reaction: thread.ReactionID("t1", piet, 0),
					}))
					wait := time.Millisecond
					if ahead > 0 {
						wait = 5 * time.Second
					}
					time.Sleep(wait)
					synctest.Wait()
					s.want("1 react mention, claim 0, call, cancelled")
				})
			})
		}
	}
}

// Calls that only read run at the same time, at most four. One that acts runs alone: behind those in front of it, and
// before those behind it. Results are in the order of the calls.
func TestCallsTogether(t *testing.T) {
	asked := strings.Fields("read read act read read read read read act act none read")
	var trace []string
	play(t, func(_ context.Context, n int, _ model.Request, _ func(model.Event)) (model.Reply, error) {
		if n == 0 {
			return calls(asked...), nil
		}
		return text("well"), nil
	}, func(s *stage) {
		tool := func(name string) dispatch.Tool {
			tool := new(echo).tool()
			tool.Name, tool.Acts = name, name == "act"
			tool.Run = func(_ context.Context, c dispatch.ToolCall) (dispatch.ToolResult, error) {
				call := c.Key[strings.LastIndex(c.Key, "-")+1:]
				note := func(what string) {
					s.board.mu.Lock()
					defer s.board.mu.Unlock()
					trace = append(trace, what+call)
				}
				var n int
				if _, err := fmt.Sscan(call, &n); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Duration(n) * time.Millisecond) // they begin one after the other
				note("+")
				time.Sleep(time.Duration(1000-50*n) * time.Millisecond) // the last one ends first
				note("-")
				return dispatch.ToolResult{Text: call}, nil
			}
			return tool
		}
		s.tools = []dispatch.Tool{tool("read"), tool("act")}
		s.host()
		s.say("m1", "ann", "@piet hello")
		time.Sleep(time.Minute)
		synctest.Wait()
		s.want("1 react mention, claim 0, call, result 0, result 1, result 2, result 3, result 4, result 5, " +
			"result 6, result 7, result 8, result 9, result there is no tool none, result 11, well, answered")
		const want = "+0 +1 -1 -0 +2 -2 +3 +4 +5 +6 -6 -5 -4 -3 +7 -7 +8 -8 +9 -9 +11 -11"
		if got := strings.Join(trace, " "); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

// A host dies while calls run at the same time. Those without a result run again, in the order of the calls.
func TestCallsTogetherKilled(t *testing.T) {
	play(t, twice, func(s *stage) {
		tool := &echo{slow: time.Minute}
		s.tools = []dispatch.Tool{tool.tool()}
		first := s.host()
		s.say("m1", "ann", "@piet hello")
		time.Sleep(30 * time.Second)
		first.dead.Store(true)
		s.host()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		first.dead.Store(false) // or it does not end
		s.want("1 react mention, claim 0, call, claim 1, result echoed, result echoed, well, answered")
		if len(tool.keys) != 2 {
			t.Errorf("effects %v", tool.keys)
		}
	})
}

// The thread server is away when a call has its result: its host lets go, and another one runs the call again, with the
// same key.
func TestResultLost(t *testing.T) {
	play(t, twice, func(s *stage) {
		tool := &echo{slow: 10 * time.Second}
		with := tool.tool()
		with.Acts = true
		runs := 0
		with.Run = func(ctx context.Context, c dispatch.ToolCall) (dispatch.ToolResult, error) {
			runs++
			return tool.run(ctx, c)
		}
		s.tools = []dispatch.Tool{with}
		first := s.host()
		s.say("m1", "ann", "@piet hello")
		time.Sleep(5 * time.Second)
		first.lost.Store(true)
		s.host()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		s.want("1 react mention, claim 0, call, claim 1, result echoed, result echoed, well, answered")
		if len(tool.keys) != 2 || runs != 3 {
			t.Errorf("%d runs, effects %v", runs, tool.keys)
		}
	})
}

// The thread is closed, the bot removed or the thread deleted while a call of a reply runs: the next one does not.
func TestGoneBetweenCalls(t *testing.T) {
	for name, tt := range map[string]struct {
		gone func(s *stage)
		want string
	}{
		"closed":  {func(s *stage) { s.room.Closed = true }, ", result echoed, cancelled"},
		"removed": {func(s *stage) { s.room.Bots = s.room.Bots[1:] }, ", result echoed, cancelled"},
		"deleted": {func(s *stage) { s.fail = func([]thread.Entry) error { return dispatch.ErrGone } }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, twice, func(s *stage) {
				tool := &echo{slow: time.Minute}
				with := tool.tool()
				with.Acts = true
				s.tools = []dispatch.Tool{with}
				s.host()
				s.say("m1", "ann", "@piet hello")
				time.Sleep(30 * time.Second)
				s.board.mu.Lock()
				tt.gone(s)
				s.board.mu.Unlock()
				time.Sleep(time.Hour)
				synctest.Wait()
				s.want("1 react mention, claim 0, call" + tt.want)
				if len(tool.keys) != 1 {
					t.Errorf("effects %v", tool.keys)
				}
			})
		})
	}
}
