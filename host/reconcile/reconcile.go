// Package reconcile ends runs that died without reporting their end, and does the work after a run.
//
// For a thread it does five things, in this order, each only on evidence:
//
//  1. An open run whose box or runner is dead, or that was silent for too long, gets a provisional end. If the runner's
//     own end still arrives, it replaces the provisional one.
//  2. The work that the launch asked for (a push, a copy back) is done, if this host can do it.
//  3. The parent thread of a delegated run gets the run's end once, a provisional one after a delay. If the runner
//     replaces an end that was delivered, the parent gets one correction.
//  4. A command in a box (arbe exec) whose box or supervisor is dead gets its end, and so does a bot's reaction on
//     which no host works any more.
//  5. Boxes that are no longer needed are released by a record on the box's lease, then deleted by id.
//
// The ids of all entries follow from the run, and every box has a lease. So any number of reconcilers may work at the
// same time, and another one finishes what one that dies half-way has begun. Boxes of other installations are never
// touched.
package reconcile

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"arbe.0sk.ar/runner/host/reap"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// Defaults of a Reconciler.
const (
	DefaultOrphanAfter = 30 * time.Minute
	DefaultReapAfter   = reap.DefaultReapAfter
	DefaultNotifyAfter = 10 * time.Minute
)

// Host is the work that this host can do for a run that has ended. A nil func is work that it can't do.
type Host struct {
	// Push pushes the branch of a completed run. intent is the run's prompt.
	Push func(ctx context.Context, box sandbox.Sandbox, threadID string, run thread.Run, intent string) thread.Pushed
	// Sync copies the run's folder back. mine is false if another host has that folder.
	Sync func(ctx context.Context, box sandbox.Sandbox, threadID string, run thread.Run) (result thread.Synced,
		mine bool)
	// Unsaved describes work that exists in the box only; "" for none.
	Unsaved func(ctx context.Context, box sandbox.Sandbox, b sandbox.Box) (string, error)
}

// Reconciler settles threads. It is safe for concurrent use. All durations have defaults.
type Reconciler struct {
	Client    func(threadID string) (*client.Client, error) // for writing the thread
	Providers map[string]Provider                           // by name; boxes of other providers have no evidence
	Host      Host
	Rows      Rows // of threads and boxes; nil without a database

	OrphanAfter time.Duration // silence that ends an open run without evidence; bounds the shorter times
	ReapAfter   time.Duration // time that a box with unsaved or pending work is kept after its run
	NotifyAfter time.Duration // age at which a provisional end is delivered to the parent
	Again       time.Duration // between the two queries of a box that seems gone
	Author      string        // of all entries; "" for none

	// Known returns what is known of a thread without reading it; false where it has to be read. It is nil for a host
	// that reads every thread.
	Known func(ctx context.Context, id string) (Known, bool)
	Log   *slog.Logger // nil for none

	Harnesses session.List // those whose lines may be on threads; nil for session's list

	mu        sync.Mutex
	tried     map[string]time.Time // time of the last try of the work after a run
	goneSince map[string]time.Time // since when the box of an open command was gone at each look
}

// Known is a thread's fold, at this time of the server's clock. Its reactions may lack signs of life.
type Known struct {
	Fold      thread.Fold
	Reactions thread.Reactions
	Next      string // the offset behind the last entry of the fold
	Now       time.Time
}

// Values of Action.Did.
const (
	Orphaned  = "orphaned"  // a run got a provisional end
	Pushed    = "pushed"    // a run's work was pushed
	Synced    = "synced"    // a run's work was copied back
	Notified  = "notified"  // a parent got a run's end
	Corrected = "corrected" // a parent got a correction
	Kept      = "kept"      // a box is kept after its run
	Reaped    = "reaped"    // a box was released
	Ended     = "ended"     // a command in a box, or a bot's reaction, got an end
	Waits     = "waits"     // of State.Waits
)

// Action is one action of a Reconciler.
type Action struct {
	Thread string `json:"threadId"`
	Run    string `json:"runId,omitempty"`
	Did    string `json:"did"`
	Why    string `json:"why,omitempty"`
}

// State is the state of a thread after a pass.
type State struct {
	Status  string // of the thread
	Open    bool   // a later pass has work to do on the thread
	Actions []Action
	// Waits are boxes that another host holds, by whom and until when: what a person would else not understand.
	Waits []Action
}

// Thread settles one thread. An error names the parts that failed; all others are done.
func (r *Reconciler) Thread(ctx context.Context, id string) (State, error) {
	p, err := r.begin(ctx)
	if err != nil {
		return State{Open: true}, err
	}
	return p.thread(ctx, id, true)
}

