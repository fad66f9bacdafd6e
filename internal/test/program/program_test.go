package program_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"arbe.0sk.ar/runner/internal/test/program"
)

// A program can be started as soon as it is written, also while this process starts others.
func TestWrite(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var forks sync.WaitGroup
	for range 2 {
		forks.Go(func() {
			for ctx.Err() == nil {
				if err := exec.Command("true").Run(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	defer forks.Wait()
	defer cancel()
	path := filepath.Join(t.TempDir(), "program")
	for range 50 {
		program.Write(t, path, []byte("#!/bin/sh\necho hello\n"))
		if out, err := exec.Command(path).Output(); err != nil || string(out) != "hello\n" {
			t.Fatalf("%q, %v", out, err)
		}
	}
}
