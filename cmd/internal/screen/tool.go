package screen

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"

	"arbe.0sk.ar/runner/host/view"
)

const (
	labelWidth = 40          // columns of a call's argument in the label of its result
	leastTook  = time.Second // a call that took less is shown without its duration
)

// call shows a tool call: the tool and its main argument, or all arguments as JSON.
func (s *Screen) call(c view.Call) {
	head := "› " + view.Visible(c.Name)
	text := c.Main
	if text == "" || s.Full && c.More && c.Diff == nil {
		text = string(c.Arguments)
	}
	if s.Full {
		s.printf("%s\n", s.paint(yellow, head))
		s.lines("", "  ", text)
		return
	}
	first, rest, more := strings.Cut(text, "\n")
	first = view.Visible(first)
	room := foldWidth
	if s.width > 0 {
		room = max(1, s.width-runewidth.StringWidth(head)-1)
	}
	if more && rest != "" {
		first = clip(first, max(1, room-2)) + " …"
	}
	s.printf("%s %s\n", s.paint(yellow, head), clip(first, room))
}

// answered shows what is new of a call that has been shown: its result. apart reports that something else was written
// since the call.
func (s *Screen) answered(i view.Item, apart bool) {
	label := ""
	if apart {
		label = labelOf(*i.Call)
	}
	switch {
	case i.Call.Result != nil:
		s.result(*i.Call.Result, i.Diff(), i.Call.Name, label)
	case i.Call.State == view.Unanswered:
		s.result(view.Result{Text: "(no result)"}, nil, i.Call.Name, label)
	default:
		return
	}
	s.who = ""
}

// labelOf returns a call in a few words.
func labelOf(c view.Call) string {
	return strings.TrimSpace(c.Name + " " + clip(firstLine(c.Main), labelWidth))
}

// isShell reports whether a tool runs commands: what it prints is shown beside what it changed.
func isShell(tool string) bool {
	return slices.Contains([]string{"exec_command", "shell", "local_shell"}, tool)
}

// result shows the result of a call, below its call or with a label.
func (s *Screen) result(r view.Result, d *view.Diff, tool, label string) {
	var head row
	if r.Failed {
		head = append(head, piece{red, "✗ "})
	}
	if label != "" {
		head = append(head, piece{dim, view.Visible(label) + ": "})
	}
	if d != nil {
		s.row("  ", append(head, counts(d)...), s.Full)
		s.fold(nil, diffRows(d), foldLines, 0)
		head = nil
	}
	switch {
	case d != nil && (!isShell(tool) || strings.TrimSpace(r.Text) == ""):
	case r.Text == "" && r.Pieces:
		s.row("  ", append(head, piece{dim, "(end)"}), s.Full)
	case strings.TrimSpace(r.Text) == "" && len(r.Images) == 0:
		s.row("  ", append(head, piece{dim, "(no output)"}), s.Full)
	default:
		s.fold(head, s.outputs(r), foldLines/2, foldLines/2) // the end of an output is mostly what counts
	}
	var figures []string
	if r.ExitCode != nil && *r.ExitCode != 0 {
		figures = append(figures, "exit "+strconv.Itoa(*r.ExitCode))
	}
	if r.Duration >= leastTook {
		figures = append(figures, "took "+brief(r.Duration))
	}
	if figures != nil {
		s.row("  ", row{{dim, strings.Join(figures, " · ")}}, s.Full)
	}
}

// outputs returns the lines of a result, and a line for each of its images.
func (s *Screen) outputs(r view.Result) iter.Seq[row] {
	return func(yield func(row) bool) {
		for line := range s.output(dim, r.Text) {
			if !yield(line) {
				return
			}
		}
		for _, m := range r.Images {
			if !yield(row{{dim, imageText(m)}}) {
				return
			}
		}
	}
}

func imageText(m view.Image) string { return "[" + view.Visible(m.Type) + " image]" }

// brief returns a duration with what counts of it.
func brief(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// fold writes rows behind a head: on its line where they are one line or the head is a mark, else below it. Without
// --full, of more than foldLines it writes the first and the last ones.
func (s *Screen) fold(head row, rows iter.Seq[row], first, last int) {
	var kept []row // up to foldLines, then the last ones only
	n := 0
	begin := func(r row) {
		switch {
		case head == nil:
			s.row("  ", r, s.Full)
			return
		case len(head) > 1 || head[0].style != red: // it has a label
			if n > 1 {
				s.row("  ", head, s.Full)
				s.row("  ", r, s.Full)
				break
			}
			fallthrough
		default:
			s.row("  ", append(head, r...), s.Full)
		}
		head = nil
	}
	flush := func() {
		for _, r := range kept {
			begin(r)
		}
		kept = nil
	}
	for r := range rows {
		n++
		if kept = append(kept, r); s.Full && n > 1 {
			flush()
		}
		if n <= foldLines || s.Full {
			continue
		}
		if n == foldLines+1 {
			for _, r := range kept[:first] {
				begin(r)
			}
			kept = slices.Clone(kept[first:])
		}
		if len(kept) > last {
			kept = kept[len(kept)-last:]
		}
	}
	if more := n - first - last; n > foldLines && !s.Full {
		s.row("  ", row{{dim, "… " + view.Count(int64(more), "more line") + " (--full shows them)"}}, false)
	}
	flush()
}

// counts returns the counts of a diff's lines.
func counts(d *view.Diff) row {
	var r row
	if d.Added > 0 || d.Removed == 0 {
		r = append(r, piece{green, fmt.Sprintf("+%d", d.Added)})
	}
	if d.Removed > 0 {
		if r != nil {
			r = append(r, piece{dim, " "})
		}
		r = append(r, piece{red, fmt.Sprintf("−%d", d.Removed)})
	}
	return r
}

// diffRows returns the lines of a diff: the names of its files where there are several, and their hunks.
func diffRows(d *view.Diff) iter.Seq[row] {
	return func(yield func(row) bool) {
		for _, f := range d.Files {
			name := ""
			switch {
			case f.Op == view.Deleted:
				name = "deleted " + f.Path
			case f.Op == view.Moved:
				name = "moved " + f.From + " to " + f.Path
			case len(d.Files) > 1:
				name = f.Path
			}
			if name != "" && !yield(row{{bold, view.Visible(name)}}) {
				return
			}
			for i, h := range f.Hunks {
				if i > 0 && !yield(row{{dim, "⋮"}}) {
					return
				}
				for _, l := range h.Lines {
					style := map[byte]string{'+': green, '-': red, ' ': dim}[l.Op]
					if !yield(row{{style, string(l.Op) + view.Visible(l.Text)}}) {
						return
					}
				}
			}
		}
	}
}
