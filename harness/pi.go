package harness

import (
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode"

	"arbe.0sk.ar/runner/session"
)

// pi is @earendil-works/pi-coding-agent, in print mode.
//
// Its session is a path that we choose, made beforehand with a header and nothing else: with such a file pi 0.78.0 writes from the first line
// on, without it only when the first reply is whole, and a run that is killed before leaves nothing. pi runs in the header's cwd.
var pi = Spec{
	Name:     "pi",
	Binary:   "pi",
	Install:  "npm i -g @earendil-works/pi-coding-agent@0.78.0",
	Version:  func(binary string) string { return npmVersion(binary, "/pi-coding-agent") },
	Versions: []string{"0.78.0", "0.87.1"},
	Dialect:  session.Pi,
	// On TERM pi ends its tools and exits with 143 within 50 ms (1.5.2 records the abort, too). On INT it just dies and its tools live on.
	Stop: syscall.SIGTERM,
	SessionFile: func(b Box, id string, at time.Time) string {
		// As pi names its own, so that its --session-dir finds them.
		stamp := strings.NewReplacer(":", "-", ".", "-").Replace(at.UTC().Format("2006-01-02T15:04:05.000Z"))
		return filepath.Join(b.Dir, stamp+"_"+id+".jsonl")
	},
	Create: func(id, cwd string, at time.Time) []byte {
		return append(session.PiHeader(id, cwd, at), '\n')
	},
	Command: piCommand,
}

func piCommand(_ Box, t Task) Invocation {
	args := []string{"--session", t.Path}
	if t.Model != "" {
		args = append(args, "--model", t.Model)
	}
	args = append(args, t.Args...)
	// What pi asks the network for on its own account. With PI_OFFLINE its grep and find tools could not fetch what they need.
	env := []string{"PI_SKIP_VERSION_CHECK=1", "PI_TELEMETRY=0"}
	if t.Person {
		if t.Prompt != "" {
			args = append(args, t.Prompt)
		}
		return Invocation{Args: args, Env: env}
	}
	args = append(args, "-p")
	stdin, arg := piPrompt(t.Prompt)
	if arg != "" {
		args = append(args, arg)
	}
	return Invocation{Args: args, Stdin: stdin, Env: env}
}

// piPrompt divides a prompt into what pi reads from stdin and one argument. pi joins the two, after it has trimmed what came from stdin.
//
// An argument is the whole prompt where it can be: pi has no "--", takes what begins with - for a flag and with @ for a file, and an argument
// can't hold a NUL or be long. Such a prompt comes through stdin, and white space at its end, which pi would trim there, as the argument.
func piPrompt(prompt string) (stdin, arg string) {
	if fits(prompt) && prompt[0] != '-' && prompt[0] != '@' {
		return "", prompt
	}
	head := strings.TrimRightFunc(prompt, func(r rune) bool { return unicode.IsSpace(r) || r == '\uFEFF' }) // what JavaScript's trim takes
	if tail := prompt[len(head):]; len(tail) <= maxArg {
		return head, tail
	}
	return prompt, ""
}
