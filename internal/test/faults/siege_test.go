package faults_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A siege is hostile and honest load on one arbe serve, which has a budget of 256 MiB in a cgroup of 512 MiB.
const (
	siegeMemory = 512 << 20
	siegeBudget = "256MiB"
	siegeIdle   = 10 * time.Second // of honest load alone, before the siege, for what is compared with
	honestEvery = 20 * time.Millisecond
	honestMany  = 4
)

// TestFullSiege loads a server with all that has ended one, for ARBE_SIEGE minutes (1). The process has to be the
// same in the end, and every entry that was acknowledged has to be there, once and in order. How long an honest
// append takes is compared with the time before the siege.
func TestFullSiege(t *testing.T) {
	minutes, err := strconv.ParseFloat(os.Getenv("ARBE_SIEGE"), 64)
	if err != nil {
		minutes = 1
	}
	v := newService(t)
	group := v.confine(t, siegeMemory)
	v.args = []string{"--memory-budget", siegeBudget, "--rate", "500", "--quota", "256MiB"}
	v.start(t)
	pid := v.cmd.Process.Pid
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = v.cmd.Process.Wait() // what it ended with is in the log
	}()

	before := v.honest(t, t.Context(), "before", siegeIdle)
	end := besiege(t, v)
	during := v.honest(t, t.Context(), "during", time.Duration(minutes*float64(time.Minute)))
	select {
	case <-gone:
		t.Fatalf("the server has ended:\n%s", tail(v.log.String()))
	default:
	}
	peak := status(t, pid, "VmHWM:")
	t.Logf("what the server measured:\n%s", v.refusals(t))
	t.Logf("what was done to it:\n%s", end())
	t.Logf("honest appends before: %d, p50 %v, p99 %v", len(before), part(before, .5), part(before, .99))
	t.Logf("honest appends during: %d, p50 %v, p99 %v, longest %v", len(during), part(during, .5), part(during, .99),
		part(during, 1))
	t.Logf("p99 is %.1f times that before; the process had %d MiB at most", float64(part(during,
		.99))/float64(part(before, .99)), peak>>10)
	if peak<<10 > siegeMemory {
		t.Errorf("the process had %d MiB", peak>>10)
	}
	if killed := group.kills(t); killed > 0 {
		t.Errorf("%d processes were killed for memory", killed)
	}
	for _, phase := range []string{"before", "during"} {
		for w := range honestMany {
			id := fmt.Sprint(phase, w)
			have := v.entries(t, id)
			if want := v.acked[id]; len(have) < want {
				t.Errorf("%s: %d entries are there, %d were acknowledged", id, len(have), want)
			}
			for i, e := range have {
				if e.ID != fmt.Sprint("e", i) {
					t.Fatalf("%s: entry %d is %s", id, i, e.ID)
				}
			}
		}
	}
}

// honest appends entries to a few threads for so long, each as often as it takes, and returns how long each took,
// sorted.
func (v *service) honest(t *testing.T, ctx context.Context, phase string, long time.Duration) []time.Duration {
	ctx, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	var mu sync.Mutex
	var all []time.Duration
	var writers sync.WaitGroup
	for w := range honestMany {
		id := fmt.Sprint(phase, w)
		token := v.mint(t, id)
		writers.Go(func() {
			var took []time.Duration
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}, Timeout: 20 * time.Second}
			defer client.CloseIdleConnections()
			for range time.NewTicker(honestEvery).C {
				if ctx.Err() != nil {
					break
				}
				began := time.Now()
				entry := fmt.Sprintf(`{"id":"e%d","ts":"2026-01-01T00:00:00.000Z","payload":{"type":"chat","text":%q}}`,
					len(took), strings.Repeat("x", 1000))
				for posted(ctx, client, "http://"+v.addr+"/api/stream/arbe-thread-"+id, token, entry) != nil &&
					ctx.Err() == nil {
					time.Sleep(100 * time.Millisecond) // as a client does after Retry-After
				}
				if ctx.Err() != nil {
					break // it may be there, or not
				}
				took = append(took, time.Since(began))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took...)
			v.acked[id] = len(took)
		})
	}
	writers.Wait()
	slices.Sort(all)
	if len(all) == 0 {
		t.Fatalf("%s: no honest append got through", phase)
	}
	return all
}

// posted posts an entry and returns nil once it was acknowledged.
func posted(ctx context.Context, client *http.Client, url, token, entry string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(entry))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return err
}

// refusals returns the server's metrics of its refusals and its memory budget.
func (v *service) refusals(t *testing.T) string {
	resp, err := http.Get("http://" + v.addr + "/metrics")
	if err != nil {
		t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	var lines []string
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "arbe_refused_total") || strings.HasPrefix(line, "arbe_memory_budget") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// part is the time that this part of all is not longer than.
func part(all []time.Duration, p float64) time.Duration {
	return all[min(int(p*float64(len(all))), len(all)-1)].Round(10 * time.Microsecond)
}

// tail is the end of a log.
func tail(s string) string { return s[max(0, len(s)-4000):] }

// status is a number of KiB in a process's status.
func status(t *testing.T, pid int, name string) (kib int) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Error(err)
		return 0
	}
	_, rest, _ := strings.Cut(string(b), name)
	_, err = fmt.Sscan(rest, &kib)
	if err != nil {
		t.Error(err)
	}
	return kib
}

// group is a cgroup that bounds memory, of version 1 or 2.
type group struct{ dir, limit, events string }

// confine makes the service's next lives ones in a cgroup that has so many bytes.
func (v *service) confine(t *testing.T, bytes int) group {
	g := group{
		"/sys/fs/cgroup/memory/arbe-siege-" + strconv.Itoa(os.Getpid()), "memory.limit_in_bytes",
		"memory.oom_control",
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		g = group{"/sys/fs/cgroup/arbe-siege-" + strconv.Itoa(os.Getpid()), "memory.max", "memory.events"}
	}
	err := os.Mkdir(g.dir, 0o755)
	if err == nil {
		t.Cleanup(func() {
			for began := time.Now(); os.Remove(g.dir) != nil &&
				time.Since(began) < patience; time.Sleep(10 * time.Millisecond) {
				continue // until the process has left it
			}
		})
		err = os.WriteFile(filepath.Join(g.dir, g.limit), fmt.Append(nil, bytes), 0)
	}
	if err != nil {
		t.Logf("no cgroup can be made (%v): the server gets GOMEMLIMIT, and its peak is compared", err)
		v.wrap = func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, fmt.Sprint("GOMEMLIMIT=", bytes/5*4)) }
		return group{}
	}
	v.wrap = func(cmd *exec.Cmd) {
		cmd.Args = append([]string{
			"sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(g.dir, "cgroup.procs"),
			cmd.Path,
		}, cmd.Args[1:]...)
		cmd.Path = "/bin/sh"
	}
	return g
}

// kills is how many processes were killed for memory in the group.
func (g group) kills(t *testing.T) (n int) {
	if g.dir == "" {
		return 0
	}
	b, err := os.ReadFile(filepath.Join(g.dir, g.events))
	if err != nil {
		t.Error(err)
	}
	_, rest, found := strings.Cut(string(b), "oom_kill ")
	if found {
		_, err = fmt.Sscan(rest, &n)
	}
	if err != nil {
		t.Error(err)
	}
	return n
}
