package page

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"regexp"

	"arbe.0sk.ar/runner/thread"
)

// ErrNoSession is the error of Config.Session for a thread without a session, or of a harness that it does not know.
var ErrNoSession = errors.New("the thread holds no session")

// mostRebuilds bounds the sessions that are rebuilt at the same time. Each takes as much disk as its thread.
const mostRebuilds = 2

// sessionFile serves the session of a thread's last run as a file of its agent.
func (p *page) sessionFile(w http.ResponseWriter, r *http.Request) error {
	s, err := p.viewer(w, r, "") // a shared thread is for reading here
	if err != nil {
		return err
	}
	id := r.PathValue("thread")
	if err := p.check(r.Context(), s, id); err != nil {
		return err
	}
	v, err := p.summary(r.Context(), id)
	if err != nil {
		return err
	}
	if p.Session == nil {
		return refuse(http.StatusNotImplemented, "no_session", "This server makes no session files.")
	}
	select {
	case p.rebuilds <- struct{}{}:
		defer func() { <-p.rebuilds }()
	default:
		return refuse(http.StatusServiceUnavailable, "busy", "Other sessions are being made. Come again.")
	}
	from, err := p.reader(r.Context(), s, id)
	if err != nil {
		return err
	}
	defer from.Free()
	d := &download{w: w, name: id + ".jsonl"}
	err = p.Session(d, v.Harness, from.entries(r.Context()))
	switch {
	case errors.Is(err, ErrNoSession):
		return refuse(http.StatusNotFound, "no_session", "The thread holds no session of its last harness.")
	case err != nil && d.begun:
		p.Logger.Warn("session file interrupted", "thread", id, "error", err)
		panic(http.ErrAbortHandler) // else the browser would take a part for the whole
	}
	return err
}

// download is an answer that browsers keep as a file. Its headers are written with its first bytes.
type download struct {
	w     http.ResponseWriter
	name  string // of characters that a header may have
	begun bool
}

// Write implements io.Writer.
func (d *download) Write(b []byte) (int, error) {
	if !d.begun {
		d.begun = true
		d.w.Header().Set("Content-Type", "application/x-ndjson")
		d.w.Header().Set("Content-Disposition", `attachment; filename="`+d.name+`"`)
	}
	return d.w.Write(b)
}

// entries returns the entries of a thread up to its tail, or an error as the last one.
func (r *reader) entries(ctx context.Context) iter.Seq2[thread.Entry, error] {
	return func(yield func(thread.Entry, error) bool) {
		for after := uint64(0); after < r.stream.Tail(); {
			records, err := r.read(ctx, after, r.stream.Tail(), pieceBytes)
			if err != nil {
				yield(thread.Entry{}, err)
				return
			}
			if len(records) == 0 {
				return // the rest was removed
			}
			for _, one := range records {
				if e, ok := entryOf(one); ok && !yield(e, nil) {
					return
				}
			}
			after = records[len(records)-1].Seq
			r.Drop()
		}
	}
}

// plainHost is a host with a port that may stand in such a command line.
var plainHost = regexp.MustCompile(`^[A-Za-z0-9.:\[\]-]+$`)

// address returns the address of this server as the browser has it; "" for one that a command line can't have.
func address(r *http.Request, id string) string {
	if !plainHost.MatchString(r.Host) {
		return ""
	}
	if isSecure(r, id) {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// Known reports whether the thread's session can be rebuilt, and continued by hand. A thread's harness is its writer's
// choice: only a known one may stand in a command line that a reader copies.
func (t threadPage) Known() bool {
	_, known := t.Harnesses.Named(t.Row.Harness)
	return known
}

// Commands returns the command lines by which a reader continues in a terminal.
func (t threadPage) Commands() []string {
	id := t.Row.ID
	lines := []string{"arbe thread tail " + id, "arbe thread export --html --out " + id + ".html " + id}
	if t.Known() {
		lines = append(lines, "arbe run --thread "+id+" --resume --harness "+t.Row.Harness+" -- TASK")
		if t.Address != "" {
			lines = append(lines, "ARBE_STREAM_TOKEN=$(arbe token mint --thread "+id+" --scope read) \\\n"+
				"  arbe-pi-runner hydrate --thread "+id+" --url "+t.Address+" --harness "+t.Row.Harness+
				" --out session.jsonl")
		}
	}
	return lines
}
