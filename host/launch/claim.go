package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// claimTimeout is the age at which a claim without its run counts as left by a launch that died. It matters for servers
// that accept single entries only: elsewhere the claim and the run are one append.
const claimTimeout = time.Minute

// signals is the prefix of the types of all signals.
const signals = "signal."

// log is the state of the thread, read from its signals.
type log struct {
	fold   thread.Fold
	claims map[int]claim
	// cancels are the requests to end a run.
	cancels []cancel
	steps   map[string]map[string]int // by run: how many steps of each type have made its box
	next    string
	now     time.Time // the server's clock
}

type claim struct {
	run string
	at  time.Time
}

// read reads the new signals of the thread.
func (g *log) read(ctx context.Context, cl *client.Client) error {
	from := g.next
	if from == "" {
		from, g.fold, g.cancels = "0", thread.Fold{}, nil
		g.claims, g.steps = map[int]claim{}, map[string]map[string]int{}
	}
	page, err := cl.Only(signals).Read(ctx, from, false, func(e thread.Entry) error {
		g.fold.Add(e)
		if c, is := cancelOf(e, &g.fold); is {
			g.cancels = append(g.cancels, c)
		}
		g.step(e)
		if number, is := strings.CutPrefix(e.ID, "run."); is {
			var c thread.Claim
			if k, err := strconv.Atoi(number); err == nil && json.Unmarshal(e.Payload, &c) == nil &&
				c.Type == thread.TypeClaim {
				g.claims[k] = claim{c.RunID, e.Received()}
			}
		}
		return nil
	})
	if err != nil && !client.NotFound(err) {
		return fmt.Errorf("read the thread: %w", err)
	}
	g.next, g.now = page.Next, page.Now
	return nil
}

// step counts a step of making a box.
func (g *log) step(e thread.Entry) {
	var s thread.SetupStep
	if f, err := thread.Scan(e.Payload); err != nil || !thread.IsSetup(f.Type) ||
		json.Unmarshal(e.Payload, &s) != nil || s.Error != "" {
		return
	}
	if g.steps[s.RunID] == nil {
		g.steps[s.RunID] = map[string]int{}
	}
	g.steps[s.RunID][s.Type]++
}

// status returns the status of a run; "" if the thread has no run with the id.
func (g *log) status(run string) string {
	r, _ := g.fold.Run(run)
	return r.Status
}

// free returns the number of the thread's next run, or the run that blocks it.
func (g *log) free() (k int, busy string) {
	if r, ok := g.fold.Latest(); ok && r.Status == thread.StatusRunning {
		return 0, r.ID
	}
	for k = len(g.fold.Runs()); ; k++ {
		c, taken := g.claims[k]
		switch {
		case !taken:
			return k, ""
		case g.status(c.run) == "" && g.now.Sub(c.at) < claimTimeout:
			return 0, c.run
		}
	}
}

// claim posts the run's beginning, and more with it. It returns a *BusyError if another run is open or another launch
// was first.
func (g *launching) claim(ctx context.Context, more ...thread.Entry) error {
	k, busy := g.thread.free()
	if busy != "" {
		return &BusyError{g.Thread, busy}
	}
	mine := g.entry(thread.ClaimID(k), thread.Claim{Signal: g.signal(thread.TypeClaim)})
	var run []thread.Entry
	if strings.TrimSpace(g.Prompt) != "" {
		run = append(run,
			g.entry(g.Run+".prompt", thread.Chat{Type: thread.TypeChat, Text: g.Prompt, RunID: g.Run}))
	}
	run = append(run, g.entry(g.Run+".running", thread.StatusChanged{
		Signal: g.signal(thread.TypeStatus), Status: thread.StatusRunning, Parent: g.Parent,
	}))
	run = append(run, more...)
	var err error
	if g.server.Installation != "" {
		if _, err = g.Client.AppendAtomic(ctx, append([]thread.Entry{mine}, run...)); err != nil {
			err = fmt.Errorf("post to the thread: %w", err)
		}
	} else if err = g.post(ctx, mine); err == nil { // an older server has no atomic append: the claim alone decides
		err = g.post(ctx, run...)
	}
	if !client.Taken(err) {
		return err
	}
	if err := g.thread.read(ctx, g.Client); err != nil {
		return err
	}
	if c, taken := g.thread.claims[k]; taken && c.run != g.Run {
		return &BusyError{g.Thread, c.run}
	}
	return err
}
