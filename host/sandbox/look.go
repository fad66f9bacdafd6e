package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Runs reports whether the process is alive in the box with the id; with the zero Process, whether any process of the
// runner is.
func (p *Local) Runs(ctx context.Context, id string, proc Process) (bool, error) {
	b, err := p.open(id)
	if err != nil {
		return false, err
	}
	if proc.PID != 0 {
		return b.Alive(ctx, proc)
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return false, err
	}
	runner := filepath.Join(b.Home(), RunnerPath)
	for _, file := range lines {
		line, err := os.ReadFile(file)
		if err != nil {
			continue // the process has ended
		}
		if name, _, _ := bytes.Cut(line, []byte{0}); string(name) == runner {
			return true, nil
		}
	}
	return false, nil
}

// runnerScript reports whether a process runs whose program's path ends with $1.
const runnerScript = `for f in /proc/[0-9]*/cmdline; do
	case $(tr '\0' '\n' <"$f" 2>/dev/null | head -n 1) in *"$1") echo runs; exit ;; esac
done
echo none`

// Runs reports whether the process is alive in the box with the id; with the zero Process, whether any process of the
// runner is. The box is not started, and the query does not count as use. In a stopped box nothing runs.
func (p *Daytona) Runs(ctx context.Context, id string, proc Process) (bool, error) {
	i, err := p.look(ctx, id)
	switch {
	case notFound(err, id):
		return false, fmt.Errorf("look into the box %s: %w", id, ErrGone)
	case err != nil:
		return false, err
	case i.gone() || i.asleep():
		return false, nil
	case i.State != "started":
		return false, fmt.Errorf("daytona: look into the box %s: it is %s", id, i.State)
	}
	b, err := p.toolboxOf(ctx, i)
	if err != nil {
		return false, err
	}
	if proc.PID != 0 {
		return b.Alive(ctx, proc)
	}
	s := sh("look for the runner", runnerScript, "/"+RunnerPath)
	s.quiet, s.limit = true, 10*time.Second
	var output string
	var code int
	if err := p.bounded(ctx, func(ctx context.Context) (err error) {
		output, code, err = b.execute(ctx, s)
		return err
	}); err != nil {
		return false, err
	}
	switch strings.TrimSpace(output) {
	case "runs":
		return true, nil
	case "none":
		return false, nil
	}
	return false, fmt.Errorf("daytona: look for the runner: exit status %d: %s", code, clip(output))
}

// toolboxOf returns the box with the address of its daemon, without its folders.
func (p *Daytona) toolboxOf(ctx context.Context, i info) (*daytonaBox, error) {
	if i.Toolbox == "" {
		var answer struct{ URL string }
		if err := p.do(ctx, request{
			doing: "find the box's toolbox", method: http.MethodGet, url: p.boxURL(i.ID) + "/toolbox-proxy-url",
			into: &answer,
		}); err != nil {
			return nil, err
		}
		i.Toolbox = answer.URL
	}
	return &daytonaBox{p: p, id: i.ID, toolbox: strings.TrimRight(i.Toolbox, "/") + "/" + i.ID}, nil
}
