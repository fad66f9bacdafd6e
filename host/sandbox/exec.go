package sandbox

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"syscall"
	"time"

	"github.com/google/uuid"
)

// execScript runs $5… in the directory $2 and ends with its exit status. $1 is a folder of its own, $3 how many bytes it may say on each output, $4 a mark
// that ends both of them: the daemon may give out a log before it has all of it, and adds a newline to what ends without.
//
// The command is a session of its own, so that a kill of its group (its own kill 0, for one) does not reach the shell above, without which it would never be seen
// to end. Its output goes through relays that can be ended: something that it has left behind may hold on to it for ever. They are dd because that passes on what
// there is. Values of the environment come by a file in the folder, which lets nobody else in, and the file goes before the command starts: what stands in a
// command is in the session's list and in the daemon's log. The names have a prefix because the box may have a variable of the same name, which would be changed
// for the command. The parentheses keep what the shell says of a killed command out of the command's output.
const execScript = `arbe_dir=$1 arbe_cd=$2 arbe_most=$3 arbe_mark=$4 arbe_in=/dev/null arbe_word=ran
shift 4
exec 3>&2 2>/dev/null
(umask 077; mkdir -p "$arbe_dir") && mkfifo "$arbe_dir/out" "$arbe_dir/err" || {
	echo "$arbe_mark never"
	echo "no room for a command in the box $arbe_mark never" >&3
	exit 1
}
setsid sh -c 'dd bs=65536 count="$0" iflag=count_bytes status=none; exec cat >/dev/null' "$arbe_most" <"$arbe_dir/out" 3>&- & arbe_out=$!
setsid sh -c 'dd bs=65536 count="$0" iflag=count_bytes status=none; exec cat >/dev/null' "$arbe_most" <"$arbe_dir/err" >&3 3>&- & arbe_err=$!
[ -f "$arbe_dir/in" ] && arbe_in=$arbe_dir/in
(exec setsid --wait sh -c '
	echo $$ >"$0/pid"
	[ -f "$0/env" ] && eval "$(cat "$0/env"; rm -f "$0/env")"
	if cd "$1"; then
		shift
		command -v "$1" >/dev/null && exec "$@"
		echo "$1: not found" >&2
	fi
	: >"$0/never"
' "$arbe_dir" "$arbe_cd" "$@" <"$arbe_in" >"$arbe_dir/out" 2>"$arbe_dir/err" 3>&-)
arbe_code=$?
arbe_pid=$(cat "$arbe_dir/pid")
{ sleep 0.5; kill -9 "-$arbe_pid"; kill -9 "-$arbe_out"; kill -9 "-$arbe_err"; } >/dev/null 3>&- & arbe_last=$!
wait "$arbe_out" "$arbe_err"
kill "$arbe_last"
kill -9 "-$arbe_pid"
[ -f "$arbe_dir/never" ] && arbe_word=never
printf '%s %s\n' "$arbe_mark" "$arbe_word"
printf '%s %s\n' "$arbe_mark" "$arbe_word" >&3
rm -rf "$arbe_dir"
exit "$arbe_code"`

// killScript kills the group of the command that runs in the folder $1.
const killScript = `kill -9 "-$(cat "$1/pid")" 2>/dev/null; :`

// streamed is how many bytes of each output are told to a Command's Output, at least. Each look at a log brings all of it.
const streamed = 16 << 20

func (b *daytonaBox) Exec(ctx context.Context, c Command) (Result, error) {
	failed := Result{ExitCode: -1}
	if len(c.Argv) == 0 {
		return failed, errors.New("empty argv")
	}
	if err := checkEnv(c.Env); err != nil {
		return failed, err
	}
	dir, err := confine(b.work, c.Dir)
	if err != nil {
		return failed, err
	}
	id := "arbe-" + uuid.NewString()
	s := &session{b: b, id: id, dir: path.Join(b.home, ".arbe-exec", id), out: newOutput(c)}
	most := s.out.limit + 1
	if c.Output != nil {
		most = max(most, streamed)
	}
	line, err := ShellQuote(append([]string{"sh", "-c", execScript, "sh", s.dir, dir, strconv.Itoa(most), s.mark()}, c.Argv...))
	if err != nil {
		return failed, err
	}
	if err := s.prepare(ctx, c); err != nil {
		b.remove(context.WithoutCancel(ctx), s.dir)
		return failed, err
	}
	run, end := b.begin(ctx, c.Timeout)
	defer end()
	began := time.Now()
	cause := s.run(run, line+" </dev/null", c.Output != nil)
	life, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if s.code != nil {
		cause = s.finish(life)
	} else if !errors.Is(cause, ErrGone) {
		err = s.cut(life)
	}
	res := Result{ExitCode: -1, Duration: time.Since(began)}
	s.out.fill(&res)
	switch {
	case s.code == nil:
		return res, errors.Join(res.cutShort(cause), err)
	case cause != nil:
		return res, cause
	case s.never:
		return res, fmt.Errorf("exec %s: %s", c.Argv[0], clip(string(res.Stderr)))
	}
	res.ExitCode = exitCode(*s.code)
	return res, nil
}

// exitCode is -1 for what the shell says of commands that a signal has killed. Signals that nobody is killed by, and whose numbers programs use as they like (git
// ends with 129), stay what they are.
func exitCode(code int) int {
	switch syscall.Signal(code - 128) {
	case syscall.SIGKILL, syscall.SIGTERM, syscall.SIGSEGV, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL:
		return -1
	}
	return code
}
