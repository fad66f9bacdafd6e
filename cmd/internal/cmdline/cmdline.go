// Package cmdline is the part that the command lines of both programs share: errors with an exit status, usage errors
// that name the --help to read, completion for shells, the size of the terminal, and the program's own log.
package cmdline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// StatusUsage is the exit status for a wrong command line (EX_USAGE).
const StatusUsage = 64

// Exit is an error with the exit status of the program. One without a cause prints nothing.
type Exit struct {
	Status int
	Cause  error
}

func (e *Exit) Error() string {
	if e.Cause == nil {
		return ""
	}
	return e.Cause.Error()
}

// Unwrap returns the cause.
func (e *Exit) Unwrap() error { return e.Cause }

// Usage returns an error about the command line, with StatusUsage.
func Usage(format string, args ...any) error {
	return &Exit{StatusUsage, fmt.Errorf(format, args...)}
}

// Run runs the app's command and returns the exit status. values has the values of placeholders, for completion. It
// does without the library's Run: flags may stand before or after arguments, a wrong command line is StatusUsage, help
// and completion are this package's, errors are printed on stderr in one place, an Output that could not be written is
// one of them, and the process continues until main ends it.
func Run(ctx context.Context, app *cli.App, args []string, values map[string]Values) int {
	prepare(app, values)
	if len(args) > 1 && args[1] == "help" {
		args = append(slices.Concat(args[:1], args[2:]), "--help")
	}
	l := parse(app, args)
	err := run(ctx, app, args, l)
	if out, is := app.Writer.(*Output); is {
		err = out.checked(err)
	}
	if err == nil {
		return 0
	}
	e := &Exit{Status: 1}
	errors.As(err, &e)
	if text := err.Error(); text != "" {
		guided := strings.Contains(text, " --help") || strings.Contains(text, "; ") // it has the next step
		if e.Status == StatusUsage && !guided {
			text += "; see " + l.name + " --help"
		}
		fmt.Fprintf(app.ErrWriter, "%s: %s\n", app.Name, text)
	}
	return e.Status
}

func run(ctx context.Context, app *cli.App, args []string, l *line) error {
	if err := l.check(); err != nil {
		return err
	}
	switch {
	case l.has(versionFlag):
		args = []string{args[0], "version"}
		l = parse(app, args)
	case l.has(helpFlag) || l.command == nil || l.command.Action == nil:
		_, err := io.WriteString(app.Writer, pageOf(app, l.command, l.name).String())
		return err
	}
	return l.invoke(ctx)
}

// prepare adds what both programs have, and turns off the library's own.
func prepare(app *cli.App, values map[string]Values) {
	app.Flags = append(app.Flags, versionFlag, helpFlag)
	app.Commands = append(app.Commands, completionCommand(app.Name), manualCommand(app), completeCommand(app, values))
	for _, c := range app.Commands {
		nameBelow(c, app.Name)
	}
}

// nameBelow gives a command and those below it the names that messages have for them.
func nameBelow(c *cli.Command, parent string) {
	c.HelpName = parent + " " + c.Name
	for _, sub := range c.Subcommands {
		nameBelow(sub, c.HelpName)
	}
}

// Verbose returns the flag for a Logger that logs debug messages, too.
func Verbose() cli.Flag {
	return &cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "log debug messages, too"}
}

// Terminal reports whether w is a terminal, and how many columns it has.
func Terminal(w io.Writer) (columns int, is bool) {
	columns, _, is = TerminalSize(w)
	return columns, is
}

// TerminalSize reports whether w is a terminal, and how many columns and rows it has.
func TerminalSize(w io.Writer) (columns, rows int, is bool) {
	f, ok := w.(interface{ Fd() uintptr })
	if !ok {
		return 0, 0, false
	}
	return terminalSize(f.Fd())
}
