package cmdline

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/internal/format"
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

// each gives all commands of an app an action that returns what it was called with: its name, the flags that are set,
// and the arguments.
func each(commands []*cli.Command, global []cli.Flag, got *string) {
	for _, c := range commands {
		if c.Action == nil && (c.Subcommands == nil || c.Name == "keep") {
			c.Action = func(ctx *cli.Context) error {
				*got = ctx.Command.HelpName
				flags := c.Flags
				for _, f := range global {
					if find(flags, f.Names()[0]) == nil {
						flags = append(flags[:len(flags):len(flags)], f)
					}
				}
				for _, f := range flags {
					name := f.Names()[0]
					value := ctx.Value(name)
					if _, is := f.(*cli.StringSliceFlag); is {
						value = ctx.StringSlice(name)
					}
					if ctx.IsSet(name) {
						*got += fmt.Sprintf(" %s=%v", name, value)
					}
				}
				*got += fmt.Sprintf(" %q", ctx.Args().Slice())
				return nil
			}
		}
		each(c.Subcommands, global, got)
	}
}

func TestRunTakesFlagsAnywhere(t *testing.T) {
	for _, tt := range []struct{ name, args, want string }{
		{"before the arguments", "thread status --json ID", `prog thread status json=true ["ID"]`},
		{"behind them", "thread status ID --json", `prog thread status json=true ["ID"]`},
		{"with a value", "launch fix --sandbox local it", `prog launch sandbox=local ["fix" "it"]`},
		{"with its value after =", "launch fix --sandbox=local it", `prog launch sandbox=local ["fix" "it"]`},
		{"one dash", "launch fix -sandbox local -r it", `prog launch sandbox=local resume=true ["fix" "it"]`},
		{"a bool with its value", "launch --resume=false fix", `prog launch resume=false ["fix"]`},
		{"repeated", "launch fix --env A --env B it", `prog launch env=[A B] ["fix" "it"]`},
		{"with a comma", "launch fix --env A,B --env C", `prog launch env=[A,B C] ["fix"]`},
		{"twice", "launch --sandbox a --sandbox b fix", `prog launch sandbox=b ["fix"]`},
		{"a value with a dash", "launch --sandbox -x fix", `prog launch sandbox=-x ["fix"]`},
		{"a value that is a command's name", "launch --sandbox thread fix", `prog launch sandbox=thread ["fix"]`},
		{"behind --", "launch -- explain what --data DIR does", `prog launch ["explain" "what" "--data" "DIR" "does"]`},
		{"before and behind --", "launch a --resume -- b --resume", `prog launch resume=true ["a" "b" "--resume"]`},
		{"-- twice", "launch -- a -- b", `prog launch ["a" "--" "b"]`},
		{"-- alone", "launch --resume --", `prog launch resume=true []`},
		{"a command behind --", "keep -- backup", `prog keep ["backup"]`},
		{"of the whole program", "thread status ID --data DIR", `prog thread status data=DIR ["ID"]`},
		{"of the whole program, in front", "--data DIR thread status ID --json", `prog thread status json=true data=DIR ["ID"]`},
		{
			"of the whole program, in front, with the name of a command", "--data launch thread status ID",
			`prog thread status data=launch ["ID"]`,
		},
		{"between command and subcommand", "thread --data DIR status ID", `prog thread status data=DIR ["ID"]`},
		{"the command's own of that name", "serve x --data DIR", `prog serve data=DIR ["x"]`},
		{"the program's, before a command that has its own", "--data DIR serve x", `prog serve ["x"]`},
		{"of a command with others below it", "keep --data DIR --addr A", `prog keep addr=A data=DIR []`},
		{"of both", "keep --addr A backup x --to F", `prog keep backup to=F ["x"]`},
		{"a text with a dash", "thread post ID -~item --author me", `prog thread post author=me ["ID" "- item"]`},
		{"a number", "thread post ID -1", `prog thread post ["ID" "-1"]`},
		{"stdin", "thread post ID -", `prog thread post ["ID" "-"]`},
		{"alias", "l fix --resume", `prog launch resume=true ["fix"]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := []string{"prog"}
			for _, w := range strings.Fields(tt.args) {
				args = append(args, strings.ReplaceAll(w, "~", " "))
			}
			before := slices.Clone(args)
			app, got := testApp(), ""
			each(app.Commands, app.Flags, &got)
			var out bytes.Buffer
			app.Writer, app.ErrWriter = &out, &out
			if status := Run(t.Context(), app, args, nil); status != 0 || got != tt.want {
				t.Errorf("%d, got\n%s, want\n%s\n%s", status, got, tt.want, out.String())
			}
			if !slices.Equal(args, before) {
				t.Errorf("the arguments that were given are %q now", args)
			}
		})
	}
}

// What comes before a command, and before the one above it, is called in that order, with the flags of each. An error
// ends the command line there.
func TestBefore(t *testing.T) {
	app, got := testApp(), ""
	each(app.Commands, app.Flags, &got)
	keep := app.Commands[2]
	var order []string
	before := func(c *cli.Context) error {
		order = append(order, fmt.Sprintf("%s %q", c.Command.Name, c.LocalFlagNames()))
		return nil
	}
	keep.Before, keep.Subcommands[0].Before = before, before
	var out bytes.Buffer
	app.Writer, app.ErrWriter = &out, &out
	if status := Run(t.Context(), app, strings.Fields("prog keep --addr A backup --to F"), nil); status != 0 {
		t.Fatal(status, out.String())
	}
	if want := []string{`keep ["addr"]`, `backup ["to"]`}; !slices.Equal(order, want) {
		t.Errorf("got %q, want %q", order, want)
	}
	app, got = testApp(), ""
	each(app.Commands, app.Flags, &got)
	app.Writer, app.ErrWriter = &out, &out
	app.Commands[2].Before = func(*cli.Context) error { return &Exit{Status: 7, Cause: errors.New("no")} }
	if status := Run(t.Context(), app, strings.Fields("prog keep backup"), nil); status != 7 || got != "" {
		t.Errorf("%d %q", status, got)
	}
}

// Data of a later format has one status, whatever the command makes of its error.
func TestLaterFormat(t *testing.T) {
	later := fmt.Errorf("open the log: %w", format.Check("it", 3, 2))
	const want = "prog: open the log: it was written by a later arbe (format 3; this one knows 2): upgrade\n"
	for _, err := range []error{later, &Exit{Status: 75, Cause: later}} {
		var b bytes.Buffer
		app := &cli.App{Name: "prog", Writer: &b, ErrWriter: &b, Commands: []*cli.Command{
			{Name: "list", Action: func(*cli.Context) error { return err }},
		}}
		if got := Run(t.Context(), app, []string{"prog", "list"}, nil); got != StatusConfig || b.String() != want {
			t.Errorf("%d %s", got, b.String())
		}
	}
}

// A flag's value is that of its variable where the line has none. One that can't be read is a wrong command line.
func TestVariables(t *testing.T) {
	t.Setenv("PROG_N", "5")
	call := func(args string) (status int, got, out string) {
		var b bytes.Buffer
		n := &cli.IntFlag{Name: "n", EnvVars: []string{"PROG_N"}}
		app := &cli.App{
			Name: "prog", Writer: &b, ErrWriter: &b,
			Commands: []*cli.Command{{Name: "list", Flags: []cli.Flag{n}}},
		}
		each(app.Commands, nil, &got)
		status = Run(t.Context(), app, strings.Fields(args), nil)
		return status, got, b.String()
	}
	for args, want := range map[string]string{
		"prog list": "prog list n=5 []", "prog list --n 6": "prog list n=6 []",
	} {
		if status, got, out := call(args); status != 0 || got != want {
			t.Errorf("%s: %d, got %s, want %s\n%s", args, status, got, want, out)
		}
	}
	t.Setenv("PROG_N", "many")
	const want = `prog: could not parse "many" as int value from environment variable "PROG_N" for flag n: ` +
		`strconv.ParseInt: parsing "many": invalid syntax; see prog list --help` + "\n"
	if status, got, out := call("prog list"); status != StatusUsage || got != "" || out != want {
		t.Errorf("%d %s\ngot  %swant %s", status, got, out, want)
	}
}
