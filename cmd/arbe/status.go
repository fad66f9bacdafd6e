package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/cmd/internal/listing"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

func (p *program) statusCommand() *cli.Command {
	return &cli.Command{
		Name:      "status",
		Usage:     "print a thread's status: idle, running, completed, failed or cancelled",
		ArgsUsage: "ID",
		Description: `In a pipe the status is one word. A terminal gets the rest of the line, too: harness, model,
time, and for an open run when its last entry came. Where three heartbeats are missing, a warning goes
to stderr.`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object with the thread's summary and its runs"},
		},
		Action: p.threadStatus,
	}
}

// exists returns whether the thread has entries. A thread that does not exist is an error for client.NoThread.
func exists(ctx context.Context, cl *client.Client) (entries bool, err error) {
	_, _, err = cl.Summary(ctx)
	if !client.NoThread(err) {
		return err == nil, err
	}
	// The list has no threads without entries.
	_, err = cl.Read(ctx, "0", false, func(thread.Entry) error { entries = true; return client.ErrStop })
	if errors.Is(err, client.ErrStop) {
		err = nil
	}
	return entries, err
}

// readRuns reads the runs of a thread, from the entries of these types alone, or from all without any. It returns the
// offset up to which it has read.
func readRuns(
	ctx context.Context, cl *client.Client, only ...string,
) (fold *thread.Fold, next string, err error) {
	fold = &thread.Fold{}
	page, err := cl.Only(only...).Read(ctx, "0", false, func(e thread.Entry) error { fold.Add(e); return nil })
	return fold, page.Next, err
}

// seen is a thread's state, read from the server.
type seen struct {
	thread.Summary           // Status alone where the server has no summaries, and of a thread without entries
	now            time.Time // by the server's clock
	fold           *thread.Fold
}

// runSignals are the types that make up a thread's runs, without their heartbeats.
var runSignals = []string{"signal.thread.", "signal.dispatch.session_started", "signal.dispatch.sandbox"}

// see reads a thread's summary, and with runs its runs. A server without summaries gives the whole thread.
func see(ctx context.Context, cl *client.Client, runs bool) (s seen, err error) {
	s.fold = &thread.Fold{}
	s.Summary, s.now, err = cl.Summary(ctx)
	if s.now.IsZero() {
		s.now = time.Now()
	}
	only := runSignals
	switch {
	case errors.Is(err, client.ErrNoSummary) && !client.Foreign(err), client.NoThread(err):
		only, runs = nil, true
	case err != nil:
		return s, err
	}
	known := err == nil
	if runs {
		if s.fold, _, err = readRuns(ctx, cl, only...); err != nil {
			return s, err
		}
	}
	if !known {
		s.Summary = thread.Summary{ID: cl.Thread, Status: s.fold.Status()}
		if run, ok := s.fold.Latest(); ok {
			s.Run, s.Harness = run.ID, run.Harness
		}
	}
	return s, nil
}

func (p *program) threadStatus(c *cli.Context) error {
	cl, err := p.command(c).reading(c.Context)
	if err != nil {
		return err
	}
	s, err := see(c.Context, cl, c.Bool("json"))
	if err != nil {
		return reachThread(cl, err)
	}
	if c.Bool("json") {
		return p.printStatus(s)
	}
	line := s.Status
	if _, terminal := cmdline.Terminal(p.stdout); terminal {
		line = strings.Join(listing.Words(s.Summary, s.now), " · ")
	}
	fmt.Fprintln(p.stdout, line)
	if state, silence := listing.StateOf(s.Summary, s.now); state == listing.Dead && s.LastEntryAt != "" {
		const text = "arbe: no entry from the runner for %s: if its box is gone, arbe reconcile %s ends the run\n"
		fmt.Fprintf(p.stderr, text, listing.ShortDuration(silence), cl.Thread)
	}
	return nil
}

// jsonRun is a run as status --json prints it.
type jsonRun struct {
	RunID       string           `json:"runId"`
	Harness     string           `json:"harness"`
	Status      string           `json:"status"`
	Provisional bool             `json:"provisional"` // posted by a host; the runner's own end replaces it
	LastSignal  string           `json:"lastSignalAt"`
	Cause       *thread.Failed   `json:"cause,omitempty"`
	Orphaned    *thread.Orphaned `json:"orphaned,omitempty"`
	Totals      *thread.Totals   `json:"totals,omitempty"`
	Sandbox     *thread.Sandbox  `json:"sandbox,omitempty"`
}

// printStatus prints a thread as JSON.
func (p *program) printStatus(s seen) error {
	runs := []jsonRun{}
	for _, r := range s.fold.Runs() {
		last := thread.Stamp(r.LastSignal)
		if r.ID == s.Run && r.Status == thread.StatusRunning {
			last = max(last, s.LastBeatAt) // heartbeats were not read
		}
		runs = append(runs, jsonRun{
			r.ID, r.Harness, r.Status, r.Provisional, last, r.Cause, r.Orphaned, r.Totals, r.Box(),
		})
	}
	state, silence := listing.StateOf(s.Summary, s.now)
	out := struct {
		ThreadID string          `json:"threadId"`
		Status   string          `json:"status"`
		State    string          `json:"state"`              // the status, or waiting, silent or dead
		SilentMs int64           `json:"silentMs,omitempty"` // of an open run, since its last entry
		Summary  *thread.Summary `json:"summary,omitempty"`
		Runs     []jsonRun       `json:"runs"`
	}{s.ID, s.Status, state, silence.Milliseconds(), nil, runs}
	if s.LastEntryAt != "" {
		out.Summary = &s.Summary
	}
	enc := json.NewEncoder(p.stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}
