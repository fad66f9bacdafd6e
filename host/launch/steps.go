package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/redact"
)

// steps posts the steps of a launch: each when it has ended, and a long one every 30 s, so that a launch is never
// silent. A step that can't be posted does not fail the launch.
type steps struct {
	g     *launching
	every time.Duration

	mu   sync.Mutex
	next int
}

// stepTimeout bounds the post of one step.
const stepTimeout = 20 * time.Second

func newSteps(g *launching) *steps {
	run, _ := g.thread.fold.Run(g.Run)
	return &steps{g: g, every: cmp.Or(g.WaitEvery, 30*time.Second), next: run.Setups}
}

// do runs one step and posts it with its kind; it posts no step with the kind "".
func (s *steps) do(ctx context.Context, kind, name string, step func() error) error {
	began := time.Now()
	waiting, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(s.every)
		defer tick.Stop()
		for {
			select {
			case <-waiting.Done():
				return
			case <-tick.C:
				s.post(waiting, thread.StepWait, name, time.Since(began), nil)
			}
		}
	})
	err := step()
	if failed, is := errors.AsType[*sandbox.ExitError](err); is { // before it is cut: a part of a secret is not found
		failed.Output = s.g.redact.Text(failed.Output)
	}
	s.g.flush()
	stop()
	wg.Wait()
	if kind != "" {
		s.post(ctx, kind, name, time.Since(began), err)
	}
	return err
}

func (s *steps) post(ctx context.Context, kind, name string, took time.Duration, cause error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	p := thread.SetupStep{
		Signal:     s.g.signal(thread.SetupType(kind)),
		ExecID:     s.g.Exec,
		Name:       s.g.redact.Text(name),
		DurationMs: took.Milliseconds(),
	}
	if cause != nil {
		p.Error = s.g.redact.Text(cause.Error())
	}
	s.mu.Lock()
	id := fmt.Sprintf("%s.setup.%d", cmp.Or(s.g.Exec, s.g.Run), s.next)
	s.next++
	s.mu.Unlock()
	if err := s.g.post(ctx, s.g.entry(id, p)); err != nil && kind != thread.StepWait {
		s.g.progress("post the step %s: %v", name, err)
	}
}

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
