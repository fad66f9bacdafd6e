package scripts

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// The help of every command of both programs fits a terminal of 80 columns.
func TestHelp(t *testing.T) {
	pages := 0
	for _, program := range []string{"arbe", "arbe-pi-runner"} {
		commands := [][]string{nil}
		for len(commands) > 0 {
			command := commands[0]
			commands = commands[1:]
			pages++
			name := strings.Join(append([]string{program}, command...), " ")
			help := output(t, program, append(command, "--help")...)
			if !strings.HasPrefix(help, name+": ") || !strings.Contains(help, "\nUsage: "+name) {
				t.Errorf("%s: the help begins %.200s", name, help)
			}
			if strings.Contains(help, "(default: false)") || strings.Contains(help, "`") {
				t.Errorf("%s: want no default of a switch and no backquote:\n%s", name, help)
			}
			_, list, _ := strings.Cut(help, "\nCommands:\n")
			list, _, _ = strings.Cut(list, "\n\n")
			for line := range strings.Lines(list) {
				if sub := strings.TrimPrefix(line, "  "); sub[0] != ' ' {
					word, _, _ := strings.Cut(sub, " ")
					commands = append(commands, append(command[:len(command):len(command)], word))
				}
			}
			for line := range strings.Lines(help) {
				if utf8.RuneCountInString(line) > 81 || line != "\n" && strings.TrimSpace(line) == "" {
					t.Errorf("%s: want no line of blanks or of more than 80 columns: %q", name, line)
				}
			}
		}
	}
	if pages < 30 {
		t.Errorf("only %d commands were found", pages)
	}
}

// Both programs print their version, whatever command is beside it.
func TestVersion(t *testing.T) {
	for _, program := range []string{"arbe", "arbe-pi-runner"} {
		want := output(t, program, "version")
		if got := output(t, program, "--version"); got != want || !strings.HasPrefix(got, program+" ") {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// The manual pages are roff that groff accepts without a warning.
func TestFullManual(t *testing.T) {
	if _, err := exec.LookPath("groff"); err != nil {
		t.Skip("no groff: make shells installs it")
	}
	for _, program := range []string{"arbe", "arbe-pi-runner"} {
		cmd := exec.Command("groff", "-man", "-Tutf8", "-ww", "-P-cbou", "-rLL=80n")
		cmd.Stdin = strings.NewReader(output(t, program, "manual"))
		var warnings strings.Builder
		cmd.Stderr = &warnings
		page, err := cmd.Output()
		if err != nil || warnings.Len() > 0 {
			t.Errorf("%s: %v\n%s", program, err, warnings.String())
		}
		for _, want := range []string{
			"\nNAME\n", "\nSYNOPSIS\n", "\nDESCRIPTION\n", "\nCOMMANDS\n", "--harness HARNESS",
		} {
			if !strings.Contains(string(page), want) {
				t.Errorf("%s: no %q in the page", program, want)
			}
		}
	}
}

// output runs one of the programs and returns its stdout.
func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.Command(filepath.Join(filepath.Dir(arbe), program), args...).Output()
	if err != nil {
		t.Fatalf("%s %s: %v", program, strings.Join(args, " "), err)
	}
	return string(out)
}