// After does the work after a run, and nothing else. The caller holds the box as holder.
func (r *Reconciler) After(ctx context.Context, id, run, holder string) (thread.Run, error) {
	p, err := r.begin(ctx)
	if err != nil {
		return thread.Run{}, err
	}
	t, err := p.open(ctx, id)
	if err != nil {
		return thread.Run{}, err
	}
	err = t.after(ctx, t.run(run), holder, true)
	return t.run(run), err
}

// End gives one run its provisional end if it is dead, and does nothing else.
func (r *Reconciler) End(ctx context.Context, id, run string) error {
	p, err := r.begin(ctx)
	if err != nil {
		return err
	}
	t, err := p.open(ctx, id)
	if err != nil {
		return err
	}
	if open := t.run(run); open.Status == thread.StatusRunning {
		return t.settle(ctx, open)
	}
	return nil
}

// thread settles one thread. urgent is set if a person waits for it.
func (p *pass) thread(ctx context.Context, id string, urgent bool) (State, error) {
	t, err := p.open(ctx, id)
	if client.NoThread(err) {
		// The thread was deleted, or its launch died before its first entry. Its boxes are released by age.
		t, err = &settling{pass: p, id: id}, nil
		if t.client, err = p.r.Client(id); err != nil {
			return State{}, err
		}
		t.now = time.Now()
	}
	if err != nil {
		return State{Open: true}, err
	}
	var errs []error
	for _, run := range t.fold.Runs() {
		if run.Status == thread.StatusRunning {
			errs = append(errs, t.settle(ctx, run))
		}
	}
	for _, run := range t.fold.Runs() {
		if run.Status == thread.StatusRunning {
			t.pending = true
			continue
		}
		errs = append(errs, t.after(ctx, run, "", urgent))
		if run.Parent != nil {
			errs = append(errs, t.notify(ctx, run))
		}
	}
	errs = append(errs, t.settleExecs(ctx), t.settleReactions(ctx), t.rows(ctx))
	for _, ref := range t.gone {
		s, err := p.box(ctx, ref, id)
		t.actions, t.waiting = append(t.actions, s.Actions...), append(t.waiting, s.Waits...)
		t.pending, errs = t.pending || s.Open, append(errs, err)
	}
	errs = append(errs, t.reap(ctx))
	err = errors.Join(errs...)
	state := State{
		Status: t.fold.Status(), Open: t.pending || err != nil, Actions: t.actions, Waits: t.waiting,
	}
	if err == nil {
		p.memory.keep(t) // another thread's settling may take it from here on
	}
	return state, err
}

// settling is a thread under way. It belongs to one goroutine.
type settling struct {
	*pass
	client *client.Client
	id     string

	fold      thread.Fold
	reactions thread.Reactions // of bots, without an end
	now       time.Time        // the server's clock
	next      string           // the offset to read on from
	pending   bool             // a later pass has work to do
	actions   []Action
	waiting   []Action
	gone      []sandbox.Ref // boxes of it that their provider calls gone
}

// open takes a thread's fold from what is known, or reads the thread's signals: all, or the new ones of a thread in
// memory.
func (p *pass) open(ctx context.Context, id string) (*settling, error) {
	var known Known
	is := false
	if p.r.Known != nil {
		known, is = p.r.Known(ctx, id)
	}
	t := p.memory.take(id)
	if t != nil {
		t.pass, t.pending, t.actions, t.waiting, t.gone = p, false, nil, nil, nil
		if !is && t.read(ctx) == nil {
			return t, nil
		}
		// The log may have been restored from a backup: read the thread from its start.
	} else {
		cl, err := p.r.Client(id)
		if err != nil {
			return nil, err
		}
		t = &settling{pass: p, client: cl, id: id}
	}
	if is {
		t.fold, t.reactions, t.next, t.now = known.Fold, known.Reactions, known.Next, known.Now
		return t, nil
	}
	t.next = ""
	if err := t.read(ctx); err != nil {
		return nil, fmt.Errorf("read thread %s: %w", id, err)
	}
	return t, nil
}

// signals is the prefix of the types of all signals.
const signals = "signal."

// read reads the new signals of the thread, and when the last line of an open run came.
func (t *settling) read(ctx context.Context) error {
	from := t.next
	if from == "" {
		from, t.fold, t.reactions = "0", thread.Fold{}, thread.Reactions{}
	}
	if err := t.reading.acquire(ctx); err != nil {
		return err
	}
	defer t.reading.release()
	page, err := t.client.Only(signals).Without(thread.TypeDelta).Read(ctx, from, false, func(e thread.Entry) error {
		t.fold.Add(e)
		t.reactions.Add(e)
		return nil
	})
	if err == nil && t.fold.Status() == thread.StatusRunning {
		err = t.lastLine(ctx)
	}
	if err != nil {
		return err
	}
	t.next, t.now = page.Next, page.Now
	if t.now.IsZero() {
		t.now = time.Now()
	}
	return nil
}

