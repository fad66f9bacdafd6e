package page

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"arbe.0sk.ar/runner/host/access"
	"arbe.0sk.ar/runner/host/index"
	"arbe.0sk.ar/runner/thread"
)

// Times of a live answer. The browser comes again when it ends, and so renews its session.
const (
	liveLife  = 5 * time.Minute
	shareLife = 30 * time.Second // of a share's: it may be revoked
	livePing  = 15 * time.Second
)

// events writes server-sent events. It keeps its first error, which means that the browser is gone.
type events struct {
	w    http.ResponseWriter
	rc   *http.ResponseController
	life *time.Timer
	ping *time.Ticker
	open func() bool // reports whether the session is open
	err  error
}

// startEvents begins a live answer about a thread, or "" for the list. It ends with the session, and with the right to
// read the thread. The caller closes it.
func (p *page) startEvents(w http.ResponseWriter, r *http.Request, s access.Session, id string) *events {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	life := liveLife
	if s.Share != "" {
		life = shareLife
	}
	return &events{
		w: w, rc: http.NewResponseController(w), life: time.NewTimer(min(life, time.Until(s.Until))),
		ping: time.NewTicker(livePing),
		open: func() bool { return p.check(r.Context(), s, id) == nil },
	}
}

func (e *events) close() {
	e.life.Stop()
	e.ping.Stop()
}

// send writes an event with a JSON value.
func (e *events) send(name string, v any) {
	if e.err == nil {
		e.err = writeEvent(e.w, name, v)
	}
}

// write writes events.
func (e *events) write(b []byte) {
	if e.err == nil {
		_, e.err = e.w.Write(b)
	}
}

// writeEvent writes an event with a JSON value.
func writeEvent(w io.Writer, name string, v any) error {
	_, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, thread.Marshal(v))
	return err
}

// flush sends what was written, and reports whether the browser takes more.
func (e *events) flush() bool {
	if e.err == nil {
		e.err = e.rc.Flush()
	}
	return e.err == nil
}

// wait returns when there is news, true, or when the answer has to end, false. It keeps the connection busy meanwhile.
func (e *events) wait(ctx context.Context, closing context.Context, news <-chan struct{}) bool {
	for {
		select {
		case <-news:
			return true
		case <-e.ping.C:
			if !e.open() {
				return false
			}
			e.write([]byte(": waiting\n\n"))
			if !e.flush() {
				return false
			}
		case <-e.life.C:
			return false
		case <-closing.Done():
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// liveRow is a row that has changed. HTML is empty for one that the list no longer has.
type liveRow struct {
	ID   string `json:"id"`
	HTML string `json:"html,omitempty"`
}

// listLive serves the changes of the list: all rows of its first part, then ready, then each row that changes.
func (p *page) listLive(w http.ResponseWriter, r *http.Request) error {
	s, err := p.viewer(w, r, "")
	if err != nil {
		return err
	}
	f, err := parseFilter(r.URL.Query())
	if err != nil {
		return err
	}
	if p.Threads == nil {
		return errNoIndex
	}
	changes := p.Threads.Watch() // before the list: what changes meanwhile is sent again
	defer changes.Close()
	only := p.only(s)
	all, _, err := p.load(r.Context(), f, "", only)
	if err != nil {
		return err
	}
	e := p.startEvents(w, r, s, "")
	defer e.close()
	sent := map[string]bool{} // a member gets the changes of these alone, and of those that it may open
	for _, v := range all {
		sent[v.ID] = true
		p.sendRow(r.Context(), e, f, v)
	}
	e.send("ready", map[string]int64{"now": now().UnixMilli()})
	for e.flush() && e.wait(r.Context(), p.Closing, changes.News()) {
		for more := true; more; {
			var some []index.Change
			some, more, err = changes.Take(r.Context(), listThreads)
			if err == nil {
				some, err = index.Query{Only: only}.Seen(r.Context(), some, sent)
			}
			if err != nil {
				if !errors.Is(err, index.ErrSlow) && r.Context().Err() == nil {
					p.Logger.Error("live list interrupted", "error", err)
				}
				return nil // the browser comes again
			}
			for _, c := range some {
				if c.Deleted {
					e.send("row", liveRow{ID: c.ID})
				} else {
					p.sendRow(r.Context(), e, f, c.Summary)
				}
			}
		}
	}
	return nil
}

// sendRow sends a thread, or that the list does not have it.
func (p *page) sendRow(ctx context.Context, e *events, f filter, v thread.Summary) {
	now := now()
	if !f.has(v, now) {
		e.send("row", liveRow{ID: v.ID})
		return
	}
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, "row", p.row(ctx, v, now)); err != nil {
		e.err = err
		return
	}
	e.send("row", liveRow{v.ID, b.String()})
}
