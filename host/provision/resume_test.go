package provision

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox/local"
)

// What the run for a chat gets: a live run of the bot's harness, in the thread's own box, as a member's.
func TestResumed(t *testing.T) {
	for _, tt := range []struct {
		name, recipe string
		idle         time.Duration
	}{
		{"the usual", `{}`, 5 * time.Minute},
		{"of its environment", `{"limits": {"idle": "1h"}}`, time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := host("daytona")
			h.Token = "the operator's"
			all, err := h.Rows(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			stored := all.(*house)
			stored.threads["t"] = rows.Thread{ID: "t", House: "h", Agent: "other"}
			stored.place.Environment.Config = json.RawMessage(tt.recipe)
			stored.bot = rows.BotConfig{Model: "openai/gpt-5", Instructions: "Be brief."}
			l, got, err := h.resumed(t.Context(), Resume{Thread: "t", Run: "r", Author: "ann"})
			if err != nil || l == nil {
				t.Fatal(err)
			}
			if got.Thread != "t" || got.Run != "r" || got.Author != "ann" || got.Driver != "other" ||
				got.Harness != "codex" || got.Model != "gpt-5" || len(got.Args) != 2 || !got.Resume || !got.Live ||
				got.Queued || got.Idle != tt.idle || got.Box.Ephemeral || got.Box.Token != "" || got.Prompt != "" {
				t.Errorf("got %+v", got)
			}
			if !slices.Equal(stored.admitted, []string{"r"}) {
				t.Errorf("admitted %q", stored.admitted)
			}
			if !l.Continued(t.Context(), rows.ErrAway) || l.Continued(t.Context(), errors.New("no such repository")) {
				t.Error("a launch is continued after a failure that lasts, or not after one that passes")
			}
		})
	}
}

// A member's chat gets no local box but where the host allows it.
func TestResumedLocal(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		h := host(local.Name)
		h.LocalBoxes = allowed
		_, _, err := h.resumed(t.Context(), Resume{Thread: "t", Run: "r", Author: "ann"})
		if errors.Is(err, ErrLocal) == allowed || allowed && err != nil {
			t.Errorf("allowed %v: %v", allowed, err)
		}
	}
}

// A run for which its house has no place is asked for again: nothing is posted, also by the last try.
func TestResumeHeld(t *testing.T) {
	for _, last := range []bool{false, true} {
		h := host("daytona")
		all, err := h.Rows(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all.(*house).limit = 2
		again, err := h.Resume(t.Context(), Resume{Thread: "t", Run: "r", Author: "ann", Last: last})
		_, held := errors.AsType[*rows.HeldError](err)
		if !again || !held || err.Error() != "the house runs 2 at once" {
			t.Errorf("again %v, %v", again, err)
		}
	}
}
