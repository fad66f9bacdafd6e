package page

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/access"
	"arbe.0sk.ar/runner/host/index"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/memory"
	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// Bounds of a piece of a thread.
const (
	pieceEntries = 200     // that are read at once
	pieceItems   = 50      // at least, where there are so many
	mostRead     = 2000    // entries for one piece: those without an item are left out
	pieceBytes   = 2 << 20 // of entries that are read at once
	aheadEntries = 400     // before a live answer, in which results find their calls
	aheadBytes   = 1 << 20 // of those, and of what follows a piece, in which its calls find their results
	mostPiece    = 8 << 20 // bytes of entries for one piece, but at least one append

	// renderCharge is the memory of the items of entries and their HTML, as a multiple of the entries' bytes.
	renderCharge = 3
)

// piece is items that follow each other in a thread. Places are seqs of the log: whole appends.
type piece struct {
	Groups  []*group
	Before  uint64 // what is before the piece ends here; 0 at the thread's start
	After   uint64 // what follows the piece begins behind it
	More    bool   // something follows that the page does not show
	Joined  bool   // the page shows what is before
	Thread  string
	Answers []string // ids of items in the piece behind it, which are results of calls in this one
	Coming  []answer // that bots are writing, of a piece at the thread's end
}

// entryOf returns the entry of a record; false for one that was removed or can't be parsed.
func entryOf(r engine.Record) (thread.Entry, bool) {
	e, err := thread.ParseStored(r.Data)
	if len(r.Data) == 0 || err != nil {
		return e, false
	}
	e.At = thread.Stamp(r.At)
	return e, true
}

// back returns the last piece of a thread that ends at upTo, as far as its items are complete there. It has the entry
// at the seq with, if the bounds of a piece allow it; 0 for none.
func (r *reader) back(ctx context.Context, upTo, with uint64) (piece, error) {
	var records []engine.Record
	found := piece{Before: upTo, After: upTo, Thread: r.id}
	items, bytes := 0, 0
	for found.Before > 0 && (items < pieceItems || with > 0 && found.Before >= with) && len(records) < mostRead &&
		bytes < mostPiece {
		some, err := r.readBack(ctx, found.Before, pieceEntries, pieceBytes)
		if err != nil {
			return found, err
		}
		if len(some) == 0 {
			found.Before = 0
			break
		}
		found.Before = some[0].Seq - 1
		items, bytes = items+r.countItems(some), bytes+dataBytes(some)
		records = append(some, records...)
		r.Keep(memory.RecordBytes(records))
	}
	return found, r.build(ctx, records, &found)
}

// countItems returns how many items the entries of records have on their own.
func (r *reader) countItems(records []engine.Record) (n int) {
	for _, one := range records {
		if e, ok := entryOf(one); ok {
			n += len(view.Items(e, r.Harnesses))
		}
	}
	return n
}

func dataBytes(records []engine.Record) (n int) {
	for _, r := range records {
		n += len(r.Data)
	}
	return n
}

// build sets the groups of a piece from its records.
func (r *reader) build(ctx context.Context, records []engine.Record, found *piece) error {
	if err := r.Grow(renderCharge * dataBytes(records)); err != nil {
		return err
	}
	b := view.Builder{Harnesses: r.Harnesses, Runs: r.runs(ctx)}
	var list view.List
	for _, r := range records {
		if e, ok := entryOf(r); ok {
			for _, c := range b.Add(e) {
				list.Change(c)
			}
		}
	}
	end, err := r.ahead(ctx, &b, &list, found)
	if err != nil {
		return err
	}
	if !end || !b.Runs {
		unmark(list.Items)
	}
	of := r.beside(ctx, list.Items...)
	if end && found.After >= r.stream.Tail() {
		found.Coming = answers(b.Answering(), of.names)
	}
	found.Groups = grouped(list.Items, found.Thread, of)
	return nil
}

// unmark removes from chats that they are not delivered: what delivers them may come later, or no agent is there.
func unmark(items []view.Item) {
	for at := range items {
		if items[at].Input.Waits() {
			items[at].Input = nil
		}
	}
}

