package page

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/memory"
	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/thread"
)

// liveItem is an item that is new, or that replaces the one with its ID.
type liveItem struct {
	ID       string `json:"id"`
	Sub      string `json:"sub,omitempty"`
	Task     string `json:"task,omitempty"` // of the subagent, where the item has it
	HTML     string `json:"html"`
	Replaces bool   `json:"replaces,omitempty"`
	After    uint64 `json:"after"` // where a live answer continues
}

// liveHead is what stands above a thread's items.
type liveHead struct {
	HTML  string `json:"html"`  // its row
	Pulse string `json:"pulse"` // what the agent does
	After uint64 `json:"after"`
}

// mostBehind is how many items a live answer begins with. A browser that is further behind, as after a night's sleep,
// does better to load the page again.
const mostBehind = 2000

var errFar = errors.New("the browser is too far behind")

// threadLive serves what is appended to a thread behind a place, as items: those that are there, then ready, then what
// comes; or far, for a place too far behind. A place behind the thread's end is one of another thread of the same id,
// which was deleted and made again: gone.
func (p *page) threadLive(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("thread")
	s, err := p.viewer(w, r, id)
	if err != nil {
		return err
	}
	after, err := strconv.ParseUint(r.URL.Query().Get("after"), 10, 63)
	if err != nil {
		return refuse(http.StatusBadRequest, "after", "after: want a place that a page has")
	}
	if _, err := p.stat(r.Context(), id); err != nil {
		return err
	}
	f := p.Log.Follow(thread.StreamName(id))
	defer f.Close()
	t := &tailer{page: p, id: id, after: after, e: p.startEvents(w, r, s), l: p.lease(s)}
	defer t.e.close()
	defer t.l.Free()
	for first := true; ; first = false {
		v, grown, err := f.Stat(r.Context())
		if errors.Is(err, log.ErrAbsent) || errors.Is(err, log.ErrGone) || err == nil && t.after > v.Tail() {
			t.e.send("gone", struct{}{})
			t.e.flush()
			return nil
		}
		if err == nil && first {
			err = t.prime(r.Context(), v)
		}
		if err == nil {
			err = t.send(r.Context(), v, first)
		}
		if errors.Is(err, errFar) {
			t.e.send("far", struct{}{})
			t.e.flush()
			return nil
		}
		if err != nil {
			if r.Context().Err() == nil {
				p.Logger.Warn("live thread interrupted", "thread", id, "error", err)
			}
			return nil // the browser comes again
		}
		if first {
			t.e.send("ready", map[string]int64{"now": now().UnixMilli()})
		}
		if !t.e.flush() || !t.e.wait(r.Context(), p.Closing, grown) {
			return nil
		}
	}
}

// tailer sends what is appended to a thread.
type tailer struct {
	page    *page
	id      string
	after   uint64
	sent    int // items
	e       *events
	l       *memory.Lease // charged while entries are rendered
	builder view.Builder
	watch   view.Watch
}

// prime reads what is before the place, so that results find their calls.
func (t *tailer) prime(ctx context.Context, v log.Stream) error {
	records, err := t.l.Records(ctx, func() ([]engine.Record, error) {
		return t.page.Log.ReadBack(ctx, v, t.after, aheadEntries, aheadBytes)
	})
	if err != nil {
		return err
	}
	defer t.l.Drop()
	for _, r := range records {
		if e, ok := entryOf(r); ok {
			t.watch.Add(e)
			t.builder.Add(e)
		}
	}
	return nil
}

// send sends the items behind the place, and what the thread is doing. For a browser that has just come it returns
// errFar where they are too many.
func (t *tailer) send(ctx context.Context, v log.Stream, first bool) error {
	for t.after < v.Tail() {
		records, err := t.l.Records(ctx, func() ([]engine.Record, error) {
			return t.page.Log.Read(ctx, v, t.after, v.Tail(), pieceBytes)
		})
		if err != nil {
			return err
		}
		if len(records) == 0 {
			t.after = v.Tail() // the rest was removed
			break
		}
		last := records[len(records)-1].Seq
		for _, r := range records {
			e, ok := entryOf(r)
			if !ok {
				continue
			}
			if first && t.sent > mostBehind {
				return errFar
			}
			t.watch.Add(e)
			for _, c := range t.builder.Add(e) {
				if err := t.item(c, r.Seq-1); err != nil { // its append may have more
					return err
				}
			}
		}
		t.after = last
		t.l.Drop()
		if !t.e.flush() {
			return t.e.err
		}
	}
	return t.head(ctx)
}

// item sends an item.
func (t *tailer) item(c view.Change, after uint64) error {
	one := item{Item: c.Item, Thread: t.id}
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, "item", one); err != nil {
		return err
	}
	t.sent++
	t.e.send("item", liveItem{one.ID, one.Sub(), view.Visible(one.Task()), b.String(), c.Replaces, after})
	return nil
}

// head sends the thread's row.
func (t *tailer) head(ctx context.Context) error {
	v, err := t.page.summary(ctx, t.id)
	if err != nil {
		return err
	}
	one := newRow(v, now())
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, "row", one); err != nil {
		return err
	}
	line := ""
	if v.Status == thread.StatusRunning {
		line = pulse(&t.watch, t.builder.Running())
	}
	t.e.send("head", liveHead{b.String(), line, t.after})
	return nil
}
