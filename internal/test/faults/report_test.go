package faults_test

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// report is the page that make faults writes: the machine, the totals, and a row for each fault.
func report(cells map[[2]int]cell) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# The fault table\n\n%s, %s\n\n", time.Now().UTC().Format(time.DateOnly), machineName())
	verdicts := map[string]int{}
	var times []time.Duration
	planned := 0
	for i, f := range allFaults() {
		for m := range moments {
			if f.on != nil && !f.on(m) {
				continue
			}
			planned++
			if c, ok := cells[[2]int{i, int(m)}]; ok {
				verdict, _, _ := strings.Cut(c.verdict, ":")
				verdicts[verdict]++
				times = append(times, c.took)
			}
		}
	}
	slices.Sort(times)
	fmt.Fprintf(
		&b,
		"%d faults, %d cells, %d of them played: %d completed, %d failed, %d cancelled, %d orphaned, %d refused. ",
		len(allFaults()),
		planned,
		len(cells),
		verdicts["completed"],
		verdicts["failed"],
		verdicts["cancelled"],
		verdicts["orphaned"],
		verdicts[""],
	)
	if len(times) > 0 {
		fmt.Fprintf(
			&b,
			"To the terminal: p50 %.2f s, p99 %.2f s.",
			times[len(times)/2].Seconds(),
			times[len(times)*99/100].Seconds(),
		)
	}
	fmt.Fprintf(
		&b,
		"\n\n| fault | %s |\n|---%s|\n",
		strings.Join(momentNames[:], " | "),
		strings.Repeat("|---", int(moments)),
	)
	for i, f := range allFaults() {
		fmt.Fprintf(&b, "| %s", f.name)
		for m := range int(moments) {
			if c, ok := cells[[2]int{i, m}]; ok {
				fmt.Fprintf(&b, " | %s", c)
			} else {
				b.WriteString(" | –")
			}
		}
		b.WriteString(" |\n")
	}
	return b.String()
}

// machineName describes the machine as far as the rows depend on it.
func machineName() string {
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		kernel = []byte("unknown")
	}
	cgroups := "cgroup v2"
	if exists("/sys/fs/cgroup/memory") {
		cgroups = "cgroup v1"
	}
	user := "root"
	if os.Getenv(rootVar) != "" {
		user = "root of a user namespace"
	} else if os.Geteuid() != 0 {
		user = "not root"
	}
	return fmt.Sprintf("Linux %s, %s, %s, %d cores", strings.TrimSpace(string(kernel)), cgroups, user, runtime.NumCPU())
}
