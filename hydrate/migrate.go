package hydrate

import (
	"bufio"
	"bytes"
	"io"
)

// migration is how a session file in an old format becomes the one that the agent wrote anew from it. pi does that
// with a file of version 1 that it continues: it rewrites the file and gives each line an id and a parent. The mirror
// posts for each old line that it came again: an entry without the line, which supersedes the old line's. A migration
// takes the old line from the draft and brings it up to date as pi does (Dialect.Upgrade).
type migration struct {
	old map[string]place // the lines in the old format, by entry id
	ids map[int]string   // of the new file's lines, by index; nil before the first one
}

// place is where in a draft's file a line stands.
type place struct{ offset, size int64 }

// keep notes where a line in the old format stands. A nil migration keeps none.
func (m *migration) keep(entryID string, offset int64, size int) {
	if m != nil && m.ids == nil {
		m.old[entryID] = place{offset, int64(size)}
	}
}

// migrate adds the line of an entry that supersedes another one: that one's line in the new format.
func (d *draft) migrate(e Entry) error {
	m, at := d.migration, e.Fields.Session
	if m == nil || at.Entry == nil {
		d.lose(e.Fields)
		return nil
	}
	if m.ids == nil {
		if err := d.restart(); err != nil {
			return err
		}
	}
	from, held := m.old[e.Fields.Supersedes]
	if !held {
		d.lose(e.Fields)
		return nil
	}
	line := make([]byte, from.size)
	if _, err := d.file.ReadAt(line, from.offset); err != nil {
		return err
	}
	m.ids[at.Index] = *at.Entry
	line = d.dialect.Upgrade(line, *at.Entry, deref(at.Parent), func(index int) string { return m.ids[index] })
	return d.put(line, d.dialect.Decode(line), e.ID)
}

// restart begins the new file, with the old one's header, behind the old one.
func (d *draft) restart() error {
	if err := d.out.Flush(); err != nil {
		return err
	}
	old := bufio.NewReader(io.NewSectionReader(d.file, d.start, d.Size))
	first, err := old.ReadBytes('\n')
	if err != nil {
		return err
	}
	was := d.Report
	d.start += was.Size
	d.Report = Report{Session: was.Session, OldCwd: was.OldCwd, Lost: was.Lost, Cut: was.Cut}
	d.ids = newIDSet()
	d.breaks = 0
	d.migration.ids = map[int]string{}
	header := d.dialect.Upgrade(bytes.TrimSpace(first), "", "", nil)
	return d.put(header, d.dialect.Decode(header), was.Last)
}