// ahead gives the calls of a piece the results that stand a little behind it, and its chats their deliveries. It
// reports whether it has read up to the thread's end.
func (r *reader) ahead(
	ctx context.Context, b *view.Builder, list *view.List, found *piece,
) (end bool, err error) {
	if found.After >= r.stream.Tail() {
		return true, nil
	}
	records, err := r.read(ctx, found.After, r.stream.Tail(), aheadBytes)
	if err != nil {
		return false, err
	}
	had := map[string]bool{}
	for _, i := range list.Items {
		had[i.ID] = true
	}
	for _, one := range records {
		e, ok := entryOf(one)
		if !ok {
			continue
		}
		answered := false
		for _, c := range b.Add(e) {
			if c.Replaces && had[c.Item.ID] {
				list.Change(c)
				answered = answered || c.Item.Call != nil && c.Item.Call.Result != nil
			}
		}
		if !answered {
			continue
		}
		for _, i := range view.Items(e, r.Harnesses) {
			if i.Kind == view.KindResult {
				found.Answers = append(found.Answers, i.ID)
			}
		}
	}
	return len(records) == 0 || records[len(records)-1].Seq >= r.stream.Tail(), nil
}

// stat returns a thread's stream.
func (p *page) stat(ctx context.Context, id string) (log.Stream, error) {
	if !thread.ValidThread(id) {
		return log.Stream{}, index.ErrAbsent
	}
	return p.Log.Stat(ctx, thread.StreamName(id))
}

// threadPage is the data of a thread's page.
type threadPage struct {
	frame
	Row      *head
	ReadOnly bool   // by a share
	Member   bool   // of the thread's house: may read and chat
	Missing  bool   // the thread has no entry as that of ?at: its end is shown
	Address  string // of this server as the browser has it; "" for one that a command line can't have
	Tail     uint64 // live items begin behind it
	piece
	Harnesses session.List // those that command lines may name
	Bots      []string     // the mentions of the bots that answer
}

// thread serves the page of a thread: at its tail, or at the entry or item of ?at.
func (p *page) thread(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("thread")
	if !thread.ValidThread(id) {
		return errNoThread
	}
	s, err := p.viewer(w, r, id)
	if err != nil {
		return err
	}
	v, err := p.summary(r.Context(), id)
	if err != nil {
		return err
	}
	from, err := p.reader(r.Context(), s, id)
	if err != nil {
		return err
	}
	defer from.Free()
	var shown piece
	at, missing := r.URL.Query().Get("at"), false
	if at != "" {
		shown, err = from.around(r.Context(), at)
		missing = errors.Is(err, errNoEntry)
	}
	if at == "" || missing {
		shown, err = from.back(r.Context(), from.stream.Tail(), 0)
	}
	if err != nil {
		return err
	}
	one := from.head(r.Context(), v)
	p.render(w, http.StatusOK, "thread", threadPage{
		newFrame(one.State + " · " + one.Name()), one, s.Share != "", s.Agent != "", missing,
		address(r, s.Thread), from.stream.Tail(), shown, p.Harnesses, mentions(p.whose(r.Context(), id).Room),
	})
	return nil
}

// placeOf returns the place in a query under name, as a page has had it: it may be behind the stream's end.
func placeOf(query url.Values, name string) (uint64, error) {
	place, err := strconv.ParseUint(query.Get(name), 10, 63)
	if err != nil {
		err = refuse(http.StatusBadRequest, name, "%s: want a place that a page has", name)
	}
	return place, err
}

// placed is a request for what stands at a place of a thread.
type placed struct {
	*reader
	place uint64
}

// placed checks a request for what stands at a place of a thread, which is in the query under name. The caller frees
// the reader.
func (p *page) placed(w http.ResponseWriter, r *http.Request, name string) (one placed, err error) {
	id := r.PathValue("thread")
	s, err := p.viewer(w, r, id)
	if err != nil {
		return one, err
	}
	if one.place, err = placeOf(r.URL.Query(), name); err != nil {
		return one, err
	}
	one.reader, err = p.reader(r.Context(), s, id)
	return one, err
}

