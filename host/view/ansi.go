package view

import (
	"iter"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Style is how a piece of a tool's output looks, as its escape sequences have it. The zero value is plain.
type Style struct {
	Bold, Dim, Italic, Underline, Inverse, Strike bool
	Text, Back                                    Color
}

// Color is a colour of a terminal. The zero value is the terminal's own.
type Color uint32

const (
	ofPalette Color = 1 << 24
	ofRGB     Color = 2 << 24
)

// Palette returns the number of a colour of xterm's 256: 0 to 7 are black, red, green, yellow, blue, magenta, cyan
// and white, 8 to 15 the same bright. A colour of another kind is rounded to one of them. ok is false for the
// terminal's own.
func (c Color) Palette() (n uint8, ok bool) {
	switch {
	case c == 0:
		return 0, false
	case c&ofRGB == 0:
		return uint8(c), true
	}
	level := func(v Color) Color { // of six, as xterm's are: 0, 95, 135, 175, 215, 255
		if v &= 0xff; v < 75 {
			return v / 48
		}
		return (v - 35) / 40
	}
	return uint8(16 + 36*level(c>>16) + 6*level(c>>8) + level(c)), true
}

// RGB returns the red, green and blue of a colour that was given as such; false for any other.
func (c Color) RGB() (r, g, b uint8, ok bool) {
	return uint8(c >> 16), uint8(c >> 8), uint8(c), c&ofRGB != 0
}

// Span is a piece of a line in one style.
type Span struct {
	Style Style
	Text  string // as Visible returns it, without newlines
}

// mostSpans bounds the spans of one line. What is beyond has the style of the last one.
const mostSpans = 2000

// Lines returns the lines of a tool's output as a terminal would show them in the end: colours as Styles, no other
// escape sequences, of a line that was overwritten (a progress bar) its last state, and all else as Visible has it. A
// newline at the end begins no line. It holds one line at a time.
func Lines(text string) iter.Seq[[]Span] {
	return func(yield func([]Span) bool) {
		var s screen
		for line := range strings.Lines(strings.TrimRight(text, "\r\n")) {
			if !yield(s.line(strings.TrimRight(line, "\r\n"))) {
				return
			}
		}
	}
}

// screen reads lines. Its style lasts from one to the next.
type screen struct {
	style Style
	spans []Span
	text  []byte // of the span that is not finished
	over  bool   // the next character overwrites the line
}

func (s *screen) line(line string) []Span {
	s.spans, s.text, s.over = nil, s.text[:0], false
	for len(line) > 0 {
		if n := printable(line); n > 0 {
			s.put(line[:n])
			line = line[n:]
			continue
		}
		r, n := utf8.DecodeRuneInString(line)
		switch {
		case r == '\r':
			s.over = true
		case r == '\b':
			s.back()
		case r == 0x1b || r >= 0x80 && r < 0xa0:
			if m := s.escape(line, r, n); m > 0 {
				n = m
				break
			}
			s.put("·")
		default:
			s.put(visible(r))
		}
		line = line[n:]
	}
	s.finish()
	return s.spans
}

// printable returns how many bytes at the beginning of line show themselves.
func printable(line string) int {
	for i, r := range line {
		if hidden(r) {
			return i
		}
	}
	return len(line)
}

func (s *screen) put(text string) {
	if s.over {
		s.spans, s.text, s.over = nil, s.text[:0], false
	}
	s.text = append(s.text, text...)
}

// back takes the last character away, as a backspace before another one does.
func (s *screen) back() {
	_, n := utf8.DecodeLastRune(s.text)
	s.text = s.text[:len(s.text)-n]
}

// finish ends the span.
func (s *screen) finish() {
	if len(s.text) > 0 {
		s.spans = append(s.spans, Span{s.style, string(s.text)})
		s.text = s.text[:0]
	}
}

// mostSequence bounds an escape sequence, in bytes. A longer one is text.
const mostSequence = 4 << 10

// escape takes the escape sequence at the beginning of line, whose first character has n bytes, and returns its
// length; 0 where it is none.
func (s *screen) escape(line string, first rune, n int) int {
	line = line[:min(len(line), mostSequence)]
	if first == 0x1b {
		if len(line) < 2 {
			return 0
		}
		first = rune(line[1]) + 0x40 // as one character
		n = 2
	}
	switch first {
	case 0x9b: // CSI
		return s.control(line, n)
	case 0x9d, 0x90, 0x98, 0x9e, 0x9f: // OSC, DCS, SOS, PM, APC: until ST, or BEL
		for i := n; i < len(line); i++ {
			switch {
			case line[i] == 0x07:
				return i + 1
			case strings.HasPrefix(line[i:], "\x1b\\"), strings.HasPrefix(line[i:], "\u009c"):
				return i + 2
			}
		}
		return 0
	}
	if line[0] != 0x1b {
		return n // another one of 0x80 to 0x9f
	}
	for i := 1; i < len(line); i++ { // a set of characters, a mode
		switch c := line[i]; {
		case c >= 0x30 && c <= 0x7e:
			return i + 1
		case c < 0x20 || c > 0x2f:
			return 0
		}
	}
	return 0
}

// control takes a control sequence, whose parameters begin at from, and returns its length; 0 where it is none.
func (s *screen) control(line string, from int) int {
	i := from
	for i < len(line) && line[i] >= 0x30 && line[i] <= 0x3f {
		i++
	}
	params := line[from:i]
	plain := i
	for i < len(line) && line[i] >= 0x20 && line[i] <= 0x2f {
		i++
	}
	if i == len(line) || line[i] < 0x40 || line[i] > 0x7e {
		return 0
	}
	switch final := line[i]; {
	case plain != i: // of another meaning
	case final == 'm':
		s.restyle(params)
	case final == 'G' && (params == "" || params == "1"), final == 'K' && params == "2":
		s.over = true
	}
	return i + 1
}

// restyle takes the parameters of a sequence that sets the style.
func (s *screen) restyle(params string) {
	next := s.style
	if params != "" && params[0] > ';' {
		return // of another meaning
	}
	groups := strings.Split(params, ";")
	for len(groups) > 0 {
		var fields []string
		fields, groups = strings.Split(groups[0], ":"), groups[1:]
		code := number(fields[0])
		if code == 4 && len(fields) > 1 && fields[1] == "0" {
			code = 24
		}
		if code != 38 && code != 48 {
			next.set(code)
			continue
		}
		to := &next.Text
		if code == 48 {
			to = &next.Back
		}
		if len(fields) == 1 { // 38;5;n and 38;2;r;g;b
			n := min(len(groups), 1)
			if n == 1 && groups[0] == "5" {
				n = min(len(groups), 2)
			} else if n == 1 && groups[0] == "2" {
				n = min(len(groups), 4)
			}
			fields, groups = append(fields, groups[:n]...), groups[n:]
		} else if len(fields) == 6 { // 38:2:space:r:g:b
			fields = append(fields[:2], fields[3:]...)
		}
		switch {
		case len(fields) >= 3 && fields[1] == "5":
			*to = ofPalette | Color(number(fields[2])&0xff)
		case len(fields) >= 5 && fields[1] == "2":
			*to = ofRGB | Color(number(fields[2])&0xff)<<16 | Color(number(fields[3])&0xff)<<8 |
				Color(number(fields[4])&0xff)
		}
	}
	if next == s.style {
		return
	}
	if !s.over && len(s.spans) < mostSpans {
		s.finish()
	} else if !s.over {
		return
	}
	s.style = next
}

// number returns a parameter; 0 where it is left out.
func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// set applies one code.
func (s *Style) set(code int) {
	switch {
	case code == 0:
		*s = Style{}
	case code == 1:
		s.Bold = true
	case code == 2:
		s.Dim = true
	case code == 3:
		s.Italic = true
	case code == 4:
		s.Underline = true
	case code == 7:
		s.Inverse = true
	case code == 9:
		s.Strike = true
	case code == 22:
		s.Bold, s.Dim = false, false
	case code == 23:
		s.Italic = false
	case code == 24:
		s.Underline = false
	case code == 27:
		s.Inverse = false
	case code == 29:
		s.Strike = false
	case code >= 30 && code <= 37:
		s.Text = ofPalette | Color(code-30)
	case code == 39:
		s.Text = 0
	case code >= 40 && code <= 47:
		s.Back = ofPalette | Color(code-40)
	case code == 49:
		s.Back = 0
	case code >= 90 && code <= 97:
		s.Text = ofPalette | Color(code-90+8)
	case code >= 100 && code <= 107:
		s.Back = ofPalette | Color(code-100+8)
	}
}
