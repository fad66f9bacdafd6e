package e2e_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/thread"
)

// newLiveScene prepares a live run of an agent that can be spoken to.
func newLiveScene(t *testing.T, name string, replies ...model.Reply) *scene {
	t.Helper()
	s := newSceneOf(t, name, liveVersion(t, name), replies...)
	s.args = append(s.args, "--live")
	return s
}

func liveVersion(t *testing.T, name string) string {
	t.Helper()
	spec, err := harness.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return spec.Live.Least
}

// say posts a chat and returns its id.
func (s *scene) say(args ...string) string {
	s.t.Helper()
	return s.arbe(append([]string{"say", s.thread}, args...)...)
}

// turns are the ends of turns on the thread.
func (s *scene) turns() (turns []thread.Waiting) {
	s.t.Helper()
	for _, e := range s.entries() {
		if p := payload[thread.Waiting](s.t, e); p.Type == thread.TypeWaiting {
			turns = append(turns, p)
		}
	}
	return turns
}

// deliveredChats are the chats that the session's lines on the thread name, in order.
func (s *scene) deliveredChats() (chats []string) {
	s.t.Helper()
	for _, e := range s.entries() {
		if p := thread.ParseLine(e.Payload); p.Names() {
			chats = append(chats, p.Named()...)
		}
	}
	return chats
}

// modelHas fails the test unless the model's last request has each text once, in this order.
func (s *scene) modelHas(texts ...string) {
	s.t.Helper()
	requests := s.model.Requests()
	body, at := requests[len(requests)-1].Body, -1
	for _, text := range texts {
		quoted, err := json.Marshal(text)
		if err != nil {
			s.t.Fatal(err)
		}
		quoted = bytes.Trim(quoted, `"`)
		i := bytes.Index(body, quoted)
		if n := bytes.Count(body, quoted); n != 1 || i < at {
			s.t.Errorf("the model got %.60q %d times, at %d behind %d", text, n, i, at)
		}
		at = i
	}
}

// A live run: its prompt, chats for the idle agent, the end that is asked for.
func TestLive(t *testing.T) {
	for _, name := range harness.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newLiveScene(t, name, model.Reply{Text: "Fine.", Times: -1})
			s.prompt = "the first-chat"
			r := s.start()
			until(t, "the first turn's end", func() bool { return len(s.turns()) == 1 })
			second := s.say("the second-chat")
			until(t, "the second turn's end", func() bool { return len(s.turns()) == 2 })
			third := s.say("the third-chat\nwith two lines")
			s.say("--end")
			if got := s.status(r); got != 0 {
				t.Errorf("exit status %d", got)
			}
			turns := s.turns()
			if len(turns) != 3 {
				t.Fatalf("%d turns: %+v", len(turns), turns)
			}
			want := []string{"r1.prompt", second, third}
			for i, turn := range turns {
				if turn.Turn != i+1 || turn.Outcome != "completed" || turn.StopReason != "stop" ||
					!slices.Equal(turn.Chats, want[i:i+1]) || turn.Pending != 0 {
					t.Errorf("turn %d: %+v", i, turn)
				}
			}
			if got := s.deliveredChats(); !slices.Equal(got, want) {
				t.Errorf("delivered %q, want %q", got, want)
			}
			s.modelHas(s.prompt, "the second-chat", "the third-chat\nwith two lines")
			if end := s.end(); end.Status != thread.StatusCompleted {
				t.Errorf("got %+v", end)
			}
			entries := s.entries()
			s.complete(entries)
			chats := 0
			for _, e := range entries {
				if strings.Contains(string(e.Payload), `"type":"chat"`) {
					chats++
				}
			}
			if chats != 3 {
				t.Errorf("%d chats on the thread", chats)
			}
		})
	}
}
