package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/runner/stdio"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// decide reads the session to its end, decides the verdict and writes terminal.json.
func (r *run) decide(abandon context.Context, facts outcome.Facts) (outcome.Verdict, []thread.Entry, error) {
	if d := r.progress.Decided; d != nil {
		b, err := r.Folder.ReadFile("terminal.json")
		if err == nil {
			var terminal []thread.Entry
			err = json.Unmarshal(b, &terminal)
			return *d.Verdict, terminal, err
		}
		r.Log.Warn("read terminal.json; deciding again", "error", err)
	}
	for r.findSession() { // it may be newer than the last look
	}
	if path := r.session(); path == "" && r.Spec.FindSession != nil && facts.Action != outcome.ActionNotStarted {
		r.Log.Warn("no session file found")
	}
	r.readToEnd(abandon)
	sum := r.follower.summary()
	end, next := r.trail.Tallied()
	facts.Turn, facts.Stderr, facts.Node = sum.turn, r.stderrTail(), r.Spec.Node
	r.live.addFacts(&facts, next)
	v := outcome.Decide(facts)
	if v.Message = r.Redact.Text(v.Message); len(v.Message) > maxMessage {
		v.Message = strings.ToValidUTF8(v.Message[:maxMessage], "") + "…"
	}

	terminal := r.terminal(v, sum)
	r.saveTerminal(terminal)
	r.note(runfolder.Fact{Fact: runfolder.FactDecided, Verdict: &v, End: &end})
	tokens, cost := totalsOf(sum.usage)
	r.Log.Info("verdict", "outcome", v.Outcome, "stop_reason", v.StopReason,
		"error_class", v.ErrorClass, "message", v.Message, "exit", v.Exit.String(),
		"duration", rounded(runfolder.Clock()-r.record.Clock).String(), "lines", sum.lines,
		"tokens", tokens, "cost", cost)
	return v, terminal, nil
}

// rounded returns a duration without the digits that mean nothing to people.
func rounded(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}

// totalsOf returns the tokens and the dollars of a run's usage; 0 where the agent reports none.
func totalsOf(usage json.RawMessage) (tokens int64, cost float64) {
	var u struct {
		Total float64 `json:"totalTokens"`
		Cost  struct {
			Total float64 `json:"total"`
		} `json:"cost"`
	}
	if json.Unmarshal(usage, &u) != nil { // another shape, or none
		return 0, 0
	}
	return int64(u.Total), u.Cost.Total
}

// unreadFor is how long an unreadable session file delays the run's end after the agent's end.
const unreadFor = 10 * time.Second

// readToEnd reads the session to its end for the verdict. It retries an unreadable file for unreadFor.
func (r *run) readToEnd(abandon context.Context) {
	for {
		err := r.readOn(true)
		if err == nil {
			return
		}
		if r.excuse(&mirror.ReadError{Err: err}) == nil {
			return
		}
		if !pause.For(abandon, 200*time.Millisecond) {
			return
		}
	}
}

// excuse returns err, or nil for an error of reading the session file that has delayed the run's end for unreadFor. The
// terminal then carries that error.
func (r *run) excuse(err error) error {
	var read *mirror.ReadError
	if !errors.As(err, &read) {
		return err
	}
	if r.unread != nil {
		return nil
	}
	if r.unreadSince == 0 {
		r.unreadSince = runfolder.Clock()
	}
	if runfolder.Clock()-r.unreadSince < min(unreadFor, r.Timeout) {
		return err
	}
	r.unread = read
	r.Log.Error("read session to its end; ending the run without the rest", "error", err)
	return nil
}

// drain posts the remaining lines of the session and of its subagents' sessions.
func (r *run) drain(ctx context.Context) error {
	if err := r.excuse(r.trail.Drain(ctx)); err != nil {
		return err
	}
	return r.drainSubagents(ctx)
}

// addUnread adds the error of reading the session to a terminal that was written before that error was excused.
func (r *run) addUnread(terminal []thread.Entry) {
	last := &terminal[len(terminal)-1]
	var status thread.StatusChanged
	if r.unread == nil || json.Unmarshal(last.Payload, &status) != nil || status.Totals == nil || status.Unread != "" {
		return
	}
	status.Unread = r.Redact.Text(r.unread.Error())
	last.Payload = thread.Marshal(status)
	r.saveTerminal(terminal)
}

// saveTerminal writes terminal.json. If it fails, the terminal is posted anyway: without the file only the host can end
// the run after a crash.
func (r *run) saveTerminal(terminal []thread.Entry) {
	if err := r.Folder.WriteFile("terminal.json", encodeEntries(terminal)); err != nil {
		r.Log.Warn("write terminal.json", "error", err)
	}
}

