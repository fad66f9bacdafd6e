package runner_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/thread"
)

// A session that is continued: its old lines are no lines of this run, and a line without an end gets one.
func TestContinuedSession(t *testing.T) {
	old := `{"type":"session","version":3,"id":"old-session","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/"}
{"type":"message","id":"o1","parentId":null,"timestamp":"2026-01-01T00:00:01.000Z","message":{"role":"user","content":"before"}}
{"type":"message","id":"o2","parentId":"o1","timestamp":"2026-01-01T00:00:02.000Z","message":{"role":"assistant","content":[],"stopReason":"stop"}}`
	path := filepath.Join(t.TempDir(), "old.jsonl")
	if err := os.WriteFile(path, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	server := fakethread.New(t, nil)
	cfg := setup(t, server, "prompt")
	cfg.Session = path
	res, err := run(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if v := res.Verdict; v.Outcome != outcome.Orphaned || v.StopReason != "none" {
		t.Errorf("the old answer counts for this run: %+v", v)
	}
	want := "signal.thread.status_changed:running signal.dispatch.session_started chat pi.session:session chat " +
		"pi.assistant pi.session:prompt " +
		"signal.thread.pi_session_orphaned:no_output signal.thread.status_changed:failed"
	if got := strings.Join(types(server.Entries()), " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if end := last[thread.StatusChanged](t, server.Entries()); end.Lines != 1 {
		t.Errorf("%d lines of this run", end.Lines)
	}
}

// The session file changes in mid-run: the verdict is decided from its lines, each counted once.
func TestChangedSession(t *testing.T) {
	for _, verb := range []string{"replace", "delete", "truncate"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			server := fakethread.New(t, nil)
			server.Rewritten()
			there := filepath.Join(t.TempDir(), "there")
			cfg := setup(t, server, "prompt", "call bash", "wait "+there, verb, "result ok", "say done", "exit 0")
			done := make(chan runner.Result, 1)
			go func() {
				res, err := run(t, cfg)
				if err != nil {
					t.Error(err)
				}
				done <- res
			}()
			server.Await(func(e thread.Entry) bool { return strings.HasSuffix(e.ID, ":m2") }) // the call
			if err := os.WriteFile(there, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if res := <-done; res.Verdict.Outcome != outcome.Completed {
				t.Errorf("got %+v", res.Verdict)
			}
			entries := server.Entries()
			want := opening +
				"pi.session:prompt pi.assistant pi.tool_result pi.assistant signal.thread.status_changed:completed"
			if got := strings.Join(types(entries), " "); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if end := last[thread.StatusChanged](t, entries); end.Lines != 5 || end.Digest != digestOf(entries) {
				t.Errorf("the end speaks of %d lines, %s", end.Lines, end.Digest)
			}
		})
	}
}

// digestOf is the digest of the lines among the entries.
func digestOf(entries []thread.Entry) string {
	hash := sha256.New()
	for _, e := range entries {
		if strings.HasPrefix(e.ID, "pi:") {
			fmt.Fprintln(hash, e.ID)
		}
	}
	return hex.EncodeToString(hash.Sum(nil))
}

func sessionOf(t *testing.T, server *fakethread.Server) string {
	t.Helper()
	for _, e := range server.Entries() {
		if id, ok := strings.CutPrefix(e.ID, "pi:"); ok {
			id, _, _ = strings.Cut(id, ":")
			return id
		}
	}
	t.Fatal("no lines on the thread")
	return ""
}

// A session without an id is refused by an agent that finds its sessions by their ids, in words without a gap.
func TestNamedSessionWithoutID(t *testing.T) {
	server := fakethread.New(t, nil)
	cfg := setup(t, server, "prompt")
	spec, err := harness.Lookup("codex")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Spec = spec
	cfg.Session = filepath.Join(t.TempDir(), "rollout-x.jsonl")
	const line = `{"timestamp":"2026-01-01T00:00:01.000Z","type":"event_msg",` +
		`"payload":{"type":"user_message","message":"hi"}}`
	if err := os.WriteFile(cfg.Session, []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	res, err := run(t, cfg)
	if err != nil || res.NotStarted == nil {
		t.Fatalf("%+v, %v", res, err)
	}
	why := res.NotStarted.Error()
	if strings.Contains(why, "  ") || strings.Contains(why, "()") || !strings.Contains(why, cfg.Session) {
		t.Errorf("refused: %s", why)
	}
	if got := (&runfolder.BusyError{Thread: "t1"}).Error(); !strings.HasSuffix(got, "on this machine already") {
		t.Errorf("busy: %s", got)
	}
}
