package launch

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread/redact"
)

// redactor removes the secrets that the box is given from what is posted and printed: a command may print them. The
// variables of --env and --setup-env are secrets whatever their names are, and so are the files of --file.
func (t Task) redactor() *redact.Redactor {
	environ := []string{"GITHUB_TOKEN=" + t.Box.Token}
	var names []string
	add := func(env map[string]string, named bool) {
		for name, value := range env {
			if environ = append(environ, name+"="+value); named {
				names = append(names, name)
			}
		}
	}
	add(t.Env, true)
	add(t.Setup.Env, true)
	add(t.Box.Env, false)
	for _, c := range t.Make.Setup {
		add(c.Env, false)
	}
	r := redact.New(environ, names)
	for _, f := range slices.Concat(t.Files, t.Make.Files) {
		if f.Sensitive {
			r.Add(path.Base(f.Path), string(f.Content[:min(len(f.Content), redact.MaxSecretFile)]))
		}
	}
	return r
}

// progress reports a step without secrets.
func (g *launching) progress(format string, args ...any) {
	if g.Progress != nil {
		g.Launcher.progress("%s", g.redact.Text(fmt.Sprintf(format, args...)))
	}
}

// mostLine is the length at which a line of a command's output is reported in parts.
const mostLine = 64 << 10

// shown is an output of a command in the box, as it is shown.
type shown struct {
	redact *redact.Parts // nil before the first part
	line   string        // one that has not ended, without secrets
}

// output reports the output of a command in the box as progress, by lines. A secret that comes in several parts or
// lines is redacted as one.
func (g *launching) output(s sandbox.Stream, b []byte) {
	g.outputMu.Lock()
	defer g.outputMu.Unlock()
	o := &g.outputs[s-sandbox.Stdout]
	if o.redact == nil {
		o.redact = g.redact.Parts()
	}
	o.line += o.redact.Next(b)
	end := strings.LastIndexByte(o.line, '\n') + 1
	if len(o.line) > mostLine {
		end = len(o.line)
	}
	g.report(o.line[:end])
	o.line = o.line[end:]
}

// flush reports what is left of the outputs.
func (g *launching) flush() {
	g.outputMu.Lock()
	defer g.outputMu.Unlock()
	for i, o := range g.outputs {
		if o.redact != nil {
			g.report(o.line + o.redact.Rest())
		}
		g.outputs[i] = shown{}
	}
}

// report reports lines of output.
func (g *launching) report(lines string) {
	for line := range strings.Lines(lines) {
		if line = strings.TrimSpace(line); line != "" {
			g.Launcher.progress("  %s", line)
		}
	}
}
