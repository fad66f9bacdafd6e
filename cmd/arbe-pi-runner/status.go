package main

import (
	"bytes"
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
			return k.State == runfolder.StateDelivered || k.State == runfolder.StateTaken
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
	lost := 0
	for _, k := range runs {
		if k.State == runfolder.StateLost {
			lost++
		}
	}
	if lost > 0 {
		fmt.Fprintf(p.stderr, "%d lost: arbe-pi-runner recover finishes those of $ARBE_THREAD_ID\n", lost)
	}
	return err
}

// printRuns prints a table of runs. On a terminal its lines are cut at the terminal's width.
func (p *program) printRuns(runs []runfolder.Known, now time.Time) error {
	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "STATE\tRESULT\tAGE\tHARNESS\tLINES\tPID\tTHREAD\tRUN")
	for _, k := range runs {
		pid := "-"
		if k.State == "running" {
			pid = strconv.Itoa(k.AgentPID)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n",
			k.State, resultOf(k.Verdict), age(now.Sub(k.Started)), k.Harness, k.OnThread, pid, k.Thread, k.Run)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	columns, terminal := cmdline.Terminal(p.stdout)
	color := terminal && cmdline.Colored()
	for i, line := range strings.Split(strings.TrimSuffix(table.String(), "\n"), "\n") {
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

// markOf returns the mark of a run: that of its verdict, of a dead run if it is lost or another runner's, else of a
// running one.
func markOf(k runfolder.Known, color bool) string {
	state := "running"
	switch {
	case k.State == runfolder.StateLost || k.State == runfolder.StateTaken:
		state = "dead"
	case k.Verdict != nil:
		state = string(k.Verdict.Outcome)
	}
	mark, style := cmdline.Mark(state)
	if !color {
		return mark
	}
	return cmdline.Paint(style, mark)
}

// age formats a past duration in one unit.
func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}
