package log

import (
	"bytes"
	"strings"
	"time"
	"unicode/utf8"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/internal/jsonscan"
	"arbe.0sk.ar/runner/thread"
)

// pieceBytes is the largest record of a stream of bytes. A read returns one record at least, and a slow reader holds
// it.
const pieceBytes = 1 << 20

// cut splits a body into records: JSON into its messages, each element of an array being one, anything else into
// pieces. The records share the body's memory.
func cut(kind string, body []byte, initial bool) ([]engine.Record, error) {
	now := time.Now()
	if kind != typeJSON {
		return cutBytes(body, now, strings.HasPrefix(kind, "text/")), nil
	}
	if len(body) == 0 && initial {
		return nil, nil
	}
	if err := thread.CheckJSON(body, thread.MaxDepth+1); err != nil {
		return nil, &SyntaxError{"no JSON that all can read", err}
	}
	body = bytes.TrimSpace(body)
	messages := 1
	if body[0] == '[' {
		if messages = countElements(body, MaxMessages); messages == 0 && initial {
			return nil, nil
		}
		if err := checkCount(body, MaxMessages); err != nil {
			return nil, err
		}
	}
	records := make([]engine.Record, 0, messages)
	largest := 0
	add := func(v []byte) {
		largest = max(largest, len(v))
		records = append(records, engine.Record{At: now, Data: v[:len(v):len(v)]})
	}
	if body[0] == '[' {
		jsonscan.Elements(body, add)
	} else {
		add(body)
	}
	if largest > thread.MaxEntry {
		return nil, &SizeError{largest}
	}
	return records, nil
}

// cutBytes splits a body into pieces of pieceBytes at most. It splits text neither within a character nor between a
// carriage return and a line feed, so that each piece can be an event.
func cutBytes(body []byte, now time.Time, text bool) (records []engine.Record) {
	for len(body) > 0 {
		n := min(len(body), pieceBytes)
		if text && n < len(body) {
			for back := 0; back < utf8.UTFMax && !utf8.RuneStart(body[n]); back++ {
				n--
			}
			if body[n] == '\n' && body[n-1] == '\r' {
				n--
			}
		}
		records = append(records, engine.Record{At: now, Data: body[:n:n]})
		body = body[n:]
	}
	return records
}

// MaxMessages is how many messages one post to a stream of JSON may have. Each takes a key in the log, with the
// stream's name in it.
const MaxMessages = 10_000

// countElements returns the number of elements of the JSON array b, and stops at the first one beyond most. It
// allocates nothing, so that a post is refused for its count before it is parsed. For invalid JSON it returns some
// number.
func countElements(b []byte, most int) int {
	i := jsonscan.Space(b, 1)
	if i >= len(b) || b[i] == ']' {
		return 0
	}
	n, depth := 1, 1
	for i < len(b) && depth > 0 && n <= most {
		switch b[i] {
		case '"':
			i = jsonscan.SkipString(b, i)
			continue
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		case ',':
			if depth == 1 {
				n++
			}
		}
		i++
	}
	return n
}

// checkCount returns ErrEmpty for a JSON array without elements, and a *CountError for one of more than most.
func checkCount(b []byte, most int) error {
	switch n := countElements(b, most); {
	case n == 0:
		return ErrEmpty
	case n > most:
		return &CountError{most}
	}
	return nil
}
