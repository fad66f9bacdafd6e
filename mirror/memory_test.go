package mirror_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/session"
)

// A run holds the ids of its lines once. It grows by less than 20 bytes a line for them, with what the garbage
// collector leaves standing (GOGC=40): half of the 40 that are the limit, because the other half was for a second set
// of ids. A scout has such a second set, of the lines that wait for the thread. The test measures in a process of its
// own: what other tests leave behind is freed at any moment.
func TestNamerMemory(t *testing.T) {
	if os.Getenv("ARBE_TEST_MEMORY") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestNamerMemory$", "-test.v")
		cmd.Env = append(os.Environ(), "ARBE_TEST_MEMORY=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("bytes a line")) {
			t.Fatalf("%v\n%s", err, out)
		}
		t.Logf("%s", out)
		return
	}
	const lines = 300_000
	for _, e := range []session.Entry{{Kind: session.Assistant}, {Kind: session.Assistant, ID: "x"}} {
		n := &mirror.Namer{Dialect: session.Pi, Session: "01a1f8dc-30c3-78d1-a392-47ef6bf76d8a"}
		before := heap()
		for i := range lines {
			entry := e
			if e.ID != "" {
				entry.ID = fmt.Sprintf("%08x", i)
			}
			n.Name(session.Line{Start: session.Position{Index: i}}, entry)
		}
		each := float64(heap()-before) / lines
		t.Logf("%.1f bytes a line", each)
		if most := 20 / 1.4; each > most {
			t.Errorf("%.1f bytes a line, want at most %.1f", each, most)
		}
		runtime.KeepAlive(n)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// The Namer recognizes each of a million ids, and hardly any other.
func TestNamerRecognizes(t *testing.T) {
	n := &mirror.Namer{Dialect: session.Pi, Session: "s1"}
	name := func(i int, id string) mirror.Name {
		return n.Name(session.Line{Start: session.Position{Index: i}}, session.Entry{ID: id})
	}
	const lines = 100_000
	for i := range lines {
		name(i, fmt.Sprint(i))
	}
	for round := range 3 {
		n.Restart()
		for i := range lines {
			if got := name(i, fmt.Sprint(i)); !got.Again || got.ID != fmt.Sprintf("pi:s1:%d", i) {
				t.Fatalf("round %d, line %d: %+v", round, i, got)
			}
		}
		for i := range 1000 {
			if got := name(lines+i, fmt.Sprintf("other-%d-%d", round, i)); got.Again {
				t.Fatalf("round %d: %+v", round, got)
			}
		}
	}
}
