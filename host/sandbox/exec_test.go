package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
)

func TestExec(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		b := h.create(t, sandbox.Options{Env: map[string]string{
			"BOX": "box", "dir": "theirs", "log": "a\nb\n", "sp": "it's", "ep": "", "ip": "=x",
		}})
		if err := os.Mkdir(filepath.Join(b.WorkDir(), "sub dir"), 0o755); err != nil {
			t.Fatal(err)
		}
		tests := map[string]struct {
			c        sandbox.Command
			code     int
			out, err string
			cut      bool
		}{
			"two outputs":     {c: script("echo out; echo err >&2"), out: "out\n", err: "err\n"},
			"no newline":      {c: script("printf out; printf err >&2"), out: "out", err: "err"},
			"nothing":         {c: script(":")},
			"status":          {c: script("echo x; exit 7"), code: 7, out: "x\n"},
			"killed":          {c: script("echo x; kill -9 $$"), code: -1, out: "x\n"},
			"git's status":    {c: script("exit 129"), code: 129},
			"words":           {c: sandbox.Command{Argv: []string{"printf", "[%s]", "it's", "", `a "b" $HOME`, "`id`", "x\ny", "*", `\`}}, out: `[it's][][a "b" $HOME][` + "`id`][x\ny][*][\\]"},
			"directory":       {c: sandbox.Command{Argv: []string{"pwd"}, Dir: "sub dir"}, out: b.WorkDir() + "/sub dir\n"},
			"absolute":        {c: sandbox.Command{Argv: []string{"pwd"}, Dir: b.WorkDir() + "/sub dir"}, out: b.WorkDir() + "/sub dir\n"},
			"environment":     {c: sandbox.Command{Argv: []string{"sh", "-c", `echo "$BOX/$dir/$V/$W"`}, Env: map[string]string{"V": "it's\n$HOME", "W": "", "_x1": "y"}}, out: "box/theirs/it's\n$HOME/\n"},
			"environment won": {c: sandbox.Command{Argv: []string{"sh", "-c", `echo "$BOX"`}, Env: map[string]string{"BOX": "mine"}}, out: "mine\n"},
			"session's variables": {
				c:   sandbox.Command{Argv: []string{"sh", "-c", `printf '%s|' "$dir" "$log" "$sp" "${ep-unset}" "$ip"`}},
				out: "theirs|a\nb\n|it's||=x|",
			},
			"bytes": {
				c:   script(`printf 'a\000b\002\002\002c\nd\001\001\001\r\n\377'`),
				out: "a\x00b\x02\x02\x02c\nd\x01\x01\x01\r\n\xff",
			},
			"bytes of errors": {c: script(`printf '\001\001\001\000e' >&2`), err: "\x01\x01\x01\x00e"},
			"a live input": {
				c:   sandbox.Command{Argv: []string{"cat"}, Stdin: live{strings.NewReader("a\n\x00\x02\x02\x02 b")}},
				out: "a\n\x00\x02\x02\x02 b",
			},
			"an endless input": {c: sandbox.Command{Argv: []string{"head", "-c", "4"}, Stdin: endless{}}, out: "yyyy"},
			"an input unread":  {c: sandbox.Command{Argv: []string{"echo", "x"}, Stdin: endless{}}, out: "x\n"},
			"no input":         {c: sandbox.Command{Argv: []string{"cat"}}},
			"input":            {c: sandbox.Command{Argv: []string{"cat"}, Stdin: strings.NewReader("one\ntwo")}, out: "one\ntwo"},
			"kept":             {c: sandbox.Command{Argv: []string{"sh", "-c", "echo 0123456789; echo 0123456789 >&2"}, MaxOutput: 4}, out: "0123", err: "0123", cut: true},
			"just kept":        {c: sandbox.Command{Argv: []string{"printf", "0123"}, MaxOutput: 4}, out: "0123"},
			"kills its group":  {c: script("echo x; kill 0"), code: -1, out: "x\n"},
			"left behind":      {c: script("sleep 1000 & echo x"), out: "x\n"},
		}
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				res, err := b.Exec(t.Context(), test.c)
				if err != nil {
					t.Fatal(err)
				}
				if res.ExitCode != test.code || string(res.Stdout) != test.out || string(res.Stderr) != test.err ||
					res.Truncated != test.cut || res.TimedOut {
					t.Errorf("got %d %q %q cut %v late %v, want %d %q %q cut %v",
						res.ExitCode, res.Stdout, res.Stderr, res.Truncated, res.TimedOut, test.code, test.out,
						test.err, test.cut)
				}
				if res.Duration <= 0 || res.Duration >= 1000*time.Second { // of what is left behind
					t.Errorf("it took %v", res.Duration)
				}
			})
		}
	})
}

