package cmdline_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
)

// held is a terminal whose writes block until release.
type held struct {
	bytes.Buffer
	free chan struct{}
}

func (h *held) Write(b []byte) (int, error) {
	<-h.free
	return h.Buffer.Write(b)
}

// A log that nobody reads holds nobody up. What is too much is dropped and counted; the rest comes in order.
func TestRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &held{free: make(chan struct{})}
		log, flush := cmdline.Relay(out)
		line := strings.Repeat("x", 1000)
		const n = 1000
		for i := range n {
			if _, err := fmt.Fprintf(log, "%s %d\n", line, i); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		close(out.free)
		synctest.Wait()
		if _, err := io.WriteString(log, "the end\n"); err != nil {
			t.Fatal(err)
		}
		flush(time.Hour) // which is not needed
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		kept := len(lines) - 2
		for i := range kept {
			if want := fmt.Sprintf("%s %d", line, i); lines[i] != want {
				t.Fatalf("line %d is %.20q", i, lines[i])
			}
		}
		if kept*len(line) > 256<<10 || kept < 200 || lines[kept+1] != "the end" ||
			lines[kept] != fmt.Sprintf("… %d log lines dropped: nobody read them", n-kept) {
			t.Errorf("%d lines, then %q", kept, lines[kept:])
		}
	})
}

// A terminal that blocks for ever does not keep a program from its end.
func TestRelayHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &held{free: make(chan struct{})}
		log, flush := cmdline.Relay(out)
		if _, err := io.WriteString(log, "never\n"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		flush(time.Second)
		if took := time.Since(began); took != time.Second {
			t.Errorf("took %v", took)
		}
		close(out.free) // for the test's own end
	})
}
