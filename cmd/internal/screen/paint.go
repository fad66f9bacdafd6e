package screen

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/mattn/go-runewidth"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/view"
)

// Styles, as arguments of the terminal's SGR sequence.
const (
	dim    = "2"
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

// piece is a part of a line in one style. Its text has nothing that a terminal obeys.
type piece struct{ style, text string }

// row is a line of pieces.
type row []piece

func (s *Screen) paint(style, text string) string { return cmdline.Paint(s.Color, style, text) }

// lines writes a text, wrapped, each line with the indent and in the style.
func (s *Screen) lines(style, indent, text string) {
	for line := range strings.Lines(strings.TrimRight(text, "\n")) {
		s.row(indent, row{{style, view.Visible(strings.TrimRight(line, "\n"))}}, true)
	}
}

// output returns the lines of a tool's output, in its own styles on top of one.
func (s *Screen) output(style, text string) iter.Seq[row] {
	return func(yield func(row) bool) {
		for spans := range view.Lines(text) {
			r := make(row, len(spans))
			for i, sp := range spans {
				r[i] = piece{s.sgr(style, sp.Style), sp.Text}
			}
			if !yield(r) {
				return
			}
		}
	}
}

// row writes a line with an indent: wrapped, or cut at the width.
func (s *Screen) row(indent string, r row, wrapped bool) {
	var plain strings.Builder
	for i := range r {
		r[i].text = untab(r[i].text)
		plain.WriteString(r[i].text)
	}
	room := s.room(runewidth.StringWidth(indent))
	if !wrapped {
		if room == 0 {
			room = foldWidth
		}
		s.put(indent, clipped(r, room))
		return
	}
	for _, part := range breaks(plain.String(), room) {
		s.put(indent, cut(r, part))
	}
}

// put writes one line. The indent has the style of the first piece.
func (s *Screen) put(indent string, r row) {
	if len(r) == 0 {
		r = row{{}}
	}
	var b strings.Builder
	for i, p := range r {
		if i == 0 {
			p.text = indent + p.text
		}
		b.WriteString(s.paint(p.style, p.text))
	}
	s.printf("%s\n", strings.TrimRight(b.String(), " "))
}

// cut returns a part of a line.
func cut(r row, part span) row {
	var some row
	at := 0
	for _, p := range r {
		if from, to := max(part.from-at, 0), min(part.to-at, len(p.text)); from < to {
			some = append(some, piece{p.style, p.text[from:to]})
		}
		at += len(p.text)
	}
	return some
}

// clipped returns a line cut at a number of columns.
func clipped(r row, columns int) row {
	var some row
	for i, p := range r {
		width := runewidth.StringWidth(p.text)
		if width > columns || width == columns && i+1 < len(r) {
			p.text = runewidth.Truncate(p.text+"…", columns, "…")
			return append(some, p)
		}
		some, columns = append(some, p), columns-width
	}
	return some
}

// sgr returns the arguments of the SGR sequence for a style on top of another one.
func (s *Screen) sgr(base string, st view.Style) string {
	var args []string
	if base != "" {
		args = append(args, base)
	}
	for _, on := range []struct {
		is   bool
		code string
	}{
		{st.Bold, "1"},
		{st.Dim, "2"},
		{st.Italic, "3"},
		{st.Underline, "4"},
		{st.Inverse, "7"},
		{st.Strike, "9"},
	} {
		if on.is && !slices.Contains(args, on.code) {
			args = append(args, on.code)
		}
	}
	args = append(append(args, s.tone(st.Text, 30)...), s.tone(st.Back, 40)...)
	return strings.Join(args, ";")
}

// tone returns the arguments for a colour; none for the terminal's own. base is 30 for text, 40 for the background.
func (s *Screen) tone(c view.Color, base int) []string {
	if r, g, b, ok := c.RGB(); ok && s.RGB {
		return []string{fmt.Sprintf("%d;2;%d;%d;%d", base+8, r, g, b)}
	}
	switch n, ok := c.Palette(); {
	case !ok:
		return nil
	case n < 8:
		return []string{strconv.Itoa(base + int(n))}
	case n < 16:
		return []string{strconv.Itoa(base + 60 + int(n) - 8)}
	default:
		return []string{fmt.Sprintf("%d;5;%d", base+8, n)}
	}
}

// span is a part of a line, from one byte to another.
type span struct{ from, to int }

// breaks returns the lines of at most width columns that one line of text is broken into: at white space if there is
// any. Spaces inside a line stay as they are, so code keeps its shape. Without a width there is one.
func breaks(line string, width int) []span {
	if width <= 0 || runewidth.StringWidth(line) <= width {
		return []span{{0, len(line)}}
	}
	var lines []span
	for from := 0; from < len(line); {
		rest := line[from:]
		cut, columns, space := len(rest), 0, -1
		for i, r := range rest {
			w := runewidth.RuneWidth(r)
			if columns+w > width && i > 0 {
				cut = i
				break
			}
			if r == ' ' && strings.TrimSpace(rest[:i]) != "" {
				space = i
			}
			columns += w
		}
		if cut == len(rest) {
			return append(lines, span{from, len(line)})
		}
		if rest[cut] == ' ' {
			space = cut
		}
		if space > 0 {
			cut = space
		}
		lines = append(lines, span{from, from + len(strings.TrimRight(rest[:cut], " "))})
		from += cut
		if strings.HasPrefix(line[from:], " ") {
			from++
		}
	}
	return lines
}

// untab replaces tabs, whose width a terminal decides.
func untab(s string) string { return strings.ReplaceAll(s, "\t", "    ") }

// clip returns s cut at width columns; whole without a width.
func clip(s string, width int) string {
	if s = untab(s); width <= 0 {
		return s
	}
	return runewidth.Truncate(s, width, "…")
}
