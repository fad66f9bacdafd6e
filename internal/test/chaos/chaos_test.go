// Package chaos_test plays random schedules of the host's side in virtual time: launches, attached runs, commands,
// delegated tasks, reconcilers and removals by hand are killed at any of their steps, the provider, the thread server
// and the database fail and hang, boxes vanish, stop when they are idle, and are shared by threads. The provider lies:
// it answers that a box is gone, or in error, or lists none, or answers nothing for a while, and then the truth.
//
// The code under test is that of host/reap, resolve, launch, exec, lease, delegate and reconcile. The thread server,
// the provider, the rows and the runners are simulated.
//
// A schedule is broken where a live run or command is given up, the box of a live run, a live command, a valid hold or
// of unsaved work is deleted, a row is condemned under life, a box is deleted before its threads have the signal of
// that, a run or a command is never settled or settled wrongly, a box or a live row without a machine is left, or a
// parent does not get the end.
package chaos_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
)

// settle runs arbe reconcile every so often until the schedule ends; each may be killed, and is followed by another.
func (w *world) settle(name string, every time.Duration, calm <-chan struct{}) {
	for w.ctx.Err() == nil {
		killAt := w.killAt(60)
		select {
		case <-calm:
			killAt, every = 0, time.Hour
		default:
		}
		p := w.process(name, killAt)
		err := w.reconciler(p).All(p.ctx, w.ids(), func(string, reconcile.State) {})
		if err != nil {
			w.note("%s: %v", name, err)
		}
		p.cancel()
		sleepIn(w.ctx, every)
	}
}

// serve runs the loop of arbe serve --reconcile, which is killed and restarted.
func (w *world) serve(calm <-chan struct{}) {
	for w.ctx.Err() == nil {
		killAt := w.killAt(300)
		select {
		case <-calm:
			return
		default:
		}
		p := w.process("serve", killAt)
		_ = w.reconciler(p).Loop(p.ctx, time.Minute, func(f func(string, uint64) error) error {
			select {
			case <-calm:
				p.cancel()
			default:
			}
			w.threads.mu.Lock()
			versions := map[string]uint64{}
			for id, list := range w.threads.list {
				versions[id] = uint64(len(list))
			}
			w.threads.mu.Unlock()
			for id, v := range versions {
				if err := f(id, v); err != nil {
					return err
				}
			}
			return nil
		}, func(string, reconcile.State) {})
		p.cancel()
		sleepIn(w.ctx, time.Minute)
	}
}

// user launches on a thread: one run, and maybe more that continue in its box, and others at the same time.
func (w *world) user(id string) {
	sleepIn(w.ctx, time.Duration(w.rand(int(10*time.Minute))))
	tree := [...]string{"", sandbox.TreeRepository}[w.rand(2)]
	for n := range 1 + w.rand(3) {
		racers := 1 + w.rand(2)
		var wg sync.WaitGroup
		for r := range racers {
			task := launch.Task{
				Thread: id, Run: fmt.Sprintf("r%d-%d", n, r), Prompt: "do it", Harness: "pi", Resume: n > 0,
				Parent: &thread.Parent{ThreadID: "parent"},
				Box:    sandbox.Options{Ephemeral: true},
			}
			if tree != "" {
				task.Box.Labels = map[string]string{sandbox.LabelTree: tree}
				if w.rand(2) == 0 {
					task.After = &thread.After{Push: &thread.AfterPush{
						Repo: "o/r", Branch: id + "-" + task.Run,
						PR: true,
					}}
				}
			}
			if w.rand(3) == 0 {
				task.Setup.Commands = []string{"make"}
			}
			attached := task.After != nil && w.rand(2) == 0
			p := w.process("launch "+id+"/"+task.Run, w.killAt(40))
			wg.Go(func() { w.launch(p, task, attached); p.cancel() })
		}
		wg.Wait()
		// The next one comes when the thread is free, or a little later.
		for limit := time.Now().Add(4 * time.Hour); time.Now().Before(limit); sleepIn(w.ctx, 5*time.Minute) {
			w.mu.Lock()
			fold := w.folds[id]
			open := fold != nil && fold.Status() == thread.StatusRunning
			w.mu.Unlock()
			if !open {
				break
			}
		}
	}
}

