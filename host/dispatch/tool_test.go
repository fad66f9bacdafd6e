package dispatch_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/thread"
)

// A bot has the tools that its house gives it, and keeps them for the whole reaction. Others are not there for it.
func TestToolsOfBot(t *testing.T) {
	named := func(name string, asked bool) dispatch.Tool {
		tool := new(echo).tool()
		tool.Name, tool.Asked = name, asked
		return tool
	}
	var shown []string
	play(t, func(_ context.Context, n int, r model.Request, _ func(model.Event)) (model.Reply, error) {
		if n == 0 {
			for _, t := range r.Tools {
				shown = append(shown, t.Name)
			}
			return calls("post", "look", "make", "write"), nil
		}
		return text("done"), nil
	}, func(s *stage) {
		s.tools = []dispatch.Tool{named("look", false), named("write", false), named("post", true), named("make", true)}
		s.room.Bots[0].Tools = map[string]bool{"write": false, "post": true}
		s.host()
		s.say("m1", "ann", "@piet hello")
		synctest.Wait()
		s.want("1 react mention, claim 0, call, result echoed, result echoed, result there is no tool make, " +
			"result there is no tool write, done, answered")
		if want := []string{"look", "post"}; !slices.Equal(shown, want) {
			t.Errorf("the model was shown %v, want %v", shown, want)
		}
	})
}

// What changes something runs while the human who asked for it is a member: not for a bot's own chat, not for a human
// who has left, and not where one of two who asked has.
func TestToolsOfHumans(t *testing.T) {
	const refused = "result this needs a human of the house who asked for it, and is a member"
	for name, tt := range map[string]struct {
		authors []string
		left    string // the human who leaves before the tool runs
		want    string
	}{
		"a human":                 {[]string{"ann"}, "", "result echoed"},
		"two humans":              {[]string{"ann", "ben"}, "", "result echoed"},
		"nobody":                  {[]string{"zoe"}, "", refused},
		"one who has left":        {[]string{"ann"}, "ann", refused},
		"one of two who has left": {[]string{"ann", "ben"}, "ben", refused},
	} {
		t.Run(name, func(t *testing.T) {
			var s *stage
			play(t, func(_ context.Context, n int, _ model.Request, _ func(model.Event)) (model.Reply, error) {
				if n > 0 {
					return text("done"), nil
				}
				s.board.mu.Lock()
				s.room.Humans = slices.DeleteFunc(slices.Clone(s.room.Humans), func(m dispatch.Member) bool {
					return m.ID == tt.left
				})
				s.board.mu.Unlock()
				return calls("echo"), nil
			}, func(on *stage) {
				s = on
				s.room.Humans = []dispatch.Member{{ID: "ann", Name: "Ann"}, {ID: "ben", Name: "Ben"}}
				tool := new(echo).tool()
				tool.Acts = true
				s.tools = []dispatch.Tool{tool}
				for i, author := range tt.authors {
					s.say(string(rune('a'+i)), author, "@piet hello")
				}
				s.host()
				synctest.Wait()
				if got := s.shown(); !strings.Contains(got, tt.want) || !strings.HasSuffix(got, "answered") {
					t.Errorf("got %s, want %s", got, tt.want)
				}
			})
		})
	}
}

// A tool runs as often in a reaction as it may, whichever host runs it.
func TestToolMost(t *testing.T) {
	play(t, func(_ context.Context, n int, _ model.Request, _ func(model.Event)) (model.Reply, error) {
		if n < 2 {
			return calls("echo", "echo"), nil
		}
		return text("done"), nil
	}, func(s *stage) {
		tool := new(echo).tool()
		tool.Most = 3
		s.tools = []dispatch.Tool{tool}
		s.host()
		s.say("m1", "ann", "@piet hello")
		synctest.Wait()
		s.want("1 react mention, claim 0, call, result echoed, result echoed, call, result echoed, " +
			"result echo may be called 3 times in one answer, and was, done, answered")
	})
}

