package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/thread"
)

// decide reads the session to its end, decides what the run came to and writes the terminal down.
func (r *run) decide(abandon context.Context, facts outcome.Facts) (outcome.Verdict, []thread.Entry, error) {
	if d := r.progress.decided; d != nil {
		b, err := os.ReadFile(filepath.Join(r.folder.Path, "terminal.json"))
		if err == nil {
			terminal, err := decodeEntries(b)
			return *d.Verdict, terminal, err
		}
		r.Log.Warn("the run's end can't be read; deciding anew", "error", err)
	}
	if path, _ := r.session(); path == "" && r.Spec.FindSession != nil {
		if !r.findSession() && facts.Action != outcome.ActionNotStarted { // nobody may have looked since it came
			r.Log.Warn("the agent has made no session that could be found")
		}
	}
	r.readToEnd(abandon)
	sum, end := r.follower.summary(), r.mirror.Tallied()
	facts.Turn, facts.Stderr = sum.turn, r.stderrTail()
	v := outcome.Decide(facts)
	if v.Message = r.Redact.Text(v.Message); len(v.Message) > maxMessage {
		v.Message = strings.ToValidUTF8(v.Message[:maxMessage], "") + "…"
	}

	terminal := r.terminal(v, sum)
	if err := r.folder.WriteFile("terminal.json", encodeEntries(terminal)); err != nil {
		// Without the file a crash from here on would be settled by the host instead. That is no reason to keep the end back.
		r.Log.Warn("the run's end was not written down", "error", err)
	}
	r.note(Fact{Fact: FactDecided, Verdict: &v, End: &end})
	r.Log.Info("verdict", "outcome", v.Outcome, "stop_reason", v.StopReason, "error_class", v.ErrorClass, "message", v.Message)
	return v, terminal, nil
}

// unreadFor is how long a session file that can't be read holds up the run's end, once the agent is gone.
const unreadFor = 10 * time.Second

