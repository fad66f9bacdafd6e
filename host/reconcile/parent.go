package reconcile

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"arbe.0sk.ar/runner/thread"
)

// maxResult bounds the result in an entry of the parent, in bytes.
const maxResult = 64 << 10

var verbs = map[string]string{
	thread.StatusCompleted: "completed",
	thread.StatusFailed:    "failed",
	thread.StatusCancelled: "been cancelled",
}

// notify posts the end of a delegated run on its parent thread, a provisional one after NotifyAfter. If the runner's
// own end has replaced one that was posted, notify posts a correction.
func (t *settling) notify(ctx context.Context, run thread.Run) error {
	if !thread.ValidThread(run.Parent.ThreadID) {
		return fmt.Errorf("run %s of thread %s: its parent %q is no thread id", run.ID, t.id, run.Parent.ThreadID)
	}
	if run.Provisional && t.now.Sub(run.Ended) < cmp.Or(t.r.NotifyAfter, DefaultNotifyAfter) {
		t.pending = true
		return nil
	}
	parent, err := t.r.Client(run.Parent.ThreadID)
	if err != nil {
		return err
	}
	base := t.id + "." + run.ID
	fresh, err := t.post(ctx, parent, t.result(run, base+".finished", base+".result", false)...)
	switch {
	case err == nil && fresh:
		t.record(run.ID, Notified, "thread "+run.Parent.ThreadID)
	case errors.Is(err, errTaken) && !run.Provisional:
		return t.correct(ctx, parent, run, base)
	case errors.Is(err, errTaken):
		return nil
	}
	return err
}

// correct posts a correction if the parent has another end of the run.
func (t *settling) correct(ctx context.Context, parent *thread.Client, run thread.Run, base string) error {
	finished, _, err := parent.Entry(ctx, base+".finished")
	if err != nil {
		return fmt.Errorf("read thread %s: %w", parent.Thread, err)
	}
	var p thread.ChildFinished
	had := ""
	if json.Unmarshal(finished.Payload, &p) == nil { // an entry that is not there has no payload
		had = p.Status
	}
	if had == run.Status {
		return nil // the same status
	}
	fresh, err := t.post(ctx, parent, t.result(run, base+".finished.corrected", base+".result.corrected", true)...)
	if errors.Is(err, errTaken) {
		return nil
	}
	if err == nil && fresh {
		t.record(run.ID, Corrected, "thread "+run.Parent.ThreadID)
	}
	return err
}

// result returns the entries for the parent.
func (t *settling) result(run thread.Run, finished, result string, corrected bool) []thread.Entry {
	text := t.texts[run.ID]
	if run.Cause != nil {
		text = run.Cause.Message
	}
	if len(text) > maxResult {
		text = strings.ToValidUTF8(text[:maxResult], "") + "…"
	}
	if text == "" {
		text = "(no text)"
	}
	verb := verbs[run.Status]
	if corrected {
		verb += " after all"
	}
	return []thread.Entry{
		t.entry(finished, "", thread.ChildFinished{
			Signal: signal(
				run,
				thread.TypeChildFinished,
			), ChildThreadID: t.id, Status: run.Status, Text: text, Corrected: corrected,
		}),
		t.entry(result, run.Parent.AuthorID, thread.Chat{
			Type: thread.TypeChat, Text: fmt.Sprintf("The task on thread %s has %s.\n\n%s", t.id, verb, text),
		}),
	}
}
