package runner_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// Both die: Recover finishes the run. It knows the line of the prompt, which the journal does not hold.
func TestLiveRecover(t *testing.T) {
	t.Parallel()
	var away atomic.Bool
	server := fakethread.New(t, func(fakethread.Call) fakethread.Fault {
		if away.Load() {
			return fakethread.Fault{Status: 503}
		}
		return fakethread.Fault{}
	})
	cfg, _ := liveSetup(t, server)
	at := filepath.Join(t.TempDir(), "at")
	cmd := startWorker(t, server, cfg, "accepted", "b", at)
	server.Await(func(e thread.Entry) bool { return e.ID == "r1.prompt" })
	chat(server, "b", "ada", "two")
	awaitFile(t, at)
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	for _, name := range []string{"cursor.json", "mirror.notes"} {
		_ = os.Remove(filepath.Join(runfolder.Path(cfg.State, "t1", "r1"), name)) // may be missing
	}
	cfg.Prompt, cfg.RunID, cfg.Live = "", "", false
	var verdicts []outcome.Verdict
	err := runner.Recover(t.Context(), cfg, func(_ runfolder.Known, v outcome.Verdict) {
		verdicts = append(verdicts, v)
	})
	if err != nil || len(verdicts) != 1 {
		t.Fatalf("%+v, %v", verdicts, err)
	}
	got := delivered(server.Entries())
	if len(got) == 0 || got[0] != "r1.prompt" || strings.Count(words(server.Entries()), " chat") != 2 {
		t.Errorf("delivered %q; %s", got, words(server.Entries()))
	}
}

// workerVar names the variable that makes this program a worker which stops at a place: {Dir, URL, Token, Place, Chat}.
const workerVar = "RUNNER_TEST_WORKER"

// workerJob is the job of such a worker.
type workerJob struct {
	Server, Token, State, Dir, Binary, Place, Chat, At string
	Environ                                            []string
}

// worker runs a live run until it reaches the place. It makes a file then, and waits for its end.
func worker(job string) int {
	var j workerJob
	if err := json.Unmarshal([]byte(job), &j); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cfg := liveConfig(j)
	cfg = runner.Reaching(cfg, func(place, chat string) {
		if place != j.Place || chat != j.Chat {
			return
		}
		if err := os.WriteFile(j.At, nil, 0o600); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		select {}
	})
	_, err := runner.RunAlone(context.Background(), context.Background(), cfg)
	fmt.Fprintln(os.Stderr, "the worker ended:", err)
	return 1
}

func liveConfig(j workerJob) runner.Config {
	pi, err := harness.Lookup("pi")
	if err != nil {
		panic(err) // it is registered
	}
	return runner.Fast(runner.Config{
		Spec: pi, Version: "test", ThreadID: "t1", RunID: "r1", Binary: j.Binary, Prompt: "do it", Cwd: j.Dir,
		State: j.State, Environ: j.Environ, Live: true,
		Client: &client.Client{Base: j.Server, Thread: "t1", Token: client.StaticToken(j.Token)},
	})
}

// startWorker starts a worker in a process of its own. When it reaches the place, the file at is there.
func startWorker(
	t *testing.T, server *fakethread.Server, cfg runner.Config, place, chat, at string,
) *exec.Cmd {
	t.Helper()
	job, err := json.Marshal(workerJob{
		Server: server.Client().Base, Token: server.Token, State: cfg.State, Dir: cfg.Cwd, Binary: cfg.Binary,
		Place: place, Chat: chat, At: at, Environ: cfg.Environ,
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), cfg.Binary)
	cmd.Env = append(os.Environ(), workerVar+"="+string(job))
	cmd.Stderr = testLog{t}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// holdInput holds the agent's input open, as the keeper does.
func holdInput(t *testing.T, cfg runner.Config) *os.File {
	t.Helper()
	fd, err := unix.Open(filepath.Join(runfolder.Path(cfg.State, "t1", "r1"), "input"), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), "input")
}