// live is an input of unknown length.
type live struct{ io.Reader }

// endless is an input without an end.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'y'
	}
	return len(b), nil
}

func script(text string) sandbox.Command { return sandbox.Command{Argv: []string{"sh", "-c", text}} }

func TestExecRefuses(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		b := h.create(t, sandbox.Options{})
		before := h.asked()
		for _, dir := range []string{"/etc", "..", "a/../..", b.WorkDir() + "-x", "/", "a\x00b"} {
			_, err := b.Exec(t.Context(), sandbox.Command{Argv: []string{"true"}, Dir: dir})
			var confined *sandbox.ConfinedError
			if !errors.As(err, &confined) || !strings.Contains(err.Error(), "path confinement violation") {
				t.Errorf("%q: %v", dir, err)
			}
		}
		for _, key := range []string{"", "a b", "A=B", "$(id)", "`id`", "A\nB", "1A", "é"} {
			for _, start := range []func(sandbox.Command) error{
				func(c sandbox.Command) error { _, err := b.Exec(t.Context(), c); return err },
				func(c sandbox.Command) error { _, err := b.Detach(t.Context(), c, "log"); return err },
			} {
				err := start(sandbox.Command{Argv: []string{"true"}, Env: map[string]string{key: "secret-value"}})
				if err == nil || !strings.Contains(err.Error(), "must match [A-Za-z_][A-Za-z0-9_]*") ||
					strings.Contains(err.Error(), "secret-value") {
					t.Errorf("%q: %v", key, err)
				}
			}
		}
		if _, err := b.Exec(t.Context(), sandbox.Command{}); err == nil {
			t.Error("ran nothing")
		}
		if got := h.asked(); got != before {
			t.Errorf("%d requests were sent", got-before)
		}
		for _, c := range []sandbox.Command{{Argv: []string{"no-such-command"}}, {Argv: []string{"true"}, Dir: "no-such-folder"}} {
			res, err := b.Exec(t.Context(), c)
			if err == nil || res.ExitCode != -1 {
				t.Errorf("%v in %q: exit %d, %v", c.Argv, c.Dir, res.ExitCode, err)
			}
		}
	})
}

func TestExecEnds(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		b := h.create(t, sandbox.Options{})
		ways := map[string]struct {
			limit time.Duration
			stop  func(cancel func())
			late  bool
			err   error
		}{
			"timeout": {limit: 15 * time.Second, stop: func(func()) {}, late: true},
			"stop":    {stop: func(func()) { b.Stop() }},
			"context": {stop: func(cancel func()) { cancel() }, err: context.Canceled},
		}
		for name, way := range ways { // one after the other: Stop stops all
			t.Run(name, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				pidFile := filepath.Join(b.WorkDir(), name)
				done := make(chan struct{})
				var output atomic.Bool // the box's output may come later than its files
				go func() {
					defer close(done)
					soon(t, "it runs", func() bool { return len(read(pidFile)) > 0 && output.Load() })
					way.stop(cancel)
				}()
				c := script(`echo before; (trap '' TERM; sleep 1000) & echo $! >` + name + `; wait; echo after`)
				c.Timeout = way.limit
				c.Output = func(sandbox.Stream, []byte) { output.Store(true) }
				res, err := b.Exec(ctx, c)
				<-done
				if !errors.Is(err, way.err) || err != nil && way.err == nil {
					t.Errorf("error %v, want %v", err, way.err)
				}
				if res.ExitCode != -1 || res.TimedOut != way.late || string(res.Stdout) != "before\n" {
					t.Errorf("exit %d, timed out %v, got %q, took %v", res.ExitCode, res.TimedOut, res.Stdout,
						res.Duration)
				}
				soon(t, "what it started is gone", func() bool { return !living(t, read(pidFile)) })
			})
		}
		// What is left is a box that works.
		if res := run(t, b, "echo fine"); string(res.Stdout) != "fine\n" {
			t.Errorf("printed %q", res.Stdout)
		}
		if left, err := filepath.Glob(filepath.Join(b.Home(), ".arbe-exec", "*")); err != nil || len(left) > 0 {
			t.Errorf("left in the box: %v, %v", left, err)
		}
	})
}

// living reports whether a process is there, and no zombie.
func living(t *testing.T, pid string) bool {
	t.Helper()
	line := read("/proc/" + pid + "/stat")
	return pid != "" && line != "" && !strings.HasPrefix(line[strings.LastIndexByte(line, ')')+1:], " Z")
}

