package cmdline

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	arbe "arbe.0sk.ar/runner"
)

// helpWidth is the number of columns that help takes at most.
const helpWidth = 80

// headWidth is the number of columns of a flag, above which its text begins on the next line.
const headWidth = 24

var (
	helpFlag    = &cli.BoolFlag{Name: "help", Aliases: []string{"h"}, Usage: "show this help"}
	versionFlag = &cli.BoolFlag{Name: "version", Usage: "print the version"}
)

// page is the help of a program or of one of its commands, for the terminal and for the manual.
type page struct {
	name     string // "arbe thread tail"
	usage    string
	synopsis string
	text     []block
	commands []row
	flags    []row // of the command
	global   []row // of the program
}

// row is a name and its text.
type row struct{ head, text string }

// block is a paragraph of a description: lines to keep, rows, or a text to wrap.
type block struct {
	lines []string
	rows  []row
	text  string
	below bool // it follows its heading without an empty line
}

// pageOf returns the help of a command; of the program for nil. name is the program's and the command's.
func pageOf(app *cli.App, c *cli.Command, name string) page {
	p := page{name: name, usage: app.Usage, synopsis: name + " COMMAND [flags]", text: blocks(app.Description)}
	commands := app.Commands
	if c != nil {
		commands = c.Subcommands
		p.usage, p.text, p.flags = c.Usage, blocks(c.Description), flagRows(c.Flags)
		p.synopsis = name
		switch {
		case c.Action == nil:
			p.synopsis += " COMMAND"
		case len(commands) > 0:
			p.synopsis += " [COMMAND]"
		}
		if len(p.flags) > 0 || c.Subcommands != nil {
			p.synopsis += " [flags]"
		}
		if c.ArgsUsage != "" {
			p.synopsis += " " + c.ArgsUsage
		}
	}
	for _, f := range app.Flags {
		if c == nil || f != versionFlag && find(c.Flags, "--"+f.Names()[0]) == nil {
			p.global = append(p.global, flagRows([]cli.Flag{f})...)
		}
	}
	for _, c := range commands {
		if !c.Hidden {
			p.commands = append(p.commands, row{c.Name, c.Usage})
		}
	}
	return p
}

// String returns the page as text.
func (p page) String() string {
	var b strings.Builder
	b.WriteString(wrapAt(0, 0, p.name+": "+p.usage))
	b.WriteString("\n" + wrapAt(0, 2, "Usage: "+p.synopsis))
	for _, block := range p.text {
		if !block.below {
			b.WriteByte('\n')
		}
		switch {
		case block.lines != nil:
			b.WriteString(strings.Join(block.lines, "\n") + "\n")
		case block.rows != nil:
			writeRows(&b, block.rows)
		default:
			b.WriteString(wrapAt(0, 0, block.text))
		}
	}
	for _, part := range []struct {
		head string
		rows []row
	}{{"Commands", p.commands}, {"Flags", p.flags}, {"Flags of all commands", p.global}} {
		if len(part.rows) > 0 {
			fmt.Fprintf(&b, "\n%s:\n", part.head)
			writeRows(&b, part.rows)
		}
	}
	return b.String()
}

// writeRows writes rows in two columns.
func writeRows(b *strings.Builder, rows []row) {
	width := 0
	for _, r := range rows {
		if n := utf8.RuneCountInString(r.head); n <= headWidth {
			width = max(width, n)
		}
	}
	for _, r := range rows {
		indent := 2 + width + 2
		text := strings.TrimLeft(wrapAt(indent, indent, r.text), " ")
		if utf8.RuneCountInString(r.head) > width {
			fmt.Fprintf(b, "  %s\n%*s%s", r.head, indent, "", text)
		} else {
			fmt.Fprintf(b, "  %-*s  %s", width, r.head, text)
		}
	}
}

// wrapAt wraps a text into lines of helpWidth columns, the first one with an indent of its own.
func wrapAt(first, others int, text string) string {
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", first))
	column, empty := first, true
	for word := range strings.FieldsSeq(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case empty:
		case column+1+n > helpWidth:
			b.WriteString("\n" + strings.Repeat(" ", others))
			column = others
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column, empty = column+n, false
	}
	return b.String() + "\n"
}

