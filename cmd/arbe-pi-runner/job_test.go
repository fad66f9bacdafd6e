package main

import (
	"encoding/json"
	"reflect"
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
