// Package cmdline is the part that the command lines of both programs share: errors with an exit status, usage errors
// that name the --help to read, completion for shells, the size of the terminal, and the program's own log.
package cmdline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"
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

// Run runs the app's command and returns the exit status. It differs from the library's Run: flags may stand before or
// after arguments, a wrong command line is StatusUsage, errors are printed on stderr in one place, and the process goes
// on until main ends it.
func Run(ctx context.Context, app *cli.App, args []string) int {
	app.HideHelpCommand, app.HideVersion, app.EnableBashCompletion = true, true, true
	app.OnUsageError, app.Action = usageError, noCommand
	app.ExitErrHandler = func(*cli.Context, error) {} // without it the library ends the process
	app.Commands = append(app.Commands, completionCommand(app.Name))
	prepare(app.Commands)
	err := app.RunContext(ctx, flagsFirst(app, args))
	if err == nil {
		return 0
	}
	if err.Error() != "" {
		fmt.Fprintf(app.ErrWriter, "%s: %v\n", app.Name, err)
	}
	var e *Exit
	if errors.As(err, &e) {
		return e.Status
	}
	return 1
}

func prepare(commands []*cli.Command) {
	for _, c := range commands {
		c.OnUsageError, c.HideHelpCommand = usageError, true
		if c.Subcommands != nil {
			if c.Action == nil {
				c.Action = noCommand
			}
			prepare(c.Subcommands)
		}
	}
}

// noCommand is the action of a command that only has subcommands.
func noCommand(c *cli.Context) error {
	if c.Args().Present() {
		return Usage("unknown command %q; see %s --help", c.Args().First(), c.Command.HelpName)
	}
	if len(c.Lineage()) > 2 {
		return cli.ShowSubcommandHelp(c)
	}
	return cli.ShowAppHelp(c)
}

func usageError(c *cli.Context, err error, _ bool) error {
	name := c.App.Name
	if c.Command != nil && c.Command.HelpName != "" {
		name = c.Command.HelpName
	}
	return Usage("%w; see %s --help", err, name)
}

// completions are the completion scripts of the shells. %[1]s is the program, %[2]s its name as a function.
var completions = map[string]string{
	"bash": bashCompletion,
	"zsh":  "autoload -U compinit bashcompinit && compinit && bashcompinit\n" + bashCompletion,
	"fish": `function __%[2]s
  set -l words (commandline -opc)
  $words --generate-bash-completion 2>/dev/null
end
complete -c %[1]s -a '(__%[2]s)'
`,
}

const bashCompletion = `_%[2]s() {
  local cur="${COMP_WORDS[COMP_CWORD]}" words=("${COMP_WORDS[@]:0:COMP_CWORD}")
  [[ $cur == -* ]] && words+=("$cur")
  COMPREPLY=($(compgen -W "$("${words[@]}" --generate-bash-completion 2>/dev/null)" -- "$cur"))
}
complete -o bashdefault -o default -F _%[2]s %[1]s
`

func completionCommand(program string) *cli.Command {
	return &cli.Command{
		Name:        "completion",
		Usage:       "print a shell completion script",
		ArgsUsage:   "bash|zsh|fish",
		Description: "For bash, in ~/.bashrc:\n\n  source <(" + program + " completion bash)",
		Action: func(c *cli.Context) error {
			text, ok := completions[c.Args().First()]
			if !ok || c.NArg() != 1 {
				return Usage("want bash, zsh or fish")
			}
			_, err := fmt.Fprintf(c.App.Writer, text, program, strings.ReplaceAll(program, "-", "_"))
			return err
		},
	}
}

// Verbose returns the flag for a Logger that logs debug messages, too.
func Verbose() cli.Flag {
	return &cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "log debug messages, too"}
}

// Terminal reports whether w is a terminal, and how many columns it has.
func Terminal(w io.Writer) (columns int, is bool) {
	f, ok := w.(*os.File)
	if !ok {
		return 0, false
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, false
	}
	return int(size.Col), true
}
