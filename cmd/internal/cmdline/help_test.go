package cmdline

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v2"
)

// helpApp has a flag of each kind.
func helpApp() *cli.App {
	return &cli.App{
		Name: "prog", Usage: "do things", Version: "1.0",
		Description: "The first paragraph is wrapped\nwherever its lines end in the source, as it is longer than a " +
			"line.\n\n" +
			"As it stands:\n\n  prog keep --addr A\n\nRows:\n  NAME    of one\n  A-LONG-NAME-OF-ANOTHER-ONE  its text",
		Flags: []cli.Flag{&cli.StringFlag{Name: "data", Usage: "keep all in `FOLDER`", EnvVars: []string{"PROG_DATA"}}},
		Commands: []*cli.Command{
			{
				Name: "keep", Usage: "keep .things", ArgsUsage: "ID [FILE]",
				Action: func(*cli.Context) error { return nil },
				Flags: []cli.Flag{
					&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "print nothing"},
					&cli.DurationFlag{Name: "wait", Value: 72 * time.Hour, Usage: "give up"},
					&cli.IntFlag{Name: "shards", Value: 16, Usage: "make `N`"},
					&cli.IntFlag{Name: "from", Value: -1, DefaultText: "the last", Usage: "from `LINE`"},
					&cli.Float64Flag{Name: "rate", Usage: "0 for no limit"},
					&cli.GenericFlag{Name: "quota", Value: new(Size), Usage: "limit to `BYTES`"},
					&cli.StringFlag{Name: "addr", Value: "127.0.0.1:0", Usage: "listen on `HOST:PORT`"},
					&cli.StringSliceFlag{Name: "env", Usage: "pass `VARIABLE`"},
					&cli.StringFlag{Name: "hidden", Hidden: true},
					&cli.StringFlag{
						Name:  "a-name-longer-than-its-column",
						Usage: "a text that is long enough to be wrapped, so that its lines stand below each other",
					},
				},
			},
			{Name: "group", Usage: "hold others", Subcommands: []*cli.Command{
				{Name: "one", Usage: "be one", Action: func(*cli.Context) error { return nil }},
			}},
		},
	}
}

func TestHelp(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"", `prog: do things

Usage: prog COMMAND [flags]

The first paragraph is wrapped wherever its lines end in the source, as it is
longer than a line.

As it stands:

  prog keep --addr A

Rows:
  NAME  of one
  A-LONG-NAME-OF-ANOTHER-ONE
        its text

Commands:
  keep        keep .things
  group       hold others
  completion  print a shell completion script
  manual      print the manual page, for man -l -

Flags of all commands:
  --data FOLDER  keep all in FOLDER [$PROG_DATA]
  --version      print the version
  --help, -h     show this help
`},
		{"keep ID --help", `prog keep: keep .things

Usage: prog keep [flags] ID [FILE]

Flags:
  --quiet, -q       print nothing
  --wait DURATION   give up (default: 72h)
  --shards N        make N (default: 16)
  --from LINE       from LINE (default: the last)
  --rate N          0 for no limit
  --quota BYTES     limit to BYTES
  --addr HOST:PORT  listen on HOST:PORT (default: 127.0.0.1:0)
  --env VARIABLE    pass VARIABLE
  --a-name-longer-than-its-column VALUE
                    a text that is long enough to be wrapped, so that its lines
                    stand below each other

Flags of all commands:
  --data FOLDER  keep all in FOLDER [$PROG_DATA]
  --help, -h     show this help
`},
		{"group", `prog group: hold others

Usage: prog group COMMAND [flags]

Commands:
  one  be one

Flags of all commands:
  --data FOLDER  keep all in FOLDER [$PROG_DATA]
  --help, -h     show this help
`},
	} {
		for _, args := range []string{tt.args, strings.TrimSpace("help " + strings.ReplaceAll(tt.args, "--help", ""))} {
			app := helpApp()
			var out bytes.Buffer
			app.Writer, app.ErrWriter = &out, &out
			status := Run(t.Context(), app, append([]string{"prog"}, strings.Fields(args)...), nil)
			if status != 0 || out.String() != tt.want {
				t.Errorf("%s: %d\n%s\nwant\n%s", args, status, out.String(), tt.want)
			}
		}
		for line := range strings.Lines(tt.want) {
			if utf8.RuneCountInString(line) > helpWidth+1 {
				t.Errorf("wider than %d columns: %s", helpWidth, line)
			}
		}
	}
}

