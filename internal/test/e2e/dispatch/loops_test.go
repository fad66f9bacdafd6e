package dispatch_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/internal/test/botchaos"
	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/thread"
)

// Three bots that always answer, without a pause, each of whose replies names the other two: they come to an end, after
// at most 20 replies and within depth 8, and the thread has the reason.
func TestFullBotsLoop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bots := []botchaos.Bot{
		{ID: piet, Name: "piet", Mode: rows.ModeAlways},
		{ID: alma, Name: "alma", Mode: rows.ModeAlways},
		{ID: gus, Name: "gus", Mode: rows.ModeAlways},
	}
	w.house("loop", bots, "--cooldown", "0s")
	w.model.script(3, func(_ *rand.Rand, n int, q botchaos.Question) model.Reply {
		return model.Reply{Text: fmt.Sprintf("reply-%d. And you, @piet @alma @gus ?", n)}
	})
	tk := w.newTalk("loop", botchaos.Schedule{Bots: bots, Posts: []botchaos.Post{{Text: "Talk to each other."}}})
	hosts := w.hosts(botchaos.Hosts)
	w.play(tk)
	w.settle([]*talk{tk})
	endAll(hosts)
	all := w.judge([]*talk{tk}, struck(hosts))
	why := map[string]int{}
	for _, e := range tk.Entries {
		if thread.TypeOf(e.Payload) == thread.TypeDecided {
			for _, reason := range []string{thread.ReasonDepth, thread.ReasonCap} {
				why[reason] += strings.Count(string(e.Payload), fmt.Sprintf(`"skip","reason":%q`, reason))
			}
		}
	}
	t.Logf("%+v; skips: %v", all, why)
	tail := w.command([]string{"ARBE_STREAM_URL=http://" + w.servers[0].addr}, "thread", "tail", "--no-wait", tk.Thread)
	shown, err := tail.Output()
	if why := "was not asked: enough replies of bots until a person writes"; err != nil ||
		!strings.Contains(string(shown), why) {
		t.Errorf("%v: want %q in\n%s", err, why, shown)
	}
	if skips := why[thread.ReasonDepth] + why[thread.ReasonCap]; all.Reactions < 10 || all.Reactions > 20 ||
		all.Deepest >= 8 || skips == 0 {
		t.Errorf("%d replies, the deepest at %d; skips: %v", all.Reactions, all.Deepest, why)
	}
}
