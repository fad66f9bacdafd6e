package kit

import (
	"fmt"
	"regexp"
	"strconv"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/internal/procfs"
)

// DetachScript starts $3… in the directory $1, with its output in the file $2, and prints its process id, its start
// time, and the id of the boot, if that can be read.
//
// The command gets a session of its own, so signals to this one do not reach it, and becomes a child of the first
// process, so this process need not wait for it. The process prints its id before it executes the command, so the id
// can't be another process's; exec closes its end of that pipe. The variables have a prefix: the script would
// otherwise change variables of the box with these names for the command. A background job of the shell (&) would
// ignore SIGINT. A process's name may hold spaces and parentheses, so its stat is read from after the last
// parenthesis.
const DetachScript = `cd "$1" && mkdir -p "${2%/*}" && (umask 077; : >"$2") || exit
arbe_log=$2
shift 2
setsid --fork sh -c '
	arbe_stat=$(cat /proc/$$/stat) || exit
	arbe_boot=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)
	began() { shift 19; echo "$$ $1 $arbe_boot"; }
	began ${arbe_stat##*) }
	exec "$@" </dev/null >"$0" 2>&1
' "$arbe_log" "$@" | cat`

var detached = regexp.MustCompile(`(?m)^([1-9][0-9]*) ([0-9]+) ([0-9a-f-]*)$`)

// ParseDetached parses the output of detachScript.
func ParseDetached(output string) (sandbox.Process, error) {
	m := detached.FindStringSubmatch(output)
	if m == nil {
		return sandbox.Process{}, fmt.Errorf("no process was started%s", After(output))
	}
	pid, err := strconv.Atoi(m[1])
	return sandbox.Process{PID: pid, Start: m[2], Boot: m[3]}, err
}

// ProcessOf is the Process that a stat is of. The boot is not in it.
func ProcessOf(s procfs.Stat) sandbox.Process {
	return sandbox.Process{PID: s.PID, Start: strconv.FormatUint(s.Started, 10)}
}

// Is reports whether the stat is that of p, alive. A zombie is dead: only its parent has not looked yet.
func Is(s procfs.Stat, p sandbox.Process) bool {
	q := ProcessOf(s)
	return q.PID == p.PID && q.Start == p.Start && s.Alive()
}