// weather makes things fail for a while.
func (w *world) weather(calm chan struct{}) {
	defer close(calm)
	lying := w.rand(2) == 0
	w.set(func() { w.faults, w.lying = true, lying })
	for range 1 + w.rand(6) {
		sleepIn(w.ctx, time.Duration(w.rand(int(2*time.Hour))))
		switch turn := w.rand(6); turn {
		case 0:
			w.note("the thread server is down")
			w.set(func() { w.down = true })
			sleepIn(w.ctx, time.Duration(w.rand(int(3*time.Hour))))
			w.threads.writable(time.Now())
			w.set(func() { w.down = false })
			w.note("the thread server is back")
		case 1:
			if lying {
				continue // or nothing could distinguish a live run from a dead one
			}
			w.note("the boxes are cut off")
			w.set(func() { w.cut = true })
			// Shorter than the time to give up a run whose runner and provider are both silent.
			sleepIn(w.ctx, time.Duration(w.rand(int(55*time.Minute))))
			w.set(func() { w.cut = false })
			w.note("the boxes are back")
		case 2, 3, 4, 5:
			id := w.cloud.any()
			if id == "" {
				continue
			}
			if turn > 3 {
				l := lie{kind: lieKind(1 + w.rand(int(mostLies)-1)), box: id}
				if w.rand(3) == 0 {
					l.box = ""
				}
				w.note("the provider lies: %+v", l)
				w.set(func() { w.lie = l })
				sleepIn(w.ctx, time.Duration(w.rand(int(40*time.Minute))))
				w.set(func() { w.lie = lie{} })
				w.note("the provider answers the truth")
			} else if w.rand(2) == 0 {
				w.note("%s vanishes", id)
				w.cloud.vanish(id)
			} else if m := (view{cloud: w.cloud}).find(id); m != nil {
				w.note("%s is in error", id)
				m.change(func(c *condition) { c.state = "error" })
				m.stop()
			}
		}
	}
	w.set(func() { w.faults, w.lying = false, false })
	w.note("calm")
}

// play plays one schedule, and returns what is broken and what happened.
func play(t *testing.T, seed uint64, runner string) (broken, trace []string) {
	synctest.Test(t, func(t *testing.T) {
		w, stop := newWorld(t, seed)
		w.runner = runner
		w.cloud.boxes["foreign"] = &machine{
			id: "foreign", now: condition{state: "started"}, created: time.Now(), labels: map[string]string{
				sandbox.LabelThread: "t1", sandbox.LabelEphemeral: "true", sandbox.LabelInstallation: "another",
				"foreign": "yes",
			},
		}
		calm := make(chan struct{})
		w.wg.Go(func() { w.weather(calm) })
		w.wg.Go(w.cloud.autostop)
		w.wg.Go(func() { w.settle("reconcile 1", 7*time.Minute, calm) })
		w.wg.Go(func() { w.settle("reconcile 2", 11*time.Minute, calm) })
		w.wg.Go(func() { w.serve(calm) })
		var users sync.WaitGroup
		for _, id := range []string{"t1", "t2", "t3"} {
			users.Go(func() { w.user(id) })
		}
		w.house(&users)
		users.Wait()
		<-calm
		time.Sleep(2*reapAfter + 3*time.Hour)
		w.clear()
		stop()
		w.check()
		broken, trace = w.faulty, w.trace
	})
	return broken, trace
}

// TestSchedules plays ARBE_CHAOS (10) schedules from the seed ARBE_CHAOS_SEED on.
func TestSchedules(t *testing.T) { schedules(t, 10, 1) }

func TestFullSchedules(t *testing.T) { schedules(t, 16, 11) }

// schedules plays n schedules, from a seed on.
func schedules(t *testing.T, n int, seed uint64) {
	for name, to := range map[string]func(uint64){
		"ARBE_CHAOS":      func(v uint64) { n = int(v) },
		"ARBE_CHAOS_SEED": func(v uint64) { seed = v },
	} {
		if s := os.Getenv(name); s != "" {
			v, err := strconv.ParseUint(s, 10, 32)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			to(v)
		}
	}
	runner := filepath.Join(t.TempDir(), "runner")
	if err := os.WriteFile(runner, []byte("runner"), 0o600); err != nil {
		t.Fatal(err)
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	seen := map[string]int{}
	for i := range n {
		s := seed + uint64(i)
		t.Run(fmt.Sprintf("seed %d", s), func(t *testing.T) {
			broken, trace := play(t, s, runner)
			for _, b := range broken {
				t.Error(b)
			}
			if len(broken) > 0 {
				var b bytes.Buffer
				for _, line := range trace {
					fmt.Fprintf(&b, "%.240s\n", line)
				}
				t.Logf("what happened:\n%s", b.String())
			}
			for _, line := range trace {
				for what, is := range kinds {
					if is.MatchString(line) {
						seen[what]++
					}
				}
			}
		})
	}
	t.Logf("%d schedules: %v", n, seen)
}

// kinds match the events that are counted in schedules.
var kinds = map[string]*regexp.Regexp{
	"runs":                              regexp.MustCompile(`\.running \{`),
	"commands":                          regexp.MustCompile(`"signal\.exec\.started"`),
	"commands that ran":                 regexp.MustCompile(`"signal\.exec\.running"`),
	"deletions":                         regexp.MustCompile(` deletes box-`),
	"rows condemned":                    regexp.MustCompile(` condemns .*: true, `),
	"rows condemned, the box was there": regexp.MustCompile(` condemns .*: true, .*it is there: true`),
	"removals":                          regexp.MustCompile(` rm box-\d+ .*: delete `),
	"removals refused":                  regexp.MustCompile(` rm box-\d+ .*: wait `),
	"lies":                              regexp.MustCompile(`the provider lies`),
	"boxes that were neither used nor replaced": regexp.MustCompile(`can't be used now, and is not replaced`),
}