// After three results in a row about invalid arguments the model is asked for a reply without tools.
func TestToolInvalid(t *testing.T) {
	play(t, func(_ context.Context, n int, r model.Request, _ func(model.Event)) (model.Reply, error) {
		if r.NoCalls {
			return text("I can't"), nil
		}
		return calls("echo"), nil
	}, func(s *stage) {
		n := 0
		tool := new(echo).tool()
		tool.Run = func(context.Context, dispatch.ToolCall) (dispatch.ToolResult, error) {
			n++
			return dispatch.ToolResult{Text: "no", IsError: true, Invalid: n != 2}, nil
		}
		s.tools = []dispatch.Tool{tool}
		s.host()
		s.say("m1", "ann", "@piet hello")
		time.Sleep(time.Minute)
		synctest.Wait()
		s.want("1 react mention, claim 0, call, result no, call, result no, call, result no, call, result no, " +
			"call, result no, I can't, answered")
	})
}

// What a call has begun ends where a member stops the reaction, or the thread is closed, whichever host is there then.
// A host that dies or stops ends nothing: the next one continues with the same key.
func TestToolStop(t *testing.T) {
	cancel := func(s *stage) {
		s.post(entry("stop", "ann", thread.ReactionCancel{
			Type: thread.TypeReactionCancel, Reaction: thread.ReactionID("t1", piet, 0),
		}))
	}
	for name, tt := range map[string]struct {
		do    func(s *stage, h *running)
		stops int
		end   string
	}{
		"stop":                     {func(s *stage, _ *running) { cancel(s) }, 1, "cancelled"},
		"stop while no host lives": {func(s *stage, h *running) { h.stop(); cancel(s); s.host() }, 1, "cancelled"},
		"the thread is closed, and its host dies": {func(s *stage, h *running) {
			h.dead.Store(true)
			s.board.mu.Lock()
			s.room.Closed = true
			s.board.mu.Unlock()
			s.host()
		}, 1, "cancelled"},
		"the host stops": {func(s *stage, h *running) { h.stop(); s.host() }, 0, "answered"},
		"the host dies":  {func(s *stage, h *running) { h.dead.Store(true); s.host() }, 0, "answered"},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(_ context.Context, n int, _ model.Request, _ func(model.Event)) (model.Reply, error) {
				if n == 0 {
					return calls("echo", "echo"), nil
				}
				return text("done"), nil
			}, func(s *stage) {
				tool := &echo{slow: time.Minute}
				with := tool.tool()
				with.Acts = true
				var stopped []string
				with.Stop = func(_ context.Context, c dispatch.ToolCall) error {
					s.board.mu.Lock()
					defer s.board.mu.Unlock()
					stopped = append(stopped, c.Key)
					return nil
				}
				s.tools = []dispatch.Tool{with}
				h := s.host()
				s.say("m1", "ann", "@piet hello")
				time.Sleep(90 * time.Second) // the second call runs
				tt.do(s, h)
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				h.dead.Store(false) // or it does not end
				reaction := thread.ReactionID("t1", piet, 0)
				first, second := thread.CallKey(reaction, 0, 0), thread.CallKey(reaction, 0, 1)
				if got := s.shown(); !strings.HasSuffix(got, tt.end) || len(stopped) != tt.stops {
					t.Errorf("stopped %v: %s", stopped, got)
				}
				if len(stopped) > 0 && stopped[0] != second || !slices.Equal(tool.keys, []string{first, second}) {
					t.Errorf("stopped %v, effects %v", stopped, tool.keys)
				}
			})
		})
	}
}

// A reaction does not end while what its calls have begun can't be ended.
func TestToolStopFails(t *testing.T) {
	play(t, func(context.Context, int, model.Request, func(model.Event)) (model.Reply, error) {
		return calls("echo"), nil
	}, func(s *stage) {
		with := (&echo{slow: time.Hour}).tool()
		fails := 3
		with.Stop = func(context.Context, dispatch.ToolCall) error {
			if fails--; fails >= 0 {
				return errors.New("the server is away")
			}
			return nil
		}
		s.tools = []dispatch.Tool{with}
		s.host()
		s.say("m1", "ann", "@piet hello")
		synctest.Wait()
		s.post(entry("stop", "ann", thread.ReactionCancel{
			Type: thread.TypeReactionCancel, Reaction: thread.ReactionID("t1", piet, 0),
		}))
		synctest.Wait()
		if got := s.shown(); strings.HasSuffix(got, "cancelled") {
			t.Error(got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := s.shown(); !strings.HasSuffix(got, "cancelled") || fails != -1 {
			t.Errorf("%d left: %s", fails, got)
		}
	})
}
