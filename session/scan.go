package session

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// The functions here read JSON that json.Valid has accepted, without copying it: a session line can be 64 MiB of one string,
// and what is wanted of it are a few short fields.

// Members calls f for each member of the JSON object obj, with the member's decoded key and its raw value, neither of which is a copy. It checks nothing: what
// is no JSON gives members that make no sense. For anything but an object it does nothing.
func Members(obj []byte, f func(key, value []byte)) { fields(obj, f) }

// String is the decoded string of a raw JSON value, "" where it is none.
func String(raw []byte) string { return text(raw) }

// fields calls f for each member of the object obj, with the member's decoded key and its raw value. For anything but an object it does nothing.
func fields(obj []byte, f func(key, value []byte)) {
	i := space(obj, 0)
	if i >= len(obj) || obj[i] != '{' {
		return
	}
	for i = space(obj, i+1); i < len(obj) && obj[i] == '"'; {
		end := skip(obj, i)
		key := obj[i+1 : end-1]
		if bytes.IndexByte(key, '\\') >= 0 {
			key = []byte(text(obj[i:end]))
		}
		i = space(obj, space(obj, end)+1) // over the colon
		end = skip(obj, i)
		f(key, obj[i:end])
		if i = space(obj, end); i < len(obj) && obj[i] == ',' {
			i = space(obj, i+1)
		}
	}
}

// elements calls f for each raw element of the array arr. For anything but an array it does nothing.
func elements(arr []byte, f func(value []byte)) {
	i := space(arr, 0)
	if i >= len(arr) || arr[i] != '[' {
		return
	}
	for i = space(arr, i+1); i < len(arr) && arr[i] != ']'; {
		end := skip(arr, i)
		f(arr[i:end])
		if i = space(arr, end); i < len(arr) && arr[i] == ',' {
			i = space(arr, i+1)
		}
	}
}

// text is the decoded string of a raw value, "" where it is not a string.
func text(raw []byte) string {
	if !isString(raw) {
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

func isString(raw []byte) bool { return len(raw) >= 2 && raw[0] == '"' }
func isObject(raw []byte) bool { return len(raw) >= 2 && raw[0] == '{' }

// space is the index of the first byte from i on that is not white space.
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skip is the index after the value that begins at i.
func skip(b []byte, i int) int {
	if i >= len(b) {
		return i
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		for depth := 0; i < len(b); {
			switch b[i] {
			case '"':
				i = skipString(b, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
		return i
	default:
		for i < len(b) && b[i] != ',' && b[i] != ']' && b[i] != '}' && b[i] > ' ' {
			i++
		}
		return i
	}
}

// skipString is the index after the string that begins at i.
func skipString(b []byte, i int) int {
	for i++; ; {
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
