package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/cmd/internal/screen"
	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// mostTail bounds -n, whose entries are held in memory.
const mostTail = 10_000

func (p *program) tailCommand() *cli.Command {
	return &cli.Command{
		Name:      "tail",
		Usage:     "show a thread for people, live, until its run has ended and no bot answers",
		ArgsUsage: "ID",
		Description: `Waits for a thread that does not exist yet. On a terminal a bot's reply is shown as it comes, in a pipe
once it is whole. With --database members of the thread's house, and other threads, stand there by their names.
Exit status with --exit-status: as that of arbe run; 75 if the run is still open.`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "keep following after the run's end"},
			&cli.BoolFlag{Name: "no-wait", Usage: "show the present entries and exit"},
			&cli.IntFlag{Name: "n", Usage: "begin with the last `N` entries, without signs of life and deltas"},
			&cli.StringFlag{Name: "run", Usage: "show the run with the id `RUN` only; latest is the newest one"},
			&cli.BoolFlag{Name: "exit-status", Usage: "end with the exit status of the run"},
			&cli.BoolFlag{Name: "full", Usage: "show long outputs whole"},
			&cli.BoolFlag{Name: "json", Usage: "print the entries as NDJSON"},
			databaseFlag(),
		},
		Action: p.threadTail,
	}
}

// tailing is a tail under way.
type tailing struct {
	*program
	client *client.Client
	show   func(thread.Entry) error
	busy   func() bool // a bot answers
	ran    func()      // is called where the thread has had a run before the entries that are shown
	part   view.Part   // shown alone; without a Run all is shown
	fold   *thread.Fold
	from   string // the offset to follow from
}

func (p *program) threadTail(c *cli.Context) error {
	n := c.Int("n")
	switch {
	case c.IsSet("n") && (n < 1 || n > mostTail):
		return cmdline.Usage("-n: want 1 to %d", mostTail)
	case n > 0 && c.String("run") != "":
		return cmdline.Usage("-n and --run exclude each other")
	case c.Bool("follow") && c.Bool("no-wait"):
		return cmdline.Usage("--follow and --no-wait exclude each other")
	}
	cmd := p.command(c)
	cl, err := cmd.reading(c.Context)
	if err != nil {
		return err
	}
	t := &tailing{program: p, client: cl, fold: &thread.Fold{}, from: "0"}
	t.busy, t.ran = func() bool { return false }, func() {}
	if err := t.wait(c.Context, c.Bool("no-wait")); err != nil {
		return reachThread(cl, err)
	}
	check := func() {}
	if t.show = func(e thread.Entry) error { return printEntry(p.stdout, e) }; !c.Bool("json") {
		o := others{cmd, cmd.opened()}
		s := p.show(cl, screen.Options{
			Full: c.Bool("full"), Name: p.names(c.Context, o.rows, cl.Thread), Title: o.title, Task: o.task,
		})
		defer s.Stop()
		t.show, t.busy, t.ran, check = s.Entry, s.Replying, s.Ran, s.Check
	}
	switch {
	case n > 0:
		err = t.last(c.Context, n)
	case c.String("run") != "":
		err = t.choose(c.Context, c.String("run"))
	}
	if client.NotFound(err) && !client.Gone(err) && !c.Bool("no-wait") {
		err = nil // it is waited for
	}
	if err != nil {
		return reachThread(cl, err)
	}
	switch {
	case n > 0 && t.over() && !c.Bool("follow"): // nothing to wait for
	case c.Bool("no-wait"):
		if _, err = cl.Read(c.Context, t.from, false, t.each); err == nil {
			check()
		}
	default:
		err = cl.Follow(c.Context, t.from, t.each, func() bool { return t.over() && !c.Bool("follow") })
	}
	if err != nil || !c.Bool("exit-status") {
		return reachThread(cl, err)
	}
	return t.exit()
}

// wait reports on stderr that a thread does not exist yet. Another server's answer is an error; one that is away is
// not, for Follow waits for it.
func (t *tailing) wait(ctx context.Context, noWait bool) error {
	if noWait {
		return nil
	}
	entries, err := exists(ctx, t.client)
	switch {
	case client.Gone(err):
		return err
	case err == nil && !entries:
		fmt.Fprintf(t.stderr, "arbe: thread %s has no entries yet; waiting for the first one\n", t.client.Thread)
		return nil
	case client.NoThread(err):
		fmt.Fprintf(t.stderr, "arbe: no such thread yet: %s; waiting for its first entry\n", t.client.Thread)
		return nil
	case client.Foreign(err) && !errors.Is(err, client.ErrNoSummary):
		return err
	case client.Foreign(err): // an older server has no summaries; another server has no threads either
		_, err = t.client.ReadBack(ctx, "now", func(thread.Entry) error { return client.ErrStop })
		if client.Foreign(err) {
			return err
		}
	}
	return nil
}

