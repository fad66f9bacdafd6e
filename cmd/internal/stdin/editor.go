package stdin

import (
	"bytes"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
)

// Keys, as a terminal sends them.
const (
	keyEnd       = 0x04 // Ctrl-D
	keyErase     = 0x08 // Backspace, or 0x7f
	keyDelete    = 0x7f
	keyEraseLine = 0x15 // Ctrl-U
	keyEraseWord = 0x17 // Ctrl-W
	keyEscape    = 0x1b
)

// What a terminal that brackets pasted text sends around it, and how it is asked to.
const (
	pasteBegins = "\x1b[200~"
	pasteEnds   = "\x1b[201~"
	bracketsOn  = "\x1b[?2004h"
	bracketsOff = "\x1b[?2004l"
)

// state is how an editor's text is after a key.
type state int

const (
	open  state = iota // it may get longer
	whole              // Enter
	ended              // Ctrl-D on an empty line
)

// editor makes texts of keys. Keys are added and removed at the end alone.
type editor struct {
	text   []byte
	part   []byte // of a character, or of a sequence of the terminal
	pasted bool   // a paste has begun
}

// key takes the next byte, and returns what shows its effect at the terminal.
func (e *editor) key(b byte) (echo []byte, s state) {
	if len(e.part) > 0 && e.part[0] == keyEscape {
		return e.sequence(b), open
	}
	if b < utf8.RuneSelf && len(e.part) > 0 { // half a character
		e.text, e.part = append(e.text, e.part...), nil
	}
	switch {
	case b == keyEscape:
		e.part = []byte{b}
		return nil, open
	case b >= utf8.RuneSelf:
		return e.character(b), open
	case b == '\n' || b == '\r':
		if !e.pasted {
			return []byte("\n"), whole
		}
		e.text = append(e.text, '\n')
		return []byte("\n"), open
	case e.pasted || b >= ' ' && b != keyDelete || b == '\t':
		e.text = append(e.text, b)
		return shown(rune(b)), open
	case b == keyEnd && len(e.text) == 0:
		return nil, ended
	case b == keyErase || b == keyDelete:
		return e.erase(1), open
	case b == keyEraseLine:
		return e.erase(utf8.RuneCount(e.line())), open
	case b == keyEraseWord:
		line := e.line()
		word := bytes.LastIndexFunc(bytes.TrimRight(line, " \t"), unicode.IsSpace) + 1
		return e.erase(utf8.RuneCount(line[word:])), open
	}
	return nil, open // another key that edits
}

// line returns the last line of the text.
func (e *editor) line() []byte { return e.text[bytes.LastIndexByte(e.text, '\n')+1:] }

// erase removes characters of the last line.
func (e *editor) erase(n int) (echo []byte) {
	for ; n > 0 && len(e.line()) > 0; n-- {
		c, size := utf8.DecodeLastRune(e.text)
		e.text = e.text[:len(e.text)-size]
		for range runewidth.StringWidth(string(shown(c))) {
			echo = append(echo, "\b \b"...)
		}
	}
	return echo
}

// character takes a byte of a character that is not ASCII.
func (e *editor) character(b byte) (echo []byte) {
	if e.part = append(e.part, b); !utf8.FullRune(e.part) {
		return nil
	}
	c, _ := utf8.DecodeRune(e.part)
	e.text, e.part = append(e.text, e.part...), nil
	return shown(c)
}

// sequence takes a byte of a sequence of the terminal: of a key like an arrow, which does nothing here, or the marks of
// a paste. In a paste any other sequence is text.
func (e *editor) sequence(b byte) (echo []byte) {
	e.part = append(e.part, b)
	done := len(e.part) > 2 && b >= 0x40 && b <= 0x7e || len(e.part) == 2 && b != '[' && b != 'O'
	switch {
	case e.pasted && string(e.part) == pasteEnds:
		e.pasted, e.part = false, nil
	case e.pasted && !bytes.HasPrefix([]byte(pasteEnds), e.part):
		part := e.part
		e.text, e.part = append(e.text, part[0]), nil
		echo = shown(rune(part[0]))
		for _, b := range part[1:] { // it may begin another sequence
			more, _ := e.key(b)
			echo = append(echo, more...)
		}
	case e.pasted || !done:
	default:
		e.pasted = string(e.part) == pasteBegins
		single := len(e.part) == 2 // Alt and a key, or Escape before it
		switch e.part = nil; {
		case single && (b == '\n' || b == '\r'):
			e.text = append(e.text, '\n')
			return []byte("\n")
		case single && b >= ' ' && b < keyDelete:
			e.text = append(e.text, b)
			return shown(rune(b))
		}
	}
	return echo
}

// shown returns a character as it is echoed. What a terminal would obey is a mark.
func shown(c rune) []byte {
	switch {
	case c == '\t':
		return []byte(" ")
	case unicode.IsControl(c) || c == utf8.RuneError:
		return []byte("·")
	}
	return utf8.AppendRune(nil, c)
}