// A worker that is killed anywhere while it gives the agent a chat: the next one gives it once.
func TestLiveWorkerDies(t *testing.T) {
	for _, place := range []string{
		"not recorded", "recorded", "written", "accepted", "interrupt recorded", "interrupt written",
	} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			server := fakethread.New(t, nil)
			cfg, read := liveSetup(t, server)
			deaf := filepath.Join(t.TempDir(), "deaf")
			text := "say it"
			if place == "written" {
				text = "deaf " + deaf // it is not accepted before the worker dies
			}
			at := filepath.Join(t.TempDir(), "at")
			cmd := startWorker(t, server, cfg, place, "b", at)
			server.Await(func(e thread.Entry) bool { return e.ID == "r1.prompt" })
			post := (&going{server: server}).say
			one := "one"
			if strings.HasPrefix(place, "interrupt") {
				one = "hold " + filepath.Join(t.TempDir(), "never")
				post("a", "", one)
				server.Await(func(e thread.Entry) bool { return slices.Contains(delivered([]thread.Entry{e}), "a") })
				post("b", thread.DeliverInterrupt, text)
			} else {
				post("a", "", one)
				post("b", "", text)
			}
			post("c", "", "three")
			awaitFile(t, at)
			keeper := holdInput(t, cfg)
			if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // killed
			var err error
			if cfg.Folder, err = runfolder.New(cfg.State, "t1", "r1"); err != nil {
				t.Fatal(err)
			}
			cfg.Restarts = 1
			cfg.CloseInput = keeper.Close
			g := goLive(t, server, cfg, read)
			if place == "written" {
				touch(t, deaf)
			}
			g.await("c's turn", func() bool { return slices.Contains(delivered(server.Entries()), "c") })
			if v := g.finish(); v.Outcome != outcome.Completed {
				t.Errorf("got %+v", v)
			}
			wantAll(t, "read", texts(t, read), "do it", one, text, "three")
			wantAll(t, "delivered", delivered(server.Entries()), "r1.prompt", "a", "b", "c")
		})
	}
}

// A journal that can't be read ends the run: nobody knows what the agent has had. The thread has the reason.
func TestLiveJournalUnreadable(t *testing.T) {
	for _, begun := range []bool{false, true} {
		t.Run(fmt.Sprintf("begun=%v", begun), func(t *testing.T) {
			t.Parallel()
			server := fakethread.New(t, nil)
			cfg, _ := liveSetup(t, server)
			journal := filepath.Join(runfolder.Path(cfg.State, "t1", "r1"), "input.jsonl")
			if begun {
				at := filepath.Join(t.TempDir(), "at")
				cmd := startWorker(t, server, cfg, "accepted", "b", at)
				server.Await(func(e thread.Entry) bool { return e.ID == "r1.prompt" })
				chat(server, "b", "ada", "hold "+filepath.Join(t.TempDir(), "never"))
				awaitFile(t, at)
				input := holdInput(t, cfg)
				defer input.Close()
				if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				_ = cmd.Wait() // killed
				if err := os.Remove(journal); err != nil {
					t.Fatal(err)
				}
				for _, e := range server.Entries() {
					if strings.HasPrefix(e.ID, "pi:") {
						server.Allow(e.ID) // the journal has which chats a line repeats
					}
				}
			}
			var err error
			if cfg.Folder, err = runfolder.New(cfg.State, "t1", "r1"); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(journal, 0o700); err != nil {
				t.Fatal(err)
			}
			cfg.Restarts = 1
			res, err := run(t, cfg)
			if v := res.Verdict; err != nil || v.Outcome != outcome.Failed ||
				!strings.HasPrefix(v.Message, "the agent's input could not be continued: open "+journal) {
				t.Errorf("got %+v, %v", v, err)
			}
			end := last[thread.StatusChanged](t, server.Entries())
			if end.Status != thread.StatusFailed {
				t.Errorf("the thread has %v", types(server.Entries()))
			}
			rec, recErr := runfolder.ReadRecord(res.Folder)
			facts, factsErr := runfolder.ReadFacts(res.Folder)
			if recErr != nil || factsErr != nil || rec.AgentLives(runfolder.Replay(facts)) {
				t.Errorf("the agent lives on: %v, %v", recErr, factsErr)
			}
		})
	}
}
