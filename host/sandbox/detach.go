package sandbox

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// detachScript starts $3… in the directory $1, with its output in the file $2, and prints its process id, its start
// time, and the id of the boot, if that can be read.
//
// The command gets a session of its own, so signals to this one do not reach it, and becomes a child of the first
// process, so nobody here waits for it. The process prints its id before it executes the command, so the id can't be
// another process's; exec closes its end of that pipe. The variables have a prefix: the script would otherwise change
// variables of the box with these names for the command. A background job of the shell (&) would ignore SIGINT. A
// process's name may hold spaces and parentheses, so its stat is read from after the last parenthesis.
const detachScript = `cd "$1" && mkdir -p "${2%/*}" && (umask 077; : >"$2") || exit
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

// parseDetached parses the output of detachScript.
func parseDetached(output string) (Process, error) {
	m := detached.FindStringSubmatch(output)
	if m == nil {
		return Process{}, fmt.Errorf("no process was started: %s", clip(output))
	}
	pid, err := strconv.Atoi(m[1])
	return Process{PID: pid, Start: m[2], Boot: m[3]}, err
}

// stat is a line of /proc/<pid>/stat.
type stat struct {
	pid, parent, session int
	state                string
	start                string
}

func parseStat(line string) (stat, error) {
	end := strings.LastIndexByte(line, ')')
	if end < 0 {
		return stat{}, fmt.Errorf("no process's stat: %s", clip(line))
	}
	name, fields := line[:end], strings.Fields(line[end+1:])
	if len(fields) < 20 {
		return stat{}, fmt.Errorf("no process's stat: %s", clip(line))
	}
	pid, _, _ := strings.Cut(name, " ")
	s := stat{state: fields[0], start: fields[19]}
	for _, n := range []struct {
		to   *int
		from string
	}{{&s.pid, pid}, {&s.parent, fields[1]}, {&s.session, fields[3]}} {
		v, err := strconv.Atoi(n.from)
		if err != nil {
			return stat{}, fmt.Errorf("no process's stat: %s", clip(line))
		}
		*n.to = v
	}
	return s, nil
}

// is reports whether the stat is that of p, alive. A zombie is dead: only its parent has not looked yet.
func (s stat) is(p Process) bool {
	return s.pid == p.PID && s.start == p.Start && s.state != "Z" && s.state != "X"
}

// clip returns text as one line of limited length, for an error.
func clip(text string) string {
	const most = 300
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
