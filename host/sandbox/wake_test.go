package sandbox_test

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/internal/test/fakedaytona"
)

// calls returns the calls that have changed the state of a box, since the request before.
func (h *house) calls(before int) (calls []string) {
	for _, r := range h.fake.Requests()[before:] {
		if r.Method == http.MethodPost && strings.HasPrefix(r.Path, "/api/sandbox/") {
			calls = append(calls, r.Path[strings.LastIndex(r.Path, "/")+1:])
		}
	}
	return calls
}

// TestOpenWakes: a box that does not run is started, or recovered from an error that Daytona can repair, with its
// files. One that is being stopped or archived is started after that.
func TestOpenWakes(t *testing.T) {
	t.Parallel()
	for state, tt := range map[string]struct{ then, call string }{
		"stopped":   {"", "start"},
		"archived":  {"", "start"},
		"paused":    {"", "start"},
		"error":     {"", "recover"},
		"stopping":  {"stopped", "start"},
		"archiving": {"archived", "start"},
	} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			f := newFaulty(t)
			b := f.create(t, sandbox.Options{Repo: "org/repo"})
			if res := run(t, b, "echo unsaved >work.txt"); res.ExitCode != 0 {
				t.Fatalf("%+v", res)
			}
			id := b.Ref().ID
			if f.fake.SetState(id, state, ""); state == "error" {
				f.fake.Break(id, "no space left on device")
			}
			var looks atomic.Int32
			hook := func(r *http.Request) fakedaytona.Fault {
				if tt.then != "" && r.Method == http.MethodGet && looks.Add(1) == 3 {
					f.fake.SetState(id, tt.then, "")
				}
				return fakedaytona.Fault{}
			}
			f.hook.Store(&hook)
			before := len(f.fake.Requests())
			again, err := f.Open(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if res := run(t, again, "cat work.txt"); string(res.Stdout) != "unsaved\n" {
				t.Errorf("the file has %q, %s", res.Stdout, res.Stderr)
			}
			if got := f.calls(before); len(got) != 1 || got[0] != tt.call {
				t.Errorf("called %q, want %q once", got, tt.call)
			}
		})
	}
}

// TestBroken: a box in an error that Daytona can repair is there, and nothing runs in it. Where the repair fails the
// box is still there.
func TestBroken(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	b := f.create(t, sandbox.Options{})
	id := b.Ref().ID
	p, err := b.Detach(t.Context(), script("sleep 1000"), "log")
	if err != nil {
		t.Fatal(err)
	}
	f.fake.Break(id, "no space left on device")
	if health, why, err := f.Probe(t.Context(), id); health != sandbox.Asleep || err != nil ||
		why != "error: no space left on device" {
		t.Errorf("it is %v, %s, %v", health, why, err)
	}
	if boxes, err := f.List(t.Context(), nil); err != nil || len(boxes) != 1 || boxes[0].Health != sandbox.Asleep {
		t.Errorf("listed %+v, %v", boxes, err)
	}
	if runs, err := f.Runs(t.Context(), id, p); runs || err != nil {
		t.Errorf("runs: %v, %v", runs, err)
	}
	full := fakedaytona.Fault{Status: http.StatusBadRequest, Body: `{"message":"no room"}`}
	f.fail(99, http.MethodPost, "/recover", full)
	if _, err := f.Open(t.Context(), id); err == nil || errors.Is(err, sandbox.ErrGone) ||
		!strings.Contains(err.Error(), "recover the box "+id+": 400 no room") {
		t.Errorf("the error is %v", err)
	}
	f.hook.Store(nil)
	if _, err := f.Open(t.Context(), id); err != nil {
		t.Error(err)
	}
}
