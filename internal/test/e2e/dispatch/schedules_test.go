package dispatch_test

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/botchaos"
	"arbe.0sk.ar/runner/internal/test/model"
)

// pace is the time between the beginnings of two schedules.
const pace = 300 * time.Millisecond

// TestFullBotSchedules plays ARBE_BOTS (10) schedules from the seed ARBE_BOTS_SEED (1) on: people post on threads of
// houses with bots, and meanwhile each of three hosts is killed, stopped or terminated every few seconds, at random
// and at appends. In the end each bot has answered what it had to answer, once, and each of its calls has made its
// thread, its task, its post or the line of its command once.
//
// A schedule is one thread with its posts. All are played over the same three hosts, so one strike meets all
// reactions that its host holds at that moment: those that another host took over are counted from the log.
func TestFullBotSchedules(t *testing.T) {
	t.Parallel()
	n, seed := uint64(10), uint64(1)
	for name, to := range map[string]*uint64{"ARBE_BOTS": &n, "ARBE_BOTS_SEED": &seed} {
		if text := os.Getenv(name); text != "" {
			v, err := strconv.ParseUint(text, 10, 32)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			*to = v
		}
	}
	w := newWorld(t)
	w.exec(stops)
	talks := make([]*talk, n)
	for i := range talks {
		house := houseNames[(seed+uint64(i))%uint64(len(houseNames))]
		talks[i] = w.newTalk(house, botchaos.Make(seed+uint64(i), houses[house]))
	}
	hands := w.hands()
	w.model.script(seed, func(r *rand.Rand, n int, q botchaos.Question) model.Reply {
		return botchaos.Reply(r, n, q, houses["attent"], hands)
	})
	hosts := w.hosts(botchaos.Hosts)
	began := time.Now()
	var playing sync.WaitGroup
	for i, tk := range talks {
		playing.Go(func() {
			time.Sleep(time.Duration(i) * pace) // this is the schedule
			w.play(tk)
		})
	}
	strikes := playAll(hosts, seed, time.Duration(n)*pace+20*time.Second)
	playing.Wait()
	w.settle(talks)
	took := time.Since(began)
	endAll(hosts)
	for _, tk := range talks {
		if err := tk.read(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	all := w.judge(talks, struck(hosts))
	if len(w.model.byThread(talks)[""]) > 0 {
		t.Errorf("questions about nothing: %v", w.model.byThread(talks)[""])
	}
	t.Logf("%d schedules in %v: %+v; strikes: %v", n, took.Round(time.Second), all, strikes)
	if n >= 50 && (all.Taken == 0 || all.Released == 0 || all.Cancelled == 0 || all.Deepest < 2 ||
		slices.Contains(all.Made[:], 0)) {
		t.Error("the schedules are too tame")
	}
	if t.Failed() {
		t.Logf("play them again: make bots-schedules N=%d SEED=%d", n, seed)
	}
}
