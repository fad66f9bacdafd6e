package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// Runs reports whether the process is alive in the box with the id; with PID 0, whether the runner of the process's Run
// is, or, without a Run, any runner.
func (p *Local) Runs(ctx context.Context, id string, proc Process) (bool, error) {
	dir, err := p.at(id)
	if err != nil {
		return false, err
	}
	b := &localBox{id: id, dir: dir}
	if proc.PID != 0 {
		return b.runs(proc) // also in a box whose folder somebody has removed
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
		if name, _, _ := bytes.Cut(line, []byte{0}); string(name) == runner && of(line, filepath.Dir(file), proc.Run) {
			return true, nil
		}
	}
	return false, nil
}

// of reports whether a process, by its command line and its folder in /proc, was started for a run; true for the run
// "". A runner that has begun hides its environment, and names its run in its command line.
func of(line []byte, dir, run string) bool {
	if run == "" || bytes.Contains(line, []byte("\x00"+run+"\x00")) {
		return true
	}
	env, err := os.ReadFile(filepath.Join(dir, "environ"))
	return err == nil && bytes.Contains(append([]byte{0}, env...), []byte("\x00"+runVariable+"="+run+"\x00"))
}

// runnerScript reports whether a process runs whose program's path ends with $1, and which was started with the
// variable $2, if that is not empty, or names the variable's value in its command line.
const runnerScript = `command -v grep >/dev/null || { echo no grep; exit 1; }
for f in $(grep -lF -e "$1" /proc/[0-9]*/cmdline); do
	case $(tr '\0' '\n' <"$f" | head -n 1) in *"$1") ;; *) continue ;; esac
	if [ -z "$2" ] || tr '\0' '\n' <"$f" | grep -qxF -e "${2#*=}" ||
		tr '\0' '\n' <"${f%/*}/environ" | grep -qxF -e "$2"; then echo runs; exit; fi
done 2>/dev/null
echo none`

// Runs reports whether the process is alive in the box with the id; with PID 0, whether the runner of the process's Run
// is, or, without a Run, any runner. The box is not started, and the query does not count as use. In a stopped box
// nothing runs. What runs in one with a fault is not known: ErrGone.
func (p *Daytona) Runs(ctx context.Context, id string, proc Process) (bool, error) {
	i, err := p.look(ctx, id)
	switch {
	case notFound(err, id):
		return false, fmt.Errorf("look into the box %s: %w", id, ErrGone)
	case err != nil:
		return false, err
	case i.gone():
		return false, fmt.Errorf("look into the box %s, which is %s: %w", id, i.why(), ErrGone)
	case i.asleep():
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
	variable := ""
	if proc.Run != "" {
		variable = runVariable + "=" + proc.Run
	}
	output, code, err := b.ask(ctx, "look for the runner", runnerScript, "/"+RunnerPath, variable)
	answer := strings.TrimSpace(output)
	if err != nil || answer == "runs" || answer == "none" {
		return answer == "runs", err
	}
	return false, fmt.Errorf("daytona: look for the runner: exit status %d%s", code, after(output))
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
