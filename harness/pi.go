package harness

import (
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode"

	"arbe.0sk.ar/runner/harness/catalog"
	"arbe.0sk.ar/runner/session"
)

// pi is @earendil-works/pi-coding-agent, in print mode.
//
// Its session is a file at a path that the runner chooses, made beforehand with only a header. With such a file pi
// 0.78.0 writes each line at once; without it pi writes nothing before the first complete reply, and a run that is
// killed earlier leaves no session. pi runs in the header's cwd.
var pi = Spec{
	Agent: catalog.Pi,
	Node:  "22.19.0",
	Version: func(binary string) string {
		return npmVersion(binary, "@earendil-works/pi-coding-agent", "@mariozechner/pi-coding-agent")
	},
	Versions: []string{"0.78.0", "0.87.1"},
	Dialect:  session.Pi,
	// On TERM pi ends its tools and exits with 143 within 50 ms (1.5.2 records the abort, too). On INT it dies at once
	// and its tools keep running.
	Stop: syscall.SIGTERM,
	SessionFile: func(b Box, id string, at time.Time) string {
		// pi's own scheme of names, so that its --session-dir finds the file.
		stamp := strings.NewReplacer(":", "-", ".", "-").Replace(at.UTC().Format("2006-01-02T15:04:05.000Z"))
		return filepath.Join(b.Dir, stamp+"_"+id+".jsonl")
	},
	Create: func(id, cwd string, at time.Time) []byte {
		return append(session.PiHeader(id, cwd, at), '\n')
	},
	Command: piCommand,
	Live:    &piLive,
}

// piEnv stops pi's own network requests. PI_OFFLINE would also stop its grep and find tools from fetching their
// programs.
var piEnv = []string{"PI_SKIP_VERSION_CHECK=1", "PI_TELEMETRY=0"}

func piCommand(_ Box, t Task) Invocation {
	args := []string{"--session", t.Path}
	if t.Model != "" {
		args = append(args, "--model", t.Model)
	}
	args = append(args, t.Args...)
	if t.Person {
		if t.Prompt != "" {
			args = append(args, t.Prompt)
		}
		return Invocation{Args: args, Env: piEnv}
	}
	args = append(args, "-p")
	stdin, arg := piPrompt(t.Prompt)
	if arg != "" {
		args = append(args, arg)
	}
	return Invocation{Args: args, Stdin: stdin, Env: piEnv}
}

// piPrompt splits a prompt into pi's stdin and one argument. pi trims its stdin and joins the two.
//
// The argument is the whole prompt if possible. It is not for a prompt that begins with - or @, which pi takes for a
// flag or a file (pi has no "--"), nor for one that has a NUL or is too long. Such a prompt goes to stdin, and the
// white space at its end, which pi would trim there, becomes the argument.
func piPrompt(prompt string) (stdin, arg string) {
	if fits(prompt) && prompt[0] != '-' && prompt[0] != '@' {
		return "", prompt
	}
	space := func(r rune) bool { return unicode.IsSpace(r) || r == '\uFEFF' } // as for JavaScript's trim
	head := strings.TrimRightFunc(prompt, space)
	if tail := prompt[len(head):]; len(tail) <= maxArg {
		return head, tail
	}
	return prompt, ""
}
