package listing

import (
	"fmt"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/cmd/internal/shortid"
	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/thread"
)

// Table paints threads as lines of one width.
type Table struct {
	Width int // columns
	Color bool
}

func (t Table) paint(style, text string) string { return cmdline.Paint(t.Color, style, text) }

// wideTable is the width from which a table has words for the states, and wider columns.
const wideTable = 110

// leastTitle is the width of the last column below which others are left out.
const leastTitle = 12

// column is one column of a table.
type column struct {
	head  string
	right bool // aligned
	most  int  // columns of the terminal
	drop  int  // in this order columns are left out of a narrow table; 0 for never
	text  func(r listRow) string
	style func(r listRow) string
}

// heading returns the column's cell in the first line.
func (c column) heading() (text, style string) { return c.head, "" }

// listRow is a thread of a table.
type listRow struct {
	thread.Summary
	state   string
	silence time.Duration
	now     time.Time
	short   string // the id
	depth   int    // below its parent
}

// columns returns the table's columns but the title.
func (t Table) columns() []column {
	wide := t.Width >= wideTable
	model, status := 14, 1
	if wide {
		model, status = 26, 18
	}
	stateStyle := func(r listRow) string {
		_, style := cmdline.Mark(r.state)
		return style
	}
	return []column{
		{most: status, style: stateStyle, text: func(r listRow) string {
			mark, _ := cmdline.Mark(r.state)
			switch {
			case !wide:
				return mark
			case r.state == Silent, r.state == Dead:
				return mark + " " + r.state + ", " + ShortDuration(r.silence)
			case r.ErrorClass != "" && r.state == thread.StatusFailed:
				return mark + " failed " + r.ErrorClass
			case r.state == Waiting && r.WaitingAt != "":
				return mark + " waiting, " + WaitingFor(r.Summary, r.now)
			}
			return mark + " " + r.state
		}},
		{head: "AGE", right: true, most: 4, text: func(r listRow) string { return age(r.StartedAt, r.now) }},
		{head: "HARNESS", most: 11, drop: 3, text: func(r listRow) string {
			if !wide {
				return strings.TrimSuffix(r.Harness, "-code")
			}
			return r.Harness
		}},
		{head: "MODEL", most: model, drop: 2, text: func(r listRow) string { return r.Model }},
		{head: "TIME", right: true, most: 6, drop: 4, style: stateStyle, text: func(r listRow) string {
			d, ok := DurationOf(r.Summary, r.now)
			if !ok {
				return ""
			}
			return ShortDuration(d)
		}},
		{head: "COST", right: true, most: 8, drop: 1, text: func(r listRow) string { return Dollars(r.Cost) }},
		{
			head: "ID", most: 36, style: func(listRow) string { return cmdline.StyleYellow },
			text: func(r listRow) string { return r.short },
		},
	}
}

// Lines returns the table's lines, the first with the names of the columns; none for no threads.
func (t Table) Lines(threads []thread.Summary, now time.Time) []string {
	if len(threads) == 0 {
		return nil
	}
	rows := family(threads)
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	short := shortid.Shorten(ids)
	for i := range rows {
		r := &rows[i]
		r.now, r.short = now, short[r.ID]
		r.state, r.silence = StateOf(r.Summary, now)
	}
	columns := t.columns()
	widths := make([]int, len(columns))
	sum := func() (total int) {
		for _, w := range widths {
			if w > 0 {
				total += w + 1
			}
		}
		return total
	}
	for i, col := range columns {
		for _, r := range rows {
			widths[i] = max(widths[i], min(col.most, runewidth.StringWidth(col.text(r))))
		}
		if widths[i] > 0 {
			widths[i] = max(widths[i], min(len(col.head), col.most))
		}
	}
	for next := 1; t.Width-sum() < leastTitle && next <= 4; next++ {
		for i, col := range columns {
			if col.drop == next {
				widths[i] = 0
			}
		}
	}
	line := func(cell func(col column) (text, style string), title string) string {
		var b strings.Builder
		left := t.Width
		for i, col := range columns {
			if widths[i] == 0 || left <= 0 {
				continue
			}
			text, style := cell(col)
			text = Clip(text, min(widths[i], left))
			fill := strings.Repeat(" ", max(0, min(widths[i], left)-runewidth.StringWidth(text)))
			if text = t.paint(style, text); col.right {
				text = fill + text
			} else {
				text += fill
			}
			b.WriteString(text)
			if left -= widths[i] + 1; left > 0 {
				b.WriteByte(' ')
			}
		}
		if left > 0 {
			b.WriteString(Clip(title, left))
		}
		return strings.TrimRight(b.String(), " ")
	}
	lines := []string{t.paint(cmdline.StyleDim, line(column.heading, "TITLE"))}
	for _, r := range rows {
		title := titleOf(r.Summary)
		if n := r.Undelivered(); n > 0 {
			title = view.Count(int64(n), "chat") + " not delivered · " + title
		}
		if answering := Answering(r.Summary); answering != "" {
			title = answering + " · " + title
		}
		if r.depth > 0 {
			title = strings.Repeat("  ", min(r.depth, 5)-1) + "└ " + title
		}
		lines = append(lines, line(func(col column) (string, string) {
			if col.style == nil {
				return col.text(r), ""
			}
			return col.text(r), col.style(r)
		}, title))
	}
	return lines
}

// family puts each thread behind its parent, if that is in the list. The order of the others stays.
func family(threads []thread.Summary) []listRow {
	there := map[string]bool{}
	for _, v := range threads {
		there[v.ID] = true
	}
	children := map[string][]thread.Summary{}
	var roots []thread.Summary
	for _, v := range threads {
		if v.Parent != nil && there[v.Parent.ThreadID] && v.Parent.ThreadID != v.ID {
			children[v.Parent.ThreadID] = append(children[v.Parent.ThreadID], v)
		} else {
			roots = append(roots, v)
		}
	}
	rows := make([]listRow, 0, len(threads))
	shown := map[string]bool{}
	var add func(v thread.Summary, depth int)
	add = func(v thread.Summary, depth int) {
		if shown[v.ID] {
			return
		}
		shown[v.ID] = true
		rows = append(rows, listRow{Summary: v, depth: depth})
		for _, child := range children[v.ID] {
			add(child, depth+1)
		}
	}
	for _, v := range roots {
		add(v, 0)
	}
	for _, v := range threads { // those whose parents form a circle
		add(v, 0)
	}
	return rows
}

// age is cmdline.Age of a time as entries have it; "" for none.
func age(at string, now time.Time) string {
	t, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return ""
	}
	return cmdline.Age(t, now)
}

// ShortDuration returns a duration in at most 6 characters.
func ShortDuration(d time.Duration) string {
	s := int64(d / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 100*3600:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	}
	return fmt.Sprintf("%dd", s/86400)
}

// Dollars returns an amount of money; "" where it is not known, or 0.
func Dollars(cost *float64) string {
	if cost == nil {
		return ""
	}
	return view.Dollars(*cost)
}

// Clip returns a text in one line of at most width columns, with what a reader would not see made visible.
func Clip(text string, width int) string {
	return runewidth.Truncate(strings.ReplaceAll(view.Visible(text), "\t", " "), width, "…")
}
