package page

import (
	"bytes"
	"context"
	"errors"
	"net/http"

	"arbe.0sk.ar/runner/host/log"
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

// liveItem renders an item of the append with a seq, which may have more items.
func (p *page) liveItem(id string, c view.Change, seq uint64) (liveItem, error) {
	one := item{Item: c.Item, Thread: id}
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, "item", one); err != nil {
		return liveItem{}, err
	}
	return liveItem{one.ID, one.Sub(), view.Visible(one.Task()), b.String(), c.Replaces, seq - 1}, nil
}

// liveHead is the part of a thread's page above the items.
type liveHead struct {
	HTML  string `json:"html"`  // its row
	Pulse string `json:"pulse"` // what the agent does
	After uint64 `json:"after"`
}

// liveHead renders the thread's row, with the pulse of an open run.
func (p *page) liveHead(ctx context.Context, id, pulse string, after uint64) (liveHead, error) {
	v, err := p.summary(ctx, id)
	if err != nil {
		return liveHead{}, err
	}
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, "row", newRow(v, now())); err != nil {
		return liveHead{}, err
	}
	if v.Status != thread.StatusRunning {
		pulse = ""
	}
	return liveHead{b.String(), pulse, after}, nil
}

// mostBehind is how many items a live answer begins with. A browser that is further behind, as after a night's sleep,
// does better to load the page again.
const mostBehind = 2000

var errFar = errors.New("the browser is too far behind")

// threadLive serves what is appended to a thread behind a place, as items: those that are there, then ready, then what
// comes; or far, for a place too far behind. gone is of a thread that was deleted, and for a place behind the thread's
// end: the log was restored from an older backup.
func (p *page) threadLive(w http.ResponseWriter, r *http.Request) error {
	at, err := p.placed(w, r, "after")
	if err != nil {
		return err
	}
	defer at.Free()
	v := &viewer{
		reader: at.reader, after: at.place, tail: at.stream.Tail(), e: p.startEvents(w, r, at.session, at.id),
	}
	defer v.e.close()
	if err = log.ErrGone; at.place <= v.tail {
		v.room, v.member = p.enter(at.id, at.stream)
		defer p.leave(v.room, v.member)
		err = v.follow(r.Context())
	}
	switch {
	case errors.Is(err, log.ErrAbsent), errors.Is(err, log.ErrGone):
		v.e.send("gone", struct{}{})
	case errors.Is(err, errFar):
		v.e.send("far", struct{}{})
	case err == nil, errors.Is(err, errInterrupted), v.e.err != nil, r.Context().Err() != nil:
	default:
		p.Logger.Warn("live thread interrupted", "thread", at.id, "error", err)
	}
	v.e.flush()
	return nil // the browser comes again
}

// viewer sends what a thread gets to one browser.
type viewer struct {
	*reader        // charged while it renders alone
	after   uint64 // the browser has the thread up to here
	tail    uint64 // where the thread ended when the browser came
	headed  bool   // and its head
	ready   bool   // and ready was sent
	e       *events
	room    *room
	member  *member
}

// follow sends what the browser lacks, then ready, then what comes. It returns nil when the answer has to end.
func (v *viewer) follow(ctx context.Context) error {
	for {
		c, at, changed, end := v.member.take()
		err := v.alone(ctx, at) // where it has just come, or has missed chunks
		if c != nil {
			if err == nil {
				err = v.chunk(ctx, c)
			}
			v.room.done(c)
		} else if err == nil {
			if err = end; err == nil {
				err = v.settle(ctx)
			}
		}
		if err != nil {
			return err
		}
		if !v.e.flush() || !v.e.wait(ctx, v.Closing, changed) {
			return nil
		}
	}
}

// chunk sends a chunk of the room. A page that was loaded before the room had the chunk begins behind it, or in it.
func (v *viewer) chunk(ctx context.Context, c *chunk) error {
	if v.after != c.from {
		v.headed = false
		return v.alone(ctx, c.to)
	}
	v.e.write(c.data)
	v.after = c.to
	return v.e.err
}

// alone sends what follows the browser's place up to another one, without the room. For a browser that has just come it
// returns errFar where that is too much.
func (v *viewer) alone(ctx context.Context, upTo uint64) error {
	if v.after >= upTo {
		return nil
	}
	var err error
	if v.stream, err = v.stat(ctx, v.id); err != nil {
		return err
	}
	if v.stream.Born != v.room.key.born || upTo > v.stream.Tail() {
		return log.ErrGone
	}
	t, err := newTail(ctx, *v.reader, v.after, 0)
	if err != nil {
		return err
	}
	n := 0
	err = t.each(ctx, upTo, func(c view.Change, seq uint64) error {
		if n++; n > mostBehind && !v.ready {
			return errFar
		}
		one, err := v.liveItem(v.id, c, seq)
		if err == nil {
			v.e.send("item", one)
			err = v.e.err
		}
		return err
	})
	v.after, v.headed = upTo, false
	return err
}

// settle sends the head, and ready, to a browser that has all there is. The room may have to render it first.
func (v *viewer) settle(ctx context.Context) error {
	pulse := v.room.pulse.Load()
	if v.headed || pulse == nil || v.after < v.tail {
		return nil
	}
	head, err := v.liveHead(ctx, v.id, *pulse, v.after)
	if err != nil {
		return err
	}
	v.e.send("head", head)
	v.headed = true
	if !v.ready {
		v.e.send("ready", map[string]int64{"now": now().UnixMilli()})
		v.ready = true
	}
	return nil
}
