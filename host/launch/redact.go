package launch

import (
	"bytes"
	"strings"

	"arbe.0sk.ar/runner/host/sandbox"
)

// redactedError is an error whose text held a secret.
type redactedError struct {
	err  error
	text string
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.err }

// redacted returns an error without the task's secrets in its text.
func (t Task) redacted(err error) error {
	if err == nil {
		return nil
	}
	text := t.redactor().Text(err.Error())
	if text == err.Error() {
		return err
	}
	return &redactedError{err, text}
}

// mostLine is the length at which a line of a command's output is reported in parts.
const mostLine = 64 << 10

// output reports the output of a command in the box as progress, by lines: a secret that came in two parts is redacted.
func (g *launching) output(s sandbox.Stream, b []byte) {
	g.outputMu.Lock()
	defer g.outputMu.Unlock()
	rest := append(g.rest[s-sandbox.Stdout], b...)
	end := bytes.LastIndexByte(rest, '\n') + 1
	if len(rest) > mostLine {
		end = len(rest)
	}
	g.report(rest[:end])
	g.rest[s-sandbox.Stdout] = bytes.Clone(rest[end:])
}

// flush reports what is left of the outputs.
func (g *launching) flush() {
	g.outputMu.Lock()
	defer g.outputMu.Unlock()
	for i, rest := range g.rest {
		g.report(rest)
		g.rest[i] = nil
	}
}

// report reports lines of output.
func (g *launching) report(b []byte) {
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" {
			g.progress("  %s", g.steps.redact.Text(line))
		}
	}
}
