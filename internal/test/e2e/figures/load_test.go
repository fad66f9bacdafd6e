package figures_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/scene"

	"arbe.0sk.ar/runner/internal/procfs"
)

// loadVar names the variable with lines a second, lines, and lines before all others: a test binary that has it is an
// agent that writes so.
const loadVar = "E2E_LOAD"

// loadAgent writes a session's lines at a steady rate, each with the time at which it was written; before them as
// fast as it can some without.
func loadAgent(how string) int {
	var rate, n, bulk int
	if _, err := fmt.Sscan(how, &rate, &n, &bulk); err != nil {
		return 1
	}
	path := os.Args[slices.Index(os.Args, "--session")+1]
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return 1
	}
	for i := range bulk {
		_, err := fmt.Fprintf(f, `{"type":"message","id":"b%d","parentId":null,"timestamp":"2026-01-01T00:00:00.000Z",`+
			`"message":{"role":"toolResult","toolCallId":"c","toolName":"bash","content":[{"type":"text","text":"%s"}],`+
			`"isError":false}}`+"\n", i, strings.Repeat("word ", 200))
		if err != nil {
			return 1
		}
	}
	stop := "toolUse"
	for i := range n {
		if i == n-1 {
			stop = "stop"
		}
		_, err := fmt.Fprintf(f, `{"type":"message","id":"l%d","parentId":null,"timestamp":"2026-01-01T00:00:00.000Z",`+
			`"message":{"role":"assistant","content":[{"type":"text","text":"at:%d %s"}],"provider":"p","model":"m","stopReason":%q}}`+"\n",
			i, time.Now().UnixNano(), strings.Repeat("word ", 200), stop)
		if err != nil {
			return 1
		}
		time.Sleep(time.Second / time.Duration(rate)) // the rate
	}
	return 0
}

// acks is a thread server that takes all there is and notes how old each line was.
type acks struct {
	mu  sync.Mutex
	all []time.Duration
	n   int
}

var writtenAt = regexp.MustCompile(`at:([0-9]{16,})`)

func (a *acks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		select {
		case <-r.Context().Done():
		case <-time.After(time.Second): // a long poll
		}
		w.Header().Set("Stream-Next-Offset", "1")
		w.WriteHeader(http.StatusNoContent)
		return
	}
	var entries []json.RawMessage
	body := json.NewDecoder(r.Body)
	var one json.RawMessage
	if err := body.Decode(&one); err != nil {
		http.Error(w, "bad", http.StatusBadRequest)
		return
	}
	if json.Unmarshal(one, &entries) != nil {
		entries = []json.RawMessage{one}
	}
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range entries {
		if m := writtenAt.FindSubmatch(e); m != nil {
			ns, _ := strconv.ParseInt(string(m[1]), 10, 64) // as it was printed
			a.all = append(a.all, now.Sub(time.Unix(0, ns)))
		}
	}
	a.n += len(entries)
	fmt.Fprintf(w, `{"nextOffset":"%d","appended":%d,"duplicates":0}`, a.n, len(entries))
}

// cost is the cost of one run under load.
type cost struct {
	p50, p99 time.Duration // from a line's writing to its post
	core     float64       // share of one
	pss      int64
}

