package runner

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/internal/procfs"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// NewID returns a new unique id that sorts by time.
func NewID() string {
	id, err := uuid.NewV7()
	if err != nil {
		panic(err) // the system's random source can't fail
	}
	return id.String()
}

func promptID(run string) string  { return run + ".prompt" }
func runningID(run string) string { return run + ".running" }
func startedID(run string) string { return run + ".started" }

func (r *run) signal(typ string) thread.Signal {
	return thread.Signal{Type: typ, RunID: r.RunID, Harness: r.Spec.Name}
}

// entry returns an entry of this run with the current time.
func (r *run) entry(id string, payload any) thread.Entry {
	return thread.Entry{ID: id, TS: thread.Stamp(time.Now()), AuthorID: r.Author, Payload: thread.Marshal(payload)}
}

// beginning returns those of the first entries that the host may have posted.
func (r *run) beginning() []thread.Entry {
	running := thread.StatusChanged{Signal: r.signal(thread.TypeStatus), Status: thread.StatusRunning}
	first := []thread.Entry{r.entry(runningID(r.RunID), running)}
	if r.Prompt != "" {
		prompt := thread.Chat{Type: thread.TypeChat, Text: r.Redact.Text(r.Prompt), RunID: r.RunID}
		first = append(first, r.entry(promptID(r.RunID), prompt))
	}
	return first
}

// firstEntries returns the entries that the thread gets before the agent starts, in order.
func (r *run) firstEntries() []thread.Entry {
	version := r.Spec.Version(r.binary)
	if r.binary != "" && !r.Spec.Proven(version) {
		r.Log.Warn("this runner is not proven with this version of the agent",
			"harness", r.Spec.Name, "version", cmp.Or(version, "unknown"), "proven", r.Spec.Versions)
	}
	process, _ := procfs.Read(r.record.PID) // without /proc the entry has no startTicks
	started := thread.Started{
		Signal: r.signal(thread.TypeStarted), RunnerVersion: r.Version,
		AgentVersion: version, AgentProven: r.Spec.Proven(version), Cwd: r.Redact.Text(r.Cwd),
		PID: r.record.PID, StartTicks: process.Started, BootID: r.record.Boot, Instance: r.record.Instance,
		SessionFile: r.record.Session, Sandbox: r.Sandbox, Resume: r.record.Resume, Live: r.Live,
	}
	first := r.beginning()
	return append([]thread.Entry{first[0], r.entry(startedID(r.RunID), started)}, first[1:]...)
}

// promptChat is the id of the chat that the run's first user line repeats; "" if a person begins without a prompt.
func (r *run) promptChat() string {
	if r.TTY != nil && r.Prompt == "" || r.record.Live { // a live run's journal has the chats
		return ""
	}
	return promptID(r.RunID)
}

// openThread posts the first entries. ErrRefused and ErrTaken mean that the run must not begin. If the server does not
// answer for Timeout, the run begins without it: the mirror's passes then begin with these entries.
func (r *run) openThread(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := r.ensureOpen(limited)
		switch {
		case err == nil || errors.Is(err, ErrTaken) || errors.Is(err, ErrRefused):
			return err
		case client.Refused(err) || client.Redirected(err) || client.Gone(err):
			return fmt.Errorf("%w: %w", ErrRefused, err)
		case ctx.Err() != nil:
			return nil // stopped: the run ends as cancelled
		case limited.Err() != nil:
			r.Log.Warn("no answer from the thread server; starting the agent, its entries wait",
				"waited", r.Timeout, "error", err)
			return nil
		}
		pause.For(limited, wait/2+rand.N(wait/2))
	}
}

// ensureOpen posts those of the first entries that the thread does not have. The mirror calls it before each pass, so
// that no line comes before them.
func (r *run) ensureOpen(ctx context.Context) error {
	for len(r.opening) > 0 {
		ack, err := r.post(ctx, r.opening)
		if err == nil {
			if ack.Duplicates == 0 && r.opening[0].ID == runningID(r.RunID) {
				r.offset = ack.Next // the run is new to the thread: requests to it come behind
			}
			r.opening = nil
			r.note(runfolder.Fact{Fact: runfolder.FactOpened})
			close(r.opened)
			return nil
		}
		var se *client.StatusError
		if !errors.As(err, &se) {
			return err
		}
		settled, refused := r.settle(se.Entries)
		if refused != nil {
			return refused
		}
		if !settled {
			return err // not about these entries
		}
	}
	return nil
}

// awaitOpen waits until the thread has the first entries: before that it has no run. Its error is that of ctx.
func (r *run) awaitOpen(ctx context.Context) error {
	select {
	case <-r.opened:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settle changes the first entries after the server has refused some: it drops those that the host has posted, and cuts
// a prompt that is bad or too large. A conflict on the started entry means that another runner has the run: ErrTaken.
// settle reports whether it has changed anything.
func (r *run) settle(bad []thread.BadEntry) (settled bool, err error) {
	for _, b := range bad {
		i := slices.IndexFunc(r.opening, func(e thread.Entry) bool { return e.ID == b.ID })
		switch {
		case i < 0:
			continue
		case b.Status != http.StatusConflict && b.ID == promptID(r.RunID):
			r.opening = r.cutPrompt(i, b.Reason)
		case b.Status != http.StatusConflict:
			return settled, fmt.Errorf("%w: entry %s: %s", ErrRefused, b.ID, b.Reason)
		case b.ID == startedID(r.RunID):
			if r.end != nil {
				r.end(ErrTaken)
			}
			return settled, ErrTaken
		default:
			r.opening = slices.Delete(r.opening, i, i+1)
		}
		settled = true
	}
	return settled, nil
}

// maxCutPrompt is the length of a cut prompt, in bytes.
const maxCutPrompt = 8 << 10

// cutPrompt returns the first entries with a shorter prompt in place of the refused one at i: first its beginning with
// a mark, then the mark alone, and if that is refused, too, no prompt. The agent gets the whole prompt.
func (r *run) cutPrompt(i int, reason string) []thread.Entry {
	first := slices.Clone(r.opening)
	var chat thread.Chat
	if err := json.Unmarshal(first[i].Payload, &chat); err != nil {
		return slices.Delete(first, i, i+1) // this runner made it
	}
	text, mark := chat.Text, fmt.Sprintf("[cut: %d bytes, sha256 %x]", len(chat.Text), sha256.Sum256([]byte(chat.Text)))
	if chat.Truncated { // and refused again
		at := strings.LastIndex(text, "[cut: ")
		text, mark = text[:at], text[at:]
		if text == "" {
			r.Log.Error("the server refused the prompt and its stub; posting none", "reason", reason)
			return slices.Delete(first, i, i+1)
		}
		text = ""
	} else {
		r.Log.Warn("the server refused the prompt; posting it cut, the agent gets it whole",
			"bytes", len(text), "reason", reason)
	}
	if len(text) > maxCutPrompt {
		text = strings.ToValidUTF8(text[:maxCutPrompt], "")
	}
	chat.Text, chat.Truncated = text+mark, true
	first[i].Payload = thread.Marshal(chat)
	return first
}
