package daytona

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"time"

	"github.com/google/uuid"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/kit"
)

// execScript runs $5… in the directory $2. $1 is the command's own folder, $3 the number of bytes to send of each
// output, 0 for all, and $4 the source of its input: none, file (the file named in, in the folder) or live (lines on
// the script's own input).
//
// The daemon's log consists of lines, drops zero bytes, and uses some bytes as marks of its own. So each output is sent
// as lines of a > and base64, and ends with a line of an =, the word ran or never, and the exit status. A line of live
// input is its number and base64, or its number and an =, which ends the input. A line with an earlier number is
// ignored, because the client may repeat lines.
//
// The command has a session of its own: a kill of its group (by its own kill 0, for one) must not reach the shell
// above, which reports its end. Processes that the command leaves behind may keep its output open for ever. Half a
// second after its end, its group and all processes that hold the output are killed, and the relays of the output
// reach its end. Relays that still wait after another ten seconds, because the holder is another user's process, are
// killed, too. Values of the environment come in a file in the folder, which admits its owner only, and the file is
// removed before the command starts: a command line is visible in the session's list and in the daemon's log. The
// parentheses keep the shell's message about a killed command out of the command's output.
//
// The session's shell uses variables named dir, log, sp, ep and ip, and so overwrites the box's variables with these
// names. The script reads the box's own values from the shell's first environment, in which each value ends with a zero
// byte.
const execScript = `arbe_dir=$1 arbe_cd=$2 arbe_most=$3 arbe_input=$4 arbe_in=/dev/null arbe_word=ran arbe_feed=
shift 4
exec 3>&2 4<&0 2>/dev/null
for arbe_name in dir log sp ep ip; do
	eval "[ -n \"\${$arbe_name+x}\" ]" || continue
	arbe_value=$(tr '\n\0' '\001\n' <"/proc/$PPID/environ" |
		sed -n "/^$arbe_name=/{s/^[^=]*=//p;q;}" | tr '\001' '\n'; echo .)
	unset "$arbe_name"
	[ "$arbe_value" = . ] || export "$arbe_name=${arbe_value%??}"
done
(umask 077; mkdir -p "$arbe_dir") && mkfifo "$arbe_dir/out" "$arbe_dir/err" || {
	echo "=never 1"
	printf '>%s\n=never 1\n' "$(echo "no room for a command in the box" | base64 -w 0)" >&3
	exit 1
}
arbe_relay='n=0 sent=0
while :; do
	echo "reads $n" >"$1"
	chunk=$(dd bs=49152 count=1 status=none | base64 -w 0)
	[ -n "$chunk" ] || exit
	echo "writes $n" >"$1"
	printf ">%s\n" "$chunk"
	pad=${chunk##*[!=]}
	n=$((n + 1)) sent=$((sent + ${#chunk} / 4 * 3 - ${#pad}))
	[ "$0" = 0 ] || [ "$sent" -lt "$0" ] || { echo drops >"$1"; exec cat >/dev/null; }
done'
setsid sh -c "$arbe_relay" "$arbe_most" "$arbe_dir/out.at" <"$arbe_dir/out" 3>&- 4<&- & arbe_out=$!
setsid sh -c "$arbe_relay" "$arbe_most" "$arbe_dir/err.at" <"$arbe_dir/err" >&3 3>&- 4<&- & arbe_err=$!
case $arbe_input in
file) arbe_in=$arbe_dir/in ;;
live)
	arbe_in=$arbe_dir/in
	mkfifo "$arbe_in"
	setsid sh -c 'next=1
		while read -r number text; do
			[ "$number" = "$next" ] || continue
			[ "$text" != = ] || exit
			printf %s "$text" | base64 -d || exit
			next=$((next + 1))
		done' <&4 >"$arbe_in" 3>&- 4<&- & arbe_feed=$! ;;
esac
(exec setsid --wait sh -c '
	echo $$ >"$0/pid"
	[ -f "$0/env" ] && eval "$(cat "$0/env"; rm -f "$0/env")"
	if cd "$1"; then
		shift
		command -v "$1" >/dev/null && exec "$@"
		echo "$1: not found" >&2
	fi
	: >"$0/never"
' "$arbe_dir" "$arbe_cd" "$@" <"$arbe_in" >"$arbe_dir/out" 2>"$arbe_dir/err" 3>&- 4<&-)
arbe_code=$?
arbe_pid=$(cat "$arbe_dir/pid")
[ -n "$arbe_feed" ] && kill -9 "-$arbe_feed"
{
	sleep 0.5
	kill -9 "-$arbe_pid"
	arbe_was= arbe_idle=0
	while [ "$arbe_idle" -lt 20 ]; do
		for arbe_fd in /proc/[0-9]*/fd/*; do
			[ "$arbe_fd" -ef "$arbe_dir/out" ] || [ "$arbe_fd" -ef "$arbe_dir/err" ] || continue
			arbe_pid=${arbe_fd#/proc/}
			arbe_pid=${arbe_pid%%/*}
			grep -q '^flags:.*[12]$' "/proc/$arbe_pid/fdinfo/${arbe_fd##*/}" && kill -9 "$arbe_pid"
		done
		sleep 0.5
		arbe_is=$(cat "$arbe_dir/out.at" "$arbe_dir/err.at")
		case $arbe_is in
		*writes*) arbe_idle=0 ;;
		"$arbe_was") arbe_idle=$((arbe_idle + 1)) ;;
		*) arbe_idle=0 ;;
		esac
		arbe_was=$arbe_is
	done
	kill -9 "-$arbe_out"; kill -9 "-$arbe_err"
} >/dev/null 3>&- 4<&- & arbe_last=$!
wait "$arbe_out" "$arbe_err"
kill "$arbe_last"
kill -9 "-$arbe_pid"
[ -f "$arbe_dir/never" ] && arbe_word=never
rm -rf "$arbe_dir"
printf '\n=%s %s\n' "$arbe_word" "$arbe_code"
printf '\n=%s %s\n' "$arbe_word" "$arbe_code" >&3
exit "$arbe_code"`