// loadRun runs a runner whose agent writes seconds long at a rate.
func loadRun(b *testing.B, runner string, rate, seconds int) cost {
	b.Helper()
	var a acks
	server := httptest.NewServer(&a)
	defer server.Close()
	defer server.CloseClientConnections()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(runner, "run", "--agent-bin", self, "--", "hi")
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + b.TempDir(),
		"ARBE_THREAD_ID=load", "ARBE_STREAM_URL=" + server.URL, "ARBE_STREAM_TOKEN=token-of-the-load",
		"ARBE_RUN_ID=r1", fmt.Sprintf("%s=%d %d 0", loadVar, rate, rate*seconds),
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	var c cost
	var cpu time.Duration
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for over := false; !over; {
		select {
		case err = <-done:
			over = true
		case <-time.After(500 * time.Millisecond): // between two looks
			var now time.Duration
			var pss int64
			for _, pid := range scene.RunnerPIDs(cmd.Process.Pid) {
				if st, err := procfs.Read(pid); err == nil {
					now += st.CPU
				}
				rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
				if _, after, ok := strings.Cut(string(rollup), "\nPss:"); err == nil && ok {
					var kib int64
					if _, err := fmt.Sscan(after, &kib); err == nil {
						pss += kib << 10
					}
				}
			}
			if now > cpu {
				cpu, c.core = now, 100*now.Seconds()/time.Since(began).Seconds()
			}
			c.pss = max(c.pss, pss)
		}
	}
	var ee *exec.ExitError
	if errors.As(err, &ee) {
		b.Fatalf("the run ended with %d", ee.ExitCode())
	}
	slices.Sort(a.all)
	if len(a.all) != rate*seconds {
		b.Fatalf("%d lines of %d", len(a.all), rate*seconds)
	}
	c.p50, c.p99 = a.all[len(a.all)/2], a.all[len(a.all)*99/100]
	return c
}