// older serves the piece of a thread before a place.
func (p *page) older(w http.ResponseWriter, r *http.Request) error {
	return p.servePiece(w, r, "before", func(at placed) (piece, error) {
		return at.back(r.Context(), min(at.place, at.stream.Tail()), 0)
	})
}

// newer serves the piece of a thread behind a place.
func (p *page) newer(w http.ResponseWriter, r *http.Request) error {
	return p.servePiece(w, r, "after", func(at placed) (piece, error) { return at.forth(r.Context(), at.place) })
}

// servePiece serves the piece of a thread that read returns for the place in the query under name.
func (p *page) servePiece(
	w http.ResponseWriter, r *http.Request, name string, read func(placed) (piece, error),
) error {
	at, err := p.placed(w, r, name)
	if err != nil {
		return err
	}
	defer at.Free()
	found, err := read(at)
	if err != nil {
		return err
	}
	p.render(w, http.StatusOK, "piece", found)
	return nil
}

// raw serves an entry as it is on the thread.
func (p *page) raw(w http.ResponseWriter, r *http.Request) error {
	return p.entry(w, r, func(e thread.Entry) error {
		answerJSON(w, http.StatusOK, e)
		return nil
	})
}

// image serves an image of an entry. Its type follows from its bytes, and is never SVG.
func (p *page) image(w http.ResponseWriter, r *http.Request) error {
	return p.entry(w, r, func(e thread.Entry) error {
		n, err := strconv.Atoi(r.PathValue("n"))
		if err != nil || n < 0 {
			return errNoEntry
		}
		kind, data, ok := view.ImageData(e, n)
		if !ok {
			return errNoEntry
		}
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Cache-Control", "private, max-age=3600")
		_, _ = w.Write(data) // the client may be gone
		return nil
	})
}

var errNoEntry = refuse(http.StatusNotFound, "not_found", "The thread has no such entry.")

// entry answers a request with the entry in its path.
func (p *page) entry(w http.ResponseWriter, r *http.Request, answer func(thread.Entry) error) error {
	id := r.PathValue("thread")
	s, err := p.viewer(w, r, id)
	if err != nil {
		return err
	}
	from, err := p.reader(r.Context(), s, id)
	if err != nil {
		return err
	}
	defer from.Free()
	record, err := from.record(r.Context(), r.PathValue("entry"))
	if err != nil {
		return err
	}
	e, is := entryOf(record)
	if !is {
		return errNoEntry
	}
	if err := from.Grow(renderCharge * len(record.Data)); err != nil {
		return err
	}
	return answer(e)
}

// lease returns a lease for what a viewer's request holds. All logins to all threads share one part of the budget, and
// so do the readers of each share. Each member has one.
func (p *page) lease(s access.Session) *memory.Lease {
	return p.Budget.Lease("page " + s.Share + s.Agent)
}

// pulse is the line of a thread's page that changes all the time: what the agent does, and its process.
func pulse(w *view.Watch, running []view.Item) string {
	var parts []string
	if n := len(running); n > 0 {
		c := running[n-1].Call
		parts = append(parts, strings.TrimSpace(c.Name+" "+firstLine(c.Main)))
	} else if step := w.Step(); step != "" {
		parts = append(parts, "making the box: "+step)
	}
	if a := w.Beat().Agent; a != nil {
		parts = append(parts, "CPU "+span(time.Duration(a.CPUMs)*time.Millisecond),
			"memory "+view.Size(a.RSSBytes), "quiet for "+span(time.Duration(a.QuietMs)*time.Millisecond))
	}
	return view.Visible(strings.Join(parts, " · "))
}

// firstLine returns the beginning of a text's first line.
func firstLine(text string) string {
	line, _, more := strings.Cut(strings.TrimSpace(text), "\n")
	if r := []rune(line); len(r) > 120 {
		line, more = string(r[:120]), true
	}
	if more {
		line += "…"
	}
	return line
}
