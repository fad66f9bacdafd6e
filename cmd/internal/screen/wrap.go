package screen

import (
	"strings"

	"github.com/mattn/go-runewidth"
)

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
