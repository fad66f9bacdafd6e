package view

import "strings"

// Diff is a change of files, as an edit of any of the three agents makes it.
type Diff struct {
	Files          []FileDiff
	Added, Removed int // lines, of all files
}

// FileDiff is the change of one file.
type FileDiff struct {
	Path  string // as the agent gave it
	From  string // its path before, of a file that was moved; "" else
	Op    FileOp
	Hunks []Hunk // none of a file that was deleted or only moved
}

// FileOp is an operation on a file.
type FileOp string

// The operations on a file.
const (
	Edited  FileOp = "edited"
	Written FileOp = "written" // made, or replaced whole: which one is not known
	Deleted FileOp = "deleted"
	Moved   FileOp = "moved" // and perhaps edited
)

// Hunk is a piece of a file's change.
type Hunk struct {
	Old, New int // number of its first line before and after, from 1; 0 where it is not known
	Lines    []DiffLine
}

// DiffLine is a line of a hunk.
type DiffLine struct {
	Op   byte   // ' ' for context, '-' for a line that was removed, '+' for one that was added
	Text string // without a newline
}

// Paths returns the paths of the files.
func (d *Diff) Paths() []string {
	paths := make([]string, len(d.Files))
	for i, f := range d.Files {
		paths[i] = f.Path
	}
	return paths
}

// counted returns the diff with the counts of its lines; nil where it has no file.
func (d *Diff) counted() *Diff {
	if len(d.Files) == 0 {
		return nil
	}
	d.Added, d.Removed = 0, 0
	for _, f := range d.Files {
		for _, h := range f.Hunks {
			for _, l := range h.Lines {
				switch l.Op {
				case '+':
					d.Added++
				case '-':
					d.Removed++
				}
			}
		}
	}
	return d
}

// mostCells bounds the work of comparing two texts line by line. Larger ones are all removed and all added.
const mostCells = 1 << 20

// context is how many lines that did not change are kept around those that did.
const context = 3

// compare returns the hunks from one text to another. Their line numbers are those in the texts where known is set,
// else 0.
func compare(before, after string, known bool) []Hunk {
	a, b := split(before), split(after)
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	lines := make([]DiffLine, 0, len(a)+len(b))
	for _, l := range a[:head] {
		lines = append(lines, DiffLine{' ', l})
	}
	lines = middle(lines, a[head:len(a)-tail], b[head:len(b)-tail])
	for _, l := range a[len(a)-tail:] {
		lines = append(lines, DiffLine{' ', l})
	}
	return hunks(lines, known)
}

// split returns the lines of a text; none of an empty one.
func split(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// middle appends the difference of two lists of lines.
func middle(lines []DiffLine, a, b []string) []DiffLine {
	if len(a) == 0 || len(b) == 0 || len(a) > mostCells/len(b) {
		for _, l := range a {
			lines = append(lines, DiffLine{'-', l})
		}
		for _, l := range b {
			lines = append(lines, DiffLine{'+', l})
		}
		return lines
	}
	// same[i][j] is how many lines a[i:] and b[j:] have in common, in order.
	width := len(b) + 1
	same := make([]int32, (len(a)+1)*width)
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				same[i*width+j] = same[(i+1)*width+j+1] + 1
			} else {
				same[i*width+j] = max(same[(i+1)*width+j], same[i*width+j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			lines = append(lines, DiffLine{' ', a[i]})
			i, j = i+1, j+1
		case i < len(a) && (j == len(b) || same[(i+1)*width+j] >= same[i*width+j+1]):
			lines = append(lines, DiffLine{'-', a[i]})
			i++
		default:
			lines = append(lines, DiffLine{'+', b[j]})
			j++
		}
	}
	return lines
}

// hunks cuts a whole difference into hunks, each with some lines of context.
func hunks(lines []DiffLine, known bool) []Hunk {
	var all []Hunk
	var h *Hunk
	before, after := 1, 1 // numbers of the line at i
	quiet := 0            // lines without a change at the end of h
	for i, l := range lines {
		if l.Op != ' ' && h == nil {
			from := max(0, i-context)
			all = append(all, Hunk{Lines: append([]DiffLine(nil), lines[from:i]...)})
			h, quiet = &all[len(all)-1], 0
			if known {
				h.Old, h.New = before-(i-from), after-(i-from)
			}
		}
		if h != nil {
			h.Lines = append(h.Lines, l)
			if quiet++; l.Op != ' ' {
				quiet = 0
			}
			if quiet > 2*context {
				h.Lines = h.Lines[:len(h.Lines)-quiet+context]
				h = nil
			}
		}
		if l.Op != '+' {
			before++
		}
		if l.Op != '-' {
			after++
		}
	}
	if h != nil && quiet > context {
		h.Lines = h.Lines[:len(h.Lines)-quiet+context]
	}
	return all
}
