package runfolder_test

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"testing"

	"arbe.0sk.ar/runner/runner/runfolder"
)

// A folder that is closed frees its thread at once, also while this process starts others.
func TestCloseFreesThread(t *testing.T) {
	dir := t.TempDir()
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
	for i := range 300 {
		f, err := runfolder.New(dir, "t1", fmt.Sprint("r", i))
		if err != nil {
			t.Fatalf("run %d: %v", i, err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
