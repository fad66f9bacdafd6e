package log

import "arbe.0sk.ar/runner/internal/jsonscan"

// MaxMessages is how many messages one post to a stream of JSON may bring. Each costs a key of its own in the log, with
// the stream's name in it.
const MaxMessages = 10_000

// countElements returns how many elements the JSON array b has, and stops counting at the first one beyond most. It
// allocates nothing, so that a post is refused for its count before anything is built of it. Of what is no JSON it
// returns some number.
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

// checkCount refuses the JSON array b where it has no element or more than most.
func checkCount(b []byte, most int) error {
	switch n := countElements(b, most); {
	case n == 0:
		return ErrEmpty
	case n > most:
		return &CountError{most}
	}
	return nil
}
