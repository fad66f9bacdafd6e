package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/cmd/internal/shortid"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/runner/runfolder"
)

func (p *program) statusCommand() *cli.Command {
	return &cli.Command{
		Name:  "status",
		Usage: "list the runs recorded on this machine, the newest last",
		Description: `A run is opening, running, ending, delivered, taken (another runner has it) or lost (its runner is gone, its end is
not on the thread). LINES is how many lines of its session are on the thread, PID that of a running agent.
`,
		Flags: append(variableFlags("state-dir"),
			&cli.BoolFlag{Name: "open", Usage: "list the runs alone whose end is not on the thread"},
			&cli.IntFlag{Name: "n", Usage: "list the `N` newest runs alone"},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON array, the newest first"}),
		Action: p.statusAction,
	}
}

func (p *program) statusAction(c *cli.Context) error {
	if c.Args().Present() {
		return cmdline.Usage("status takes no arguments")
	}
	if n := c.Int("n"); c.IsSet("n") && n < 1 {
		return cmdline.Usage("-n %d: want 1 or more", n)
	}
	state, err := stateDir(p.getenv)
	if err != nil {
		return &cmdline.Exit{Status: runner.StatusConfig, Cause: err}
	}
	runs, err := runfolder.List(state)
	if c.Bool("open") {
		runs = slices.DeleteFunc(runs, func(k runfolder.Known) bool {
			return slices.Contains(closed, k.State)
		})
	}
	if n := c.Int("n"); n > 0 {
		runs = runs[:min(n, len(runs))]
	}
	if c.Bool("json") {
		if runs == nil {
			runs = []runfolder.Known{}
		}
		enc := json.NewEncoder(p.stdout)
		enc.SetIndent("", "  ")
		if jsonErr := enc.Encode(runs); jsonErr != nil {
			return jsonErr
		}
		return err
	}
	if len(runs) == 0 && err == nil {
		none := "no runs"
		if c.Bool("open") {
			none = "no open runs"
		}
		fmt.Fprintf(p.stdout, "%s in %s\n", none, state)
		return nil
	}
	slices.Reverse(runs)
	if tableErr := p.printRuns(runs, time.Now()); tableErr != nil {
		return tableErr
	}
	p.printLost(runs)
	return err
}

// closed are the states of runs that have no end to wait for.
var closed = []string{runfolder.StateDelivered, runfolder.StateTaken, runfolder.StateRefused}

// printLost prints how the lost runs are finished: the command for each of their threads.
func (p *program) printLost(runs []runfolder.Known) {
	var threads []string
	lost := 0
	for _, k := range runs {
		if k.State != runfolder.StateLost {
			continue
		}
		lost++
		if !slices.Contains(threads, k.Thread) {
			threads = append(threads, k.Thread)
		}
	}
	if lost > 0 {
		fmt.Fprintf(p.stderr, "%d lost; to finish, with ARBE_STREAM_URL and ARBE_STREAM_TOKEN set:\n", lost)
	}
	for _, thread := range threads {
		fmt.Fprintf(p.stderr, "  ARBE_THREAD_ID=%s arbe-pi-runner recover\n", thread)
	}
}

// runColumn is a column of the table of runs.
type runColumn struct {
	head string
	drop int // in this order columns are left out of a narrow table; 0 for never
	text func(k runfolder.Known) string
}

// runColumns returns the columns of the table of runs, with abbreviated ids where short has them.
func runColumns(now time.Time, short map[string]string) []runColumn {
	id := func(whole string) string { return cmp.Or(short[whole], whole) }
	return []runColumn{
		{"STATE", 0, func(k runfolder.Known) string { return k.State }},
		{"RESULT", 4, func(k runfolder.Known) string { return resultOf(k.Verdict) }},
		{"AGE", 0, func(k runfolder.Known) string { return cmdline.Age(k.Started, now) }},
		{"HARNESS", 2, func(k runfolder.Known) string { return k.Harness }},
		{"LINES", 1, func(k runfolder.Known) string { return strconv.Itoa(k.OnThread) }},
		{"PID", 3, func(k runfolder.Known) string {
			if k.State != "running" {
				return "-"
			}
			return strconv.Itoa(k.AgentPID)
		}},
		{"THREAD", 0, func(k runfolder.Known) string { return id(k.Thread) }},
		{"RUN", 0, func(k runfolder.Known) string { return id(k.Run) }},
	}
}

// runLines returns a table of runs as lines, the first with the names of the columns.
func runLines(runs []runfolder.Known, columns []runColumn) []string {
	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	line := func(cell func(runColumn) string) {
		cells := make([]string, len(columns))
		for i, c := range columns {
			cells[i] = cell(c)
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	line(func(c runColumn) string { return c.head })
	for _, k := range runs {
		line(func(c runColumn) string { return c.text(k) })
	}
	_ = w.Flush() // into memory
	return strings.Split(strings.TrimSuffix(table.String(), "\n"), "\n")
}

// fitRuns returns a table of runs of at most width columns, if that is possible with the ids of threads and runs: it
// abbreviates ids, and then leaves out columns. A width of 0 has no limit.
func fitRuns(runs []runfolder.Known, now time.Time, width int) []string {
	columns := runColumns(now, nil)
	lines := runLines(runs, columns)
	tooWide := func(line string) bool { return utf8.RuneCountInString(line) > width }
	fits := func() bool { return width <= 0 || !slices.ContainsFunc(lines, tooWide) }
	if fits() {
		return lines
	}
	var ids []string
	for _, k := range runs {
		ids = append(ids, k.Thread, k.Run)
	}
	columns = runColumns(now, shortid.Shorten(ids))
	lines = runLines(runs, columns)
	for drop := 1; !fits() && drop <= 4; drop++ {
		columns = slices.DeleteFunc(columns, func(c runColumn) bool { return c.drop == drop })
		lines = runLines(runs, columns)
	}
	return lines
}

// printRuns prints a table of runs. On a terminal it is as wide as that.
func (p *program) printRuns(runs []runfolder.Known, now time.Time) error {
	columns, terminal := cmdline.Terminal(p.stdout)
	color := terminal && cmdline.Colored()
	for i, line := range fitRuns(runs, now, columns-2) {
		mark := " "
		if i > 0 {
			mark = markOf(runs[i-1], color)
		}
		if columns > 2 && utf8.RuneCountInString(line) > columns-2 {
			line = string([]rune(line)[:columns-3]) + "…"
		}
		if _, err := io.WriteString(p.stdout, mark+" "+line+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// resultOf returns a verdict in a word or two; - before there is one.
func resultOf(v *outcome.Verdict) string {
	switch {
	case v == nil:
		return "-"
	case v.ErrorClass != "":
		return string(v.Outcome) + ": " + v.ErrorClass
	case v.Outcome == outcome.Orphaned:
		return string(outcome.Failed) + ": " + v.Reason
	}
	return string(v.Outcome)
}

// markOf returns the mark of a run: that of its verdict, of a dead run if it is lost, refused or another runner's,
// else of a running one.
func markOf(k runfolder.Known, color bool) string {
	state := "running"
	switch {
	case k.Left() || k.State == runfolder.StateTaken:
		state = "dead"
	case k.Verdict != nil:
		state = string(k.Verdict.Outcome)
	}
	mark, style := cmdline.Mark(state)
	return cmdline.Paint(color, style, mark)
}
