package sandbox_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/google/uuid"

	"arbe.0sk.ar/runner/host/sandbox"
)

// Runs distinguishes the runner of one run from those of others in the same box.
func TestRunsOfOneRun(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	each(t, func(t *testing.T, h *house) {
		b := h.create(t, sandbox.Options{})
		f, err := os.Open(shell)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close() // read only
		fi, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Upload(t.Context(), sandbox.File{
			Path: sandbox.RunnerPath, InHome: true, Content: f, Size: fi.Size(), Mode: 0o755,
		}); err != nil {
			t.Fatal(err)
		}
		mine, hidden, other := uuid.NewString(), uuid.NewString(), uuid.NewString()
		is := func(p sandbox.Process) bool {
			t.Helper()
			runs, err := h.Runs(t.Context(), b.Ref().ID, p)
			if err != nil {
				t.Fatal(err)
			}
			return runs
		}
		if is(sandbox.Process{Run: mine}) {
			t.Error("it runs before its start")
		}
		const script = `exec "$HOME/` + sandbox.RunnerPath + `" -c 'while :; do sleep 1; done'`
		c := sandbox.Command{Argv: []string{"sh", "-c", script}, Env: map[string]string{"ARBE_RUN_ID": mine}}
		if _, err := b.Detach(t.Context(), c, "log"); err != nil {
			t.Fatal(err)
		}
		soon(t, "the runner", func() bool { return is(sandbox.Process{Run: mine}) })
		if !is(sandbox.Process{}) {
			t.Error("no runner is in the box")
		}
		// One that has begun shows no environment.
		const begun = `unset ARBE_RUN_ID; exec "$HOME/` + sandbox.RunnerPath + `" -c 'while :; do sleep 1; done' keep "$1"`
		c = sandbox.Command{Argv: []string{"sh", "-c", begun, "sh", hidden}, Env: map[string]string{"ARBE_RUN_ID": hidden}}
		if _, err := b.Detach(t.Context(), c, "log"); err != nil {
			t.Fatal(err)
		}
		soon(t, "the hidden runner", func() bool { return is(sandbox.Process{Run: hidden}) })
		for _, run := range []string{other, mine[:8], hidden[:8]} {
			if is(sandbox.Process{Run: run}) {
				t.Errorf("the runner of %s counts as that of %s", mine, run)
			}
		}
	})
}
