package reconcile

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
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
	had, err := finished(ctx, parent, base+".finished")
	switch {
	case err != nil:
		return err
	case had == nil:
		return t.deliver(ctx, parent, run, base, nil)
	case run.Provisional:
		return nil
	}
	if same, err := t.unchanged(ctx, run, *had); err != nil || same {
		return err
	}
	if again, err := finished(ctx, parent, base+".finished.corrected"); err != nil || again != nil {
		return err
	}
	return t.deliver(ctx, parent, run, base, had)
}

// finished returns the payload of the entry that reported a run's end to the parent, or nil.
func finished(ctx context.Context, parent *client.Client, id string) (*thread.ChildFinished, error) {
	e, ok, err := parent.Entry(ctx, id)
	if err != nil && !client.NotFound(err) {
		return nil, fmt.Errorf("read thread %s: %w", parent.Thread, err)
	}
	if !ok || err != nil {
		return nil, nil
	}
	var p thread.ChildFinished
	if json.Unmarshal(e.Payload, &p) != nil || p.Status == "" {
		p.Status = "unknown" // it is there
	}
	return &p, nil
}

// unchanged reports whether a run's end is the one that was delivered. The runner's own end may have replaced a
// failure by another one, whose cause differs.
func (t *settling) unchanged(ctx context.Context, run thread.Run, had thread.ChildFinished) (bool, error) {
	if had.Status != run.Status || run.Status != thread.StatusFailed {
		return had.Status == run.Status, nil
	}
	_, replaced, err := t.client.Entry(ctx, run.ID+".orphan.0")
	if err != nil && !client.NotFound(err) {
		return false, fmt.Errorf("read thread %s: %w", t.id, err)
	}
	if !replaced || err != nil {
		return true, nil
	}
	text, err := t.text(ctx, run.ID)
	return resultText(text) == had.Text, err
}

// deliver posts the end of a run, or a correction of the one that the parent had. Another reconciler may have posted it
// meanwhile.
func (t *settling) deliver(
	ctx context.Context, parent *client.Client, run thread.Run, base string, had *thread.ChildFinished,
) error {
	text, err := t.text(ctx, run.ID)
	if err != nil {
		return err
	}
	suffix, did := "", Notified
	if had != nil {
		suffix, did = ".corrected", Corrected
	}
	fresh, err := t.post(ctx, parent, t.result(run, text, base+".finished"+suffix, base+".result"+suffix, had)...)
	switch {
	case err == nil && fresh:
		t.record(run.ID, did, "thread "+run.Parent.ThreadID)
	case errors.Is(err, errTaken) && had == nil:
		t.pending = true // the next pass compares what is there
		return nil
	case errors.Is(err, errTaken), client.Gone(err): // nobody reads a parent that was deleted
		return nil
	}
	return err
}

// resultText is the text of a run's end on the parent.
func resultText(text string) string {
	if len(text) > maxResult {
		text = strings.ToValidUTF8(text[:maxResult], "") + "…"
	}
	return cmp.Or(text, "(no text)")
}

// result returns the entries for the parent. had is the end that they correct; nil for none.
func (t *settling) result(
	run thread.Run, text, finished, result string, had *thread.ChildFinished,
) []thread.Entry {
	text = resultText(text)
	verb := verbs[run.Status]
	switch {
	case had == nil:
	case had.Status == run.Status:
		verb += " for another reason"
	default:
		verb += " after all"
	}
	return []thread.Entry{
		t.entry(finished, thread.ChildFinished{
			Signal:        signal(run, thread.TypeChildFinished),
			ChildThreadID: t.id, Status: run.Status, Text: text, Corrected: had != nil,
		}),
		thread.NewEntry(result, cmp.Or(run.Parent.AuthorID, t.r.Author), thread.Chat{
			Type: thread.TypeChat, Quiet: true,
			Text: fmt.Sprintf("The task on thread %s has %s.\n\n%s", t.id, verb, text),
		}),
	}
}
