package cmdline

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/urfave/cli/v2"
)

// line is a command line, each word by what it is.
type line struct {
	app     *cli.App
	name    string // the program and its command, as help calls it
	path    []*cli.Command
	command *cli.Command // the innermost one; nil for none

	words []string // the arguments before "--"
	rest  []string // "--" and the words after it

	typed   []typed
	unknown string // the first flag that neither the command nor the program has
	early   bool   // it stands before the arguments, one of which may be its value
}

// typed is a flag as the command line has it.
type typed struct {
	flag  cli.Flag
	word  string // with its dashes and without its value
	value string
	has   bool // it has a value
	level int  // whose flag it is: 0 for the program, 1 for the first command
}

// parse sorts the words of a command line. Words after "--" stay as they are.
func parse(app *cli.App, args []string) *line {
	l := &line{app: app, name: app.Name}
	commands := app.Commands
	rest := args[min(1, len(args)):]
	for len(rest) > 0 && rest[0] != "--" {
		word := rest[0]
		rest = rest[1:]
		if isFlag(word) {
			rest = rest[l.addFlag(word, rest):]
			continue
		}
		i := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.HasName(word) })
		if i < 0 || len(l.words) > 0 {
			l.words = append(l.words, word)
			continue
		}
		l.command = commands[i]
		l.path = append(l.path, l.command)
		l.name += " " + l.command.Name
		commands = l.command.Subcommands
	}
	l.rest = rest
	return l
}

// addFlag adds a flag and its value, and returns the number of words that the value takes.
func (l *line) addFlag(word string, rest []string) (n int) {
	f, level := find(l.own(), word), len(l.path)
	if f == nil {
		f, level = find(l.app.Flags, word), 0
	}
	name, value, has := strings.Cut(word, "=")
	if !has && f != nil && takesValue(f) && len(rest) > 0 {
		n, value, has = 1, rest[0], true
	}
	if f != nil {
		l.typed = append(l.typed, typed{f, name, value, has, level})
	} else if l.unknown == "" {
		l.unknown, l.early = name, len(l.words) == 0
	}
	return n
}

// own returns the flags of the innermost command.
func (l *line) own() []cli.Flag {
	if l.command == nil {
		return l.app.Flags
	}
	return l.command.Flags
}

// subcommands returns the commands that may follow.
func (l *line) subcommands() []*cli.Command {
	if l.command == nil {
		return l.app.Commands
	}
	return l.command.Subcommands
}

// has reports whether the line has a flag.
func (l *line) has(f cli.Flag) bool {
	return slices.ContainsFunc(l.typed, func(t typed) bool { return t.flag == f })
}

// check returns an error about the first word that can't be meant.
func (l *line) check() error {
	subs := l.subcommands()
	group := l.command == nil || l.command.Action == nil && subs != nil
	if len(l.words) > 0 && !l.early && group {
		var names []string
		for _, c := range subs {
			if !c.Hidden {
				names = append(names, c.Name)
			}
		}
		return Usage("unknown command %q%s", l.words[0], next(nearest(l.words[0], names), l.name))
	}
	if l.unknown != "" {
		name := nameOf(l.unknown)
		near := nearest(name, slices.Concat(flagNames(l.own()), flagNames(l.app.Flags)))
		if near != "" {
			near = "--" + near
		}
		return Usage("unknown flag %s%s", l.unknown, next(near, l.name))
	}
	for _, t := range l.typed {
		if err := t.check(); err != nil {
			return err
		}
	}
	return nil
}

// check returns an error for a value that the flag does not take.
func (t typed) check() error {
	if takesValue(t.flag) && !t.has {
		name, _ := placeholder(t.flag)
		return Usage("%s needs a value: %[1]s %s", t.word, name)
	}
	var err error
	want := ""
	switch f := t.flag.(type) {
	case *cli.BoolFlag:
		if t.has {
			_, err = strconv.ParseBool(t.value)
			want = "true or false"
		}
	case *cli.DurationFlag:
		_, err = time.ParseDuration(t.value)
		want = "a duration like 90s or 2h30m"
	case *cli.IntFlag:
		_, err = strconv.Atoi(t.value)
		want = "a whole number"
	case *cli.Float64Flag:
		_, err = strconv.ParseFloat(t.value, 64)
		want = "a number"
	case *cli.GenericFlag:
		if _, is := f.Value.(*Size); is {
			err = new(Size).Set(t.value)
			want = "bytes, as 1000, 64KiB, 256MiB, 1GiB or 1TiB"
		}
	}
	if err != nil {
		return Usage("%s %q: want %s", t.word, t.value, want)
	}
	return nil
}

// isFlag reports whether a word has the form of a flag: one or two dashes and a name that begins with a letter and has
// no white space.
func isFlag(word string) bool {
	name := nameOf(word)
	return strings.HasPrefix(word, "-") && name != "" && unicode.IsLetter(rune(name[0])) &&
		!strings.ContainsFunc(name, unicode.IsSpace)
}

// nameOf returns the name in a word of the form of a flag.
func nameOf(word string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(word, "-"), "-"), "=")
	return name
}

// find returns the flag that a word names; nil for none.
func find(flags []cli.Flag, word string) cli.Flag {
	for _, f := range flags {
		if slices.Contains(f.Names(), nameOf(word)) {
			return f
		}
	}
	return nil
}

// takesValue reports whether a flag has a value, in the same word or the next one.
func takesValue(f cli.Flag) bool {
	doc, is := f.(cli.DocGenerationFlag)
	return is && doc.TakesValue()
}

// flagNames returns the long names of the flags.
func flagNames(flags []cli.Flag) (names []string) {
	for _, f := range flags {
		if visible(f) {
			names = append(names, f.Names()[0])
		}
	}
	return names
}

// visible reports whether help shows a flag.
func visible(f cli.Flag) bool {
	v, is := f.(cli.VisibleFlag)
	return !is || v.IsVisible()
}

// next returns the end of a message about an unknown word: the name that was probably meant, "" for none, and the help
// of the command.
func next(name, command string) string {
	if name == "" {
		return "; see " + command + " --help"
	}
	return ", did you mean " + name + "? See " + command + " --help"
}

// nearest returns the name that a mistyped word stands for; "" if none is near. Near is a name with the word as its
// beginning, or with one mistake in four letters.
func nearest(word string, names []string) string {
	best, found := 1+(len(word)+3)/4, ""
	for _, name := range names {
		d := mistakes(word, name)
		if len(word) > 1 && strings.HasPrefix(name, word) {
			d = min(d, 1)
		}
		if d < best {
			best, found = d, name
		}
	}
	return found
}

// mistakes returns how many letters are missing, surplus, wrong or swapped with their neighbour.
func mistakes(a, b string) int {
	before, last := []int{}, make([]int, len(b)+1) // the rows of i-2 and i-1
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			wrong := 1
			if a[i-1] == b[j-1] {
				wrong = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+wrong)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
