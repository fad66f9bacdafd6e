package mirror

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// Namer names the lines of one session file: it returns the ids of their entries. The same file, read from its start,
// always has the same ids, so mirroring it again adds nothing. A Namer with Dialect and Session alone is at the start
// of a file.
type Namer struct {
	Dialect session.Dialect
	Session string // the session's id, until a header has it
	Known   *Known // ids that the thread has for lines of the session; nil where the thread was not read

	seed   [16]byte // of the hashes
	used   *idSet   // hashes of the ids of the lines so far
	before *idSet   // hashes of the ids of all lines before the last Restart
	noting bool     // fresh is filled
	fresh  []uint64 // hashes since the last note

	// An agent that continues a file of an old format rewrites it, with ids where there were none.
	old      bool                // the file's header is of an old format
	essences map[uint64][]string // of an old file: ids by the hash of the line's Essence
	migrated map[uint64][]string // essences of the file before the last Restart
}

// Name is the name of a line.
type Name struct {
	ID    string // of its entry
	Again bool   // the line had this id before the file changed
	// Supersedes is the id of the entry that holds the line in an older format of the file; "" for none.
	Supersedes string
}

// Restart brings the Namer to the start of the file, which has changed.
func (n *Namer) Restart() {
	switch {
	case n.used.empty():
	case n.before == nil:
		n.before = n.used
	default: // a new set: a Namer made by ahead may use the old ones
		both := &idSet{}
		both.addAll(n.before)
		both.addAll(n.used)
		n.before = both
	}
	n.migrated = n.essences
	n.used, n.essences, n.old = nil, nil, false
}

// Restarted reports whether the file has changed since the Namer began.
func (n *Namer) Restarted() bool { return n.before != nil }

// begin makes the set of used ids, where there is none.
func (n *Namer) begin() {
	if n.used != nil {
		return
	}
	n.used = &idSet{}
	if n.before == nil {
		_, _ = rand.Read(n.seed[:]) // it never fails
	}
}

// ahead returns a Namer at the same line. It adds ids to a set of its own, and looks them up in this one's, too.
func (n *Namer) ahead() Namer {
	n.begin()
	a := *n
	a.used, a.noting, a.fresh = &idSet{under: n.used}, false, nil
	a.essences, a.migrated = cloneIDs(n.essences), cloneIDs(n.migrated)
	return a
}

func cloneIDs(m map[uint64][]string) map[uint64][]string {
	clone := maps.Clone(m)
	for k, ids := range clone {
		clone[k] = slices.Clip(ids)
	}
	return clone
}

// Name returns the name of the file's next line, which decodes to e.
func (n *Namer) Name(l session.Line, e session.Entry) Name {
	n.begin()
	if e.Kind == session.Header {
		n.Session, n.old = e.SessionID, e.Old
	}
	id := n.idOf(l, e)
	key := n.hash(id)
	n.used.add(key)
	if n.noting {
		n.fresh = append(n.fresh, key)
	}
	name := Name{ID: id}
	name.Again = n.before.has(key)
	if n.Dialect.Essence == nil || e.Kind == session.Header || l.Long > 0 {
		return name
	}
	if n.old {
		essence := n.hash(string(n.Dialect.Essence(l.Data)))
		if n.essences == nil {
			n.essences = map[uint64][]string{}
		}
		n.essences[essence] = append(n.essences[essence], id)
	} else if len(n.migrated) > 0 && !name.Again {
		essence := n.hash(string(n.Dialect.Essence(l.Data)))
		if ids := n.migrated[essence]; len(ids) > 0 {
			name.Supersedes, n.migrated[essence] = ids[0], ids[1:]
		}
	}
	return name
}

// idOf returns an id for a line that no line before it has.
func (n *Namer) idOf(l session.Line, e session.Entry) string {
	id := n.Dialect.Prefix + ":" + part(n.Session) + ":"
	if e.ID == "" {
		id += strconv.Itoa(l.Start.Index) + "." + lineHash(l)
	} else if id += part(e.ID); !n.has(id) {
		return id
	} else if id += "." + lineHash(l); n.has(id) { // the same line, once more
		id += "." + strconv.Itoa(l.Start.Index)
	}
	if n.Known == nil || len(n.Known.ids) == 0 || n.Known.all[id] && !n.has(id) || l.Long > 0 {
		return id
	}
	for _, known := range n.Known.ids[contentOf(n.Session, l.Data)] {
		if !n.has(known) {
			return known
		}
	}
	return id
}

func (n *Namer) has(id string) bool {
	return n.used.has(n.hash(id))
}

// hash hashes an id with the Namer's own key, so that no agent can make two ids collide. Unlike maphash it can be
// written to the notes.
func (n *Namer) hash(s string) uint64 {
	var room [192]byte // enough for most ids
	sum := sha256.Sum256(append(append(room[:0], n.seed[:]...), s...))
	return binary.LittleEndian.Uint64(sum[:])
}

// maxPart keeps an id with two parts, a hash and an index within thread.MaxID.
const maxPart = 80

// part returns s, or a hash of it where s is too long or has other characters than an id may.
func part(s string) string {
	if len(s) <= maxPart && thread.ValidID(s) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

// lineHash returns the first 12 hex digits of the line's SHA-256.
func lineHash(l session.Line) string {
	sum := l.Sum
	if l.Long == 0 {
		sum = sha256.Sum256(l.Data)
	}
	return hex.EncodeToString(sum[:6])
}

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