// killScript kills the group of the command that runs in the folder $1.
const killScript = `kill -9 "-$(cat "$1/pid")" 2>/dev/null; :`

func (b *box) Exec(ctx context.Context, c sandbox.Command) (sandbox.Result, error) {
	failed := sandbox.Result{ExitCode: -1}
	dir, err := c.Check(b.work)
	if err != nil {
		return failed, err
	}
	id := "arbe-" + uuid.NewString()
	s := &session{b: b, id: id, dir: path.Join(b.home, ".arbe-exec", id), out: kit.NewCapture(c)}
	most := s.out.Limit + 1 // one more byte shows that the output was truncated
	if c.Output != nil {
		most = 0
	}
	how := inputOf(c.Stdin)
	args := []string{"sh", "-c", execScript, "sh", s.dir, dir, strconv.Itoa(most), how}
	line, err := sandbox.ShellQuote(append(args, c.Argv...))
	if err != nil {
		return failed, err
	}
	if how != inputLive {
		line += " </dev/null"
	}
	if err := s.prepare(ctx, c, how); err != nil {
		b.remove(context.WithoutCancel(ctx), s.dir)
		return failed, err
	}
	run, limit, end := b.Begin(ctx)
	defer end()
	cause := s.start(run, line)
	began := time.Now()
	if cause == nil {
		limit(c.Timeout)
		cause = s.run(run, c, how)
	}
	life, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if cause != nil && !errors.Is(cause, sandbox.ErrGone) {
		err = s.cut(life)
	} else if cause == nil {
		_ = s.end(life) // the command has ended: a session that stays is empty
	}
	res := sandbox.Result{ExitCode: -1, Duration: time.Since(began)}
	s.out.Fill(&res)
	switch {
	case cause != nil:
		return res, errors.Join(kit.CutShort(&res, cause), err)
	case s.never:
		return res, fmt.Errorf("exec %s%s", c.Argv[0], kit.After(string(res.Stderr)))
	}
	res.ExitCode = kit.ExitCode(s.code)
	return res, nil
}
