package local

import (
	"bytes"
	"context"
	"os"
	"path/filepath"

	"arbe.0sk.ar/runner/host/sandbox"
)

// Runs reports whether the process is alive in the box with the id; with PID 0, whether the runner of the process's Run
// is, or, without a Run, any runner.
func (p *Provider) Runs(ctx context.Context, id string, proc sandbox.Process) (bool, error) {
	dir, err := p.at(id)
	if err != nil {
		return false, err
	}
	b := &box{id: id, dir: dir}
	if proc.PID != 0 {
		return b.runs(proc) // also in a box whose folder somebody has removed
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return false, err
	}
	runner := filepath.Join(b.Home(), sandbox.RunnerPath)
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
	return err == nil && bytes.Contains(append([]byte{0}, env...), []byte("\x00"+sandbox.RunVariable+"="+run+"\x00"))
}
