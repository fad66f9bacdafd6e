package runner_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/thread"
)

const diary = "dear diary\n{\"my\":\"secret notes\"}\n"

// Of a session file that is refused nothing is on the thread, not a line, and the file stays what it was.
func TestRefusedFileStaysPrivate(t *testing.T) {
	for _, tt := range []struct {
		name   string
		make   func(path string) error
		resume bool
	}{
		{"notes", func(path string) error { return os.WriteFile(path, []byte(diary), 0o600) }, false},
		{"a link to notes", func(path string) error {
			if err := os.WriteFile(path+".notes", []byte(diary), 0o600); err != nil {
				return err
			}
			return os.Symlink(path+".notes", path)
		}, false},
		{"a folder", func(path string) error { return os.Mkdir(path, 0o700) }, false},
		{"a FIFO", func(path string) error { return unix.Mkfifo(path, 0o600) }, false},
		{"a FIFO, to resume", func(path string) error { return unix.Mkfifo(path, 0o600) }, true},
		{"a loop of links", func(path string) error { return os.Symlink(filepath.Base(path), path) }, false},
		{"a device", func(path string) error { return os.Symlink("/dev/null", path) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := fakethread.New(t, nil)
			cfg := setup(t, server, "prompt", "say done")
			if tt.resume { // the thread has a session to rebuild
				if _, err := run(t, cfg); err != nil {
					t.Fatal(err)
				}
				cfg.RunID, cfg.Resume = "r2", true
			}
			before := len(server.Entries())
			cfg.Session = filepath.Join(cfg.Cwd, "named.jsonl")
			if err := tt.make(cfg.Session); err != nil {
				t.Fatal(err)
			}
			was, err := os.Lstat(cfg.Session)
			if err != nil {
				t.Fatal(err)
			}
			res, err := run(t, cfg)
			if err != nil {
				t.Fatal(err)
			}
			if res.NotStarted == nil || res.NotStarted.Status != runner.StatusNoSession {
				t.Errorf("got %+v", res.NotStarted)
			}
			want := "signal.thread.status_changed:running signal.dispatch.session_started chat " +
				"signal.thread.pi_failed:spawn signal.thread.status_changed:failed"
			if got := strings.Join(types(server.Entries()[before:]), " "); got != want {
				t.Errorf("the thread has\n%s, want\n%s", got, want)
			}
			for _, e := range server.Entries() {
				if strings.Contains(string(e.Payload), "diary") || strings.Contains(string(e.Payload), "secret notes") {
					t.Errorf("published: %s", e.Payload)
				}
			}
			now, err := os.Lstat(cfg.Session)
			if err != nil || !os.SameFile(was, now) || now.Size() != was.Size() {
				t.Errorf("the file is another one now: %v, %v", now, err)
			}
		})
	}
}

// A session file that becomes no session while the agent runs is not published either.
func TestChangedFileStaysPrivate(t *testing.T) {
	server := fakethread.New(t, nil)
	server.Rewritten()
	dir := t.TempDir()
	there, gone := filepath.Join(dir, "there"), filepath.Join(dir, "gone")
	cfg := setup(t, server, "prompt", "say one", "touch "+there, "wait "+gone, "exit 0")
	cfg.Session = filepath.Join(cfg.Cwd, "named.jsonl")
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := run(t, cfg); err != nil {
			t.Error(err)
		}
	}()
	server.Await(func(e thread.Entry) bool { return strings.HasSuffix(e.ID, ":m2") })
	for _, err := range []error{
		os.WriteFile(cfg.Session+".new", []byte(diary+diary), 0o600), os.Rename(cfg.Session+".new", cfg.Session),
		os.WriteFile(gone, nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	<-done
	for _, e := range server.Entries() {
		if strings.Contains(string(e.Payload), "diary") {
			t.Errorf("published: %s", e.Payload)
		}
	}
}

// A session that can't be read when the agent is gone does not hold up the run's end for ever, and the end carries
// it.
func TestUnreadableSession(t *testing.T) {
	for _, tt := range []struct {
		name, plan string
		make       func(path string) error
		want       outcome.Outcome
	}{
		{"a folder", "say done", func(path string) error { return os.Mkdir(path, 0o700) }, outcome.Completed},
		{"a FIFO", "say done", func(path string) error { return unix.Mkfifo(path, 0o600) }, outcome.Completed},
		{
			"a loop of links", "say done", func(path string) error { return os.Symlink(filepath.Base(path), path) },
			outcome.Completed,
		},
		{"nothing was read", "", func(path string) error { return os.Mkdir(path, 0o700) }, outcome.Orphaned},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := fakethread.New(t, nil)
			server.Rewritten()
			dir := t.TempDir()
			there, gone := filepath.Join(dir, "there"), filepath.Join(dir, "gone")
			cfg := setup(t, server, tt.plan, "touch "+there, "wait "+gone, "exit 0")
			cfg.Timeout = 500 * time.Millisecond
			done := make(chan runner.Result)
			go func() {
				res, err := run(t, cfg)
				if err != nil {
					t.Error(err)
				}
				done <- res
			}()
			server.Await(func(e thread.Entry) bool {
				return strings.HasPrefix(e.ID, "pi:") && (tt.plan == "" || strings.HasSuffix(e.ID, ":m1"))
			})
			files, err := filepath.Glob(filepath.Join(cfg.State, "sessions", "t1", "*.jsonl"))
			if err != nil || len(files) != 1 {
				t.Fatalf("%v, %v", files, err)
			}
			for _, err := range []error{os.Remove(files[0]), tt.make(files[0]), os.WriteFile(gone, nil, 0o600)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			res := <-done
			if res.Verdict.Outcome != tt.want {
				t.Errorf("verdict %+v", res.Verdict)
			}
			end := last[thread.StatusChanged](t, server.Entries())
			if end.Totals == nil || end.Unread == "" {
				t.Errorf("the end carries %+v", end.Totals)
			}
		})
	}
}