// A wrong command line names the word, what was meant, and the help to read.
func TestCheck(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"kepe", `prog: unknown command "kepe", did you mean keep? See prog --help`},
		{"group on", `prog: unknown command "on", did you mean one? See prog group --help`},
		{"nonsense", `prog: unknown command "nonsense"; see prog --help`},
		{"keep --qiet", "prog: unknown flag --qiet, did you mean --quiet? See prog keep --help"},
		{"keep -shard 1", "prog: unknown flag -shard, did you mean --shards? See prog keep --help"},
		{"keep --hidde", "prog: unknown flag --hidde; see prog keep --help"},
		{"keep --nonsense --help", "prog: unknown flag --nonsense; see prog keep --help"},
		{"keep --addr", "prog: --addr needs a value: --addr HOST:PORT; see prog keep --help"},
		{"keep --wait 5", `prog: --wait "5": want a duration like 90s or 2h30m; see prog keep --help`},
		{"keep --shards=x", `prog: --shards "x": want a whole number; see prog keep --help`},
		{"keep --rate x", `prog: --rate "x": want a number; see prog keep --help`},
		{"keep --quiet=2", `prog: --quiet "2": want true or false; see prog keep --help`},
		{"keep --quota 1GB", `prog: --quota "1GB": want bytes, as 1000, 64KiB, 256MiB, 1GiB or 1TiB; see prog keep --help`},
	} {
		app := helpApp()
		var out, err bytes.Buffer
		app.Writer, app.ErrWriter = &out, &err
		status := Run(t.Context(), app, append([]string{"prog"}, strings.Fields(tt.args)...), nil)
		if status != StatusUsage || err.String() != tt.want+"\n" || out.Len() > 0 {
			t.Errorf("%s: %d %q %q, want %q", tt.args, status, out.String(), err.String(), tt.want)
		}
	}
}

func TestNearest(t *testing.T) {
	names := []string{"launch", "run", "reconcile", "completion", "ls"}
	for word, want := range map[string]string{
		"lunch": "launch", "lanuch": "launch", "runn": "run", "rn": "run", "reconcil": "reconcile",
		"comp": "completion", "rec": "reconcile", "sl": "ls", "x": "", "open": "", "deploy": "", "": "",
	} {
		if got := nearest(word, names); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}

// The manual has what help has, as roff: no text becomes a request.
func TestManual(t *testing.T) {
	app := helpApp()
	var out bytes.Buffer
	app.Writer, app.ErrWriter = &out, &out
	if status := Run(t.Context(), app, []string{"prog", "manual"}, nil); status != 0 {
		t.Fatal(status, out.String())
	}
	for _, want := range []string{
		".TH \"PROG\" 1 \"\" \"prog 1.0\" \"User Commands\"\n", ".SH NAME\nprog \\- do things\n",
		".nf\n  prog keep \\-\\-addr A\n.fi\n", ".SS \"keep [flags] ID [FILE]\"\nKeep .things.\n",
		".TP\n.B \"\\-\\-wait DURATION\"\ngive up (default: 72h)\n", ".SS \"group one\"\nBe one.\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	requests := map[string]bool{
		".TH": true, ".SH": true, ".SS": true, ".TP": true, ".PP": true, ".B": true, ".nf": true, ".fi": true,
		".nh": true, ".ad": true,
	}
	for line := range strings.Lines(out.String()) {
		request, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(line, ".") && !requests[request] || strings.HasPrefix(line, "'") {
			t.Errorf("a text became a request: %s", line)
		}
	}
	if got := roff(`.a\b 'c' d-e`); got != `\&.a\eb \(aqc\(aq d\-e` {
		t.Errorf("got %s", got)
	}
}

func TestComplete(t *testing.T) {
	values := map[string]Values{
		"ID": func(flag func(string) string) []Candidate {
			return []Candidate{{"one", "in " + flag("data")}, {"two", "a\ttab\nand \x1b[31mmore"}}
		},
	}
	for _, tt := range []struct{ line, want string }{
		{"", "keep group completion manual :words"},
		{"k", "keep :words"},
		{"group ", "one :words"},
		{"--", "--data --version --help :words"},
		{"--data ", ":folders"},
		{"--data x k", "keep :words"},
		{"keep ", "one two :words"},
		{"keep t", "two :words"},
		{"keep one ", ":files"},
		{"keep one file ", ":words"},
		{"keep --q", "--quiet --quota :words"},
		{"keep --quiet --q", "--quota :words"},
		{"keep --env A --e", "--env :words"},
		{"keep -q --addr x on", "one :words"},
		{"keep --addr ", ":words"},
		{"keep --data=", ":folders"},
		{"keep -- ", ":words"},
		{"keep --hid", ":words"},
		{"completion ", "bash zsh fish :words"},
		{"nonsense ", ":words"},
	} {
		app := helpApp()
		var out bytes.Buffer
		app.Writer, app.ErrWriter = &out, &out
		args := append([]string{"prog", "__complete", "--", "prog"}, strings.Split(tt.line, " ")...)
		if status := Run(t.Context(), app, args, values); status != 0 {
			t.Fatal(status, out.String())
		}
		var words []string
		for line := range strings.Lines(out.String()) {
			word, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
			words = append(words, word)
			if strings.ContainsAny(text, "\t\x1b") {
				t.Errorf("%q: the text is %q", tt.line, text)
			}
		}
		if got := strings.Join(words, " "); got != tt.want {
			t.Errorf("%q: got %s, want %s", tt.line, got, tt.want)
		}
	}
}
