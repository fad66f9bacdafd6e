package cmdline

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

func testApp() *cli.App {
	return &cli.App{
		Name:  "prog",
		Flags: []cli.Flag{&cli.StringFlag{Name: "data"}},
		Commands: []*cli.Command{
			{Name: "launch", Aliases: []string{"l"}, Flags: []cli.Flag{
				&cli.StringFlag{Name: "sandbox"}, &cli.StringSliceFlag{Name: "env"},
				&cli.BoolFlag{Name: "resume", Aliases: []string{"r"}}, &cli.DurationFlag{Name: "wait"},
			}},
			{Name: "serve", Flags: []cli.Flag{&cli.StringFlag{Name: "data"}}},
			{Name: "keep", Flags: []cli.Flag{&cli.StringFlag{Name: "addr"}}, Subcommands: []*cli.Command{
				{Name: "backup", Flags: []cli.Flag{&cli.StringFlag{Name: "to"}}},
			}},
			{Name: "thread", Subcommands: []*cli.Command{
				{Name: "status", Flags: []cli.Flag{&cli.BoolFlag{Name: "json"}}},
				{Name: "post", Flags: []cli.Flag{&cli.StringFlag{Name: "author"}}},
			}},
		},
	}
}

func TestSorted(t *testing.T) {
	for _, tt := range []struct{ name, args, want string }{
		{"before the arguments", "thread status --json ID", "thread status --json ID"},
		{"behind them", "thread status ID --json", "thread status --json ID"},
		{"with a value", "launch fix --sandbox local it", "launch --sandbox local fix it"},
		{"with its value after =", "launch fix --sandbox=local it", "launch --sandbox=local fix it"},
		{"one dash", "launch fix -sandbox local -r it", "launch -sandbox local -r fix it"},
		{"repeated", "launch fix --env A --env B it", "launch --env A --env B fix it"},
		{"a value with a dash", "launch --env -x fix", "launch --env -x fix"},
		{"a value that is a command's name", "launch --env thread fix", "launch --env thread fix"},
		{"without its value", "launch fix --env", "launch --env fix"},
		{"behind --", "launch -- explain what --data DIR does", "launch -- explain what --data DIR does"},
		{"before and behind --", "launch a --resume -- b --resume", "launch --resume -- a b --resume"},
		{"-- twice", "launch -- a -- b", "launch -- a -- b"},
		{"-- alone", "launch --resume --", "launch --resume --"},
		{"of the whole program", "thread status ID --data DIR", "--data DIR thread status ID"},
		{"of the whole program, in front", "--data DIR thread status ID --json", "--data DIR thread status --json ID"},
		{
			"of the whole program, in front, with the name of a command", "--data launch thread status ID",
			"--data launch thread status ID",
		},
		{"between command and subcommand", "thread --data DIR status ID", "--data DIR thread status ID"},
		{"the command's own of that name", "serve x --data DIR", "serve --data DIR x"},
		{"of a command with others below it", "keep --data DIR --addr A", "--data DIR keep --addr A"},
		{"of both", "keep --addr A backup x --to F", "keep --addr A backup --to F x"},
		{"not known", "thread status ID --jsno", "thread status --jsno ID"},
		{"help", "thread status ID --help", "thread status --help ID"},
		{"a text with a dash", "thread post ID -~item --author me", "thread post --author me -- ID -~item"},
		{"a number", "thread post ID -1", "thread post -- ID -1"},
		{"stdin", "thread post ID -", "thread post -- ID -"},
		{"alias", "l fix --resume", "l --resume fix"},
		{"no command", "--data DIR", "--data DIR"},
		{"no such command", "lunch fix --resume", "lunch fix --resume"},
		{"no subcommand", "thread --json", "thread --json"},
		{"nothing", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := []string{"prog"}
			for _, w := range strings.Fields(tt.args) {
				args = append(args, strings.ReplaceAll(w, "~", " "))
			}
			before := slices.Clone(args)
			got := parse(testApp(), args).sorted(args)
			if text := strings.ReplaceAll(strings.Join(got[1:], " "), "- item", "-~item"); text != tt.want {
				t.Errorf("got  %s\nwant %s", text, tt.want)
			}
			if !slices.Equal(args, before) {
				t.Errorf("the arguments that were given are %q now", args)
			}
			if again := parse(testApp(), got).sorted(got); !slices.Equal(again, got) {
				t.Errorf("again: %q, then %q", got, again)
			}
		})
	}
}

// The library takes the sorted line as it is meant.
func TestRunTakesFlagsAnywhere(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"launch a --sandbox local -- b --sandbox c", "local false a b --sandbox c"},
		{"launch -- --resume", " false --resume"},
		{"launch --resume a -- b -- c", " true a b -- c"},
	} {
		app := testApp()
		var got string
		app.Commands[0].Action = func(c *cli.Context) error {
			got = fmt.Sprintf("%s %v %s", c.String("sandbox"), c.Bool("resume"), strings.Join(c.Args().Slice(), " "))
			return nil
		}
		var out bytes.Buffer
		app.Writer, app.ErrWriter = &out, &out
		args := append([]string{"prog"}, strings.Fields(tt.args)...)
		if status := Run(t.Context(), app, args, nil); status != 0 || got != tt.want {
			t.Errorf("%s: %d, got %q, want %q\n%s", tt.args, status, got, tt.want, out.String())
		}
	}
}
