package main

import (
	"strings"

	"github.com/mattn/go-runewidth"
)

// wrap breaks one line of text into lines of at most width columns, at white space if there is any. Spaces inside a
// line stay as they are, so code keeps its shape.
func wrap(line string, width int) []string {
	line = strings.ReplaceAll(line, "\t", "    ")
	if width <= 0 || runewidth.StringWidth(line) <= width {
		return []string{line}
	}
	var lines []string
	for line != "" {
		cut, columns, space := len(line), 0, -1
		for i, r := range line {
			w := runewidth.RuneWidth(r)
			if columns+w > width && i > 0 {
				cut = i
				break
			}
			if r == ' ' && strings.TrimSpace(line[:i]) != "" {
				space = i
			}
			columns += w
		}
		if cut == len(line) {
			return append(lines, line)
		}
		if line[cut] == ' ' {
			space = cut
		}
		if space > 0 {
			cut = space
		}
		lines = append(lines, strings.TrimRight(line[:cut], " "))
		line = strings.TrimPrefix(line[cut:], " ")
	}
	return lines
}

// clip returns s cut at width columns.
func clip(s string, width int) string {
	return runewidth.Truncate(strings.ReplaceAll(s, "\t", "    "), width, "…")
}