func TestExecStreams(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		b := h.create(t, sandbox.Options{})
		var mu sync.Mutex
		got := map[sandbox.Stream]*bytes.Buffer{sandbox.Stdout: {}, sandbox.Stderr: {}}
		goOn := filepath.Join(b.WorkDir(), "go on")
		c := script(`echo one; echo uno >&2; while [ ! -e "go on" ]; do sleep 0.05; done; echo two; seq 1 2000`)
		c.MaxOutput = 10
		c.Output = func(s sandbox.Stream, p []byte) {
			if !mu.TryLock() {
				t.Error("two calls at a time")
				return
			}
			defer mu.Unlock()
			got[s].Write(p)
			if got[sandbox.Stdout].String() == "one\n" && got[sandbox.Stderr].String() == "uno\n" {
				// The command ends only if this output arrived while it ran.
				if err := os.WriteFile(goOn, nil, 0o644); err != nil {
					t.Error(err)
				}
			}
		}
		c.Timeout = 5 * time.Minute
		res, err := b.Exec(t.Context(), c)
		if err != nil || res.ExitCode != 0 {
			t.Fatalf("exit %d, %v", res.ExitCode, err)
		}
		want := "one\ntwo\n" + string(run(t, b, "seq 1 2000").Stdout)
		if got[sandbox.Stdout].String() != want || got[sandbox.Stderr].String() != "uno\n" {
			t.Errorf("passed on %d bytes, %q; want %d", got[sandbox.Stdout].Len(), got[sandbox.Stderr], len(want))
		}
		if string(res.Stdout) != want[:10] || !res.Truncated {
			t.Errorf("kept %q, truncated %v", res.Stdout, res.Truncated)
		}
	})
}

func TestDetach(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		b := h.create(t, sandbox.Options{Env: map[string]string{"BOX": "box"}})
		if err := os.Mkdir(filepath.Join(b.WorkDir(), "sub"), 0o755); err != nil {
			t.Fatal(err)
		}
		c := script(`echo "$BOX $SECRET $(pwd)"; cat; trap "echo interrupted; exit" INT; echo err >&2; while :; do sleep 0.05; done`)
		c.Dir, c.Env = "sub", map[string]string{"SECRET": "it's $x"}
		p, err := b.Detach(t.Context(), c, "logs/run.log")
		if err != nil {
			t.Fatal(err)
		}
		log := filepath.Join(b.Home(), "logs", "run.log")
		soon(t, "its output", func() bool { return read(log) == "box it's $x "+b.WorkDir()+"/sub\nerr" })
		if fi, err := os.Stat(log); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("the log: %v, %v", fi, err)
		}
		b.Stop()
		run(t, b, "true")
		if alive, err := b.Alive(t.Context(), p); err != nil || !alive {
			t.Fatalf("alive %v, %v", alive, err)
		}
		for _, other := range []sandbox.Process{{PID: p.PID, Start: p.Start + "1"}, {PID: 1 << 30, Start: p.Start}} {
			if alive, err := b.Alive(t.Context(), other); err != nil || alive {
				t.Errorf("%+v is alive: %v, %v", other, alive, err)
			}
		}
		if group, err := syscall.Getpgid(p.PID); err != nil || group != p.PID {
			t.Errorf("its group is %d, %v", group, err)
		}
		// It gets an interrupt, which agents need for a clean end.
		if err := syscall.Kill(p.PID, syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		soon(t, "it is gone", func() bool {
			alive, err := b.Alive(t.Context(), p)
			return err == nil && !alive
		})
		if !strings.HasSuffix(read(log), "interrupted") {
			t.Errorf("the log: %q", read(log))
		}
		// A name that looks like the end of a name is no riddle.
		sleep, err := os.ReadFile("/bin/sleep")
		if err != nil {
			t.Fatal(err)
		}
		f := sandbox.File{
			Path: "s) R 1 (p", InHome: true, Content: bytes.NewReader(sleep), Size: int64(len(sleep)),
			Mode: 0o755,
		}
		if err := b.Upload(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		if p, err = b.Detach(t.Context(), sandbox.Command{Argv: []string{b.Home() + "/s) R 1 (p", "1000"}}, "log"); err != nil {
			t.Fatal(err)
		}
		if alive, err := b.Alive(t.Context(), p); err != nil || !alive {
			t.Errorf("alive %v, %v", alive, err)
		}
		var confined *sandbox.ConfinedError
		for _, log := range []string{"../log", "/etc/log", "", "a/../.."} {
			if _, err := b.Detach(t.Context(), script(":"), log); !errors.As(err, &confined) {
				t.Errorf("%q: %v", log, err)
			}
		}
		if _, err := b.Detach(t.Context(), sandbox.Command{Argv: []string{"true"}, Dir: "none"}, "log"); err == nil {
			t.Error("began in a folder that is not there")
		}
	})
}
