package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"syscall"
	"testing"
)

// A job arrives as it was sent, whatever the bytes.
func TestJobKeepsBytes(t *testing.T) {
	want := job{
		Args: []string{"arbe-pi-runner", "run", "--", "a\xffb"}, Environ: []string{"A=\xfe", "B=ü"}, RunID: "r1",
		State: "/s\xff", Cwd: "/c\xff", Session: "/f\xff",
		Prompt: "p\xff", PTY: true, Keeper: 1, Worker: 2, Signals: []syscall.Signal{syscall.SIGTERM},
	}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got job
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// A job arrives although the garbage collector runs all the time.
func TestJobCollected(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		cmd := exec.CommandContext(t.Context(), exe, argSend)
		cmd.Env = os.Environ()
		for i := range 50_000 { // the more there are, the longer a job is on its way
			cmd.Env = append(cmd.Env, fmt.Sprintf("V%d=%d", i, i))
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
}

// The processes of TestJobCollected, as the first argument names them.
const argSend, argReceive = "send-job", "receive-job"

// handOver does the work of such a process, which ends. In any other process it returns.
func handOver() {
	if len(os.Args) < 2 {
		return
	}
	var err error
	switch os.Args[1] {
	case argSend:
		collects := make(chan bool, 1)
		go func() {
			for {
				runtime.GC()
				select {
				case collects <- true:
				default:
				}
			}
		}()
		<-collects
		err = job{RunID: "r1"}.become(os.Args[0], argReceive)
	case argReceive:
		if _, err = receiveJob(); err == nil {
			os.Exit(0)
		}
	default:
		return
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
