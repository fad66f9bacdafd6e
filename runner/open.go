package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/google/uuid"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/thread"
)

// newID is a new unique name that sorts by time.
func newID() string {
	id, err := uuid.NewV7()
	if err != nil {
		panic(err) // the system's random numbers can't fail
	}
	return id.String()
}

// NewRunID is a run id of our own, for a run that nobody has named.
func NewRunID() string { return newID() }

func promptID(run string) string  { return run + ".prompt" }
func runningID(run string) string { return run + ".running" }
func startedID(run string) string { return run + ".started" }

// PromptID is the id of the chat that asks for a run.
func PromptID(run string) string { return promptID(run) }

func (r *run) signal(typ string) thread.Signal {
	return thread.Signal{Type: typ, RunID: r.RunID, Harness: r.Spec.Name}
}

// entry is an entry of this run, written now.
func (r *run) entry(id string, payload any) thread.Entry {
	return thread.Entry{ID: id, TS: thread.Stamp(time.Now()), AuthorID: r.Author, Payload: thread.Marshal(payload)}
}

// firstEntries are what the thread gets before the agent starts, in order.
func (r *run) firstEntries() []thread.Entry {
	running := thread.StatusChanged{Signal: r.signal(thread.TypeStatus), Status: thread.StatusRunning}
	version := r.Spec.Version(r.binary)
	if r.binary != "" && !r.Spec.Proven(version) {
		r.Log.Warn("this runner is not proven with this version of the agent", "harness", r.Spec.Name, "version", cmp.Or(version, "unknown"), "proven", r.Spec.Versions)
	}
	process, _ := harness.ReadStat(r.record.PID) // without /proc the entry has no startTicks
	started := thread.Started{
		Signal: r.signal(thread.TypeStarted), RunnerVersion: r.Version, AgentVersion: version, AgentProven: r.Spec.Proven(version), Cwd: r.Redact.Text(r.Cwd),
		PID: r.record.PID, StartTicks: process.Started, BootID: r.record.Boot, Instance: r.record.Instance,
		SessionFile: r.record.Session, Sandbox: r.Sandbox, Resume: r.record.Resume,
	}
	first := []thread.Entry{r.entry(runningID(r.RunID), running), r.entry(startedID(r.RunID), started)}
	if r.Prompt != "" {
		prompt := thread.Chat{Type: thread.TypeChat, Text: r.Redact.Text(r.Prompt), RunID: r.RunID}
		first = append(first, r.entry(promptID(r.RunID), prompt))
	}
	return first
}

// promptChat is the id of the chat that the run's first turn repeats; "" where a person begins without one.
func (r *run) promptChat() string {
	if r.TTY != nil && r.Prompt == "" {
		return ""
	}
	return promptID(r.RunID)
}

// openThread posts the first entries. ErrRefused and ErrTaken say that this run must not be. A server that doesn't answer is waited for, and then the
// run goes on without it: the entries wait, and the mirror's passes begin with them.
func (r *run) openThread(ctx context.Context) error {
	patience, cancel := context.WithTimeout(ctx, r.Patience)
	defer cancel()
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := r.ensureOpen(patience)
		switch {
		case err == nil || errors.Is(err, ErrTaken) || errors.Is(err, ErrRefused):
			return err
		case thread.Refused(err):
			return fmt.Errorf("%w: %w", ErrRefused, err)
		case ctx.Err() != nil:
			return nil // told to stop: the run ends as a cancelled one
		case patience.Err() != nil:
			r.Log.Warn("the thread server has not answered; starting the agent, its entries wait", "waited", r.Patience, "error", err)
			return nil
		}
		select {
		case <-patience.Done():
		case <-time.After(wait/2 + rand.N(wait/2)):
		}
	}
}

// ensureOpen posts those of the first entries that the thread doesn't have. It is the gate before each pass of the mirror: no line comes before them.
func (r *run) ensureOpen(ctx context.Context) error {
	for len(r.opening) > 0 {
		ack, err := r.post(ctx, r.opening)
		if err == nil {
			if ack.Duplicates == 0 && r.opening[0].ID == runningID(r.RunID) {
				r.offset = ack.Next // nobody knew of the run before: what is said of it comes behind
			}
			r.opening = nil
			r.note(Fact{Fact: FactOpened})
			close(r.opened)
			return nil
		}
		var se *thread.StatusError
		if !errors.As(err, &se) {
			return err
		}
		if se.Status == http.StatusConflict && len(se.Entries) == 0 && len(r.opening) == 1 {
			se.Entries = []thread.BadEntry{{ID: r.opening[0].ID, Status: se.Status}}
		}
		if len(se.Entries) == 0 {
			return err
		}
		before := len(r.opening)
		if err := r.settle(se.Entries); err != nil {
			return err
		}
		if len(r.opening) == before {
			return err // the server complains of what was not posted
		}
	}
	return nil
}

// settle takes the refused ones off the first entries. Two of them may have been posted by the host, and then are delivered. The third says
// that a runner has taken the run: where it stands already, that was another one.
func (r *run) settle(bad []thread.BadEntry) error {
	for _, b := range bad {
		switch {
		case b.Status != http.StatusConflict:
			return fmt.Errorf("%w: entry %s: %s", ErrRefused, b.ID, b.Reason)
		case b.ID == startedID(r.RunID):
			if r.end != nil {
				r.end(ErrTaken)
			}
			return ErrTaken
		}
		for i, e := range r.opening {
			if e.ID == b.ID {
				r.opening = append(r.opening[:i:i], r.opening[i+1:]...)
				break
			}
		}
	}
	return nil
}
