package mirror

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// Known are the ids of lines on a thread that do not follow from the lines as the thread gives them back. The id of
// a line without an id of its own is made of its bytes and its index. A server may give JSON back with other white
// space and another order of keys, and where the thread has lost a line, those behind it have another index in a
// rebuilt file. The zero value knows none.
type Known struct {
	ids   map[contentKey][]string // in the thread's order
	all   map[string]bool         // all of these, and those of lines that the thread has lost
	lines map[string]int          // by session, those so far
}

// contentKey is what a line says, whatever its bytes.
type contentKey [16]byte

// Add takes the thread's next entry: p is its payload, and line the line that it holds, nil where it holds none.
func (k *Known) Add(e thread.Entry, p thread.Line, line []byte, d session.Dialect) {
	if p.Session == nil || !strings.HasPrefix(e.ID, d.Prefix+":") {
		return
	}
	if k.lines == nil {
		k.lines, k.ids, k.all = map[string]int{}, map[contentKey][]string{}, map[string]bool{}
	}
	if line == nil {
		k.all[e.ID] = true
		return
	}
	index := k.lines[p.Session.ID]
	k.lines[p.Session.ID]++
	base := d.Prefix + ":" + part(p.Session.ID) + ":"
	hash := lineHash(session.Line{Data: line})
	follows := e.ID == fmt.Sprintf("%s%d.%s", base, index, hash)
	if own := p.Session.Entry; own != nil && *own != "" {
		follows = e.ID == base+part(*own) || e.ID == base+part(*own)+"."+hash
	}
	if !follows {
		key := contentOf(p.Session.ID, line)
		k.ids[key], k.all[e.ID] = append(k.ids[key], e.ID), true
	}
}

// contentOf is the key of a line of a session.
func contentOf(sessionID string, line []byte) contentKey {
	var v any
	if json.Unmarshal(line, &v) == nil {
		if sorted, err := json.Marshal(v); err == nil {
			line = sorted
		}
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%q ", sessionID)
	_, _ = sum.Write(line) // a hash takes everything
	return contentKey(sum.Sum(nil)[:len(contentKey{})])
}
