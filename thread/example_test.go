package thread_test

import (
	"bufio"
	"fmt"
	"os"

	"arbe.0sk.ar/runner/thread"
)

// A Fold adds a thread's entries up to its runs. This thread is the recording of a run that was launched into a box,
// and whose work was pushed.
func ExampleFold() {
	file, err := os.Open("../testdata/threads/pushed.ndjson")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer file.Close()
	var fold thread.Fold
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		e, err := thread.ParseStored(lines.Bytes())
		if err != nil {
			fmt.Println(err)
			return
		}
		fold.Add(e)
	}
	if lines.Err() != nil {
		fmt.Println(lines.Err())
		return
	}
	run, _ := fold.Latest()
	fmt.Println(fold.Status(), run.Harness, run.Started.AgentVersion)
	fmt.Println(run.Totals.Lines, "lines,", *run.Totals.ExitCode, "exit status")
	fmt.Println("pushed", run.Push.Branch)
	// Output:
	// completed pi 0.78.0
	// 7 lines, 0 exit status
	// pushed agent/one
}
