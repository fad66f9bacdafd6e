// Package reconcile settles what died where nobody was left to say so.
//
// For each thread with an open run it asks the provider of the run's box: a box that is gone orphans the run; one of which nobody can say what became of it
// changes nothing. A run that has been silent for too long, by the server's clock, is orphaned, too. What the host says is provisional: the runner's own end,
// should it still come, replaces it. A delegated run that has finished is told to the thread that asked for it, once. An ephemeral box on which no run is
// open is released; others are never touched.
//
// Everything that is posted has an id that follows from the run, so any number of reconcilers may work at the same time, and one that dies half-way is followed
// by another.
package reconcile

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
)

// DefaultOrphanAfter is how long a run may be silent. A runner that lives says something every minute.
const DefaultOrphanAfter = 30 * time.Minute

// maxResult bounds what a parent is told of a child's result, in bytes.
const maxResult = 64 << 10

// Reconciler settles threads. It is safe for concurrent use.
type Reconciler struct {
	Client      func(threadID string) (*thread.Client, error) // who may write the thread
	Providers   map[string]sandbox.Provider                   // by name; a box of another provider is one that nobody can ask about
	OrphanAfter time.Duration                                 // 0: DefaultOrphanAfter
	Author      string                                        // of what is posted; "" for none
	Log         *slog.Logger                                  // nil for none
}

// What a Reconciler has done.
const (
	Orphaned = "orphaned" // a run was given up
	Notified = "notified" // a parent was told of a run's end
	Reaped   = "reaped"   // a box was released
)

// Deed is one thing that was done.
type Deed struct {
	Thread string `json:"threadId"`
	Run    string `json:"runId,omitempty"`
	Did    string `json:"did"`
	Why    string `json:"why,omitempty"`
}

// State is what a thread was found to be, after what was done.
type State struct {
	Status string // of the thread
	Open   bool   // it has a run that is neither finished nor given up, or something could not be done: it is to be looked at again
	Deeds  []Deed
}

// Thread settles one thread. An error says what could not be done; the rest was.
func (r *Reconciler) Thread(ctx context.Context, id string) (State, error) {
	client, err := r.Client(id)
	if err != nil {
		return State{}, err
	}
	t := &settling{Reconciler: r, client: client, id: id, said: map[string]string{}}
	if err := t.read(ctx, "0"); err != nil {
		if thread.NotFound(err) {
			return State{Status: thread.StatusIdle}, nil
		}
		return State{Open: true}, fmt.Errorf("read thread %s: %w", id, err)
	}
	var errs []error
	for _, run := range t.fold.Runs() {
		if run.Status == thread.StatusRunning {
			errs = append(errs, t.settle(ctx, run))
		}
	}
	open := false
	for _, run := range t.fold.Runs() {
		if run.Status == thread.StatusRunning {
			open = true
		} else if run.Parent != nil {
			errs = append(errs, t.notify(ctx, run))
		}
	}
	if !open {
		errs = append(errs, t.reap(ctx))
	}
	err = errors.Join(errs...)
	return State{Status: t.fold.Status(), Open: open || err != nil, Deeds: t.deeds}, err
}

// settling is a thread under way.
type settling struct {
	*Reconciler
	client *thread.Client
	id     string

	fold  thread.Fold
	said  map[string]string // the last words of each run's agent
	now   time.Time         // the server's clock
	next  string            // the offset to read on from
	deeds []Deed
}

// read reads the thread on.
func (t *settling) read(ctx context.Context, offset string) error {
	page, err := t.client.Read(ctx, offset, false, func(e thread.Entry) error {
		t.fold.Add(e)
		if run, ok := t.fold.Latest(); ok {
			if text := lastWords(e); text != "" {
				t.said[run.ID] = text
			}
		}
		return nil
	})
	if err == nil {
		t.next, t.now = page.Next, page.Now
		if t.now.IsZero() {
			t.now = time.Now()
		}
	}
	return err
}