// blocks parses a description. Paragraphs stand between empty lines. One whose lines are indented and have a gap of two
// spaces is rows; another one with an indent stays as it is; the others are wrapped.
func blocks(text string) (all []block) {
	for part := range strings.SplitSeq(strings.Trim(text, "\n"), "\n\n") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		before, indented := "", part
		if i := strings.Index("\n"+part, "\n  "); i > 0 { // a heading above its rows
			before, indented = part[:i-1], part[i:]
		} else if i < 0 {
			before, indented = part, ""
		}
		if before != "" {
			all = append(all, block{text: strings.Join(strings.Fields(before), " ")})
		}
		if indented == "" {
			continue
		}
		b := block{lines: strings.Split(indented, "\n"), below: before != ""}
		for _, line := range b.lines {
			head, text, ok := strings.Cut(strings.TrimSpace(line), "  ")
			if !ok {
				b.rows = nil
				break
			}
			b.rows = append(b.rows, row{head, strings.TrimSpace(text)})
		}
		if b.rows != nil {
			b.lines = nil
		}
		all = append(all, b)
	}
	return all
}

// flagRows returns the rows of flags: names and value; what it does, its default and its variable.
func flagRows(flags []cli.Flag) (rows []row) {
	for _, f := range flags {
		doc, is := f.(cli.DocGenerationFlag)
		if !is || !visible(f) {
			continue
		}
		var names []string
		for _, name := range f.Names() {
			names = append(names, dashed(name))
		}
		r := row{head: strings.Join(names, ", ")}
		name, usage := placeholder(f)
		r.text = usage
		if doc.TakesValue() {
			r.head += " " + name
			if value := defaultOf(f); value != "" {
				r.text += " (default: " + value + ")"
			}
		}
		for _, variable := range doc.GetEnvVars() {
			r.text += " [$" + variable + "]"
		}
		rows = append(rows, r)
	}
	return rows
}

func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// placeholder returns the name of a flag's value, which stands in backquotes in its text, and the text without them.
func placeholder(f cli.Flag) (name, usage string) {
	doc, is := f.(cli.DocGenerationFlag)
	if !is {
		return "VALUE", ""
	}
	usage = doc.GetUsage()
	if before, rest, ok := strings.Cut(usage, "`"); ok {
		if name, after, ok := strings.Cut(rest, "`"); ok {
			return name, before + name + after
		}
	}
	switch f.(type) {
	case *cli.DurationFlag:
		return "DURATION", usage
	case *cli.IntFlag, *cli.Float64Flag:
		return "N", usage
	}
	return "VALUE", usage
}

// defaultOf returns the value of a flag that is not set; "" for one without a default.
func defaultOf(f cli.Flag) string {
	switch f := f.(type) {
	case *cli.StringFlag:
		return cmp.Or(f.DefaultText, f.Value)
	case *cli.DurationFlag:
		if f.DefaultText == "" && f.Value != 0 {
			return short(f.Value)
		}
		return f.DefaultText
	case *cli.IntFlag:
		if f.DefaultText == "" && f.Value != 0 {
			return strconv.Itoa(f.Value)
		}
		return f.DefaultText
	case *cli.Float64Flag:
		return f.DefaultText
	case *cli.GenericFlag:
		return f.DefaultText
	}
	return ""
}

// short returns a duration without its zeroes: 72h for 72h0m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// VersionCommand returns the command that prints the version of the program name, and with --json also what
// formats returns, where that is not nil.
func VersionCommand(name string, formats func() (any, error)) *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print one JSON object"}},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return Usage("version takes no arguments")
			}
			build := arbe.This()
			if !c.Bool("json") {
				_, err := fmt.Fprintln(c.App.Writer, name, build, build.Go, build.Platform)
				return err
			}
			var written any
			if formats != nil {
				var err error
				if written, err = formats(); err != nil {
					return err
				}
			}
			return json.NewEncoder(c.App.Writer).Encode(struct {
				arbe.Build
				Formats any `json:"formats,omitempty"`
			}{build, written})
		},
	}
}
