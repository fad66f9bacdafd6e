package cmdline

import (
	"slices"
	"strings"
	"unicode"

	"github.com/urfave/cli/v2"
)

// flagsFirst returns the command line in the order that the library needs: flags of the whole program, the command,
// the command's flags, its arguments. "thread status ID --json" becomes "thread status --json ID". Words after "--"
// stay as they are.
func flagsFirst(app *cli.App, args []string) []string {
	if len(args) == 0 || args[len(args)-1] == "--generate-bash-completion" { // which must be the last word
		return args
	}
	var path, global, flags, words []string // the command, and the rest of the line by what it is
	own, commands := app.Flags, app.Commands
	rest := args[1:]
	for len(rest) > 0 && rest[0] != "--" {
		word := rest[0]
		rest = rest[1:]
		if isFlag(word) {
			n := 0
			if takesValue(own, word) || !known(own, word) && takesValue(app.Flags, word) {
				n = min(1, len(rest))
			}
			to := &flags
			if path == nil || !known(own, word) && known(app.Flags, word) {
				to = &global
			}
			*to = append(append(*to, word), rest[:n]...)
			rest = rest[n:]
			continue
		}
		i := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.HasName(word) })
		if i < 0 || len(words) > 0 {
			words = append(words, word)
			continue
		}
		path, flags = slices.Concat(path, flags, []string{word}), nil
		own, commands = commands[i].Flags, commands[i].Subcommands
	}
	if path == nil {
		return args // the library reports it
	}
	sorted := slices.Concat(args[:1], global, path, flags)
	if len(rest) > 0 || slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, "-") }) {
		sorted = append(sorted, "--")
		rest = rest[min(1, len(rest)):]
	}
	return slices.Concat(sorted, words, rest)
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

func known(flags []cli.Flag, word string) bool {
	return slices.ContainsFunc(flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), nameOf(word)) })
}

// takesValue reports whether the word is a flag whose value is the next word.
func takesValue(flags []cli.Flag, word string) bool {
	return !strings.Contains(word, "=") && slices.ContainsFunc(flags, func(f cli.Flag) bool {
		doc, is := f.(cli.DocGenerationFlag)
		return is && doc.TakesValue() && slices.Contains(f.Names(), nameOf(word))
	})
}
