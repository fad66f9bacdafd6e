package tools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/thread"
)

// Limits of read_thread.
const (
	mostPage = 15 << 10    // bytes of the entries of a result, of which a model is shown 16 KiB
	readFor  = time.Minute // of a thread, which is read from its beginning
)

// readThread reads a page of a thread of the house.
func (h *Host) readThread() dispatch.Tool {
	t := shown("read_thread", "Read the newest entries of a thread of this house, or those before a number that a "+
		"result has. Without thread it is this one. find: only entries that have this text.", `{
		"thread": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,128}$"},
		"before": {"type": "string", "maxLength": 64},
		"limit": {"type": "integer", "minimum": 1, "maximum": 50},
		"find": {"type": "string", "maxLength": 200}}`)
	return dispatch.Tool{Tool: t, Run: taking(t, h.read)}
}

type reading struct {
	Thread, Before, Find string
	Limit                int
}

func (h *Host) read(ctx context.Context, c dispatch.ToolCall, a reading) (dispatch.ToolResult, error) {
	p := page{before: math.MaxInt, limit: cmp.Or(a.Limit, usualPage), find: strings.ToLower(a.Find)}
	if a.Before != "" {
		n, err := strconv.Atoi(strings.TrimPrefix(a.Before, "#"))
		if err != nil {
			return failed("before: want the number of an entry, such as 12")
		}
		p.before = n
	}
	r, err := h.rows(ctx, c)
	if err != nil {
		return ended(err)
	}
	t, err := ofHouse(ctx, r, c, cmp.Or(a.Thread, c.Thread))
	if err != nil {
		return ended(err)
	}
	text := dispatch.NewTranscript(c.Room)
	limited, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	_, _, err = h.Threads(t.ID).Read(limited, "0", func(e thread.Entry) {
		for _, x := range text.Add(e) {
			p.add(x)
		}
	})
	switch {
	case errors.Is(err, dispatch.ErrGone):
		return failed("the thread %s is deleted", t.ID)
	case err != nil && limited.Err() != nil && ctx.Err() == nil:
		return failed("the thread %s could not be read within %s", t.ID, readFor)
	case err != nil:
		return dispatch.ToolResult{}, err
	}
	return result("Thread %s %q\n%s", t.ID, t.Name, p.String())
}

// page collects the last texts before a number that have a text in them.
type page struct {
	before, limit int
	find          string // in lower case
	count         int    // of all texts
	found         []numbered
}

type numbered struct {
	n    int
	text string
}

func (p *page) add(text string) {
	p.count++
	if p.count >= p.before || !strings.Contains(strings.ToLower(text), p.find) {
		return
	}
	if p.found = append(p.found, numbered{p.count, text}); len(p.found) > p.limit {
		p.found = p.found[1:]
	}
}

// String returns the newest texts that fit, the oldest of them first.
func (p *page) String() string {
	left, first := mostPage, len(p.found)
	for first > 0 && len(p.found[first-1].text) <= left {
		first--
		left -= len(p.found[first].text) + len("#1000000 \n")
	}
	if first == len(p.found) && first > 0 {
		first--
		p.found[first].text = strings.ToValidUTF8(p.found[first].text[:mostPage], "") + "\n(the rest is left out)"
	}
	if first == len(p.found) {
		return fmt.Sprintf("(none of its %d entries)", p.count)
	}
	var b strings.Builder
	for _, x := range p.found[first:] {
		fmt.Fprintf(&b, "#%d %s\n", x.n, x.text)
	}
	fmt.Fprintf(&b, "(of %d entries; before: %q for older ones)", p.count, strconv.Itoa(p.found[first].n))
	return b.String()
}
