package exec_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/exec"
	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/thread"
)

// supervised returns the n-th entry of the command of asked.
func supervised(n int, payload any) thread.Entry {
	return thread.Entry{ID: thread.ExecID("c1", n), TS: thread.Stamp(time.Now()), Payload: thread.Marshal(payload)}
}

func of(typ string) thread.Exec { return thread.Exec{Type: typ, ExecID: "c1"} }

// begins and ends post the entries of a supervisor.
func begins(s *fakethread.Server) {
	s.Put(supervised(1, thread.ExecRunning{Exec: of(thread.TypeExecRunning), PID: 7}))
}

func ends(s *fakethread.Server) {
	for i, text := range []string{"one\n", "two\n"} {
		s.Put(supervised(2+i, thread.ExecOutput{Exec: of(thread.TypeExecOutput), Stream: "stdout", Text: text}))
	}
	two := 2
	s.Put(supervised(4, thread.ExecFinished{Exec: of(thread.TypeExecFinished), ExitCode: &two, DurationMs: 8000}))
}

// run runs asked, and returns its end in words.
func run(ctx context.Context, h *exec.Host) (got string, prepared int) {
	var out strings.Builder
	end, err := exec.Run(ctx, h.Client, asked, func(context.Context, *exec.Request) (*exec.Host, error) {
		prepared++
		return h, nil
	}, func(o thread.ExecOutput) { out.WriteString(o.Text) })
	switch {
	case err != nil:
		return err.Error(), prepared
	case end.ExitCode != nil:
		return fmt.Sprint("exit ", *end.ExitCode, " ", out.String()), prepared
	}
	return end.Error, prepared
}

// A command runs once, however often and wherever it is asked for, and each call returns its end.
func TestRun(t *testing.T) {
	t.Parallel()
	const want = "exit 2 one\ntwo\n"
	for _, tt := range []struct {
		name   string
		before func(t *testing.T, h *exec.Host, s *fakethread.Server)
		starts int
	}{
		{"nobody has posted it", func(*testing.T, *exec.Host, *fakethread.Server) {}, 1},
		{"its host died before it started it", func(t *testing.T, h *exec.Host, _ *fakethread.Server) { post(t, h) }, 1},
		{"its host died, and the secrets have changed", func(t *testing.T, h *exec.Host, s *fakethread.Server) {
			s.Allow(thread.ExecID("c1", 0))
			was := asked
			was.Shown = "make [redacted:OLD]"
			if _, err := h.Post(t.Context(), was); err != nil {
				t.Fatal(err)
			}
		}, 1},
		{"its host died while it ran", func(t *testing.T, h *exec.Host, s *fakethread.Server) {
			post(t, h)
			begins(s)
			time.AfterFunc(10*time.Millisecond, func() { ends(s) })
		}, 0},
		{"its host died after its end", func(t *testing.T, h *exec.Host, s *fakethread.Server) {
			post(t, h)
			begins(s)
			ends(s)
		}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine()
			h, s := newHost(t, m)
			m.detach = func() {
				begins(s)
				ends(s)
			}
			tt.before(t, h, s)
			got, prepared := run(t.Context(), h)
			if got != want || len(m.started) != tt.starts || prepared != tt.starts {
				t.Errorf("got %q, %d starts, prepared %d times; want %d", got, len(m.started), prepared, tt.starts)
			}
			if held := m.held(); len(held) > 0 {
				t.Errorf("held by %q", held)
			}
			if again, _ := run(t.Context(), h); again != want || len(m.started) != tt.starts {
				t.Errorf("again: got %q, %d starts", again, len(m.started))
			}
		})
	}
}

// A command that can't be started has its end on the thread, which Run returns.
func TestRunFails(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.fails = errors.New("no room")
	h, s := newHost(t, m)
	for range 2 {
		if got, _ := run(t.Context(), h); !strings.Contains(got, "no room") || len(m.started) != 1 {
			t.Errorf("got %q, %d starts", got, len(m.started))
		}
	}
	if end, is := endOf(t, s); !is || end.Cancelled {
		t.Errorf("the end is %+v", end)
	}
	none := errors.New("no environment")
	_, err := exec.Run(t.Context(), h.Client, exec.Request{ID: "c2"},
		func(context.Context, *exec.Request) (*exec.Host, error) { return nil, none }, nil)
	if !errors.Is(err, none) || len(s.Entries()) != 2 {
		t.Errorf("not prepared: %v, %d entries", err, len(s.Entries()))
	}
}

// A caller that leaves ends no command: neither one that runs nor one whose box is being made, which the next caller
// starts.
func TestRunLeft(t *testing.T) {
	t.Parallel()
	m := newMachine()
	h, s := newHost(t, m)
	open := h.Box
	there := waiting(h)
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-there
		leave()
	}()
	if got, _ := run(ctx, h); len(m.started) != 0 {
		t.Errorf("got %q, %d starts", got, len(m.started))
	}
	h.Box = open
	ctx, leave = context.WithCancel(t.Context())
	m.detach = func() {
		begins(s)
		leave()
	}
	if got, _ := run(ctx, h); got != context.Canceled.Error() || len(m.started) != 1 {
		t.Errorf("got %q, %d starts", got, len(m.started))
	}
	if n := len(s.Entries()); n != 2 {
		t.Errorf("the thread has %d entries", n)
	}
	ends(s)
	if got, _ := run(t.Context(), h); got != "exit 2 one\ntwo\n" || len(m.started) != 1 {
		t.Errorf("got %q, %d starts", got, len(m.started))
	}
}

// A stop ends a command that nobody has started for good, asks the supervisor of one that runs, and changes nothing
// where none is open.
func TestStop(t *testing.T) {
	t.Parallel()
	h, s := newHost(t, newMachine())
	stop := func(want int) {
		t.Helper()
		if err := exec.Stop(t.Context(), h.Client, "c1", "bot", "enough"); err != nil || len(s.Entries()) != want {
			t.Errorf("%v, %d entries, want %d", err, len(s.Entries()), want)
		}
	}
	stop(0)
	post(t, h)
	stop(2)
	if end, is := endOf(t, s); !is || !end.Cancelled {
		t.Errorf("the end is %+v", end)
	}
	stop(2)
	if got, _ := run(t.Context(), h); got != "cancelled before it was started" {
		t.Errorf("then got %q", got)
	}

	h, s = newHost(t, newMachine())
	post(t, h)
	begins(s)
	stop(3)
	last := s.Entries()[2]
	if !strings.Contains(string(last.Payload), thread.TypeExecCancel) || last.AuthorID != "bot" {
		t.Errorf("got %s by %s", last.Payload, last.AuthorID)
	}
}

// The wait for a command whose supervisor has died is over some time after the command should have ended.
func TestRunOverdue(t *testing.T) {
	t.Parallel()
	h, s := newHost(t, newMachine())
	post(t, h)
	begins(s)
	r := asked
	r.Timeout = time.Millisecond - 5*time.Minute // so that the wait is 1 ms
	if _, err := exec.Run(t.Context(), h.Client, r, nil, nil); !errors.Is(err, exec.ErrNoEnd) {
		t.Errorf("got %v", err)
	}
}