// each takes the thread's next entry.
func (t *tailing) each(e thread.Entry) error {
	t.fold.Add(e)
	if t.part.Run != "" && !t.part.Has(e) {
		return nil
	}
	return t.show(e)
}

// over reports whether the run has ended: the chosen one, or the thread's latest, and no bot answers.
func (t *tailing) over() bool {
	r, any := t.latest()
	return any && r.Status != thread.StatusRunning && !t.busy()
}

func (t *tailing) latest() (thread.Run, bool) {
	if t.part.Run != "" {
		return t.fold.Run(t.part.Run)
	}
	return t.fold.Latest()
}

// exit returns the run's exit status as an error.
func (t *tailing) exit() error {
	r, any := t.latest()
	if !any || r.Status == thread.StatusRunning {
		const text = "thread %s is %s: no exit status yet"
		return cmdline.Fail(exitBusy, text, t.client.Thread, t.fold.Status())
	}
	return ended(t.fold, r.ID)
}

// last shows the thread's last n entries that are no signs of life and no pieces of replies, and follows from there.
func (t *tailing) last(ctx context.Context, n int) error {
	fold, before, err := readRuns(ctx, t.client, runSignals...)
	if t.fold = fold; err != nil {
		return err
	}
	if _, any := fold.Latest(); any {
		t.ran()
	}
	var entries []thread.Entry
	add := func(e thread.Entry) {
		if typ := thread.TypeOf(e.Payload); typ != thread.TypeHeartbeat && !thread.IsPassing(typ) {
			entries = append(entries, e)
		}
	}
	back := func(e thread.Entry) error {
		if add(e); len(entries) == n {
			return client.ErrStop
		}
		return nil
	}
	next := ""
	if before != "" {
		next, err = t.client.ReadBack(ctx, before, back)
	}
	if err != nil {
		return err
	}
	if next == "" { // an older server reads forwards alone
		entries, t.fold = nil, &thread.Fold{}
		page, err := t.client.Read(ctx, "0", false, func(e thread.Entry) error {
			t.fold.Add(e)
			if add(e); len(entries) > 2*n {
				entries = slices.Delete(entries, 0, len(entries)-n)
			}
			return nil
		})
		if err != nil {
			return err
		}
		entries, next = entries[max(0, len(entries)-n):], page.Next
		slices.Reverse(entries)
	}
	for _, e := range slices.Backward(entries) {
		if err := t.show(e); err != nil {
			return err
		}
	}
	if t.from = next; next == "" {
		return errors.New("-n: an older thread server can't be followed from an offset")
	}
	return nil
}

// choose sets the run to show: latest, or the one whose id begins with name.
func (t *tailing) choose(ctx context.Context, name string) error {
	fold, _, err := readRuns(ctx, t.client, runSignals...)
	if err != nil {
		return err
	}
	var found []string
	if r, ok := fold.Latest(); ok && name == "latest" {
		found = append(found, r.ID)
	} else if r, ok := fold.Run(name); ok {
		found = append(found, r.ID)
	} else if len(name) >= leastPrefix {
		for _, r := range fold.Runs() {
			if strings.HasPrefix(r.ID, name) {
				found = append(found, r.ID)
			}
		}
	}
	switch {
	case len(found) == 0 && name == "latest": // it is waited for
		return nil
	case len(found) == 1:
		t.part.Run = found[0]
		return nil
	case len(found) > 1:
		return cmdline.Usage("--run %q is ambiguous: %s", name, strings.Join(found, ", "))
	}
	return cmdline.Fail(exitNoThread,
		"thread %s has no run %s; arbe thread status --json %[1]s lists its runs", t.client.Thread, name)
}

// show returns a screen that shows the client's thread on stdout, from any entry on. Stop it after the last one. A
// live line shows that the server is away, which the client then does not log: the log would break into that line.
// Where a person types on the terminal, nothing on it changes in place. Full, Typed, Ends, Name, Title and Task of the
// options count.
func (p *program) show(cl *client.Client, how screen.Options) *screen.Screen {
	o := screen.For(p.stdout, os.Getenv)
	if o.Typed = how.Typed && o.Live; o.Typed {
		o.Live = false
	}
	if o.Live {
		cl.Log = nil
	}
	o.Thread, o.Away, o.Server = cl.Thread, cl.Away, serverOf(cl.Address())
	o.Full, o.Ends, o.Name, o.Harnesses = how.Full, how.Ends, how.Name, session.Harnesses()
	o.Title, o.Task = how.Title, how.Task
	s := screen.New(p.stdout, o)
	s.Start()
	return s
}
