package dispatch_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/botchaos"
	"arbe.0sk.ar/runner/internal/test/model"
)

// Nobody dispatches for a day: 5,000 mentions come on 1,000 threads, and 200 of before the house began to dispatch.
// Then three hosts start, and their cache is dropped while they work. Each mention is answered once, and no older one.
func TestFullBotsAfterADay(t *testing.T) {
	t.Parallel()
	const threads, mentions, before = 1000, 5, 200
	w := newWorld(t)
	w.model.script(4, func(_ *rand.Rand, n int, _ botchaos.Question) model.Reply {
		return model.Reply{Text: fmt.Sprintf("reply-%d.", n)}
	})
	w.exec(`insert into threads (id, stream_id, house_id, name)
		select 'quiet-' || i, 'quiet-' || i, 'quiet', 'a thread' from generate_series(0, $1::int - 1) i`, threads)
	w.arbe("", "house", "set", "quiet", "--dispatch", "off")
	talks := make([]*talk, threads)
	parallel(threads, 16, func(i int) {
		s := botchaos.Schedule{Seed: uint64(i), Bots: houses["quiet"]}
		for j := range mentions {
			b := s.Bots[(i+j)%len(s.Bots)]
			s.Posts = append(s.Posts, botchaos.Post{
				Text: fmt.Sprintf("chat-%d-%d. @%s", i, j, b.Name), Names: []string{b.Name},
			})
		}
		talks[i] = w.talk("quiet", s)
		if i < before {
			w.post(w.servers[0], ann, talks[i].Thread, talks[i].Thread+".old", "@piet are you there?")
		}
	})
	w.arbe("", "house", "set", "quiet", "--dispatch", "on")
	since := time.Now() // the same clock: no chat comes in between
	parallel(threads, 16, func(i int) {
		talks[i].Since = since
		w.play(talks[i])
	})
	began := time.Now()
	hosts := w.hosts(botchaos.Hosts)
	until(t, "half of the answers", func() bool { return w.model.count() > threads })
	w.exec("truncate dispatch_cache")
	w.settle(talks)
	took := time.Since(began)
	endAll(hosts)
	for _, tk := range talks {
		if err := tk.read(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	all := w.judge(talks, struck(hosts))
	t.Logf("%d mentions on %d threads were answered in %v: %+v", threads*mentions, threads,
		took.Round(time.Second), all)
	if all.Pairs != threads*mentions {
		t.Errorf("%d answers, want %d", all.Pairs, threads*mentions)
	}
}
