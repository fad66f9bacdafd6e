package faults_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/thread"
)

var table = []fault{
	{name: "none", hit: func(*scene, moment) {}},
	{name: "worker: KILL", hit: func(s *scene, _ moment) { kill(s.worker(), syscall.SIGKILL) }},
	{name: "worker: crash, as of a panic", hit: func(s *scene, _ moment) { kill(s.worker(), syscall.SIGQUIT) }},
	{name: "worker: KILL, three times", hit: func(s *scene, _ moment) {
		for range 3 {
			pid := s.worker()
			kill(pid, syscall.SIGKILL)
			s.until("the worker's end", func() bool { return !slices.Contains(processes("work "+s.run), pid) })
		}
	}},
	{name: "keeper: KILL", hit: signalKeeper(syscall.SIGKILL), exit: func(moment, string) int { return -1 }},
	{
		name: "keeper and worker: KILL, then recover", keep: true, gone: true,
		exit: func(moment, string) int { return -1 },
		hit: func(s *scene, _ moment) {
			worker := s.worker()
			kill(s.keeper(), syscall.SIGKILL)
			kill(worker, syscall.SIGKILL)
		},
		want: func(m moment) string {
			switch m {
			case beforeAgent:
				return "failed: spawn"
			case beforeLine, midStream, midTool:
				return "orphaned: runner_lost" // the agent's exit is unknown
			}
			return undisturbed(m)
		},
	},
	{
		name: "all: KILL, and a reboot, then recover", gone: true, keep: true,
		exit: func(moment, string) int { return -1 },
		hit: func(s *scene, m moment) {
			worker := s.worker()
			kill(s.keeper(), syscall.SIGSTOP) // it dies with the others, not after them
			kill(worker, syscall.SIGKILL)
			if agentLives(m) {
				kill(s.agent(), syscall.SIGKILL)
			}
			kill(s.keeper(), syscall.SIGKILL)
			path := filepath.Join(s.folder(), "run.json")
			b, err := os.ReadFile(path)
			s.try(err)
			var rec map[string]any
			s.try(json.Unmarshal(b, &rec))
			rec["boot"] = "the boot before" // so that pids and clocks of then mean nothing
			b, err = json.Marshal(rec)
			s.try(err)
			s.try(os.WriteFile(path, b, 0o600))
		},
		want: func(m moment) string {
			switch m {
			case beforeAgent:
				return "failed: spawn"
			case beforeLine, midStream, midTool:
				return "orphaned: runner_lost"
			}
			return undisturbed(m)
		},
	},
	{name: "the host has given the run up (orphan)", on: agentLives, hit: func(s *scene, _ moment) {
		for i, payload := range []any{
			thread.Orphaned{Signal: thread.Signal{Type: thread.TypeOrphaned, RunID: s.run}, Reason: "silent"},
			thread.StatusChanged{Signal: thread.Signal{Type: thread.TypeStatus, RunID: s.run}, Status: thread.StatusFailed},
		} {
			s.server.Put(
				thread.Entry{
					ID:      fmt.Sprintf("%s.orphan.%d", s.run, i),
					TS:      thread.Stamp(time.Now()),
					Payload: thread.Marshal(payload),
				},
			)
		}
	}},
	{
		name: "agent: KILL", on: agentLives, hit: func(s *scene, _ moment) { kill(s.agent(), syscall.SIGKILL) },
		want: func(moment) string { return "failed: killed" },
	},
	{
		name: "agent and worker: KILL", on: agentLives, want: func(moment) string { return "failed: killed" },
		hit: func(s *scene, _ moment) {
			worker := s.worker()
			kill(s.agent(), syscall.SIGKILL)
			kill(worker, syscall.SIGKILL)
		},
	},
	{name: "runner: TERM", keep: true, hit: signalKeeper(syscall.SIGTERM), want: cancelled},
	{name: "runner: INT", keep: true, hit: signalKeeper(syscall.SIGINT), want: cancelled},
	{name: "runner: HUP", keep: true, hit: signalKeeper(syscall.SIGHUP), want: cancelled},
	{name: "runner: TERM, worker: KILL", keep: true, want: cancelled, hit: func(s *scene, _ moment) {
		worker := s.worker()
		kill(worker, syscall.SIGKILL)
		s.until("the worker's end", func() bool { return !slices.Contains(processes("work "+s.run), worker) })
		kill(s.keeper(), syscall.SIGTERM)
	}},
	{name: "cancel over the thread", keep: true, on: agentLives, want: cancelled, hit: cancelOnThread},
	{name: "tool: KILL", on: at(midTool), hit: func(s *scene, _ moment) { s.endTool(syscall.SIGKILL) }},
	{
		name: "a process in a session of its own holds the output", left: 1, hit: func(*scene, moment) {},
		prep: func(s *scene) {
			s.plan = append([]string{"grandchild " + s.path("child"), "wait " + s.path("child")}, s.plan...)
		},
	},
	{
		name: "the same, and TERM to the runner", keep: true, hit: signalKeeper(syscall.SIGTERM), want: cancelled,
		on: func(m moment) bool { return m < lastSync },
		prep: func(s *scene) {
			s.plan = append([]string{"grandchild " + s.path("child"), "wait " + s.path("child")}, s.plan...)
		},
	},
	{
		name: "server: down",
		hit:  func(s *scene, _ moment) { s.front.down() },
		mend: later(300*time.Millisecond, func(s *scene) { s.front.up(s.t) }),
		slow: 300 * time.Millisecond,
	},
	{name: "server: 500 three times", slow: 2 * time.Second, hit: answers(3, 500)},
	{name: "server: 429 with Retry-After", hit: answers(1, 429, "Retry-After", "1"), slow: time.Second},
	{name: "server: 503 three times", slow: 2 * time.Second, hit: answers(3, 503)},
	{name: "proxy: 502 with a page of HTML", hit: func(s *scene, _ moment) {
		s.failCalls(
			2,
			fakethread.Fault{
				Status: 502,
				Body:   "<html><title>502 Bad Gateway</title></html>",
				Header: map[string]string{"Content-Type": "text/html"},
			},
		)
	}},
	{
		name: "server: reset, not applied",
		hit:  func(s *scene, _ moment) { s.failCalls(2, fakethread.Fault{Drop: true}) },
	},
	{
		name: "server: reset, applied",
		hit:  func(s *scene, _ moment) { s.failCalls(2, fakethread.Fault{Drop: true, Applied: true}) },
	},
	{
		name: "server: 500, applied",
		hit:  func(s *scene, _ moment) { s.failCalls(2, fakethread.Fault{Status: 500, Applied: true}) },
	},
	{name: "server: no answer for a second", hit: func(s *scene, _ moment) {
		n := 0
		s.failWith(func(fakethread.Call) fakethread.Fault {
			if n++; n > 1 {
				return fakethread.Fault{}
			}
			time.Sleep(time.Second) // this is the fault
			return fakethread.Fault{Drop: true}
		})
	}, slow: time.Second},
	{
		// which are one post
		name: "server: KILL and restart (arbe serve)", real: true, on: func(m moment) bool { return m != midTerminal },
		hit: func(s *scene, _ moment) { s.real.kill(s.t) }, mend: func(s *scene) { s.real.start(s.t) },
		slow: 2 * time.Second,
	},
	{name: "server: slow", hit: func(s *scene, _ moment) {
		n := 0
		s.failWith(func(fakethread.Call) fakethread.Fault {
			if n++; n <= 3 {
				time.Sleep(150 * time.Millisecond) // this is the fault
			}
			return fakethread.Fault{}
		})
	}, slow: 450 * time.Millisecond},
	{
		name: "network: frozen for a second, then broken",
		hit:  func(s *scene, _ moment) { s.front.freeze() },
		mend: later(time.Second, func(s *scene) { s.front.thaw() }),
		slow: time.Second,
	},
	{
		name: "server: 401 three times",
		slow: 2 * time.Second,
		hit:  answers(3, 401),
		want: refusedAtStart,
		exit: refusedExit,
	},
	{
		name: "server: 403 three times",
		slow: 2 * time.Second,
		hit:  answers(3, 403),
		want: refusedAtStart,
		exit: refusedExit,
	},
	{
		name: "token expired, a new one comes into its file", on: from(beforeLine), slow: 300 * time.Millisecond,
		prep: func(s *scene) {
			s.write("token", s.server.Token)
			s.env["ARBE_STREAM_TOKEN_FILE"], s.env["ARBE_STREAM_TOKEN"] = s.path("token"), ""
		},
		hit: func(s *scene, _ moment) {
			s.server.SetToken("a-new-token")
		},
		mend: later(300*time.Millisecond, func(s *scene) { s.write("token", "a-new-token") }),
	},
	{name: "server: 409 for a line that somebody else has posted", on: at(beforeLine), hit: func(s *scene, _ moment) {
		id := "pi:" + s.sessionID() + ":m2"
		s.alien = id
		s.server.Allow(id)
		s.server.Gaps()
		s.server.Put(thread.Entry{ID: id, TS: thread.Stamp(time.Now()), Payload: []byte(`{"type":"chat","text":"mine"}`)})
	}, torn: true},
	{name: "server: 413 for a line", on: at(beforeLine), hit: func(s *scene, _ moment) {
		id := "pi:" + s.sessionID() + ":m2"
		n := 0
		s.failWith(func(c fakethread.Call) fakethread.Fault {
			for i, e := range c.Entries {
				if n == 0 && e.ID == id {
					n++
					return fakethread.Fault{
						Status: 413,
						Body: fmt.Sprintf(
							`{"error":{"code":"too_large","message":"no","entries":[{"index":%d,"id":%q,"reason":"too large"}]}}`,
							i,
							id,
						),
					}
				}
			}
			return fakethread.Fault{}
		})
	}, torn: true},
	{name: "server: 413 for the terminal", on: at(beforeExit), hit: func(s *scene, _ moment) {
		n := 0
		s.failWith(func(c fakethread.Call) fakethread.Fault {
			if slices.ContainsFunc(c.Entries, s.terminal) {
				if n++; n == 1 {
					return fakethread.Fault{Status: 413, Body: "too large"}
				}
			}
			return fakethread.Fault{}
		})
	}},
	{name: "a line of 64 MiB", on: at(beforeLine), torn: true, prep: func(s *scene) {
		s.plan = slices.Insert(s.plan, len(s.plan)-2, fmt.Sprintf("big %d", 64<<20))
	}, hit: func(*scene, moment) {}, slow: 3 * time.Second},
	{name: "a line of 64 MiB, in 128 MiB of memory", on: at(beforeLine), torn: true, prep: func(s *scene) {
		s.wrap = "echo $$ > " + s.memory(128<<20) + "/cgroup.procs"
		s.plan = slices.Insert(s.plan, len(s.plan)-2, fmt.Sprintf("bulk %d", 64<<20))
	}, hit: func(*scene, moment) {}, slow: 3 * time.Second},
	{name: "session: truncated", on: agentLives, torn: true, hit: func(s *scene, m moment) {
		s.mirrored(m)
		s.server.Rewritten()
		s.try(os.Truncate(s.sessionFile(), 0))
	}},
	{name: "session: replaced by a copy", on: agentLives, hit: func(s *scene, m moment) {
		s.mirrored(m)
		path := s.sessionFile()
		b, err := os.ReadFile(path)
		s.try(err)
		s.try(os.WriteFile(path+".new", b, 0o600))
		s.try(os.Rename(path+".new", path))
	}},
	{name: "session: deleted", on: agentLives, torn: true, hit: func(s *scene, m moment) {
		s.mirrored(m)
		s.server.Rewritten()
		s.try(os.Remove(s.sessionFile()))
	}},
	{
		name: "session: a folder in its place", on: at(beforeExit), torn: true, slow: 11 * time.Second,
		hit: func(s *scene, m moment) {
			s.mirrored(m)
			s.try(os.Remove(s.sessionFile()))
			s.try(os.Mkdir(s.sessionFile(), 0o700))
		},
	},
	{
		name: "session: a FIFO in its place, and worker: KILL", on: at(beforeExit), torn: true, slow: 11 * time.Second,
		hit: func(s *scene, m moment) {
			s.mirrored(m)
			s.try(os.Remove(s.sessionFile()))
			s.try(syscall.Mkfifo(s.sessionFile(), 0o600))
			kill(s.worker(), syscall.SIGKILL)
		},
		want: func(moment) string { return "orphaned: no_output" }, // the next worker can read nothing of it
	},
	{
		name: "disk full under the state folder", prep: func(s *scene) { s.disk(); s.file = s.path("session.jsonl") },
		hit: func(s *scene, _ moment) { s.fill() },
	},
	{
		name: "the same, and worker: KILL", prep: func(s *scene) { s.disk(); s.file = s.path("session.jsonl") },
		hit: func(s *scene, _ moment) {
			s.fill()
			kill(s.worker(), syscall.SIGKILL)
		},
	},
	{
		name: "disk full under the session, too", hit: func(s *scene, _ moment) { s.fill() }, torn: true,
		prep: func(s *scene) {
			s.disk()
			s.plan = slices.Insert(s.plan, slices.Index(s.plan, "call bash")+2, "big 20000")
		},
		want: func(m moment) string {
			if m < beforeExit {
				return "failed: disk_full"
			}
			return undisturbed(m)
		},
		exit: func(m moment, v string) int {
			if v == "failed: disk_full" {
				return 97 // the fake agent's, which can't write
			}
			return exitOf(m, v)
		},
	},
	{
		name: "files must be small (ulimit -f)", on: at(beforeLine, midStream), torn: true,
		hit: func(*scene, moment) {},
		prep: func(s *scene) {
			s.wrap = "ulimit -f 32" // of 512 bytes
			s.plan = slices.Insert(s.plan, slices.Index(s.plan, "call bash")+1, "big 20000")
		},
		want: func(moment) string { return "failed: disk_full" },
		exit: func(moment, string) int { return 97 }, // the fake agent's, which can't write
	},
	{
		name: "memory: the kernel kills the agent", on: at(midStream), hit: func(*scene, moment) {},
		prep: func(s *scene) {
			s.wrap = "echo $$ > " + s.memory(96<<20) + "/cgroup.procs"
			s.plan = slices.Insert(s.plan, slices.Index(s.plan, "call bash"), fmt.Sprintf("eat %d", 400<<20))
		},
		want: func(moment) string { return "failed: oom" },
		exit: func(moment, string) int { return 137 },
	},
	{
		name: "clock: jumps back a day", on: at(beforeLine, midStream), hit: func(*scene, moment) {},
		prep: func(s *scene) {
			s.plan = slices.Insert(s.plan, slices.Index(s.plan, "call bash"), "skew -24h")
		},
	},
	{
		name: "clock: jumps ahead a day",
		on:   at(beforeLine, midStream),
		hit:  func(*scene, moment) {},
		prep: func(s *scene) {
			s.plan = slices.Insert(s.plan, slices.Index(s.plan, "call bash"), "skew 24h")
		},
	},
	{name: "state folder: read-only", on: at(beforeAgent), hit: func(*scene, moment) {}, prep: func(s *scene) {
		s.disk()
		s.file = s.path("session.jsonl")
		s.try(syscall.Mount("", s.state, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
		s.env["ARBE_STATE_DIR"] = s.state
		s.state = "" // what is known of the run is kept elsewhere: in a folder for temporary files
	}},
}

// cancelOnThread asks for the run's end, and waits until the runner obeys.
func cancelOnThread(s *scene, _ moment) {
	s.server.Put(thread.Entry{ID: "please", TS: thread.Stamp(time.Now()), Payload: thread.Marshal(thread.Cancel{
		Signal: thread.Signal{Type: thread.TypeCancel, RunID: s.run}, Reason: "enough",
	})})
	s.until("obedience", func() bool { _, ok := s.fact("did"); return ok })
}

// later mends a fault after a while.
func later(d time.Duration, mend func(*scene)) func(*scene) {
	return func(s *scene) {
		time.Sleep(d) // this is the fault
		mend(s)
	}
}

func (s *scene) try(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// disk makes the state folder a disk of its own, of one mebibyte.
func (s *scene) disk() {
	s.try(os.MkdirAll(s.state, 0o700))
	if err := syscall.Mount("tmpfs", s.state, "tmpfs", 0, "size=1m"); err != nil {
		s.missing("a small disk can't be mounted here", err)
	}
	dir := s.state
	s.t.Cleanup(func() {
		s.sweep()
		s.until("the disk is free", func() bool { return syscall.Unmount(dir, syscall.MNT_DETACH) == nil })
	})
}

// fill fills it.
func (s *scene) fill() {
	f, err := os.Create(filepath.Join(s.state, "filler"))
	s.try(err)
	b := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(b)
	}
	_ = f.Close() // the disk is full, as intended
}
