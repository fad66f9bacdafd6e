package cmdline

import (
	"context"
	"flag"
	"slices"

	"github.com/urfave/cli/v2"
)

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
		if err := set.Set(t.flag.Names()[0], t.value); err != nil {
			return nil, err
		}
	}
	return set, set.Parse(slices.Concat([]string{"--"}, l.words, l.rest[min(1, len(l.rest)):]))
}
