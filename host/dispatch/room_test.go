package dispatch_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/rows"
)

// Of each setting of when a bot reacts the thread's counts before the house's, and that before the usual one.
func TestRoomOf(t *testing.T) {
	type set = rows.Reacting
	const ms = time.Millisecond
	for name, tt := range map[string]struct {
		model           string
		thread, house   set
		mode            string
		delay, cooldown time.Duration
	}{
		"nothing set": {"p/m", set{}, set{}, "mention", 4000 * ms, 30000 * ms},
		"the house's": {
			"p/m",
			set{},
			set{TriggerMode: "ambient", AmbientDelayMs: new(int64(1)), CooldownMs: new(int64(2))},
			"ambient", ms, 2 * ms,
		},
		"the thread's": {
			"p/m",
			set{TriggerMode: "always", AmbientDelayMs: new(int64(3)), CooldownMs: new(int64(4))},
			set{TriggerMode: "ambient", AmbientDelayMs: new(int64(1)), CooldownMs: new(int64(2))},
			"always", 3 * ms, 4 * ms,
		},
		"the thread's mode, the house's times": {
			"p/m",
			set{TriggerMode: "off"},
			set{TriggerMode: "ambient", AmbientDelayMs: new(int64(1)), CooldownMs: new(int64(2))},
			"off", ms, 2 * ms,
		},
		"the thread's times, the house's mode": {
			"p/m",
			set{AmbientDelayMs: new(int64(3)), CooldownMs: new(int64(4))},
			set{TriggerMode: "ambient"},
			"ambient", 3 * ms, 4 * ms,
		},
		"a time of nothing": {
			"p/m",
			set{AmbientDelayMs: new(int64(0)), CooldownMs: new(int64(0))},
			set{AmbientDelayMs: new(int64(1)), CooldownMs: new(int64(2))},
			"mention", 0, 0,
		},
		"mention on the thread":          {"p/m", set{TriggerMode: "mention"}, set{TriggerMode: "always"}, "mention", 4000 * ms, 30000 * ms},
		"no model":                       {"", set{}, set{}, "off", 4000 * ms, 30000 * ms},
		"no model, always on the thread": {"", set{TriggerMode: "always"}, set{}, "off", 4000 * ms, 30000 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			joined := time.Now()
			bot := rows.RoomBot{Agent: rows.Agent{ID: piet, Name: "Piet"}, JoinedAt: joined}
			bot.Config, bot.Member.Reacting = rows.BotConfig{Model: tt.model, Instructions: "Be brief."}, tt.house
			got := dispatch.RoomOf(rows.Room{
				Dispatch: rows.ThreadDispatch{PerAgent: map[string]set{piet: tt.thread, alma: {TriggerMode: "ambient"}}},
				Bots:     []rows.RoomBot{bot},
			})
			want := dispatch.Bot{
				ID: piet, Name: "Piet", Joined: joined, Instructions: "Be brief.",
				Mode: tt.mode, AmbientDelay: tt.delay, Cooldown: tt.cooldown,
			}
			if tt.model != "" {
				want.Provider, want.Model = "p", "m"
			}
			if d := cmp.Diff([]dispatch.Bot{want}, got.Bots); d != "" {
				t.Error(d)
			}
		})
	}
}

// The rest of a room is the rows' own.
func TestRoomOfRows(t *testing.T) {
	r := rows.Room{
		Thread:   rows.Thread{Name: "Planning", Status: rows.ThreadClosed, Agent: alma},
		Dispatch: rows.ThreadDispatch{Off: true}, House: rows.House{Name: "Home"},
		HouseConfig: rows.HouseConfig{Dispatch: rows.HouseDispatch{GateModel: "openrouter/meta/llama:free"}},
		Humans:      []rows.Agent{{ID: "ann", Name: "Ann"}},
	}
	want := dispatch.Room{
		Thread: "Planning", House: "Home", Off: true, Closed: true, Driver: alma,
		GateProvider: "openrouter", GateModel: "meta/llama:free",
		Humans: []dispatch.Member{{ID: "ann", Name: "Ann"}},
	}
	if d := cmp.Diff(want, dispatch.RoomOf(r)); d != "" {
		t.Error(d)
	}
	r.Thread.Status = rows.ThreadIdle
	if dispatch.RoomOf(r).Closed {
		t.Error("a thread that is idle is closed")
	}
}
