package bots_test

import (
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/internal/test/scene"
	"arbe.0sk.ar/runner/thread"
)

// A bot that is mentioned answers, where the server dispatches, another process, or one pass over what waits.
func TestAnswer(t *testing.T) {
	for _, how := range []string{"serve", "dispatch", "once"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, model.Reply{Text: "hello ann", Times: -1})
			if how == "serve" {
				h.serve(h.dispatching("--dispatch")...)
			} else {
				h.serve()
			}
			if how == "dispatch" {
				h.dispatch()
			}
			id := h.thread()
			h.say(id, "@piet hello")
			if how == "once" {
				h.arbe("", h.dispatching("dispatch", "--once")...)
			}
			var ends []thread.ReactionFinished
			scene.Until(t, "an answer", func() bool {
				ends = h.ends(id)
				return len(ends) > 0
			})
			if len(ends) != 1 || ends[0].Outcome != thread.ReactionAnswered || len(ends[0].Chats) != 1 {
				t.Errorf("%+v", ends)
			}
			all := scene.TextOf(h.entries(id))
			if n := len(h.model.Requests()); n != 1 || !strings.Contains(all, "hello ann") {
				t.Errorf("%d requests: %s", n, all)
			}
			if got := h.model.Requests()[0].Auth; got != key {
				t.Errorf("the provider got the key %q", got)
			}
			for _, log := range h.logs {
				all += log.String()
			}
			if strings.Contains(all, key) {
				t.Errorf("the key is on the thread, or in a log: %s", all)
			}
		})
	}
}