// readToEnd reads the session to its end for the verdict. A file that can't be read gets unreadFor to come back.
func (r *run) readToEnd(abandon context.Context) {
	for {
		err := r.readOn(true)
		if err == nil {
			return
		}
		if r.excuse(&mirror.ReadError{Err: err}) == nil {
			return
		}
		select {
		case <-abandon.Done():
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// excuse returns err, and nil instead of a failure to read a session file that has stood in the way of the run's
// end for long enough. The end then carries it.
func (r *run) excuse(err error) error {
	var read *mirror.ReadError
	if !errors.As(err, &read) {
		return err
	}
	if r.unread != nil {
		return nil
	}
	if r.unreadSince == 0 {
		r.unreadSince = clock()
	}
	if clock()-r.unreadSince < min(unreadFor, r.Patience) {
		return err
	}
	r.unread = read
	r.Log.Error("the session can't be read to its end; ending the run without the rest", "error", err)
	return nil
}

// drain posts what is left of the session and of its subagents'.
func (r *run) drain(ctx context.Context) error {
	if err := r.excuse(r.mirror.Drain(ctx)); err != nil {
		return err
	}
	return r.drainSubagents(ctx)
}

// confess makes the terminal carry that the session could not be read, where that was found when it was written
// already.
func (r *run) confess(terminal []thread.Entry) {
	last := &terminal[len(terminal)-1]
	var status thread.StatusChanged
	if r.unread == nil || json.Unmarshal(last.Payload, &status) != nil || status.Totals == nil || status.Unread != "" {
		return
	}
	status.Unread = r.Redact.Text(r.unread.Error())
	last.Payload = thread.Marshal(status)
	if err := r.folder.WriteFile("terminal.json", encodeEntries(terminal)); err != nil {
		r.Log.Warn("the run's end was not written down", "error", err)
	}
}

// terminal are the entries that end the run: why, where it did not end well, and the status with the totals.
func (r *run) terminal(v outcome.Verdict, sum summary) []thread.Entry {
	code, sig := v.Exit.Parts()
	unread := ""
	if r.unread != nil {
		unread = r.Redact.Text(r.unread.Error())
	}
	status := thread.StatusChanged{
		Signal: r.signal(thread.TypeStatus),
		Totals: &thread.Totals{
			ExitCode: code, ExitSignal: sig, StopReason: v.StopReason, DurationMs: (clock() - r.record.Clock).Milliseconds(),
			Lines: sum.lines, Digest: sum.digest, Usage: sum.usage, Leftovers: r.leftovers,
			Unread: unread,
		},
	}
	var entries []thread.Entry
	add := func(payload any) {
		entries = append(entries, r.entry(fmt.Sprintf("%s.end.%d", r.RunID, len(entries)), payload))
	}
	switch v.Outcome {
	case outcome.Completed:
		status.Status = thread.StatusCompleted
	case outcome.Cancelled:
		status.Status, status.Reason = thread.StatusCancelled, v.Message
	case outcome.Failed:
		status.Status = thread.StatusFailed
		add(thread.Failed{
			Signal: r.signal(thread.TypeFailed), ErrorClass: v.ErrorClass, Message: v.Message, ExitCode: code, ExitSignal: sig,
			StopReason: v.StopReason, StderrTail: r.stderrTail(), Provider: v.Provider, Model: v.Model,
		})
	case outcome.Orphaned:
		status.Status = thread.StatusFailed
		add(thread.Orphaned{Signal: r.signal(thread.TypeOrphaned), Reason: v.Reason, LastEntryAt: thread.Stamp(time.Now().Add(time.Duration(r.moved.Load()) - clock()))})
	}
	add(status)
	return entries
}

// stderrTail is the end of what the agent said on stderr, without secrets.
func (r *run) stderrTail() string {
	b, err := tailOf(filepath.Join(r.folder.Path, "stderr"), tailWindow)
	if err != nil {
		return "" // it never started
	}
	r.Redact.Refresh()
	if clean := r.Redact.Bytes(b); clean != nil {
		b = clean
	}
	return string(bytes.ToValidUTF8(b[max(0, len(b)-maxTail):], []byte("\uFFFD")))
}

// encodeEntries is entries as they are posted.
func encodeEntries(entries []thread.Entry) []byte {
	b := []byte{'['}
	for i, e := range entries {
		if i > 0 {
			b = append(b, ',')
		}
		b = e.AppendJSON(b)
	}
	return append(b, ']')
}

// deliver posts what is left of the lines and then the terminal, and doesn't give up before it must: by hand after a minute, else when the machine
// goes. ErrUndelivered says that it had to.
func (r *run) deliver(abandon context.Context, terminal []thread.Entry) error {
	ctx := abandon
	if r.ByHand {
		limited, cancel := context.WithTimeout(abandon, byHandFor)
		defer cancel()
		ctx = limited
	}
	said := ""
	for wait := 200 * time.Millisecond; ; wait = min(2*wait, 15*time.Second) {
		err := r.drain(ctx)
		if errors.Is(err, ErrTaken) {
			return err
		}
		if err == nil {
			r.confess(terminal)
			r.closing.Store(true)
			err = r.finish(ctx, terminal)
		}
		if err == nil {
			r.note(Fact{Fact: FactDelivered})
			return nil
		}
		if ctx.Err() != nil || r.passing && thread.Refused(err) {
			return fmt.Errorf("%w: %w", ErrUndelivered, err)
		}
		if err.Error() != said {
			r.Log.Warn("the run's end waits for the thread", "error", err)
			said = err.Error()
		}
		if r.unreadSince != 0 {
			wait = min(wait, time.Second)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait/2 + rand.N(wait/2)):
		}
	}
}

// finish posts the terminal. A conflict means that this run has a terminal of its runner's already, and that one stands. One that the server calls bad
// or too large is posted with its bare facts instead.
func (r *run) finish(ctx context.Context, terminal []thread.Entry) error {
	err := r.Client.Finish(ctx, terminal)
	var se *thread.StatusError
	if !errors.As(err, &se) {
		return err
	}
	switch se.Status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		r.Log.Warn("the server refuses the run's end; posting less of it", "error", err)
		terminal = bare(terminal)
		if err := r.folder.WriteFile("terminal.json", encodeEntries(terminal)); err != nil {
			r.Log.Warn("the run's end was not written down", "error", err)
		}
		if err = r.Client.Finish(ctx, terminal); !errors.As(err, &se) {
			return err
		}
	}
	if se.Status == http.StatusConflict {
		r.Log.Warn("the thread has an end of this run already; that one stands", "error", err)
		return nil
	}
	return err
}

// bare is a terminal without what can be large or strange.
func bare(terminal []thread.Entry) []thread.Entry {
	small := slices.Clone(terminal)
	for i, e := range small {
		var p struct {
			thread.Signal
			Status     string `json:"status,omitempty"`
			ErrorClass string `json:"errorClass,omitempty"`
			Reason     string `json:"reason,omitempty"`
		}
		if json.Unmarshal(e.Payload, &p) == nil { // it is our own
			p.Reason = p.Reason[:min(len(p.Reason), 100)]
			small[i].Payload, small[i].AuthorID = thread.Marshal(p), ""
		}
	}
	return small
}

// decodeEntries reads a terminal.json.
func decodeEntries(b []byte) ([]thread.Entry, error) {
	var entries []thread.Entry
	return entries, json.Unmarshal(b, &entries)
}
