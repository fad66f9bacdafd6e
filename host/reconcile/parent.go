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
	had, err := status(ctx, parent, base+".finished")
	switch {
	case err != nil:
		return err
	case had == run.Status || had != "" && run.Provisional:
		return nil
	case had == "":
		return t.deliver(ctx, parent, run, base, false)
	}
	if had, err = status(ctx, parent, base+".finished.corrected"); err != nil || had != "" {
		return err
	}
	return t.deliver(ctx, parent, run, base, true)
}

// status returns the status in the entry with which a run's end was delivered; "" where there is none.
func status(ctx context.Context, parent *thread.Client, id string) (string, error) {
	e, ok, err := parent.Entry(ctx, id)
	if err != nil && !thread.NotFound(err) {
		return "", fmt.Errorf("read thread %s: %w", parent.Thread, err)
	}
	if !ok || err != nil {
		return "", nil
	}
	var p thread.ChildFinished
	if json.Unmarshal(e.Payload, &p) != nil || p.Status == "" {
		return "unknown", nil // it is there
	}
	return p.Status, nil
}

// deliver posts the end of a run, or a correction of one that was posted. Another reconciler may have posted it
// meanwhile.
func (t *settling) deliver(
	ctx context.Context, parent *thread.Client, run thread.Run, base string, corrected bool,
) error {
	text, err := t.text(ctx, run.ID)
	if err != nil {
		return err
	}
	suffix, did := "", Notified
	if corrected {
		suffix, did = ".corrected", Corrected
	}
	fresh, err := t.post(ctx, parent, t.result(run, text, base+".finished"+suffix, base+".result"+suffix, corrected)...)
	switch {
	case err == nil && fresh:
		t.record(run.ID, did, "thread "+run.Parent.ThreadID)
	case errors.Is(err, errTaken) && !corrected:
		t.pending = true // the next pass compares what is there
		return nil
	case errors.Is(err, errTaken):
		return nil
	}
	return err
}

// result returns the entries for the parent.
func (t *settling) result(run thread.Run, text, finished, result string, corrected bool) []thread.Entry {
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
