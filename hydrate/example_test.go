package hydrate_test

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// A Rebuilder writes a session file from the entries of a thread, here of a recorded run of pi. The agent continues
// from the file in another folder.
func ExampleRebuilder() {
	dir, err := os.MkdirTemp("", "hydrate-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	file, err := os.Open("../testdata/threads/pushed.ndjson")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer file.Close()

	rebuilder := hydrate.Rebuilder{Dialect: session.Pi, Cwd: "/work", TempDir: dir}
	defer rebuilder.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		e, err := thread.ParseStored(lines.Bytes())
		if err == nil {
			err = rebuilder.Add(hydrate.Parse(e, session.Pi))
		}
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	report, err := rebuilder.Write(filepath.Join(dir, "session.jsonl"), "", time.Now())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(report.Lines, "lines,", report.Turns, "turns, continues in", report.Cwd)
	fmt.Println("lost:", len(report.Lost))
	// Output:
	// 7 lines, 4 turns, continues in /work
	// lost: 0
}
