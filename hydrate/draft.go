package hydrate

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"

	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// draft is one session's file in the making.
type draft struct {
	Rebuilt
	file    *os.File
	out     *bufio.Writer
	seed    maphash.Seed
	ids     map[uint64]struct{} // of the lines so far
	calls   map[string]bool     // tool calls that have no result yet, where lines are made
	header  bool
	touched int             // when its last line came: the Rebuilder's count
	reply   string          // the reply that is being made, of the turns right before
	next    int             // the number of the line to come, where lines carry one
	lost    int             // lines lost since the last one that was not
	made    bool            // the last line was made
	own     map[string]bool // the ids of the lines that were made

	// A file in an old format, which the agent has written anew: the lines' places, by entry.
	old    bool
	places map[string][2]int64
	anew   []string // the ids of the new file's lines, by index
}

// lose notes a line that can't be given back.
func (d *draft) lose(p thread.Line) {
	why := p.Reason
	if p.Kind == thread.KindLong {
		why = "longer than what is read of a line"
	}
	d.Lost = append(d.Lost, fmt.Sprintf("line %d, %d bytes: %s", p.Session.Index, p.Bytes, why))
	d.lost++
}

// moved takes a line of a file that the agent has written anew in a newer format.
func (d *draft) moved(e thread.Entry, p thread.Line, dialect session.Dialect) error {
	if d.anew == nil {
		if err := d.restart(dialect); err != nil {
			return err
		}
	}
	place, ok := d.places[p.Was]
	if !ok || p.Session.Entry == nil {
		d.lose(p)
		return nil
	}
	line := make([]byte, place[1])
	if _, err := d.file.ReadAt(line, place[0]); err != nil {
		return err
	}
	for len(d.anew) <= p.Session.Index {
		d.anew = append(d.anew, "")
	}
	d.anew[p.Session.Index] = *p.Session.Entry
	line = dialect.Upgrade(line, *p.Session.Entry, deref(p.Session.Parent), func(i int) string {
		if i < 0 || i >= len(d.anew) {
			return ""
		}
		return d.anew[i]
	})
	return d.put(line, dialect.Decode(line), e.ID)
}

// restart begins the file again, behind the old one, whose lines are still looked up.
func (d *draft) restart(dialect session.Dialect) error {
	if err := d.out.Flush(); err != nil {
		return err
	}
	first, err := bufio.NewReader(io.NewSectionReader(d.file, d.start(), d.Size)).ReadBytes('\n')
	if err != nil {
		return err
	}
	keep := d.Rebuilt
	d.Rebuilt = Rebuilt{Session: keep.Session, OldCwd: keep.OldCwd, Size: keep.Size, Lost: keep.Lost, Redacted: keep.Redacted, Cut: keep.Cut}
	d.anew, d.ids, d.old = []string{""}, map[uint64]struct{}{}, false
	d.places["start"] = [2]int64{keep.Size, 0}
	header := dialect.Upgrade(bytes.TrimSpace(first), "", "", nil)
	return d.put(header, dialect.Decode(header), keep.Last)
}

// start is where the file begins among all that was written for it.
func (d *draft) start() int64 { return d.places["start"][0] }

func (d *draft) has(id string) bool {
	_, ok := d.ids[maphash.String(d.seed, id)]
	return ok
}

// put appends a line, which decodes to dec.
func (d *draft) put(line []byte, dec session.Entry, entry string) error {
	if dec.Cwd != "" {
		d.OldCwd = dec.Cwd
	}
	switch dec.Kind {
	case session.User, session.Assistant, session.ToolResult:
		d.Turns++
		if dec.Parent != d.Leaf && d.Leaf != "" {
			d.Branches++
		}
	}
	for _, call := range dec.Calls {
		d.calls[call.ID] = true
	}
	if bytes.Contains(line, []byte("[redacted:")) {
		d.Redacted++
	}
	if dec.ID != "" && dec.Kind != session.Header {
		d.ids[maphash.String(d.seed, dec.ID)] = struct{}{}
		d.Leaf = dec.ID
	}
	if !dec.Began.IsZero() {
		d.Began = dec.Began
	}
	if dec.Next > 0 || dec.Kind == session.Header {
		d.next = dec.Next
	}
	d.Lines++
	d.Size += int64(len(line)) + 1
	d.Last = entry
	_, err := d.out.Write(line)
	return errors.Join(err, d.out.WriteByte('\n'))
}
