package listing

import (
	"fmt"
	"io"
	"strings"

	"github.com/mattn/go-runewidth"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/view"
)

// Grid is a list of things that are no threads.
type Grid struct {
	Head []string // of the columns; nil for none
	Rows [][]string
}

// Write writes the rows: for people in columns, no wider than the table; for programs, where the table has no width,
// without the head, and with tabs between the fields.
func (g Grid) Write(w io.Writer, t Table) error {
	lines := g.lines(t)
	if t.Width == 0 {
		lines = lines[:0]
		for _, row := range g.Rows {
			lines = append(lines, strings.Join(visible(row), "\t"))
		}
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// visible returns fields without tabs, and with what a reader would not see made visible.
func visible(row []string) []string {
	fields := make([]string, len(row))
	for i, f := range row {
		fields[i] = view.Visible(strings.ReplaceAll(f, "\t", " "))
	}
	return fields
}

// lines returns the lines of a table, none for no rows.
func (g Grid) lines(t Table) (lines []string) {
	if len(g.Rows) == 0 {
		return nil
	}
	all := make([][]string, 0, len(g.Rows)+1)
	if g.Head != nil {
		all = append(all, g.Head)
	}
	for _, row := range g.Rows {
		all = append(all, visible(row))
	}
	var widths []int
	for _, row := range all {
		for i, f := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], runewidth.StringWidth(f))
		}
	}
	for n, row := range all {
		var b strings.Builder
		for i, f := range row {
			b.WriteString(f + strings.Repeat(" ", widths[i]-runewidth.StringWidth(f)+2))
		}
		line := Clip(strings.TrimRight(b.String(), " "), t.Width)
		if n == 0 && g.Head != nil {
			line = t.paint(cmdline.StyleDim, line)
		}
		lines = append(lines, line)
	}
	return lines
}
