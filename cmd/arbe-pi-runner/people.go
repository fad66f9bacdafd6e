package main

import (
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/outcome"
)

// log returns the program's own log, which w receives. terminal: a person reads it.
func (p *program) log(c *cli.Context, w io.Writer, terminal bool) *slog.Logger {
	l := cmdline.Log{
		Format: c.String("log-format"), Terminal: terminal, Verbose: c.Bool("verbose"), Events: events,
	}
	return l.New(w)
}

// atTerminal reports whether stderr is a terminal.
func (p *program) atTerminal() bool {
	_, is := cmdline.Terminal(p.stderr)
	return is
}

// events are the messages of a run that people see in a form of their own.
var events = map[string]cmdline.Event{
	"agent started":      startedLine,
	"signal received":    signalLine,
	"stopping the agent": stoppingLine,
	"session file found": noLine, // of interest where something is wrong
	"agent ended":        noLine, // the verdict has it
	"verdict":            verdictLine,
}

func noLine(func(string) string) cmdline.Line { return cmdline.Line{} }

// startedLine is "▸ pi 0.78.0 · thread ID · pid 2290".
func startedLine(value func(string) string) cmdline.Line {
	agent := strings.TrimSpace(value("harness") + " " + value("version"))
	return cmdline.Line{Text: fmt.Sprintf("%s · thread %s · pid %s", agent, value("thread"), value("pid"))}
}

// signalLine is "▸ SIGTERM: ending the run (2 more: give up at once)".
func signalLine(value func(string) string) cmdline.Line {
	text := value("signal") + ": giving up; arbe-pi-runner recover finishes the run"
	if more := value("more_to_give_up"); more != "0" {
		text = fmt.Sprintf("%s: ending the run (%s more: give up at once)", value("signal"), more)
	}
	return cmdline.Line{Text: text}
}

// stoppingLine is "▸ stopping the agent: it ran for 72h0m0s".
func stoppingLine(value func(string) string) cmdline.Line {
	return cmdline.Line{Text: "stopping the agent: " + value("why")}
}

// verdictLine is "✔ completed · exit 0 · 6s · 7 lines · 237 tokens · $0.0003", or the verdict with its reason, and
// then the figures and the next step.
func verdictLine(value func(string) string) cmdline.Line {
	figures := figuresOf(value)
	word, message := outcome.Outcome(value("outcome")), value("message")
	mark, style := cmdline.Mark(string(word))
	switch word {
	case outcome.Completed:
		return cmdline.Line{
			Mark: mark, Style: style,
			Text: strings.Join(append([]string{string(word)}, figures...), " · "),
		}
	case outcome.Cancelled: // its message begins with the word
		message = strings.TrimPrefix(message, "cancelled: ")
		return cmdline.Line{
			Mark: mark, Style: style, Text: fmt.Sprintf("%s: %s", word, message),
			More: []string{strings.Join(figures, " · ")},
		}
	case outcome.Failed, outcome.Orphaned:
	}
	line := cmdline.Line{Mark: mark, Style: style, Text: "failed: " + message}
	class := value("error_class")
	if class != "" {
		figures = append([]string{class}, figures...)
	}
	line.More = append(line.More, strings.Join(figures, " · "))
	// After an agent that could not be started the program's own error names the next step.
	if advice := outcome.Advice(class, message); advice != "" && class != outcome.ClassSpawn {
		line.More = append(line.More, "next: "+advice)
	}
	return line
}

// figuresOf returns how the agent ended, how long the run took, and what it used.
func figuresOf(value func(string) string) []string {
	var figures []string
	if exit := value("exit"); exit != "unknown" {
		figures = append(figures, strings.Replace(exit, "exit status", "exit", 1))
	}
	if d, err := time.ParseDuration(value("duration")); err == nil {
		figures = append(figures, d.String())
	}
	if lines := value("lines"); lines == "1" {
		figures = append(figures, "1 line")
	} else {
		figures = append(figures, lines+" lines")
	}
	if tokens := value("tokens"); tokens != "0" {
		figures = append(figures, tokens+" tokens")
	}
	if cost, err := strconv.ParseFloat(value("cost"), 64); err == nil && cost >= 0.00005 { // as it is rounded
		figures = append(figures, fmt.Sprintf("$%.4f", cost))
	}
	return figures
}
