package cmdline

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"
)

// manualCommand prints the manual page, for make man.
func manualCommand(app *cli.App) *cli.Command {
	return &cli.Command{
		Name: "manual", Usage: "print the manual page, for man -l -",
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return Usage("manual takes no arguments")
			}
			_, err := io.WriteString(app.Writer, manual(app))
			return err
		},
	}
}

// manual returns the manual page of a program, in roff: section 1, the same text as --help of all its commands.
func manual(app *cli.App) string {
	var b strings.Builder
	p := pageOf(app, nil, app.Name)
	fmt.Fprintf(&b, ".TH %s 1 \"\" %s \"User Commands\"\n", quoted(strings.ToUpper(app.Name)),
		quoted(app.Name+" "+app.Version))
	b.WriteString(".nh\n.ad l\n.SH NAME\n" + roff(app.Name) + " \\- " + roff(p.usage) + "\n")
	b.WriteString(".SH SYNOPSIS\n.B " + quoted(p.synopsis) + "\n.SH DESCRIPTION\n")
	roffBlocks(&b, p.text)
	b.WriteString(".SH FLAGS OF ALL COMMANDS\n")
	roffRows(&b, p.global)
	b.WriteString(".SH COMMANDS\n")
	roffCommands(&b, app, app.Commands, app.Name)
	return b.String()
}

// roffCommands writes a section for each command that does something.
func roffCommands(b *strings.Builder, app *cli.App, commands []*cli.Command, parent string) {
	for _, c := range commands {
		if c.Hidden {
			continue
		}
		p := pageOf(app, c, parent+" "+c.Name)
		if c.Action != nil {
			_, words, _ := strings.Cut(p.synopsis, " ")
			b.WriteString(".SS " + quoted(words) + "\n" + roff(sentence(p.usage)) + "\n")
			if len(p.text) > 0 {
				b.WriteString(".PP\n")
			}
			roffBlocks(b, p.text)
			roffRows(b, p.flags)
		}
		roffCommands(b, app, c.Subcommands, p.name)
	}
}

// sentence returns a text with a capital letter and a full stop.
func sentence(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:] + "."
}

func roffBlocks(b *strings.Builder, text []block) {
	for i, block := range text {
		switch {
		case block.rows != nil:
			roffRows(b, block.rows)
			continue
		case i > 0:
			b.WriteString(".PP\n")
		}
		if block.lines == nil {
			b.WriteString(roff(block.text) + "\n")
			continue
		}
		b.WriteString(".nf\n")
		for _, line := range block.lines {
			b.WriteString(roff(line) + "\n")
		}
		b.WriteString(".fi\n")
	}
}

func roffRows(b *strings.Builder, rows []row) {
	for _, r := range rows {
		fmt.Fprintf(b, ".TP\n.B %s\n%s\n", quoted(r.head), roff(r.text))
	}
	if len(rows) > 0 {
		b.WriteString(".PP\n")
	}
}

// roff escapes a line of text: backslashes, dashes that a reader may copy, and what would be a request.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "…", `\&...`).Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	var b strings.Builder
	for _, r := range s {
		if r < utf8.RuneSelf {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\[u%04X]`, r)
		}
	}
	return b.String()
}

// quoted returns a text as one argument of a request.
func quoted(s string) string { return `"` + strings.ReplaceAll(roff(s), `"`, `\(dq`) + `"` }
