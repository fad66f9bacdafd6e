package mirror

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// Known has the ids of lines on a thread that do not follow from the lines as the thread returns them. The id of a line
// without an id of its own follows from its bytes and its index. A server may return JSON with other white space and
// another order of keys, and where the thread lacks a line, those behind it have another index in a rebuilt file. The
// zero value is empty.
type Known struct {
	ids   map[contentKey][]string // in the thread's order
	all   map[string]bool         // these ids, and those of entries that no line can be rebuilt from
	lines map[string]int          // lines so far, by session
}

// contentKey is a hash of a session's id and a line's JSON, whatever its white space and the order of its keys.
type contentKey [16]byte

// Add adds the thread's next entry: its id, the place of its line, nil where it has none, and the line, nil where the
// entry doesn't hold it.
func (k *Known) Add(id string, at *thread.SessionRef, line []byte, d session.Dialect) {
	if at == nil || !strings.HasPrefix(id, d.Prefix+":") {
		return
	}
	if k.lines == nil {
		k.lines, k.ids, k.all = map[string]int{}, map[contentKey][]string{}, map[string]bool{}
	}
	if line == nil {
		k.all[id] = true
		return
	}
	index := k.lines[at.ID]
	k.lines[at.ID]++
	base := d.Prefix + ":" + part(at.ID) + ":"
	own := strconv.Itoa(index) // with a hash behind it
	if at.Entry != nil && *at.Entry != "" {
		if own = part(*at.Entry); id == base+own {
			return // the id follows from the line
		}
	}
	if id == base+own+"."+lineHash(session.Line{Data: line}) {
		return
	}
	key := contentOf(at.ID, line)
	k.ids[key], k.all[id] = append(k.ids[key], id), true
}

// contentOf returns the key of a line of a session.
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
