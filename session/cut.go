package session

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"regexp"
	"unicode/utf8"

	"arbe.0sk.ar/runner/internal/jsonscan"
)

// Lengths of the strings that a line keeps that is cut as it is read, the longest first, and of all that is kept of
// it.
const (
	cutFirst = 1 << 20
	cutLeast = 64
	cutKeep  = 4 << 20
)

// CutMark stands at the end of a string that was cut: how long it was and its SHA-256.
func CutMark(length int64, sum []byte) string {
	return fmt.Sprintf("[cut: %d bytes, sha256 %s]", length, hex.EncodeToString(sum))
}

// WholeRunes returns b without the part of a character at its end that a cut may have left there.
func WholeRunes(b []byte) []byte {
	for i := 1; i <= min(len(b), utf8.UTFMax); i++ {
		if tail := b[len(b)-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}

// cutMark is the form of a CutMark at the end of a string.
var cutMark = regexp.MustCompile(`\[cut: [0-9]{1,19} bytes, sha256 [0-9a-f]{64}\]$`)

// longestMark is the length of the longest CutMark.
const longestMark = len("[cut: 9223372036854775807 bytes, sha256 ]") + 2*sha256.Size

// Uncut returns what a string has before its CutMark, and the mark; all of it and nil where it has none.
func Uncut(s []byte) (head, mark []byte) {
	if len(s) == 0 || s[len(s)-1] != ']' {
		return s, nil
	}
	from := max(0, len(s)-longestMark)
	at := cutMark.FindIndex(s[from:])
	if at == nil {
		return s, nil
	}
	return s[:from+at[0]], s[from+at[0]:]
}

// cutLine returns a line's JSON with its long strings cut, so that all of it is at most cutKeep bytes; nil for a
// line that is no JSON or can't be made so short. It reads the n bytes of the line that begins at offset, perhaps
// several times, and holds little more than what it returns. window is a buffer.
func cutLine(f io.ReaderAt, offset, n int64, window []byte) ([]byte, error) {
	for most := cutFirst; most >= cutLeast; most /= 4 {
		c := cutter{most: most}
		err := c.read(io.NewSectionReader(f, offset, n), window)
		if err != nil && !errors.Is(err, errTooLong) {
			return nil, err
		}
		if err == nil && json.Valid(c.out) {
			return c.out, nil
		}
		if err == nil {
			return nil, nil
		}
	}
	return nil, nil
}

// errTooLong: the structure and the beginnings of the strings are too long.
var errTooLong = errors.New("too long")

// cutter copies JSON and cuts its long strings.
type cutter struct {
	most int // bytes that a string keeps
	out  []byte

	in     bool   // in a string, which begins at out[start]
	start  int    // after the quote
	head   []byte // the string's beginning, decoded
	length int64  // of the string so far, decoded
	sum    hash.Hash
	text   []byte // a buffer
}

func (c *cutter) read(r io.Reader, window []byte) error {
	held := 0 // bytes of window that are left from before
	for {
		n, err := r.Read(window[held:])
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		data := window[:held+n]
		rest := c.take(data, n == 0)
		if len(c.out) > cutKeep {
			return errTooLong
		}
		if n == 0 {
			return nil
		}
		held = copy(window, data[len(data)-rest:])
	}
}

// take consumes data and returns the length of the unconsumed tail, which is to come again with the data after it.
func (c *cutter) take(data []byte, last bool) (rest int) {
	for i := 0; i < len(data) && len(c.out) <= cutKeep; {
		if !c.in {
			q := bytes.IndexByte(data[i:], '"')
			if q < 0 {
				c.out = append(c.out, data[i:]...)
				return 0
			}
			c.out = append(c.out, data[i:i+q+1]...)
			i += q + 1
			c.in, c.start, c.head, c.length = true, len(c.out), c.head[:0], 0
			continue
		}
		end, closed := stringEnd(data[i:])
		i += c.content(data[i:i+end], !closed && !last)
		if !closed {
			return len(data) - i
		}
		c.close()
		i++
	}
	return 0
}

// content takes a piece of a string and returns how many bytes it has consumed. more: the string continues after it.
func (c *cutter) content(raw []byte, more bool) int {
	text := raw
	if bytes.IndexByte(raw, '\\') >= 0 {
		n := 0
		c.text, n = unescape(c.text[:0], raw, more)
		text, raw = c.text, raw[:n]
	}
	was := c.length
	c.length += int64(len(text))
	if was > int64(c.most) {
		c.sum.Write(text)
		return len(raw)
	}
	if c.length <= int64(c.most) {
		c.out, c.head = append(c.out, raw...), append(c.head, text...)
		return len(raw)
	}
	c.sum = sha256.New()
	c.sum.Write(c.head)
	c.sum.Write(text)
	c.out, c.head = c.out[:c.start], append(c.head, text[:c.most-len(c.head)]...)
	return len(raw)
}

// close ends a string.
func (c *cutter) close() {
	if c.length > int64(c.most) {
		c.out = jsonscan.Quote(c.out[:c.start-1], append(WholeRunes(c.head), CutMark(c.length, c.sum.Sum(nil))...))
	} else {
		c.out = append(c.out, '"')
	}
	c.in = false
}

// stringEnd returns the index of the quote that ends the string whose inside begins b; the length of b where it isn't
// there.
func stringEnd(b []byte) (end int, closed bool) {
	for i := 0; ; i++ {
		q := bytes.IndexByte(b[i:], '"')
		if q < 0 {
			return len(b), false
		}
		i += q
		if backslashes(b[:i])%2 == 0 {
			return i, true
		}
	}
}

// backslashes returns the number of backslashes at the end of b.
func backslashes(b []byte) (n int) {
	for n < len(b) && b[len(b)-1-n] == '\\' {
		n++
	}
	return n
}

// surrogate reports whether b begins with the escape of a high ('8') or low ('c') surrogate.
func surrogate(b []byte, from byte) bool {
	return len(b) >= 4 && b[0] == '\\' && b[1] == 'u' && b[2]|0x20 == 'd' && b[3]|0x20 >= from && (from == 'c' ||
		b[3]|0x20 < 'c')
}