// lastWords is what an assistant's turn says; "" for any other entry.
func lastWords(e thread.Entry) string {
	var p thread.Line
	if json.Unmarshal(e.Payload, &p) != nil || !strings.HasSuffix(p.Type, "."+thread.KindAssistant) || p.SubagentOf != "" {
		return ""
	}
	var m struct{ Content json.RawMessage }
	var blocks []struct{ Type, Text string }
	var text string
	if json.Unmarshal(p.Message, &m) != nil || json.Unmarshal(m.Content, &blocks) != nil {
		_ = json.Unmarshal(m.Content, &text) // a text, or nothing that can be told
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

func (t *settling) did(run, what, why string) {
	t.deeds = append(t.deeds, Deed{t.id, run, what, why})
	if t.Log != nil {
		t.Log.Info(what, "thread", t.id, "run", run, "why", why)
	}
}

// settle gives a run up, where it is dead.
func (t *settling) settle(ctx context.Context, run thread.Run) error {
	silent := t.now.Sub(run.LastSignal)
	reason, why, err := "", "", error(nil)
	if run.Sandbox != nil && t.Providers[run.Sandbox.Provider] != nil {
		var health sandbox.Health
		health, why, err = t.Providers[run.Sandbox.Provider].Probe(ctx, run.Sandbox.Ref)
		if err != nil {
			err = fmt.Errorf("ask about the sandbox %s:%s: %w", run.Sandbox.Provider, run.Sandbox.Ref, err)
		} else if health == sandbox.Gone {
			reason = "box_gone"
		}
	}
	if reason == "" && silent >= cmp.Or(t.OrphanAfter, DefaultOrphanAfter) {
		reason, why = "silent", fmt.Sprintf("nothing came for %v", silent.Round(time.Second))
	}
	if reason == "" {
		return err
	}
	// Its end may have come while the provider was asked.
	if err := t.read(ctx, t.next); err != nil {
		return fmt.Errorf("read thread %s: %w", t.id, err)
	}
	for _, now := range t.fold.Runs() {
		if now.ID == run.ID && (now.Status != thread.StatusRunning || reason == "silent" && now.LastSignal.After(run.LastSignal)) {
			return nil
		}
	}
	signal := func(typ string) thread.Signal {
		return thread.Signal{Type: typ, RunID: run.ID, Harness: run.Harness}
	}
	entries := []thread.Entry{
		t.entry(run.ID+".orphan.0", "", thread.Orphaned{Signal: signal(thread.TypeOrphaned), Reason: reason, LastEntryAt: thread.Stamp(run.LastSignal), SilentMs: silent.Milliseconds()}),
		t.entry(run.ID+".orphan.1", "", thread.StatusChanged{Signal: signal(thread.TypeStatus), Status: thread.StatusFailed}),
	}
	if _, err := t.post(ctx, t.client, entries); err != nil {
		return err
	}
	t.did(run.ID, Orphaned, reason+": "+why)
	return t.read(ctx, t.next)
}

func (t *settling) entry(id, author string, payload any) thread.Entry {
	return thread.Entry{ID: id, TS: thread.Stamp(time.Now()), AuthorID: cmp.Or(author, t.Author), Payload: thread.Marshal(payload)}
}

// post posts entries and reports whether they are ours: a conflict says that another reconciler has said it already, in its own words, and that stands.
func (t *settling) post(ctx context.Context, client *thread.Client, entries []thread.Entry) (fresh bool, err error) {
	ack, err := client.Append(ctx, entries)
	var se *thread.StatusError
	switch {
	case errors.As(err, &se) && se.Status == http.StatusConflict:
		return false, nil
	case err != nil:
		return false, fmt.Errorf("post to thread %s: %w", client.Thread, err)
	}
	return ack.Duplicates == 0, nil
}

// notify tells the parent's thread what a delegated run came to.
func (t *settling) notify(ctx context.Context, run thread.Run) error {
	if !thread.ValidThread(run.Parent.ThreadID) {
		return fmt.Errorf("run %s of thread %s was delegated by thread %q, which is none", run.ID, t.id, run.Parent.ThreadID)
	}
	parent, err := t.Client(run.Parent.ThreadID)
	if err != nil {
		return err
	}
	text := t.said[run.ID]
	if run.Cause != nil {
		text = run.Cause.Message
	}
	if len(text) > maxResult {
		text = strings.ToValidUTF8(text[:maxResult], "") + "…"
	}
	if text == "" {
		text = "(it has said nothing)"
	}
	base := t.id + "." + run.ID
	fresh, err := t.post(ctx, parent, []thread.Entry{
		t.entry(base+".finished", "", thread.ChildFinished{
			Signal: thread.Signal{Type: thread.TypeChildFinished, RunID: run.ID, Harness: run.Harness}, ChildThreadID: t.id, Status: run.Status, Text: text,
		}),
		t.entry(base+".result", run.Parent.AuthorID, thread.Chat{Type: thread.TypeChat, Text: fmt.Sprintf("The task on thread %s has %s.\n\n%s", t.id, verbs[run.Status], text)}),
	})
	if err == nil && fresh {
		t.did(run.ID, Notified, "thread "+run.Parent.ThreadID)
	}
	return err
}

var verbs = map[string]string{thread.StatusCompleted: "completed", thread.StatusFailed: "failed", thread.StatusCancelled: "been cancelled"}

// reap releases the thread's ephemeral boxes, when no run is open. A run that was given up for its silence may be alive behind a network that is down: its
// box is left to it, and to the provider's own clock. A box that the thread doesn't name was made by a launch that died before it could say so.
func (t *settling) reap(ctx context.Context) error {
	run, ok := t.fold.Latest()
	silent := run.Provisional && run.Orphaned != nil && run.Orphaned.Reason == "silent"
	if !ok || run.Sandbox != nil && (!run.Ephemeral || silent) {
		return nil
	}
	var errs []error
	for name, provider := range t.Providers {
		if run.Sandbox == nil || run.Sandbox.Provider == name {
			errs = append(errs, t.release(ctx, provider, run.ID))
		}
	}
	return errors.Join(errs...)
}

// release releases the thread's ephemeral boxes of one provider.
func (t *settling) release(ctx context.Context, provider sandbox.Provider, run string) error {
	boxes, err := provider.List(ctx, map[string]string{sandbox.LabelThread: t.id, sandbox.LabelEphemeral: "true"})
	if err != nil {
		return fmt.Errorf("list the sandboxes of thread %s: %w", t.id, err)
	}
	var errs []error
	for _, b := range boxes {
		box, err := provider.Open(ctx, b.Ref.ID)
		if errors.Is(err, sandbox.ErrGone) {
			continue
		}
		if err == nil {
			err = box.Destroy(ctx)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("release the sandbox %s: %w", b.Ref, err))
			continue
		}
		t.did(run, Reaped, b.Ref.String())
	}
	return errors.Join(errs...)
}
