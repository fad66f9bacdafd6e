package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/test/fakeagent"
	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/internal/test/surroundings"
	"arbe.0sk.ar/runner/thread"
)

func TestMain(m *testing.M) {
	harness.Main()
	surroundings.Enter()
	handOver()
	testscript.Main(m, map[string]func(){
		"arbe-pi-runner": main,
		"pi":             func() { os.Exit(fakeagent.Main()) },
	})
}

// TestScript runs the program as a user would, with a fake agent named pi in PATH and a fake thread server. Beside
// testscript's own commands the scripts have
//
//	status N CMD …     the command ends with N
//	entries REGEXP     the thread's entries, in short (type:kind:status:errorClass …), without heartbeats, match
//	until REGEXP       they will
//	payload ID REGEXP  an entry's payload matches
//	allow ID           that id may come again with another payload
//	post ID JSON       somebody else posts an entry
//	server HOW         the server answers all with a status ("401"), takes single posts only ("old"), lets nobody read
//	                   ("writeonly"), works ("ok"), or works and accepts gaps in the indexes of lines ("gaps")
func TestScript(t *testing.T) {
	paths, err := filepath.Glob("../../testdata/script/runner/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	type box struct {
		server *fakethread.Server
		how    atomic.Value // a string: what the server does
	}
	boxOf := func(ts *testscript.TestScript) *box { return ts.Value("box").(*box) }
	testscript.Run(t, testscript.Params{
		Files: paths, RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			b := &box{}
			b.how.Store("ok")
			b.server = fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
				how := b.how.Load().(string)
				if status, err := strconv.Atoi(how); err == nil {
					return fakethread.Fault{Status: status, Body: `{"error":{"code":"x","message":"the server says so"}}`}
				}
				if how == "writeonly" && c.Method == http.MethodGet {
					return fakethread.Fault{Status: 403}
				}
				if how == "old" && c.Array {
					return fakethread.Fault{Status: 400, Body: "id is required"}
				}
				return fakethread.Fault{}
			})
			env.Values["box"] = b
			// where testscript has put them
			programs, _, _ := strings.Cut(env.Getenv("PATH"), string(filepath.ListSeparator))
			for k, v := range map[string]string{
				"GORACE": "atexit_sleep_ms=0", // the race detector would add a second to each program
				"RUNNER": filepath.Join(programs, "arbe-pi-runner"), "HOME": env.WorkDir,
				fakeagent.PlanVar: filepath.Join(env.WorkDir, "plan"),
				"ARBE_THREAD_ID":  "t1", "ARBE_RUN_ID": "r1", "ARBE_STREAM_URL": b.server.URL,
				"ARBE_STREAM_TOKEN": b.server.Token,
			} {
				env.Setenv(k, v)
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"entries": func(ts *testscript.TestScript, neg bool, args []string) {
				if len(args) != 1 {
					ts.Fatalf("usage: entries REGEXP")
				}
				got := strings.Join(short(boxOf(ts).server.Entries()), " ")
				if regexp.MustCompile(args[0]).MatchString(got) == neg {
					ts.Fatalf("the thread has %s", got)
				}
			},
			"until": func(ts *testscript.TestScript, _ bool, args []string) {
				want := regexp.MustCompile(args[0])
				for began := time.Now(); ; time.Sleep(5 * time.Millisecond) { // between two looks
					got := strings.Join(short(boxOf(ts).server.Entries()), " ")
					if want.MatchString(got) {
						return
					}
					if time.Since(began) > 5*time.Minute {
						ts.Fatalf("waited in vain: the thread has %s", got)
					}
				}
			},
			"status": func(ts *testscript.TestScript, _ bool, args []string) {
				want, err := strconv.Atoi(args[0])
				ts.Check(err)
				got := 0
				var ee *exec.ExitError
				if err := ts.Exec(args[1], args[2:]...); errors.As(err, &ee) {
					got = ee.ExitCode()
				} else {
					ts.Check(err)
				}
				if got != want {
					ts.Fatalf("%s ended with %d, want %d", strings.Join(args[1:], " "), got, want)
				}
			},
			"payload": func(ts *testscript.TestScript, neg bool, args []string) {
				if len(args) != 2 {
					ts.Fatalf("usage: payload ID REGEXP")
				}
				for _, e := range boxOf(ts).server.Entries() {
					if e.ID == args[0] {
						if regexp.MustCompile(args[1]).Match(e.Payload) == neg {
							ts.Fatalf("%s is %s", e.ID, e.Payload)
						}
						return
					}
				}
				ts.Fatalf("the thread has no %s", args[0])
			},
			"post": func(ts *testscript.TestScript, _ bool, args []string) {
				if len(args) != 2 {
					ts.Fatalf("usage: post ID JSON")
				}
				boxOf(ts).server.Allow(args[0])
				boxOf(ts).server.Put(thread.Entry{
					ID: args[0], TS: "2026-01-01T00:00:00.000Z", AuthorID: "me",
					Payload: []byte(args[1]),
				})
			},
			"allow": func(ts *testscript.TestScript, _ bool, args []string) { boxOf(ts).server.Allow(args[0]) },
			"server": func(ts *testscript.TestScript, _ bool, args []string) {
				if args[0] == "gaps" {
					boxOf(ts).server.Gaps()
				}
				boxOf(ts).how.Store(args[0])
			},
		},
	})
}

// short are entries in short, without heartbeats: their number depends on the machine.
func short(entries []thread.Entry) []string {
	var all []string
	for _, e := range entries {
		var p struct{ Type, Kind, Status, ErrorClass string }
		_ = json.Unmarshal(e.Payload, &p) // what doesn't fit is not shown
		word := p.Type
		if word == thread.TypeHeartbeat {
			continue
		}
		for _, w := range []string{p.Kind, p.Status, p.ErrorClass} {
			if w != "" {
				word += ":" + w
			}
		}
		all = append(all, word)
	}
	return all
}
