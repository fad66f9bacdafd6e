package live_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/scene"

	"github.com/google/uuid"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/test/livechaos"
	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/thread"
)

// TestFullLiveChaos plays ARBE_LIVE_CHAOS (10) schedules from the seed ARBE_LIVE_CHAOS_SEED (1) on, with the harness
// ARBE_LIVE_CHAOS_HARNESS (all in turn): each chat reaches the real agents once and in order, while workers, runners
// and agents are killed and the server is away.
func TestFullLiveChaos(t *testing.T) {
	n, seed := uint64(10), uint64(1)
	for name, to := range map[string]*uint64{"ARBE_LIVE_CHAOS": &n, "ARBE_LIVE_CHAOS_SEED": &seed} {
		if text := os.Getenv(name); text != "" {
			v, err := strconv.ParseUint(text, 10, 32)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			*to = v
		}
	}
	names := harness.Names()
	if name := os.Getenv("ARBE_LIVE_CHAOS_HARNESS"); name != "" {
		names = []string{name}
	}
	var mu sync.Mutex
	strikes, runs, clears := 0, 0, 0
	t.Run("schedules", func(t *testing.T) {
		for i := range n {
			s := livechaos.Make(seed+i, names)
			t.Run(strconv.FormatUint(s.Seed, 10), func(t *testing.T) {
				t.Parallel()
				c := newChaos(t, s)
				for _, broken := range c.play() {
					t.Error(broken)
				}
				if t.Failed() {
					t.Logf("play it again: make live-chaos N=1 SEED=%d HARNESS=%s\n%s\n%s", s.Seed,
						os.Getenv("ARBE_LIVE_CHAOS_HARNESS"), s, c.logs.String())
				}
				mu.Lock()
				defer mu.Unlock()
				strikes, runs = strikes+len(s.Strikes), runs+c.runs
				for _, chat := range s.Chats {
					if chat.Clears() {
						clears++
					}
				}
			})
		}
	})
	t.Logf("%d schedules with %d chats, %d clears, %d strikes and %d runs", n, n*livechaos.Chats, clears, strikes, runs)
}

// controls bounds the schedules of TestFullLiveChaosControl: in one of ten no worker dies between a chat's writing and
// its acceptance.
const controls = 8

// A worker that takes over and repeats what may have been written, without a question, gives agents chats twice: the
// check finds that.
func TestFullLiveChaosControl(t *testing.T) {
	for i, name := range harness.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n := range controls {
				seed := uint64(i + n*len(harness.Names())*livechaos.Kinds) // workers are killed
				s := livechaos.Make(seed, harness.Names())
				c := newChaos(t, s)
				c.blind = true
				if strings.Contains(strings.Join(c.play(), "\n"), "times in the session's file") {
					return
				}
			}
			t.Errorf("in %d schedules no chat came twice", controls)
		})
	}
}

// chaos is a schedule that is played.
type chaos struct {
	*scene.Live
	schedule livechaos.Schedule
	gate     *cut
	ids      []string
	blind    bool // a worker that takes over repeats blindly

	run  string // the id of the newest one
	runs int    // so far
	logs strings.Builder
	gone chan error // receives the end of the newest run's keeper
}

func newChaos(t *testing.T, s livechaos.Schedule) *chaos {
	t.Helper()
	l := scene.NewLive(t, s.Harness)
	l.Model.More(s.Script(func(command string) model.Tool { return scene.Shell(s.Harness, command) })...)
	l.Prompt = ""
	l.Args = append(l.Args, "--resume", "--idle", "1m")
	c := &chaos{Live: l, schedule: s, gate: newCut(t, strings.TrimPrefix(scene.Server, "http://"))}
	l.Without("ARBE_STREAM_URL")
	l.Env = append(l.Env, "ARBE_STREAM_URL=http://"+c.gate.l.Addr().String())
	return c
}

// play plays the schedule, and returns what is broken.
func (c *chaos) play() []string {
	c.next()
	strikes := c.schedule.Strikes
	for i, chat := range c.schedule.Chats {
		time.Sleep(chat.After) // this is the schedule
		last := i == len(c.schedule.Chats)-1
		if last {
			c.gate.set(false)
			c.going()
		}
		c.ids = append(c.ids, c.SayAs(chat.Deliver, chat.Text))
		for len(strikes) > 0 && strikes[0].Chat == i {
			time.Sleep(strikes[0].After) // this is the schedule
			c.strike(strikes[0])
			strikes = strikes[1:]
		}
	}
	c.Until("all chats are delivered", func() bool { c.going(); return c.pending() == 0 })
	c.Post(thread.Entry{
		ID: uuid.NewString(), TS: thread.Stamp(time.Now()), Payload: thread.Marshal(thread.EndRequested{
			Signal: thread.Signal{Type: thread.TypeEnd, RunID: c.run, Harness: c.schedule.Harness},
		}),
	})
	<-c.gone
	c.logs.WriteString(c.R.Log.String())
	all := c.Model.Requests()
	return livechaos.Result{
		Schedule: c.schedule, Dialect: c.Dialect(), IDs: c.ids, Thread: c.Entries(), File: c.files(),
		Request: all[len(all)-1].Body,
	}.Check()
}

// files returns the content of the session's files: of claude-code all that it has begun.
func (c *chaos) files() (all []byte) {
	paths := []string{c.Known(c.run).Session}
	if c.schedule.Harness == "claude-code" {
		paths, _ = filepath.Glob(filepath.Join(c.Dir, ".claude", "projects", "*", "*.jsonl")) // a good pattern
	}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			c.T.Fatal(err)
		}
		all = append(all, b...)
	}
	return all
}

