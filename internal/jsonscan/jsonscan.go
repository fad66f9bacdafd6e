// Package jsonscan finds members and values in JSON without copying it and without building anything: a session line
// can be 64 MiB of one string of which a few short fields are wanted. It checks nothing: of what is no JSON it returns
// members and values that make no sense, and does no further harm. json.Valid checks. Quote and Marshal write JSON.
package jsonscan

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// Members calls f for each member of the object obj, with the member's decoded key and its raw value. For anything but
// an object it does nothing. compact: obj has no white space between its tokens, so that each value is compact. whole:
// obj is one object from its first byte to its last, as far as its braces and quotes tell; where it was cut off, f was
// called for what is there.
func Members(obj []byte, f func(key, value []byte)) (compact, whole bool) {
	i := Space(obj, 0)
	if i >= len(obj) || obj[i] != '{' {
		return false, false
	}
	first := i
	compact = i == 0
	// next is the index of the next token from i on.
	next := func(i int) int {
		if j := Space(obj, i); j != i {
			compact, i = false, j
		}
		return i
	}
	for i = next(i + 1); i < len(obj) && obj[i] == '"'; {
		end := SkipString(obj, i)
		key := obj[i+1 : max(end-1, i+1)]
		if bytes.IndexByte(key, '\\') >= 0 {
			key = []byte(String(obj[i:end]))
		}
		i = min(next(next(end)+1), len(obj)) // over the colon
		end, spaced := skip(obj, i)
		compact = compact && !spaced
		f(key, obj[i:end])
		if i = next(end); i < len(obj) && obj[i] == ',' {
			i = next(i + 1)
		}
	}
	return compact, first == 0 && i == len(obj)-1 && obj[i] == '}'
}

// Elements calls f for each raw element of the array arr. For anything but an array it does nothing.
func Elements(arr []byte, f func(value []byte)) {
	i := Space(arr, 0)
	if i >= len(arr) || arr[i] != '[' {
		return
	}
	for i = Space(arr, i+1); i < len(arr) && arr[i] != ']'; {
		end := Skip(arr, i)
		f(arr[i:end])
		if i = Space(arr, end); i < len(arr) && arr[i] == ',' {
			i = Space(arr, i+1)
		}
	}
}

// String returns the decoded string of a raw value, "" where it is not a string.
func String(raw []byte) string {
	if !IsString(raw) {
		return ""
	}
	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return string(inner)
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// IsString reports whether a raw value is a string.
func IsString(raw []byte) bool { return len(raw) >= 2 && raw[0] == '"' }

// IsObject reports whether a raw value is an object.
func IsObject(raw []byte) bool { return len(raw) >= 2 && raw[0] == '{' }

// Space returns the index of the first byte from i on that is not white space.
func Space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// Skip returns the index after the value that begins at i.
func Skip(b []byte, i int) int {
	end, _ := skip(b, i)
	return end
}

// skip is Skip. It reports whether the value has white space between its tokens.
func skip(b []byte, i int) (end int, spaced bool) {
	if i >= len(b) {
		return i, false
	}
	switch b[i] {
	case '"':
		return SkipString(b, i), false
	case '{', '[':
		for depth := 0; i < len(b); {
			switch b[i] {
			case '"':
				i = SkipString(b, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1, spaced
				}
			case ' ', '\t', '\n', '\r':
				spaced = true
			}
			i++
		}
		return i, spaced
	default:
		for i < len(b) && b[i] != ',' && b[i] != ']' && b[i] != '}' && b[i] > ' ' {
			i++
		}
		return i, false
	}
}

// shortString is up to how many bytes a loop finds the end of a string sooner than a call of bytes.IndexByte.
const shortString = 16

// SkipString returns the index after the string that begins at i.
func SkipString(b []byte, i int) int {
	i++
	for end := min(i+shortString, len(b)); i < end && b[i] != '\\'; i++ {
		if b[i] == '"' {
			return i + 1
		}
	}
	for {
		q := bytes.IndexByte(b[i:], '"')
		if q < 0 {
			return len(b)
		}
		i += q
		// A quote is the end unless an odd number of backslashes stands before it.
		n := 0
		for b[i-1-n] == '\\' {
			n++
		}
		i++
		if n%2 == 0 {
			return i
		}
	}
}

// Compact returns valid JSON without the white space between its tokens, b itself where there is none.
func Compact(b []byte) []byte {
	var out []byte
	done := 0 // what has been copied of b
	for i := 0; i < len(b); {
		switch b[i] {
		case '"':
			i = SkipString(b, i)
		case ' ', '\t', '\n', '\r':
			if out == nil {
				out = make([]byte, 0, len(b))
			}
			out = append(out, b[done:i]...)
			i = Space(b, i)
			done = i
		default:
			i++
		}
	}
	if out == nil {
		return b
	}
	return append(out, b[done:]...)
}

// Extent returns how deep arrays and objects are nested in b, 0 for a value that is neither, and the length of its
// longest number in bytes.
func Extent(b []byte) (depth, number int) {
	within := 0
	for i := 0; i < len(b); {
		switch c := b[i]; {
		case c == '"':
			i = SkipString(b, i)
			continue
		case c == '{' || c == '[':
			within++
			depth = max(depth, within)
		case c == '}' || c == ']':
			within--
		case c == '-' || c >= '0' && c <= '9':
			end := i + 1
			for end < len(b) && (b[end] >= '0' && b[end] <= '9' || bytes.IndexByte([]byte(".eE+-"), b[end]) >= 0) {
				end++
			}
			number = max(number, end-i)
			i = end
			continue
		}
		i++
	}
	return depth, number
}

// Find returns the index of the value of the first member of obj with this key, -1 if there is none. It reads no
// further than that.
func Find(obj []byte, key string) int {
	i := Space(obj, 0)
	if i >= len(obj) || obj[i] != '{' {
		return -1
	}
	for i = Space(obj, i+1); i < len(obj) && obj[i] == '"'; {
		end := Skip(obj, i)
		name := obj[i+1 : max(end-1, i+1)]
		found := string(name) == key || bytes.IndexByte(name, '\\') >= 0 && String(obj[i:end]) == key
		i = Space(obj, Space(obj, end)+1) // after the colon
		if found {
			return min(i, len(obj))
		}
		if i = Space(obj, Skip(obj, i)); i < len(obj) && obj[i] == ',' {
			i = Space(obj, i+1)
		}
	}
	return -1
}