// terminal returns the entries that end the run: the reason, unless it is completed, and the status with the totals.
func (r *run) terminal(v outcome.Verdict, sum summary) []thread.Entry {
	code, sig := v.Exit.Parts()
	unread := ""
	if r.unread != nil {
		unread = r.Redact.Text(r.unread.Error())
	}
	status := thread.StatusChanged{
		Signal: r.signal(thread.TypeStatus),
		Totals: &thread.Totals{
			ExitCode: code, ExitSignal: sig, StopReason: v.StopReason,
			DurationMs: (runfolder.Clock() - r.record.Clock).Milliseconds(),
			Lines:      sum.lines, Digest: sum.digest, Usage: sum.usage, Leftovers: r.leftovers,
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
			Signal: r.signal(thread.TypeFailed), ErrorClass: v.ErrorClass, Message: v.Message,
			ExitCode: code, ExitSignal: sig, StopReason: v.StopReason, StderrTail: r.stderrTail(),
			Provider: v.Provider, Model: v.Model,
		})
	case outcome.Orphaned:
		status.Status = thread.StatusFailed
		quiet := runfolder.Clock() - time.Duration(r.moved.Load())
		add(thread.Orphaned{
			Signal: r.signal(thread.TypeOrphaned), Reason: v.Reason, LastEntryAt: thread.Stamp(time.Now().Add(-quiet)),
		})
	}
	add(status)
	return entries
}

// Sizes of the agent's output in the terminal.
const (
	tailWindow = 64 << 10 // of stderr; redacted before the tail is cut, so that no half secret stays
	maxTail    = 4 << 10  // of stderr, on the thread
	maxMessage = 4 << 10  // of the agent's message about its failure
)

// stderrTail is the end of the agent's stderr, redacted.
func (r *run) stderrTail() string {
	b, err := stdio.Tail(filepath.Join(r.Folder.Path, "stderr"), tailWindow)
	if err != nil {
		return "" // the agent was not started
	}
	r.Redact.Refresh()
	if clean := r.Redact.Bytes(b); clean != nil {
		b = clean
	}
	return string(bytes.ToValidUTF8(b[max(0, len(b)-maxTail):], []byte("\uFFFD")))
}

// encodeEntries returns the JSON array in which entries are posted.
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

// deliver posts the remaining lines and then the terminal. It retries until abandon is done, by hand at most for
// byHandFor, and then returns ErrUndelivered, as it does at once where the thread was deleted.
func (r *run) deliver(abandon context.Context, terminal []thread.Entry) error {
	ctx := abandon
	if r.ByHand {
		limited, cancel := context.WithTimeoutCause(abandon, byHandFor, fmt.Errorf("no success for %v", byHandFor))
		defer cancel()
		ctx = limited
	}
	logged := ""
	for wait := 200 * time.Millisecond; ; wait = min(2*wait, 15*time.Second) {
		err := r.drain(ctx)
		if errors.Is(err, ErrTaken) {
			return err
		}
		if err == nil {
			r.addUnread(terminal)
			err = r.live.postAll(ctx)
		}
		if err == nil {
			r.closing.Store(true)
			err = r.finish(ctx, terminal)
		}
		if err == nil {
			r.note(runfolder.Fact{Fact: runfolder.FactDelivered})
			return nil
		}
		if ctx.Err() != nil {
			return undelivered(ctx, err, logged)
		}
		if client.Gone(err) || r.passing && client.Refused(err) {
			return fmt.Errorf("%w: %w", ErrUndelivered, err)
		}
		if err.Error() != logged {
			r.Log.Warn("the run's end is not delivered; retrying", "error", err)
			logged = err.Error()
		}
		if r.unreadSince != 0 {
			wait = min(wait, time.Second)
		}
		pause.For(ctx, wait/2+rand.N(wait/2))
	}
}

// undelivered returns the error of a delivery that is given up because ctx is done. err is the error of the last try,
// before the one before it.
func undelivered(ctx context.Context, err error, before string) error {
	if !errors.Is(err, ctx.Err()) && !errors.Is(err, context.Cause(ctx)) {
		before = err.Error()
	}
	if before == "" {
		return fmt.Errorf("%w: %w", ErrUndelivered, context.Cause(ctx))
	}
	return fmt.Errorf("%w: %w; the last error: %s", ErrUndelivered, context.Cause(ctx), before)
}

// finish posts the terminal. A conflict means that the thread has a terminal of this run's runner, which stands. A
// terminal that the server calls bad or too large is cut to its bare facts and posted again.
func (r *run) finish(ctx context.Context, terminal []thread.Entry) error {
	err := r.Client.Finish(ctx, terminal)
	var se *client.StatusError
	if !errors.As(err, &se) {
		return err
	}
	switch se.Status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		r.Log.Warn("the server refused the terminal; posting its bare facts", "error", err)
		terminal = bare(terminal)
		r.saveTerminal(terminal)
		if err = r.Client.Finish(ctx, terminal); !errors.As(err, &se) {
			return err
		}
	}
	if se.Status == http.StatusConflict {
		r.Log.Warn("the thread has another terminal of this run, which stands", "error", err)
		return nil
	}
	return err
}

// bare returns a terminal without the fields that can be large or odd.
func bare(terminal []thread.Entry) []thread.Entry {
	small := slices.Clone(terminal)
	for i, e := range small {
		var p struct {
			thread.Signal
			Status     string `json:"status,omitempty"`
			ErrorClass string `json:"errorClass,omitempty"`
			Reason     string `json:"reason,omitempty"`
		}
		if json.Unmarshal(e.Payload, &p) == nil { // this runner made it
			p.Reason = p.Reason[:min(len(p.Reason), 100)]
			small[i].Payload, small[i].AuthorID = thread.Marshal(p), ""
		}
	}
	return small
}
