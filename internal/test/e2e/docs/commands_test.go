package docs_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/generated"
	"arbe.0sk.ar/runner/internal/test/scene"
)

var (
	// span is inline code, and a line of a code block that is not run.
	span = regexp.MustCompile("(?m)`((?:arbe|arbe-pi-runner|--[a-z])[^`\n]*)`|^    (arbe(?:-pi-runner)? .*)$")
	// option is a flag in the help of a command, or in a document.
	option = regexp.MustCompile(`--[a-z][a-z-]*`)
)

var update = flag.Bool("update", false, "write the generated parts of docs")

// TestDocCommands looks for each command and flag that a document names in the help of the programs, and holds the
// tables of all commands in docs/COMMANDS.md, and of the variables that have flags in docs/ENVIRONMENT.md.
func TestDocCommands(t *testing.T) {
	t.Parallel()
	docs, err := filepath.Glob("../../../../*.md")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../../../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	h := helps{}
	h.read(t, "arbe")
	h.read(t, "arbe-pi-runner")
	generated.Hold(t, "../../../../docs", "commands", h.table(), *update)
	generated.Hold(t, "../../../../docs", "variables", h.variables(t), *update)
	named := 0
	for _, path := range append(docs, more...) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range span.FindAllStringSubmatch(string(b), -1) {
			named++
			if problem := h.check(m[1] + m[2]); problem != "" {
				t.Errorf("%s: %s: %s", filepath.Base(path), m[1]+m[2], problem)
			}
		}
	}
	if named == 0 {
		t.Error("the documents name no commands")
	}
}

// helps are the helps of commands, by their words.
type helps map[string]help

// help is that of a command.
type help struct {
	usage string   // what it does
	flags []string // in the order of the help, without those of all commands
	all   []string // with those
	vars  []boundVariable
}

// boundVariable is a variable that has a flag of the same meaning.
type boundVariable struct{ name, flag, meaning string }

// read reads the help of a command and of those below it.
func (h helps) read(t *testing.T, words ...string) {
	t.Helper()
	out, err := exec.Command(filepath.Join(scene.Bin, words[0]), append(words[1:], "--help")...).Output()
	if err != nil {
		t.Fatalf("%v --help: %v", words, err)
	}
	head, options, _ := strings.Cut(string(out), "\nFlags")
	own, _, _ := strings.Cut(options, "Flags of all commands:\n")
	if strings.HasPrefix(options, " of all commands") {
		own = ""
	}
	usage, _, _ := strings.Cut(head, "\n\n")
	_, usage, _ = strings.Cut(usage, ": ")
	h[strings.Join(words, " ")] = help{
		usage: strings.Join(strings.Fields(usage), " "),
		flags: named(own),
		all:   option.FindAllString(options, -1),
		vars:  bound(options),
	}
	_, commands, _ := strings.Cut(head, "\nCommands:\n")
	for line := range strings.Lines(commands) {
		name, _, is := strings.Cut(strings.TrimSpace(line), "  ")
		if is && strings.HasPrefix(line, "  ") && !strings.HasPrefix(line, "   ") {
			h.read(t, append(slices.Clone(words), name)...)
		}
	}
}

// listed is a flag where the help explains it.
var listed = regexp.MustCompile(`(?m)^  (--[a-z][a-z-]*)`)

// named returns the flags that a part of a help explains.
func named(options string) (names []string) {
	for _, m := range listed.FindAllStringSubmatch(options, -1) {
		names = append(names, m[1])
	}
	return names
}

// table returns the table of all commands, but for those that have commands below them and do nothing themselves.
func (h helps) table() string {
	var out strings.Builder
	out.WriteString("| command | what it does | flags |\n|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if h.holds(name) && len(h[name].flags) == 0 {
			continue
		}
		flags := ""
		if len(h[name].flags) > 0 {
			flags = "`" + strings.Join(h[name].flags, "`, `") + "`"
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", name, h[name].usage, flags)
	}
	return out.String()
}

// withVariable is a flag in a help, its lines joined: its name, its value's name, what it does, and its variable.
var withVariable = regexp.MustCompile(`^(--[a-z-]+) ([A-Z]\S*) (.*) \[\$([A-Z_]+)\]$`)

// bound returns the variables in the flags of a help.
func bound(options string) (all []boundVariable) {
	for _, entry := range strings.Split(options, "\n  -") {
		entry, _, _ = strings.Cut("-"+entry, "\n\n")
		if m := withVariable.FindStringSubmatch(strings.Join(strings.Fields(entry), " ")); m != nil {
			all = append(all, boundVariable{name: m[4], flag: m[1] + " " + m[2], meaning: m[3]})
		}
	}
	return all
}

// variables returns the table of variables that have flags, but for those that docs/ENVIRONMENT.md explains otherwise.
func (h helps) variables(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/ENVIRONMENT.md")
	if err != nil {
		t.Fatal(err)
	}
	before, _, after, _ := generated.Cut(string(page), "variables")
	programs, seen := map[string][]string{}, map[boundVariable]int{}
	for _, command := range slices.Sorted(maps.Keys(h)) {
		program, _, _ := strings.Cut(command, " ")
		for _, v := range h[command].vars {
			if strings.Contains(before+after, "`"+v.name+"`") {
				continue
			}
			if !slices.Contains(programs[v.name], "`"+program+"`") {
				programs[v.name] = append(programs[v.name], "`"+program+"`")
			}
			seen[v]++
		}
	}
	usual := map[string]boundVariable{} // in most commands
	for v, n := range seen {
		if most := usual[v.name]; n > seen[most] || n == seen[most] && v.meaning < most.meaning {
			usual[v.name] = v
		}
	}
	var out strings.Builder
	out.WriteString("| variable | read by | flag | meaning |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(usual)) {
		fmt.Fprintf(&out, "| `%s` | %s | `%s` | %s |\n", name, strings.Join(programs[name], ", "), usual[name].flag,
			usual[name].meaning)
	}
	return out.String()
}

// check returns what is wrong with a command, or with a flag that stands alone; "" for nothing.
func (h helps) check(text string) string {
	text, _, _ = strings.Cut(text, " -- ")
	command := ""
	for _, word := range strings.Fields(text) {
		if _, is := h[strings.TrimSpace(command+" "+word)]; !is {
			break
		}
		command = strings.TrimSpace(command + " " + word)
	}
	rest := strings.Fields(strings.TrimPrefix(text, command))
	if sub := len(rest) > 0 && regexp.MustCompile(`^[a-z]+$`).MatchString(rest[0]); sub && h.holds(command) {
		return "there is no such command"
	}
	for _, name := range option.FindAllString(text, -1) {
		known := slices.Contains(h[command].all, name) ||
			strings.HasPrefix(text, "arbe") && slices.Contains(h["arbe"].all, name)
		for _, other := range h {
			known = known || command == "" && slices.Contains(other.all, name)
		}
		if !known {
			return "there is no flag " + name
		}
	}
	return ""
}

// holds reports whether command has commands below it.
func (h helps) holds(command string) bool {
	for name := range h {
		if strings.HasPrefix(name, command+" ") {
			return true
		}
	}
	return false
}