func (c *chaos) pending() int {
	var p thread.Pending
	for _, e := range c.Entries() {
		p.Add(e)
	}
	return len(p.Chats())
}

// next starts the thread's next run.
func (c *chaos) next() {
	c.runs++
	c.run = "r" + strconv.Itoa(c.runs)
	c.Without("ARBE_RUN_ID")
	c.Env = append(c.Env, "ARBE_RUN_ID="+c.run)
	c.Begin()
	gone := make(chan error, 1)
	c.gone = gone
	go func(r *scene.Runner) { gone <- r.Wait() }(c.R) // going receives it
}

// going starts the next run where the newest one has ended.
func (c *chaos) going() {
	select {
	case <-c.gone:
		c.logs.WriteString("-- " + c.run + " --\n" + c.R.Log.String())
		c.next()
	default:
	}
}

// strike lets something fail. What is gone already can't fail.
func (c *chaos) strike(s livechaos.Strike) {
	pids := scene.RunnerPIDs(c.R.Process.Pid) // the keeper's comes first
	switch s.Fault {
	case livechaos.WorkerKill:
		if c.blind {
			c.forget(pids)
		} else if len(pids) > 1 {
			kill(pids[1])
		}
	case livechaos.KeeperKill:
		kill(pids[0])
		time.Sleep(s.After / 2) // this is the schedule
		for _, pid := range pids[1:] {
			kill(pid)
		}
		c.over()
	case livechaos.AgentKill:
		if k := c.knownOrNone(); k > 0 {
			kill(k)
			c.over()
		}
	case livechaos.ServerAway:
		c.gate.set(true)
		time.Sleep(s.Lasts) // this is the schedule
		c.gate.set(false)
	}
}

// over waits until the newest run has ended, and starts the next one.
func (c *chaos) over() {
	select {
	case err := <-c.gone:
		c.gone <- err
		c.going()
	case <-time.After(2 * time.Minute):
		c.T.Fatalf("run %s does not end\n%s", c.run, c.R.Log.String())
	}
}

// knownOrNone returns the agent's process, 0 for none: the run's folder is there before its record.
func (c *chaos) knownOrNone() int {
	record := filepath.Join(c.Dir, ".arbe", "runs", c.Thread, c.run, "run.json")
	if _, err := os.Stat(record); err != nil {
		return 0
	}
	return c.Known(c.run).AgentPID
}

// forget kills the worker while a message is written and not on record, and lets the journal have that it was lost.
func (c *chaos) forget(pids []int) {
	if len(pids) < 2 {
		return
	}
	journal := filepath.Join(c.Dir, ".arbe", "runs", c.Thread, c.run, "input.jsonl")
	var open []string
	for range 1000 {
		if open = outstanding(journal); len(open) > 0 {
			break
		}
		time.Sleep(time.Millisecond) // between two looks
	}
	_ = syscall.Kill(pids[0], syscall.SIGSTOP) // it starts no worker meanwhile
	kill(pids[1])
	f, err := os.OpenFile(journal, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.T.Fatal(err)
	}
	for _, id := range outstanding(journal) {
		_, err = f.Write(thread.Marshal(map[string]string{"op": "back", "id": id}))
		_, nerr := f.WriteString("\n")
		if err = errors.Join(err, nerr); err != nil {
			c.T.Fatal(err)
		}
	}
	_ = f.Close() // written by system calls
	_ = syscall.Kill(pids[0], syscall.SIGCONT)
}

// outstanding returns the ids of the messages that a journal has as written, and not as taken in.
func outstanding(journal string) (ids []string) {
	b, _ := os.ReadFile(journal) // there is none yet
	chats := map[string]string{}
	for line := range bytes.Lines(b) {
		var r struct {
			Op, ID, Chat string
			Chats        []string
		}
		if json.Unmarshal(line, &r) != nil {
			continue
		}
		switch r.Op {
		case "put":
			chats[r.Chat] = r.ID
		case "taken":
			for _, id := range r.Chats {
				delete(chats, id)
			}
		}
	}
	for _, id := range chats {
		ids = append(ids, id)
	}
	return ids
}

// kill kills a process, which may be gone.
func kill(pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) }

// cut is a way to the server that can be cut off.
type cut struct {
	l  net.Listener
	to string

	mu    sync.Mutex
	down  bool
	conns map[net.Conn]bool
	wg    sync.WaitGroup
}

func newCut(t *testing.T, to string) *cut {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	x := &cut{l: l, to: to, conns: map[net.Conn]bool{}}
	x.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			x.wg.Go(func() { x.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close() // it has no more to accept
		x.set(true)
		x.wg.Wait()
	})
	return x
}

// set breaks all connections and refuses further ones, or serves again.
func (x *cut) set(down bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.down = down; !down {
		return
	}
	for c := range x.conns {
		_ = c.Close() // this is the fault
	}
}

// add notes a connection; false while the server is away.
func (x *cut) add(c net.Conn) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.down {
		_ = c.Close() // this is the fault
		return false
	}
	x.conns[c] = true
	return true
}

func (x *cut) serve(c net.Conn) {
	if !x.add(c) {
		return
	}
	defer x.drop(c)
	s, err := net.Dial("tcp", x.to)
	if err != nil || !x.add(s) {
		return
	}
	defer x.drop(s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(s, c) // broken connections are its purpose
		_ = s.Close()
	}()
	_, _ = io.Copy(c, s)
	_ = c.Close()
	<-done
}

func (x *cut) drop(c net.Conn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	_ = c.Close() // closed before, mostly
	delete(x.conns, c)
}
