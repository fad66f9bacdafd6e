package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/runner/runfolder"
)

func (p *program) statusCommand() *cli.Command {
	return &cli.Command{
		Name:  "status",
		Usage: "list the runs recorded on this machine, the newest first",
		Description: `A run is opening, running, ending, delivered, taken (another runner has it) or lost (its runner is gone, its end is
not on the thread).
`,
		Flags: append(variableFlags("state-dir"),
			&cli.BoolFlag{Name: "json", Usage: "print one JSON array"}),
		Action: p.statusAction,
	}
}

func (p *program) statusAction(c *cli.Context) error {
	if c.Args().Present() {
		return cmdline.Usage("status takes no arguments")
	}
	state, err := stateDir(p.getenv)
	if err != nil {
		return &cmdline.Exit{Status: runner.StatusConfig, Cause: err}
	}
	runs, err := runfolder.List(state)
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
		fmt.Fprintf(p.stdout, "no runs in %s\n", state)
		return nil
	}
	for i, k := range runs {
		if i > 0 {
			fmt.Fprintln(p.stdout)
		}
		fmt.Fprintln(p.stdout, strings.Join(describe(k, time.Now()), " · "))
		fmt.Fprintf(p.stdout, "  thread %s\n  run    %s\n", k.Thread, k.Run)
	}
	return err
}

// describe returns the state of a run in a few words.
func describe(k runfolder.Known, now time.Time) []string {
	words := []string{k.State, k.Harness}
	if v := k.Verdict; v != nil {
		word := string(v.Outcome)
		if v.ErrorClass != "" {
			word += " (" + v.ErrorClass + ")"
		}
		words = append(words, word)
	}
	words = append(words, fmt.Sprintf("%d lines on the thread", k.OnThread), "began "+ago(now.Sub(k.Started)))
	if k.State == runfolder.StateLost {
		words = append(words, "arbe-pi-runner recover finishes it")
	}
	if k.State == "running" {
		words = append(words, fmt.Sprintf("agent's pid %d", k.AgentPID))
	}
	return words
}

// ago formats a past time for people.
func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	default:
		return fmt.Sprintf("%d days ago", int(d.Hours()/24))
	}
}
