package runner

import (
	"context"
	"hash/maphash"
	"strings"

	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// threadLines are the ids of the lines on a thread, by session. The zero value is that of an empty thread.
type threadLines struct {
	seed maphash.Seed
	ids  map[string]map[uint64]bool // hashes of the ids, by session
	last string                     // the session of the last line

	known mirror.Known // ids that do not follow from the lines of a rebuilt file, for the mirror
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

// compared is the result of compare.
type compared struct {
	comparison
	info   SessionInfo
	cwd    string           // where the agent last worked; "" where the file doesn't name it
	posted session.Position // the thread has all lines before it
}

// compare reads a session file and counts its lines beside the thread's. converted are the hydrate.Keys of lines that
// stand for turns on the thread without entries of their own. notes is the path of notes for the mirror that continues
// the file; "" for none. Its error is that of ReadSession.
func (l *threadLines) compare(
	path string, d session.Dialect, converted map[string]bool, notes string,
) (c compared, err error) {
	id, err := sessionID(path, d)
	if err != nil {
		return c, err
	}
	passage := mirror.NewPassage(mirror.Namer{Dialect: d, Session: id, Known: &l.known}, path, notes)
	defer passage.Close() // a mirror without notes reads the file
	sid, complete := "", true
	c.info, err = eachLine(path, d, passage, func(line session.Line, e session.Entry, entryID string) bool {
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
				passage.Stop()
			}
			if !line.Torn {
				c.Ahead++
			}
		}
		if complete {
			passage.Posted(line)
		}
		return true
	})
	if err != nil {
		return compared{}, err
	}
	c.Torn, c.Turns = c.info.Torn, len(converted)
	if complete {
		c.posted = c.info.End
	}
	c.OnThread = len(l.ids[sid])
	if l.last != "" && l.last != sid {
		c.Other = len(l.ids[l.last])
	}
	return c, nil
}

// sessionID returns the id of a session file, from its first line that has it. Its error is that of ReadSession.
func sessionID(path string, d session.Dialect) (string, error) {
	var info SessionInfo
	err := info.read(path, d, func(line session.Line) bool {
		info.add(line, d.Decode(line.Data))
		return info.ID == ""
	})
	return info.ID, err
}

// eachLine calls f with the lines of a session file, a torn one included, and the ids of their entries, until f returns
// false. Its error is that of ReadSession.
func eachLine(path string, d session.Dialect, passage *mirror.Passage,
	f func(line session.Line, e session.Entry, entryID string) bool,
) (info SessionInfo, err error) {
	err = info.read(path, d, func(line session.Line) bool {
		e, name := passage.Next(line)
		info.add(line, e)
		return f(line, e, name.ID)
	})
	return info, err
}

// linesOnThread reads the thread for the lines that it has. It waits no longer than Timeout for the server.
func (r *run) linesOnThread(ctx context.Context) (*threadLines, error) {
	lines := &threadLines{}
	err := r.Client.ReadAll(ctx, r.Timeout, func(e thread.Entry) error {
		lines.add(hydrate.Parse(e, r.Spec.Dialect), r.Spec.Dialect)
		return nil
	})
	if err != nil && !client.NotFound(err) {
		return nil, err
	}
	return lines, nil
}

// nextIndex returns where the mirroring of a named session file may begin: at the line with index NextIndex, if the
// line before it is on the thread; else at the start.
func (r *run) nextIndex(lines *threadLines, path string) (at session.Position, err error) {
	d := r.Spec.Dialect
	passage := mirror.NewPassage(mirror.Namer{Dialect: d, Known: &lines.known}, path, "")
	defer passage.Close() // it writes nothing
	_, err = eachLine(path, d, passage, func(line session.Line, _ session.Entry, entryID string) bool {
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
