// Package cmdline is the part that the command lines of both programs share: errors with an exit status, usage errors
// that name the --help to read, completion for shells, the size of the terminal, and the program's own log.
package cmdline

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/internal/format"
)

// Exit statuses of both programs.
const (
	StatusUsage  = 64 // a wrong command line (EX_USAGE)
	StatusConfig = 78 // a wrong configuration, or data of a later format (EX_CONFIG)
)

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

// Fail returns an error with the exit status of the program.
func Fail(status int, format string, args ...any) error {
	return &Exit{status, fmt.Errorf(format, args...)}
}

// Usage returns an error about the command line, with StatusUsage.
func Usage(format string, args ...any) error { return Fail(StatusUsage, format, args...) }

// Run runs the app's command and returns the exit status. values has the values of placeholders, for completion. It
// does without the library's Run: flags may stand before or after arguments, a wrong command line is StatusUsage, help
// and completion are this package's, errors are printed on stderr in one place, an Output that could not be written is
// one of them, and the process continues until main ends it. Whatever status an error has, data of a later format is
// StatusConfig: no restart and no other try changes it.
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
	if errors.Is(err, format.ErrLater) {
		e.Status = StatusConfig
	} else {
		errors.As(err, &e)
	}
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

// StatusNoInput is the exit status where a file or folder that is to be read is not there, or can't be read
// (EX_NOINPUT).
const StatusNoInput = 66

// Unread returns an error with the place on the command line that names a file. Its status is StatusNoInput if the file
// is not there or can't be read, and else StatusUsage; an Exit keeps its own.
func Unread(place string, err error) error {
	if place != "" {
		err = fmt.Errorf("%s: %w", place, err)
	}
	switch {
	case errors.As(err, new(*Exit)):
		return err
	case errors.As(err, new(*fs.PathError)):
		return &Exit{StatusNoInput, err}
	}
	return &Exit{StatusUsage, err}
}

// errInterrupted is the cause of an Exit by a signal.
var errInterrupted = errors.New("interrupted")

// UntilSignal returns a context that ends with the first INT or TERM. The cause of its end is an Exit with the status
// 128+n then. stop ends it and the watch for signals.
func UntilSignal(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	came, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(came, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		defer close(done)
		select {
		case sig := <-came:
			n, _ := sig.(syscall.Signal)
			cancel(&Exit{128 + int(n), errInterrupted})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-done
		signal.Stop(came)
	}
}

// invoke sets the flags of the line's command and of the commands above it, calls the Before of each, then the action.
// The library's Run would do the same, but links its own help with text/template, and with that each exported method
// that a template could call by name: 15 % of the box's program.
func (l *line) invoke(ctx context.Context) error {
	c := cli.NewContext(l.app, nil, nil)
	c.Context = ctx
	program := &cli.Command{HelpName: l.app.Name, Flags: l.app.Flags}
	for level, command := range slices.Concat([]*cli.Command{program}, l.path) {
		set, err := l.flagSet(command, level)
		if err != nil {
			return Usage("%w; see %s --help", err, command.HelpName)
		}
		c = cli.NewContext(l.app, set, c)
		c.Command = command
		if command.Before != nil {
			if err := command.Before(c); err != nil {
				return err
			}
		}
	}
	return l.command.Action(c)
}

// setFlag sets a flag. A value of a list is one element, as it is typed: the library would split it at its commas and
// trim it.
func setFlag(set *flag.FlagSet, name, value string) error {
	list, is := set.Lookup(name).Value.(*cli.StringSlice)
	if !is {
		return set.Set(name, value)
	}
	if err := set.Set(name, "x"); err != nil {
		return err
	}
	all := list.Value() // shares the list's memory
	all[len(all)-1] = value
	return nil
}

// flagSet returns the flags of a command with their values: from the line, else from a variable, else their defaults.
// Its arguments are those of the line.
func (l *line) flagSet(command *cli.Command, level int) (*flag.FlagSet, error) {
	set := flag.NewFlagSet(command.HelpName, flag.ContinueOnError)
	for _, f := range command.Flags {
		if err := f.Apply(set); err != nil {
			return nil, err
		}
	}
	for _, t := range l.typed {
		if t.level != level {
			continue
		}
		if !t.has {
			t.value = "true"
		}
		if err := setFlag(set, t.flag.Names()[0], t.value); err != nil {
			return nil, err
		}
	}
	return set, set.Parse(slices.Concat([]string{"--"}, l.words, l.rest[min(1, len(l.rest)):]))
}
