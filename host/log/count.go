package log

import "arbe.0sk.ar/runner/internal/jsonscan"

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
