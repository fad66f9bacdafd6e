package cmdline

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// Values returns the values that a placeholder stands for, such as ID, in the text of a flag or among arguments. flag
// returns the value of a flag of the command line; "" for none. Values never waits longer than a person does for a key,
// and prints nothing. A nil Values stands for the names of files, as the placeholder FILE does in every program.
type Values func(flag func(name string) string) []Candidate

// Candidate is a word that may stand at the cursor, with its description.
type Candidate struct{ Word, Text string }

// Words returns Values without descriptions.
func Words(words ...string) Values {
	return func(func(string) string) (all []Candidate) {
		for _, w := range words {
			all = append(all, Candidate{Word: w})
		}
		return all
	}
}

// The last line of what completeCommand prints: what the shell adds to the words before it.
const (
	addNothing = ":words"
	addFiles   = ":files"
	addFolders = ":folders"
)

// completeCommand is called by the scripts of completionCommand, with the words of the command line up to the cursor,
// of which the last one may be empty. It prints one word a line, a tab, and its description.
func completeCommand(app *cli.App, values map[string]Values) *cli.Command {
	return &cli.Command{Name: "__complete", Hidden: true, Action: func(c *cli.Context) error {
		words := c.Args().Slice()
		if len(words) == 0 {
			return nil
		}
		candidates, add := complete(app, words[:len(words)-1], words[len(words)-1], values)
		for _, x := range candidates {
			if _, err := io.WriteString(app.Writer, printable(x.Word)+"\t"+printable(x.Text)+"\n"); err != nil {
				return err
			}
		}
		_, err := fmt.Fprintln(app.Writer, add)
		return err
	}}
}

// printable returns a text in one line without control characters, which a title may have.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
}

// complete returns the words that may follow the words before the cursor and begin with word, and what else may.
func complete(app *cli.App, before []string, word string, values map[string]Values) (found []Candidate, add string) {
	l := parse(app, before)
	c := completion{line: l, word: word, values: values}
	switch last := len(l.typed) - 1; {
	case len(l.rest) > 0: // a prompt
	case last >= 0 && takesValue(l.typed[last].flag) && !l.typed[last].has:
		c.value(l.typed[last].flag)
	case isFlag(word) && strings.Contains(word, "="):
		name, value, _ := strings.Cut(word, "=")
		f := cmp.Or(find(l.own(), name), find(app.Flags, name))
		if f != nil && takesValue(f) {
			c.word, c.prefix = value, name+"="
			c.value(f)
		}
	case strings.HasPrefix(word, "-"):
		c.flags(l.own())
		if l.command != nil {
			c.flags(app.Flags)
		}
	default:
		if len(l.words) == 0 {
			for _, sub := range l.subcommands() {
				if !sub.Hidden {
					c.offer(sub.Name, sub.Usage)
				}
			}
		}
		if l.command != nil {
			c.argument(l.command.ArgsUsage, len(l.words))
		}
	}
	return c.found, cmp.Or(c.add, addNothing)
}

// completion is one completion under way.
type completion struct {
	*line
	word   string // to complete
	prefix string // before it in the shell's word: --flag=
	values map[string]Values

	found []Candidate
	add   string
}

func (c *completion) offer(word, text string) {
	if strings.HasPrefix(word, c.word) {
		c.found = append(c.found, Candidate{c.prefix + word, text})
	}
}

// flags offers the flags that the line does not have, or that may be repeated.
func (c *completion) flags(flags []cli.Flag) {
	for _, f := range flags {
		doc, is := f.(cli.DocGenerationSliceFlag)
		if !visible(f) || c.has(f) && !(is && doc.IsSliceFlag()) {
			continue
		}
		_, usage := placeholder(f)
		c.offer("--"+f.Names()[0], usage)
	}
}

// value offers the values of a flag.
func (c *completion) value(f cli.Flag) {
	name, _ := placeholder(f)
	c.placeholder(name)
}

// argument offers the values of the argument with this number, from 0.
func (c *completion) argument(usage string, number int) {
	for name := range strings.FieldsSeq(usage) {
		name = strings.Trim(name, "[]")
		repeated := strings.HasSuffix(name, "…")
		if strings.HasPrefix(name, "-") || name == "|" {
			return
		}
		if number == 0 || repeated {
			c.placeholder(strings.TrimSuffix(name, "…"))
			return
		}
		number--
	}
}

// placeholder offers the values that a name stands for; words with a stroke between them stand for themselves.
func (c *completion) placeholder(name string) {
	if strings.Contains(name, "|") {
		for word := range strings.SplitSeq(name, "|") {
			c.offer(word, "")
		}
		return
	}
	values, known := c.values[name]
	if values == nil {
		switch {
		case known || name == "FILE":
			c.add = addFiles
		case name == "FOLDER":
			c.add = addFolders
		}
		return
	}
	for _, x := range values(c.flag) {
		if !slices.Contains(c.words, x.Word) {
			c.offer(x.Word, x.Text)
		}
	}
}

// flag returns the value of a flag of the line; "" for none.
func (c *completion) flag(name string) (value string) {
	for _, t := range c.typed {
		if slices.Contains(t.flag.Names(), name) {
			value = t.value
		}
	}
	return value
}