// BenchmarkLoad: what a runner costs while its agent writes 100 and 1,000 lines a second, and how long a line takes
// to its post. With ARBE_BEFORE naming a folder with another build, that one takes turns with this one: the machine's
// other load is the same for both.
func BenchmarkLoad(b *testing.B) {
	builds := map[string]string{"": scene.Bin}
	if before := os.Getenv("ARBE_BEFORE"); before != "" {
		builds["-before"] = before
	}
	for _, rate := range []int{100, 1000} {
		b.Run(fmt.Sprint(rate, "-lines-a-second"), func(b *testing.B) {
			sums := map[string][]cost{}
			for range b.N {
				for name, dir := range builds {
					sums[name] = append(sums[name], loadRun(b, filepath.Join(dir, "arbe-pi-runner"), rate, 8))
				}
			}
			for name, all := range sums {
				median := func(of func(cost) float64) float64 {
					var values []float64
					for _, c := range all {
						values = append(values, of(c))
					}
					slices.Sort(values)
					return values[len(values)/2]
				}
				b.ReportMetric(median(func(c cost) float64 { return c.p50.Seconds() * 1000 }), "ms-p50"+name)
				b.ReportMetric(median(func(c cost) float64 { return c.p99.Seconds() * 1000 }), "ms-p99"+name)
				b.ReportMetric(median(func(c cost) float64 { return c.core }), "%-core"+name)
				b.ReportMetric(median(func(c cost) float64 { return float64(c.pss) / (1 << 20) }), "MiB-pss"+name)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkIdleTurns: BenchmarkIdle for two builds by turns, ARBE_BEFORE naming the other one.
func BenchmarkIdleTurns(b *testing.B) {
	before := os.Getenv("ARBE_BEFORE")
	if before == "" {
		b.Skip("NOT RUN: ARBE_BEFORE names no other build")
	}
	var sums [2]cost
	for range b.N {
		for i, dir := range []string{scene.Bin, before} {
			c := idleRun(b, filepath.Join(dir, "arbe-pi-runner"))
			sums[i].core, sums[i].pss = sums[i].core+c.core/float64(b.N), sums[i].pss+c.pss/int64(b.N)
		}
	}
	for i, name := range []string{"", "-before"} {
		b.ReportMetric(sums[i].core, "%-core"+name)
		b.ReportMetric(float64(sums[i].pss)/(1<<20), "MiB-pss"+name)
	}
	b.ReportMetric(0, "ns/op")
}

// idleRun runs a runner whose agent is silent for 15 s.
func idleRun(b *testing.B, runner string) (c cost) {
	b.Helper()
	server := httptest.NewServer(&acks{})
	defer server.Close()
	defer server.CloseClientConnections()
	agent := filepath.Join(b.TempDir(), "agent")
	if err := os.WriteFile(agent, []byte("#!/bin/sh\nexec sleep 120\n"), 0o700); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(runner, "run", "--agent-bin", agent, "--", "hi")
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + b.TempDir(),
		"ARBE_THREAD_ID=idle", "ARBE_STREAM_URL=" + server.URL, "ARBE_STREAM_TOKEN=token-of-the-idle",
		"ARBE_RUN_ID=r1",
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	time.Sleep(2 * time.Second) // it has begun
	used := func() (cpu time.Duration, pss int64) {
		for _, pid := range scene.RunnerPIDs(cmd.Process.Pid) {
			st, err := procfs.Read(pid)
			if err != nil {
				b.Fatal(err)
			}
			var kib int64
			rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
			if _, after, ok := strings.Cut(string(rollup), "\nPss:"); err == nil && ok {
				_, err = fmt.Sscan(after, &kib)
			}
			if err != nil {
				b.Fatal(err)
			}
			cpu, pss = cpu+st.CPU, pss+kib<<10
		}
		return cpu, pss
	}
	before, _ := used()
	began := time.Now()
	time.Sleep(15 * time.Second) // the measured time
	after, pss := used()
	c = cost{core: 100 * (after - before).Seconds() / time.Since(began).Seconds(), pss: pss}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		b.Fatal(err)
	}
	_ = cmd.Wait() // it was cancelled
	return c
}

// BenchmarkRestart: how long a line waits for its post when the worker dies of a run whose session has 400 MB. With
// ARBE_BEFORE as in BenchmarkLoad.
func BenchmarkRestart(b *testing.B) {
	const bulk = 345_000 // lines of 1.2 KB
	builds := map[string]string{"": scene.Bin}
	if before := os.Getenv("ARBE_BEFORE"); before != "" {
		builds["-before"] = before
	}
	for range b.N {
		for name, dir := range builds {
			var a acks
			server := httptest.NewServer(&a)
			self, err := os.Executable()
			if err != nil {
				b.Fatal(err)
			}
			cmd := exec.Command(filepath.Join(dir, "arbe-pi-runner"), "run", "--agent-bin", self, "--", "hi")
			cmd.Env = []string{
				"PATH=" + os.Getenv("PATH"), "HOME=" + b.TempDir(),
				"ARBE_THREAD_ID=load", "ARBE_STREAM_URL=" + server.URL,
				"ARBE_STREAM_TOKEN=token-of-the-load", "ARBE_RUN_ID=r1", fmt.Sprintf("%s=20 100000 %d", loadVar, bulk),
			}
			if err := cmd.Start(); err != nil {
				b.Fatal(err)
			}
			count := func() (n int) {
				a.mu.Lock()
				defer a.mu.Unlock()
				return len(a.all)
			}
			for count() < 20 { // the bulk is posted, and some of those that follow
				time.Sleep(100 * time.Millisecond)
			}
			pids := scene.RunnerPIDs(cmd.Process.Pid)
			worker := pids[len(pids)-1]
			began := time.Now()
			if err := syscall.Kill(worker, syscall.SIGKILL); err != nil {
				b.Fatal(err)
			}
			for syscall.Kill(worker, 0) == nil { // its last post is on its way
				time.Sleep(time.Millisecond)
			}
			a.mu.Lock()
			a.all = nil
			a.mu.Unlock()
			for count() == 0 {
				time.Sleep(10 * time.Millisecond)
			}
			b.ReportMetric(time.Since(began).Seconds(), "s-to-the-next-post"+name)
			_ = cmd.Process.Signal(syscall.SIGTERM) // how it ends is not measured
			_ = cmd.Wait()
			server.CloseClientConnections()
			server.Close()
		}
	}
	b.ReportMetric(0, "ns/op")
}
