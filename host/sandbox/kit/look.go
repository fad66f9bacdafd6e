package kit

import (
	"context"
	"fmt"
	"strings"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/internal/procfs"
)

// runnerScript reports whether a process runs whose program's path ends with $1, and which was started with the
// variable $2, if that is not empty, or names the variable's value in its command line.
const runnerScript = `command -v grep >/dev/null || { echo no grep; exit 1; }
for f in $(grep -lF -e "$1" /proc/[0-9]*/cmdline); do
	case $(tr '\0' '\n' <"$f" | head -n 1) in *"$1") ;; *) continue ;; esac
	if [ -z "$2" ] || tr '\0' '\n' <"$f" | grep -qxF -e "${2#*=}" ||
		tr '\0' '\n' <"${f%/*}/environ" | grep -qxF -e "$2"; then echo runs; exit; fi
done 2>/dev/null
echo none`

// aliveScript prints the boot id, if it can be read, and the stat of the process $1.
const aliveScript = `echo "boot $(cat /proc/sys/kernel/random/boot_id 2>/dev/null)"
cat "/proc/$1/stat" 2>/dev/null || echo gone`

// Ask runs a short script in a box, which only looks, and returns its output and its exit status. doing is for errors.
type Ask func(ctx context.Context, doing, script string, args ...string) (output string, code int, err error)

// Alive reports whether a process that Detach started is running in the box.
func (ask Ask) Alive(ctx context.Context, p sandbox.Process) (bool, error) {
	output, code, err := ask(ctx, "look at a process", aliveScript, fmt.Sprint(p.PID))
	if err != nil {
		return false, err
	}
	boot, line, _ := strings.Cut(output, "\n")
	if boot = strings.TrimPrefix(boot, "boot "); p.Boot != "" && boot != "" && boot != p.Boot && code == 0 {
		return false, nil
	}
	if code == 0 && strings.TrimSpace(line) == "gone" {
		return false, nil
	}
	st, err := procfs.Parse(line)
	if err != nil {
		return false, fmt.Errorf("look at a process: exit %d: %w", code, err)
	}
	return Is(st, p), nil
}

// Runs reports whether a process is alive in the box; with PID 0, whether the runner of its Run is, or, without a Run,
// any runner.
func (ask Ask) Runs(ctx context.Context, p sandbox.Process) (bool, error) {
	if p.PID != 0 {
		return ask.Alive(ctx, p)
	}
	variable := ""
	if p.Run != "" {
		variable = sandbox.RunVariable + "=" + p.Run
	}
	output, code, err := ask(ctx, "look for the runner", runnerScript, "/"+sandbox.RunnerPath, variable)
	answer := strings.TrimSpace(output)
	if err != nil || answer == "runs" || answer == "none" {
		return answer == "runs", err
	}
	return false, fmt.Errorf("look for the runner: exit status %d%s", code, After(output))
}
