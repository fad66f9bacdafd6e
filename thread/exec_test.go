package thread_test

import (
	"encoding/json"
	"testing"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// execEntry is the n-th entry of a command.
func execEntry(exec string, n int, payload any) thread.Entry {
	at := thread.Stamp(time.Unix(int64(1000+n), 0))
	return thread.Entry{ID: thread.ExecID(exec, n), TS: at, At: at, Payload: thread.Marshal(payload)}
}

// A fold has the time of its newest command, also where all have ended, and after it was stored.
func TestFoldLastExec(t *testing.T) {
	var f thread.Fold
	if !f.LastExec().IsZero() {
		t.Errorf("without a command: %v", f.LastExec())
	}
	f.Add(execEntry("a", 0, thread.ExecStarted{Exec: thread.Exec{Type: thread.TypeExecStarted, ExecID: "a"}}))
	f.Add(execEntry("a", 1, thread.ExecFinished{Exec: thread.Exec{Type: thread.TypeExecFinished, ExecID: "a"}}))
	stored, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var read thread.Fold
	if err := json.Unmarshal(stored, &read); err != nil {
		t.Fatal(err)
	}
	if got := read.LastExec(); got.IsZero() || !got.Equal(f.LastExec()) || len(read.OpenExecs()) > 0 {
		t.Errorf("stored as %s: %v, want %v", stored, got, f.LastExec())
	}
}

// A fold has the commands without an end, also after it was stored, and its status does not change with them.
func TestFoldOpenExecs(t *testing.T) {
	exec := func(typ, id string) thread.Exec { return thread.Exec{Type: typ, ExecID: id} }
	var f thread.Fold
	for _, e := range []thread.Entry{
		execEntry("a", 0, thread.ExecStarted{Exec: exec(thread.TypeExecStarted, "a"), Command: "ls", TimeoutMs: 5000}),
		execEntry("b", 0, thread.ExecStarted{Exec: exec(thread.TypeExecStarted, "b"), Command: "make"}),
		execEntry("a", 1, thread.ExecRunning{Exec: exec(thread.TypeExecRunning, "a"), PID: 7}),
		execEntry("a", 2, thread.ExecOutput{Exec: exec(thread.TypeExecOutput, "a"), Stream: "stdout", Text: "x"}),
		execEntry("b", 1, thread.ExecFinished{Exec: exec(thread.TypeExecFinished, "b"), Error: "no box"}),
		execEntry("b", 2, thread.ExecOutput{Exec: exec(thread.TypeExecOutput, "b"), Stream: "stdout", Text: "late"}),
		execEntry("c", 3, thread.ExecOutput{Exec: exec(thread.TypeExecOutput, "c"), Stream: "stdout", Text: "lost"}),
		{
			ID: "a.setup.0", TS: thread.Stamp(time.Unix(1009, 0)), At: thread.Stamp(time.Unix(1009, 0)),
			Payload: thread.Marshal(thread.SetupStep{
				Signal: thread.Signal{Type: thread.SetupType(thread.StepBox)}, ExecID: "a", Name: "box",
			}),
		},
	} {
		if err := e.Check(); err != nil {
			t.Fatal(err)
		}
		f.Add(e)
	}
	stored, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var read thread.Fold
	if err := json.Unmarshal(stored, &read); err != nil {
		t.Fatal(err)
	}
	for name, fold := range map[string]*thread.Fold{"folded": &f, "stored": &read} {
		open := fold.OpenExecs()
		if len(open) != 1 || open[0].ID != "a" || open[0].Next != 3 || open[0].Timeout != 5*time.Second ||
			open[0].Running == nil || open[0].Running.PID != 7 || !open[0].Last.Equal(time.Unix(1009, 0)) {
			t.Errorf("%s: open commands %+v", name, open)
		}
		if got := fold.Status(); got != thread.StatusIdle {
			t.Errorf("%s: status %s", name, got)
		}
	}
}

// The ids of a command's entries are read back as they are made, and no other id is taken for one.
func TestParseExecID(t *testing.T) {
	if exec, n, ok := thread.ParseExecID(thread.ExecID("x-1", 42)); !ok || exec != "x-1" || n != 42 {
		t.Error(exec, n, ok)
	}
	for _, id := range []string{
		"", "x", "x.exec", "x.exec.", "x.exec.-1", "x.exec.1x", "x.end.0", ".exec.1", "a:b.exec.1",
	} {
		if exec, n, ok := thread.ParseExecID(id); ok {
			t.Errorf("%q: %q %d", id, exec, n)
		}
	}
}
