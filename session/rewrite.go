package session

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	"arbe.0sk.ar/runner/internal/jsonscan"
)

// structural are the members whose strings hold the type of a line and its links to others, in the lines of all three
// agents and in the payloads that are made of them. Rewrite leaves them alone: a tree whose ids have changed is lost.
var structural = set(
	"type", "role", "kind", "subtype", "stopReason", "stop_reason", "status", "harness", "runId", "chat", "id",
	"parentId", "entry", "parent", "targetId", "firstKeptEntryId", "fromId", "toolCallId", "toolName", "timestamp",
	"ts", "uuid", "parentUuid", "logicalParentUuid", "sessionId", "session_id", "call_id", "tool_use_id", "turn_id",
	"thread_id",
)

// free are the members whose content is anybody's: inside them no name is structural.
var free = set("arguments", "details", "data", "input", "toolUseResult")

func set(names ...string) map[string]bool {
	m := map[string]bool{}
	for _, n := range names {
		m[n] = true
	}
	return m
}

// Rewriter changes strings in JSON. The zero value is ready. It keeps a buffer from one call to the next, so it is not
// safe for concurrent use.
type Rewriter struct {
	raw     []byte
	f       func([]byte) []byte
	out     []byte // what has been rewritten of raw[:done]; nil as long as nothing has changed
	done    int
	scratch []byte // a string with escapes, decoded
}

// keepScratch is how large a buffer is kept. A larger one served a line of a kind that comes once in a while.
const keepScratch = 1 << 20

// Rewrite passes the decoded string values of valid JSON through f and returns the JSON with what f changed, raw itself
// where that is nothing. Keys stay, and so do ids and the other strings that hold a line together. f gets bytes that
// are good for the call only, and returns nil to leave them. All else keeps its bytes.
func (w *Rewriter) Rewrite(raw []byte, f func(s []byte) []byte) []byte {
	w.raw, w.f, w.out, w.done = raw, f, nil, 0
	w.value(jsonscan.Space(raw, 0), false, false)
	out := raw
	if w.out != nil {
		out = append(w.out, raw[w.done:]...)
	}
	w.raw, w.f, w.out = nil, nil, nil
	if cap(w.scratch) > keepScratch {
		w.scratch = nil
	}
	return out
}

// value handles the value at i and returns the index after it. keep: it is structural. in: it stands inside a free
// member.
func (w *Rewriter) value(i int, keep, in bool) int {
	if i >= len(w.raw) {
		return i
	}
	switch w.raw[i] {
	case '"':
		end := jsonscan.SkipString(w.raw, i)
		if !keep || in {
			w.text(i, end)
		}
		return end
	case '[':
		for i = jsonscan.Space(w.raw, i+1); i < len(w.raw) && w.raw[i] != ']'; {
			i = jsonscan.Space(w.raw, w.value(i, keep, in))
			if i < len(w.raw) && w.raw[i] == ',' {
				i = jsonscan.Space(w.raw, i+1)
			}
		}
		return i + 1
	case '{':
		for i = jsonscan.Space(w.raw, i+1); i < len(w.raw) && w.raw[i] == '"'; {
			end := jsonscan.SkipString(w.raw, i)
			key := w.raw[i+1 : end-1]
			i = jsonscan.Space(w.raw, jsonscan.Space(w.raw, end)+1) // over the colon
			i = jsonscan.Space(w.raw, w.value(i, structural[string(key)], in || free[string(key)]))
			if i < len(w.raw) && w.raw[i] == ',' {
				i = jsonscan.Space(w.raw, i+1)
			}
		}
		return i + 1
	default:
		return jsonscan.Skip(w.raw, i)
	}
}

// text passes the string at raw[i:end], quotes included, through f.
func (w *Rewriter) text(i, end int) {
	s := w.raw[i+1 : end-1]
	if bytes.IndexByte(s, '\\') >= 0 {
		w.scratch, _ = unescape(slices.Grow(w.scratch[:0], len(s)), s, false) // s may be 64 MiB: grown once
		s = w.scratch
	}
	changed := w.f(s)
	if changed == nil {
		return
	}
	if w.out == nil {
		w.out = make([]byte, 0, len(w.raw)/8)
	}
	w.out = append(w.out, w.raw[w.done:i]...)
	w.out = jsonscan.Quote(w.out, changed)
	w.done = end
}

// escapes are the characters of JSON's short escapes; a quote, a backslash and a slash stand for themselves.
var escapes = [256]byte{'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// unescape appends the decoded text of a string's inside, and returns how many bytes it has decoded. more: the string
// continues after s, and an escape at the end of s may be a part of one, or of a pair of surrogates: it is left.
func unescape(dst, s []byte, more bool) (text []byte, n int) {
	const pair = len(`\ud83d\ude00`)
	for {
		i := bytes.IndexByte(s[n:], '\\')
		if i < 0 {
			return append(dst, s[n:]...), len(s)
		}
		dst = append(dst, s[n:n+i]...)
		n += i
		escape := s[n:]
		if more && (len(escape) < 2 || escape[1] == 'u' && len(escape) < pair) {
			return dst, n
		}
		if len(escape) < 2 {
			return append(dst, escape...), len(s)
		}
		if c := escape[1]; c != 'u' {
			dst, n = append(dst, cmp.Or(escapes[c], c)), n+2
			continue
		}
		// A pair of surrogates is two escapes and one character: let the library see both.
		size := pair / 2
		if len(escape) >= pair && surrogate(escape, '8') && surrogate(escape[size:], 'c') {
			size = pair
		}
		size = min(size, len(escape))
		var text string
		if json.Unmarshal(slices.Concat([]byte{'"'}, escape[:size], []byte{'"'}), &text) != nil {
			text = "\uFFFD"
		}
		dst = append(dst, text...)
		n += size
	}
}
