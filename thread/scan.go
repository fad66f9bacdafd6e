package thread

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"arbe.0sk.ar/runner/internal/jsonscan"
)

// MaxDepth is the deepest nesting of an entry, the entry itself included. Readers in some languages accept less than a
// thousand.
const MaxDepth = 512

// MaxNumber is how many characters a number of an entry may have. Readers in some languages accept a few thousand, and
// take time for more.
const MaxNumber = 1000

// CheckJSON returns an error where b is no JSON text that all readers accept: a *json.SyntaxError, bytes that are not
// UTF-8, which Go's grammar accepts, more than depth nested values, or a number of more than MaxNumber characters.
func CheckJSON(b []byte, depth int) error {
	if !json.Valid(b) {
		var v json.RawMessage
		if json.NewDecoder(bytes.NewReader(b)).Decode(&v) == nil {
			return errors.New("more than one JSON value")
		}
		return json.Unmarshal(b, &v)
	}
	if !utf8.Valid(b) {
		return errors.New("invalid UTF-8")
	}
	switch d, number := jsonscan.Extent(b); {
	case d > depth:
		return fmt.Errorf("nested %d deep, more than %d", d, depth)
	case number > MaxNumber:
		return fmt.Errorf("a number of %d characters, more than %d", number, MaxNumber)
	}
	return nil
}

// Fields are the members of a payload that decide what an entry is and which run it belongs to. Scan reads them.
type Fields struct {
	Type    string
	RunID   string
	Harness string
	Status  string

	// Reaction reports that it is of a bot's reaction, and so no sign of a run's life.
	Reaction bool
}

// Signal reports whether the entry is a signal.
func (f Fields) Signal() bool { return strings.HasPrefix(f.Type, "signal.") }

// TypeOf returns the type of a payload; "" where it has none. It reads the payload up to its type.
func TypeOf(payload []byte) string {
	i := jsonscan.Find(payload, "type")
	if i < 0 {
		return ""
	}
	return jsonscan.String(payload[i:jsonscan.Skip(payload, i)])
}

// meanings are the names with a meaning at a payload's top level. A payload has each at most once, and none in another
// case: JSON readers differ in which of two equal members they take, and in whether case counts.
var meanings = func() map[string]uint {
	m := map[string]uint{}
	for i, name := range strings.Fields(`
		type runId harness status text message session deliver reason chat chats
		kind line was encoding subagentOf truncated bytes sha256 toolCallId toolName isError invalid stopReason provider model usage
		sandbox parent after pushed branch commit prUrl error copied conflicts deleted
		runnerVersion agentVersion agentProven cwd pid startTicks bootId instance sessionFile resume live
		beat posted pending uptimeMs nextMs agent turn outcome name command stream
		errorClass exitCode signal durationMs lines digest leftovers stderrTail lastEntryAt silentMs
		childThreadId agentId from until corrected title unread nothing skipped
		execId timeoutMs timedOut cancelled dropped stored
		reaction round claim via bots quiet mentions root depth upto dueAt leaseMs trigger decision
		tools caps released rounds calls cost
	`) {
		m[name] = uint(i)
	}
	return m
}()

// folded has each of meanings by its lower case.
var folded = func() map[string]string {
	m := map[string]string{}
	for name := range meanings {
		m[strings.ToLower(name)] = name
	}
	return m
}()

// Scan reads the fields of a payload, which is JSON. The server checks entries by it, and a token's run; Fold uses it,
// too, so that all read the same. An error names an ambiguous member or one of the wrong type. The content of the
// members is not checked.
func Scan(payload []byte) (f Fields, err error) { return ScanMembers(payload, func(_, _ []byte) {}) }

// ScanMembers is Scan. It calls visit for each member with its decoded key and raw value, also of a payload for which
// it returns an error.
func ScanMembers(payload []byte, visit func(key, value []byte)) (f Fields, err error) {
	if !jsonscan.IsObject(payload) {
		return f, errors.New("payload: want an object")
	}
	fail := func(format string, args ...any) {
		if err == nil {
			err = fmt.Errorf(format, args...)
		}
	}
	var seen [2]uint64
	var m deciding
	jsonscan.Members(payload, func(key, v []byte) {
		visit(key, v)
		i, ok := meanings[string(key)]
		if !ok {
			if name := variant(key); name != "" {
				fail("payload.%.40s: want %s, in this case", key, name)
			}
			return
		}
		if bit := uint64(1) << (i % 64); seen[i/64]&bit != 0 {
			fail("payload.%s: want it once", key)
		} else {
			seen[i/64] |= bit
		}
		m.set(key, v)
	})
	f.Type, f.Reaction = jsonscan.String(m.typ), m.reaction
	switch {
	case err != nil:
		return Fields{}, err
	case f.Type == "":
		return Fields{}, errors.New("payload.type: want a string")
	case f.Type == TypeChat && m.text != nil && !jsonscan.IsString(m.text):
		return Fields{}, errors.New("payload.text: want a string")
	case f.Type != TypeChat && !f.Signal():
		return f, nil // in a mirrored line these names are the harness's
	}
	for _, x := range []struct {
		name string
		raw  []byte
		to   *string
	}{{"runId", m.runID, &f.RunID}, {"harness", m.harness, &f.Harness}, {"status", m.status, &f.Status}} {
		if x.raw != nil && !jsonscan.IsString(x.raw) && string(x.raw) != "null" {
			return Fields{}, fmt.Errorf("payload.%s: want a string", x.name)
		}
		*x.to = jsonscan.String(x.raw)
	}
	return f, nil
}

// deciding are the members that Fields are made of, raw.
type deciding struct {
	typ, runID, harness, status, text []byte
	reaction                          bool
}

func (m *deciding) set(key, v []byte) {
	switch string(key) {
	case "type":
		m.typ = v
	case "runId":
		m.runID = v
	case "harness":
		m.harness = v
	case "status":
		m.status = v
	case "text":
		m.text = v
	case "reaction":
		m.reaction = true
	}
}

// variant returns the name with a meaning that key equals but for case, as encoding/json compares; "" for none.
func variant(key []byte) string {
	if len(key) > mostVariant {
		return ""
	}
	text := string(key)
	name := folded[strings.ToLower(strings.ToUpper(text))] // two characters beyond ASCII fold to ASCII letters
	if !strings.EqualFold(name, text) {
		return ""
	}
	return name
}

// mostVariant is how many bytes a variant of a name may have.
const mostVariant = 64

// Types selects payload types by their prefixes. The zero value has every type.
type Types struct {
	Of      []string // none for every type
	Without []string // of those that Of has, the ones to leave out
}

// All reports whether every type is selected.
func (t Types) All() bool { return len(t.Of)+len(t.Without) == 0 }

// Has reports whether a payload type is selected.
func (t Types) Has(typ string) bool {
	begins := func(prefix string) bool { return strings.HasPrefix(typ, prefix) }
	return (len(t.Of) == 0 || slices.ContainsFunc(t.Of, begins)) && !slices.ContainsFunc(t.Without, begins)
}