// lastLine adds the thread's last line to the fold: a sign of life of its latest run.
func (t *settling) lastLine(ctx context.Context) error {
	var last thread.Entry
	lines := t.client.Only(t.r.Harnesses.Types("")...)
	keep := func(e thread.Entry, done error) error {
		if f, err := thread.Scan(e.Payload); err == nil && f.Reaction { // of a bot
			return nil
		}
		last = e
		return done
	}
	next, err := lines.ReadBack(ctx, "now", func(e thread.Entry) error {
		return keep(e, client.ErrStop)
	})
	if err == nil && next == "" { // an older server
		_, err = lines.Read(ctx, "0", false, func(e thread.Entry) error {
			return keep(e, nil)
		})
	}
	at := last.Received()
	if at.IsZero() {
		at = last.Time()
	}
	if run, _ := t.fold.Latest(); err == nil && at.After(run.LastEntry) {
		t.fold.AddLine(thread.Fields{}, at)
	}
	return err
}

// maxIntent bounds the part of a prompt that is kept, in bytes.
const maxIntent = 1 << 10

// prompt returns the beginning of a run's prompt; "" where the thread has none.
func (t *settling) prompt(ctx context.Context, run string) (string, error) {
	e, ok, err := t.client.Entry(ctx, run+".prompt")
	if err != nil || !ok {
		return "", err
	}
	var chat thread.Chat
	if json.Unmarshal(e.Payload, &chat) != nil || chat.RunID != run {
		return "", nil
	}
	return strings.ToValidUTF8(chat.Text[:min(len(chat.Text), maxIntent)], ""), nil
}

// text returns the text of a run's end: why it failed, or the last text of its agent. It reads the thread's replies.
func (t *settling) text(ctx context.Context, id string) (text string, err error) {
	if err := t.reading.acquire(ctx); err != nil {
		return "", err
	}
	defer t.reading.release()
	var fold thread.Fold
	replies := append(t.r.Harnesses.Types(thread.KindAssistant), signals)
	_, err = t.client.Only(replies...).Read(ctx, "0", false, func(e thread.Entry) error {
		fold.Add(e)
		if run, ok := fold.Latest(); ok && run.ID == id {
			text = cmp.Or(assistantText(e), text)
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("read thread %s: %w", t.id, err)
	}
	if run, ok := fold.Run(id); ok && run.Cause != nil {
		text = run.Cause.Message
	}
	return text, nil
}

// run returns the run with the id; the zero Run if there is none.
func (t *settling) run(id string) thread.Run {
	run, _ := t.fold.Run(id)
	return run
}

// assistantText returns the text of an assistant's turn; "" for any other entry.
func assistantText(e thread.Entry) string {
	var p thread.Line
	if json.Unmarshal(e.Payload, &p) != nil || !strings.HasSuffix(p.Type, "."+thread.KindAssistant) ||
		p.SubagentOf != "" {
		return ""
	}
	var m struct{ Content json.RawMessage }
	var blocks []struct{ Type, Text string }
	var text string
	if json.Unmarshal(p.Message, &m) != nil || json.Unmarshal(m.Content, &blocks) != nil {
		_ = json.Unmarshal(m.Content, &text) // a text, or content without any
		return text
	}
	var parts []string
	for _, b := range blocks {
		if b.Type == "text" && b.Text != "" {
			parts = append(parts, b.Text)
		}
	}
	return strings.Join(parts, "\n")
}

func (t *settling) record(run, what, why string) {
	t.actions = append(t.actions, Action{t.id, run, what, why})
	if t.r.Log != nil {
		t.r.Log.Info(what, "thread", t.id, "run", run, "why", why)
	}
}

func (t *settling) entry(id string, payload any) thread.Entry {
	return thread.NewEntry(id, t.r.Author, payload)
}

func signal(run thread.Run, typ string) thread.Signal {
	return thread.Signal{Type: typ, RunID: run.ID, Harness: run.Harness}
}

// errTaken is returned by post if another reconciler has posted another payload with one of the ids. That one stays.
var errTaken = errors.New("posted by another reconciler")

// post posts entries. fresh is false if the thread has them already.
func (t *settling) post(ctx context.Context, cl *client.Client, entries ...thread.Entry) (fresh bool, err error) {
	ack, err := cl.Append(ctx, entries)
	switch {
	case client.Taken(err):
		return false, errTaken
	case err != nil:
		return false, fmt.Errorf("post to thread %s: %w", cl.Thread, err)
	}
	return ack.Duplicates == 0, nil
}
