package runner_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"arbe.0sk.ar/runner/internal/format"
	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/thread"
)

// lostRun leaves the run r1 as a runner does that dies in its agent's mid-turn. refuse makes the server refuse r1's
// signals.
func lostRun(t *testing.T, plan ...string) (cfg runner.Config, server *fakethread.Server, refuse *atomic.Int32) {
	t.Helper()
	ctx, die := context.WithCancel(t.Context())
	defer die()
	refuse = &atomic.Int32{}
	refuse.Store(503)
	server = fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
		ofR1 := func(e thread.Entry) bool { return strings.HasPrefix(e.ID, "r1.end.") }
		if refuse.Load() != 0 && slices.ContainsFunc(c.Entries, ofR1) {
			die()
			return fakethread.Fault{Status: int(refuse.Load())}
		}
		return fakethread.Fault{}
	})
	cfg = setup(t, server, plan...)
	res, err := runner.RunAlone(t.Context(), ctx, cfg)
	if err == nil {
		t.Fatalf("the run ended: %+v", res)
	}
	forget(t, res.Folder)
	refuse.Store(0)
	return cfg, server, refuse
}

// forget takes from a run's folder what is known of the agent's end.
func forget(t *testing.T, folder string) {
	t.Helper()
	facts := filepath.Join(folder, "facts.jsonl")
	b, err := os.ReadFile(facts)
	if err != nil {
		t.Fatal(err)
	}
	var kept strings.Builder
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, `"fact":"opened"`) || strings.Contains(line, `"fact":"spawned"`) {
			kept.WriteString(line)
		}
	}
	for _, err := range []error{
		os.WriteFile(facts, []byte(kept.String()), 0o600), os.Remove(filepath.Join(folder, "terminal.json")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func ids(entries []thread.Entry) (all []string) {
	for _, e := range entries {
		_, id, isLine := strings.Cut(e.ID, "pi:")
		if isLine {
			_, id, _ = strings.Cut(id, ":")
			e.ID = id
		}
		if !strings.Contains(e.ID, ".beat.") {
			all = append(all, e.ID)
		}
	}
	return all
}

// endOf returns the verdict and the totals of a run's end.
func endOf(t *testing.T, entries []thread.Entry, run string) (word string, totals *thread.Totals) {
	t.Helper()
	for i, e := range entries {
		if strings.HasPrefix(e.ID, run+".end.") {
			word += types(entries[i : i+1])[0] + " "
			totals = last[thread.StatusChanged](t, entries[:i+1]).Totals
		}
	}
	return strings.TrimSpace(word), totals
}

const lostEnd = "signal.thread.pi_session_orphaned:runner_lost signal.thread.status_changed:failed"

// A run finishes the lost runs of its thread before it begins.
func TestRunFinishesLostRuns(t *testing.T) {
	cfg, server, _ := lostRun(t, "prompt", "call bash", "exit 0")
	cfg.RunID, cfg.Resume = "r2", true
	res, err := run(t, cfg)
	if err != nil || res.Verdict.Outcome != outcome.Failed { // of the same plan
		t.Fatalf("%+v, %v", res.Verdict, err)
	}
	entries := server.Entries()
	word, totals := endOf(t, entries, "r1")
	if word != lostEnd || totals == nil || totals.Lines != 3 {
		t.Errorf("r1 ended as %s, %+v", word, totals)
	}
	all := ids(entries)
	if end, next := slices.Index(all, "r1.end.1"), slices.Index(all, "r2.running"); end < 0 || end > next {
		t.Errorf("not in order: %q", all)
	}
}

// A run that a later program left stays as it is, for that one. A folder without a format is an older one.
func TestRecoverLeavesLaterRuns(t *testing.T) {
	cfg, server, _ := lostRun(t, "prompt", "call bash", "exit 0")
	none := func(k runfolder.Known, v outcome.Verdict) { t.Errorf("recovered %s: %+v", k.Run, v) }
	record := filepath.Join(runfolder.Path(cfg.State, cfg.ThreadID, "r1"), "run.json")
	b, err := os.ReadFile(record)
	if err != nil || !bytes.Contains(b, []byte(`"format": 1,`)) {
		t.Fatalf("%v: %s", err, b)
	}
	write := func(mark string) {
		t.Helper()
		marked := bytes.Replace(b, []byte(`"format": 1,`), []byte(mark), 1)
		if err := os.WriteFile(record, marked, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`"format": 2, "resume": {"a later": "form"},`)
	err = runner.Recover(t.Context(), cfg, none)
	if !errors.Is(err, format.ErrLater) || !strings.Contains(err.Error(), "(format 2; this one knows 1): upgrade") {
		t.Errorf("recover: %v", err)
	}
	other := cfg
	other.ThreadID = "another"
	if err := runner.Recover(t.Context(), other, none); err != nil {
		t.Errorf("recover of another thread: %v", err)
	}
	if word, _ := endOf(t, server.Entries(), "r1"); word != "" {
		t.Errorf("r1 ended as %s", word)
	}
	write("")
	if err := runner.Recover(t.Context(), cfg, func(runfolder.Known, outcome.Verdict) {}); err != nil {
		t.Error(err)
	}
	if word, _ := endOf(t, server.Entries(), "r1"); word != lostEnd {
		t.Errorf("r1 ended as %s", word)
	}
}

// The lines of the run that came after a lost one in the same session are not the lost one's, also where that is
// recovered later.
func TestRecoverEndsWhereTheNextRunBegins(t *testing.T) {
	cfg, server, refuse := lostRun(t, "prompt", "call bash", "exit 0")
	refuse.Store(403) // as with a token for r2 alone
	if err := os.WriteFile(filepath.Join(cfg.Cwd, "plan"), []byte("prompt\nsay done\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	next := cfg
	next.RunID, next.Resume = "r2", true
	if res, err := run(t, next); err != nil || res.Verdict.Outcome != outcome.Completed {
		t.Fatalf("%+v, %v", res.Verdict, err)
	}
	if word, _ := endOf(t, server.Entries(), "r1"); word != "" {
		t.Fatalf("r1 ended as %s", word)
	}
	refuse.Store(0)
	forget(t, runfolder.Path(cfg.State, cfg.ThreadID, "r1"))
	recovered := map[string]outcome.Verdict{}
	done := func(k runfolder.Known, v outcome.Verdict) { recovered[k.Run] = v }
	if err := runner.Recover(t.Context(), cfg, done); err != nil {
		t.Fatal(err)
	}
	if v := recovered["r1"]; v.Outcome != outcome.Orphaned || len(recovered) != 1 {
		t.Errorf("recovered %+v", recovered)
	}
	word, totals := endOf(t, server.Entries(), "r1")
	if word != lostEnd || totals == nil || totals.Lines != 3 {
		t.Errorf("r1 ended as %s, %+v", word, totals)
	}
}

// What a session file has before the thread has it is posted by the resume that continues with it, also where its
// last line is torn.
func TestResumeKeepsTornFileAhead(t *testing.T) {
	server := fakethread.New(t, nil)
	cfg := setup(t, server, "prompt", "say done")
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	file := sessionFile(t, cfg)
	const ahead = `{"type":"message","id":"m8","parentId":"m2","timestamp":"2026-01-01T00:00:00.000Z",` +
		`"message":{"role":"user","content":"unposted"}}` + "\n"
	appendTo(t, file, ahead+`{"type":"mess`)
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	server.Gaps()
	cfg.RunID, cfg.Resume = "r2", true
	if res, err := run(t, cfg); err != nil || res.Verdict.Outcome != outcome.Completed {
		t.Fatalf("%+v, %v", res.Verdict, err)
	}
	after, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(after), string(before)+"\n") {
		t.Errorf("the file is another one now: %v\n%s", err, after)
	}
	all := strings.Join(ids(server.Entries()), " ")
	if !strings.Contains(all, "r2.running r2.started r2.prompt m8 4.") || strings.Count(all, " m8 ") != 1 {
		t.Errorf("the thread has %s", all)
	}
}

// A file that a rebuilt one replaces is kept where it has lines that the thread does not have.
func TestResumeKeepsReplacedLines(t *testing.T) {
	server := fakethread.New(t, nil)
	cfg := setup(t, server, "prompt", "say done")
	cfg.Session = filepath.Join(cfg.Cwd, "named.jsonl")
	if _, err := run(t, cfg); err != nil {
		t.Fatal(err)
	}
	file := cfg.Session
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(b), "\n")
	old := strings.Join(lines[:2], "") + `{"type":"label","id":"l1","parentId":"m1"}` + "\n"
	if err := os.WriteFile(file, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.RunID, cfg.Resume = "r2", true
	if res, err := run(t, cfg); err != nil || res.Verdict.Outcome != outcome.Completed {
		t.Fatalf("%+v, %v", res.Verdict, err)
	}
	if kept, err := os.ReadFile(file + ".before-r2"); err != nil || string(kept) != old {
		t.Errorf("kept %q, %v", kept, err)
	}
}

func sessionFile(t *testing.T, cfg runner.Config) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(cfg.State, "sessions", "t1", "*.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	return files[0]
}

func appendTo(t *testing.T, file, text string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// Who continues with a run reads no line of the session that is posted: the mirror's notes are enough, also without a
// cursor.
func TestNotesOfALostRun(t *testing.T) {
	cfg, server, _ := lostRun(t, "prompt", "say one", "say two", "exit 0")
	before := lineIDs(server.Entries())
	runs, err := runfolder.List(cfg.State)
	if err != nil || len(runs) != 1 {
		t.Fatalf("%+v, %v", runs, err)
	}
	session, err := os.ReadFile(runs[0].Session)
	if err != nil {
		t.Fatal(err)
	}
	start := bytes.IndexByte(session, '\n')
	for _, err := range []error{
		os.Remove(filepath.Join(runs[0].Path, "cursor.json")),
		os.WriteFile(runs[0].Session, append(bytes.Repeat([]byte("x"), start), session[start:]...), 0o600), // in place
		runner.Recover(t.Context(), cfg, func(runfolder.Known, outcome.Verdict) {}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if after := lineIDs(server.Entries()); len(before) < 3 || !slices.Equal(before, after) {
		t.Errorf("the lines before: %q, after: %q", before, after)
	}
}

// lineIDs are the ids of a session's lines.
func lineIDs(entries []thread.Entry) (all []string) {
	for _, e := range entries {
		if strings.HasPrefix(e.ID, "pi:") {
			all = append(all, e.ID)
		}
	}
	return all
}
