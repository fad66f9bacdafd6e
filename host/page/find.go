package page

import (
	"context"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"arbe.0sk.ar/runner/host/view"
)

// Bounds of one request to find a text in a thread. A request that ends at one of them returns the place where the next
// one continues.
const (
	mostHits     = 50
	findEntries  = 10_000
	findBytes    = 16 << 20
	hitContext   = 80      // bytes of text on each side of a hit
	findAtOnce   = 500     // entries that are in memory
	findInMemory = 1 << 20 // bytes of them, but at least one append
)

// hit is an item that has the text.
type hit struct {
	Thread, Entry, ID string
	Item              item
	Query             string
	Head, Match, Tail string // the first place of the text, with what stands around it
}

// found is the answer to a request to find a text.
type found struct {
	Thread string
	Query  string
	Hits   []hit  // the newest first
	Before uint64 // what is not searched yet ends here; 0 for nothing
}

// find serves the items of a thread that have a text, in any case, the newest first: those before a place.
func (p *page) find(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("thread")
	s, err := p.viewer(w, r, id)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	text := strings.TrimSpace(q.Get("q"))
	if text == "" || len(text) > mostQuery || !utf8.ValidString(text) {
		return refuse(http.StatusBadRequest, "q", "q: want a text of at most %d bytes", mostQuery)
	}
	upTo := uint64(math.MaxUint64)
	if q.Has("before") {
		if upTo, err = strconv.ParseUint(q.Get("before"), 10, 63); err != nil {
			return refuse(http.StatusBadRequest, "before", "before: want the place where a search ended")
		}
	}
	from, err := p.reader(r.Context(), s, id)
	if err != nil {
		return err
	}
	defer from.Free()
	all, err := from.search(r.Context(), text, min(upTo, from.stream.Tail()))
	if err != nil {
		return err
	}
	p.render(w, http.StatusOK, "found", all)
	return nil
}

// search returns the items up to a place that have a text. It keeps findAtOnce entries at a time.
func (r *reader) search(ctx context.Context, text string, upTo uint64) (found, error) {
	all := found{Thread: r.id, Query: text, Before: upTo}
	entries, bytes := 0, 0
	for all.Before > 0 && len(all.Hits) < mostHits && entries < findEntries && bytes < findBytes {
		records, err := r.readBack(ctx, all.Before, findAtOnce, findInMemory)
		if err != nil {
			return all, err
		}
		if len(records) == 0 {
			all.Before = 0
			break
		}
		// A continued search begins before a whole append: hits beyond mostHits are of the append that reached it.
		for _, one := range slices.Backward(records) {
			if len(all.Hits) >= mostHits && one.Seq != all.Before {
				r.Drop()
				all.Before = one.Seq
				return all, nil
			}
			all.Before = one.Seq
			entries++
			bytes += len(one.Data)
			e, ok := entryOf(one)
			if !ok {
				continue
			}
			for _, i := range slices.Backward(view.Items(e, r.Harnesses)) {
				if h, ok := hitOf(i, r.id, text); ok {
					all.Hits = append(all.Hits, h)
				}
			}
		}
		all.Before = records[0].Seq - 1
		r.Drop()
	}
	return all, nil
}

// hitOf returns the hit of a text in an item; false where the item does not have it.
func hitOf(i view.Item, id, query string) (hit, bool) {
	for _, text := range textsOf(i) {
		from, to := indexFold(text, query)
		if from < 0 {
			continue
		}
		return hit{
			Thread: id, Entry: i.Entry, ID: i.ID, Item: item{Item: i, Thread: id}, Query: query,
			Head: lastBytes(text[:from]), Match: text[from:to], Tail: firstBytes(text[to:]),
		}, true
	}
	return hit{}, false
}

// textsOf returns the texts of an item that a search looks at.
func textsOf(i view.Item) []string {
	texts := []string{i.Text}
	if c := i.Call; c != nil {
		texts = append(texts, c.Name, c.Main, string(c.Arguments))
		if i.Call.Diff != nil {
			for _, f := range i.Call.Diff.Files {
				texts = append(texts, f.Path)
			}
		}
	}
	if r := i.Result; r != nil {
		texts = append(texts, r.Text)
	}
	if i.Rule != nil {
		texts = append(texts, i.Rule.Summary)
	}
	if v := i.Verdict; v != nil {
		texts = append(texts, v.Status, v.Class, v.Message, v.Reason, v.Stderr)
	}
	return append(texts, i.Sentence(), i.Author)
}

// indexFold returns the first place of a query in a text, in any case; -1 for none. In a text whose lower case has
// another length, the query's own case is found alone.
func indexFold(text, query string) (from, to int) {
	lower := strings.ToLower(text)
	if len(lower) != len(text) {
		lower = text
	} else {
		query = strings.ToLower(query)
	}
	from = strings.Index(lower, query)
	return from, from + len(query)
}

func lastBytes(text string) string {
	if len(text) <= hitContext {
		return text
	}
	return "…" + strings.ToValidUTF8(text[len(text)-hitContext:], "")
}

func firstBytes(text string) string {
	if len(text) <= hitContext {
		return text
	}
	return strings.ToValidUTF8(text[:hitContext], "") + "…"
}
