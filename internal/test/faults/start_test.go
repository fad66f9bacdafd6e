package faults_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"arbe.0sk.ar/runner/internal/test/fakethread"
)

// Every run that is started by hand begins, also where Go finds no cgroup: the first free file of the program is then
// the one by which its Go runtime waits for files. The runtime opens it for the random numbers of a new run's id.
func TestStartWithoutCgroup(t *testing.T) {
	testStarts(t, 64, func(s *scene) (want int) {
		s.failWith(func(fakethread.Call) fakethread.Fault { return fakethread.Fault{Status: http.StatusUnauthorized} })
		return 78 // it has asked the server
	})
}

func TestFullStartWithoutCgroup(t *testing.T) {
	testStarts(t, 200, func(s *scene) (want int) {
		t.Cleanup(func() {
			for _, e := range s.entries() {
				if run, is := strings.CutSuffix(e.ID, ".started"); is {
					s.run = run
				}
			}
			if verdict, _ := s.verdict(); verdict != "completed" {
				t.Errorf("the run is %q", verdict)
			}
		})
		return 0
	})
}

// testStarts starts n runs without cgroup files, 16 at a time. prepare returns the status that each ends with.
func testStarts(t *testing.T, n int, prepare func(*scene) (want int)) {
	var all sync.WaitGroup
	turn := make(chan struct{}, 16)
	for i := range n {
		s := newScene(t, fmt.Sprintf("start%d-%d", i, os.Getpid()))
		// Go then closes the cgroup's files before it opens any other.
		s.env["GODEBUG"], s.env["ARBE_RUN_ID"] = "containermaxprocs=0", ""
		s.write("plan", "prompt\nsay done")
		want := prepare(s)
		all.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			cmd := s.command("run")
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState.ExitCode() != want || strings.Contains(string(out), "netpoll") {
				t.Errorf("%s: %v\n%.500s", s.run, err, out)
			}
		})
	}
	all.Wait()
}
