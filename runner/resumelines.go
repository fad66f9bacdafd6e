package runner

import (
	"context"
	"errors"
	"hash/maphash"
	"io"
	"strings"

	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// threadLines are the ids of the lines on a thread, by session. The zero value is that of an empty thread.
type threadLines struct {
	seed maphash.Seed
	ids  map[string]map[uint64]bool // hashes of the ids, by session
	last string                     // the session of the last line

	known mirror.Known
}

// add adds the thread's next entry.
func (l *threadLines) add(e hydrate.Entry, d session.Dialect) {
	sid := sessionOf(e.ID, d)
	if sid == "" {
		return
	}
	l.known.Add(e.ID, e.Fields.Session, e.Line, d)
	if e.Fields.IsSubagent() {
		return
	}
	if l.ids == nil {
		l.seed, l.ids = maphash.MakeSeed(), map[string]map[uint64]bool{}
	}
	if l.ids[sid] == nil {
		l.ids[sid] = map[uint64]bool{}
	}
	l.ids[sid][maphash.String(l.seed, e.ID)] = true
	if e.Fields.Kind == thread.KindMigrated { // the file has the line under its new id alone
		delete(l.ids[sid], maphash.String(l.seed, e.Fields.Supersedes))
	}
	l.last = sid
}

// sessionOf returns the session in the id of a line's entry, "" in any other id.
func sessionOf(entryID string, d session.Dialect) string {
	rest, ours := strings.CutPrefix(entryID, d.Prefix+":")
	sid, _, is := strings.Cut(rest, ":")
	if !ours || !is {
		return ""
	}
	return sid
}

// has reports whether the thread has an entry with this id for a line of the session.
func (l *threadLines) has(sid, entryID string) bool {
	ids := l.ids[sid]
	return ids != nil && ids[maphash.String(l.seed, entryID)]
}

// compared is a session file beside the lines of its thread.
type compared struct {
	comparison
	id     string           // the session's
	cwd    string           // where the agent last worked; "" where the file doesn't name it
	posted session.Position // the thread has all lines before it
}

// compare reads a session file and counts its lines beside the thread's. converted are the hydrate.Keys of lines that
// stand for turns on the thread without entries of their own.
func (l *threadLines) compare(path string, d session.Dialect, converted map[string]bool) (c compared, err error) {
	info, err := ReadSession(path, d)
	if err != nil {
		return c, err
	}
	c.id, c.Torn, c.Turns = info.ID, info.Torn, len(converted)
	sid, complete := "", true
	err = l.eachLine(path, c.id, d, func(line session.Line, e session.Entry, entryID string) bool {
		if e.Cwd != "" {
			c.cwd = e.Cwd
		}
		if sid == "" {
			sid = sessionOf(entryID, d)
		}
		switch {
		case l.has(sid, entryID):
			c.Found++
		case converted[hydrate.Key(line.Data, e)]:
			c.TurnsFound++
		case len(converted) > 0 && e.Kind == session.Header: // of a file that begins with them
		default:
			if complete {
				c.posted, complete = line.Start, false
			}
			if !line.Torn {
				c.Ahead++
			}
		}
		return true
	})
	if complete {
		c.posted = info.End
	}
	c.OnThread = len(l.ids[sid])
	if l.last != "" && l.last != sid {
		c.Other = len(l.ids[l.last])
	}
	return c, err
}

// eachLine calls f with the lines of a session file, a torn one included, and the ids of their entries, until f returns
// false.
func (l *threadLines) eachLine(path, sessionID string, d session.Dialect,
	f func(line session.Line, e session.Entry, entryID string) bool,
) error {
	reader := session.NewReader(path, session.Position{})
	defer reader.Close() // read only: nothing to lose
	namer := mirror.Namer{Dialect: d, Session: sessionID, Known: &l.known}
	for {
		line, err := reader.Rest()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		e := d.Decode(line.Data)
		if !line.Held() {
			e = session.Entry{Kind: session.Text}
		}
		if !f(line, e, namer.Name(line, e).ID) {
			return nil
		}
	}
}

// linesOnThread reads the thread for the lines that it has. It waits no longer than Timeout for the server.
func (r *run) linesOnThread(ctx context.Context) (*threadLines, error) {
	lines := &threadLines{}
	err := r.Client.ReadAll(ctx, r.Timeout, func(e thread.Entry) error {
		lines.add(hydrate.Parse(e, r.Spec.Dialect), r.Spec.Dialect)
		return nil
	})
	if err != nil && !thread.NotFound(err) {
		return nil, err
	}
	return lines, nil
}

// nextIndex returns where the mirroring of a named session file may begin: at the line with index NextIndex, if the
// line before it is on the thread; else at the start.
func (r *run) nextIndex(lines *threadLines, path string) (at session.Position, err error) {
	err = lines.eachLine(path, "", r.Spec.Dialect, func(line session.Line, _ session.Entry, entryID string) bool {
		if line.Start.Index != r.NextIndex-1 {
			return true
		}
		for sid := range lines.ids {
			if lines.has(sid, entryID) {
				at = line.End
			}
		}
		return false
	})
	return at, err
}
