package figures_test

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/scene"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/procfs"
	"arbe.0sk.ar/runner/internal/test/agents"
	"arbe.0sk.ar/runner/internal/test/model"
)

// BenchmarkLive: what a live run costs beside a print run of the same agent: the time to the model's first request,
// the memory of runner and agent, and processor time while nothing happens. The print run waits for its model, the live
// run for a chat.
func BenchmarkLive(b *testing.B) {
	for _, name := range harness.Names() {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				for mode, args := range map[string][]string{"print": nil, "live": {"--live"}} {
					reply := model.Reply{Text: "Fine.", Times: -1}
					if mode == "print" { // a first word, and the next one after the measurement
						reply = model.Reply{Text: "one two", Pace: model.Duration(5 * time.Minute)}
					}
					cost := liveCost(b, name, reply, args)
					b.ReportMetric(float64(cost.start.Milliseconds()), "ms-start-"+mode)
					b.ReportMetric(float64(cost.runner)/(1<<20), "MiB-runner-"+mode)
					b.ReportMetric(float64(cost.agent)/(1<<20), "MiB-agent-"+mode)
					b.ReportMetric(cost.idle, "%-core-"+mode)
				}
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// runCost is the cost of a run.
type runCost struct {
	start         time.Duration // from the runner's start to the model's first request
	runner, agent int64         // bytes
	idle          float64       // per cent of a core, of the runner
}

func liveCost(b *testing.B, name string, reply model.Reply, args []string) (c runCost) {
	b.Helper()
	spec, err := harness.Lookup(name)
	if err != nil {
		b.Fatal(err)
	}
	agent, err := agents.Find(name, spec.Live.Least)
	if err != nil {
		b.Fatal(err)
	}
	m := &model.Server{Script: model.Script{Replies: []model.Reply{reply}}}
	srv := httptest.NewServer(m)
	defer srv.Close()
	defer srv.CloseClientConnections()
	dir := b.TempDir()
	work := filepath.Join(dir, "work")
	if err := agent.Home(dir, srv.URL, 50); err != nil {
		b.Fatal(err)
	}
	if err := os.Mkdir(work, 0o700); err != nil {
		b.Fatal(err)
	}
	_, _, environ := env(b, scene.Server)
	environ = slices.DeleteFunc(environ, func(v string) bool {
		return strings.HasPrefix(v, "HOME=") || strings.HasPrefix(v, "PATH=")
	})
	cmd := exec.Command(filepath.Join(scene.Bin, "arbe-pi-runner"),
		slices.Concat([]string{"run", "--harness", name, "--cwd", work}, args, []string{"--", "hi"})...)
	cmd.Env = append(agent.Env(dir), environ...)
	began := time.Now()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	for len(m.Requests()) == 0 {
		time.Sleep(time.Millisecond) // the measured event
	}
	c.start = time.Since(began)
	time.Sleep(8 * time.Second) // the turn of the live run ends, and the agent comes to rest
	used := func() (cpu time.Duration) {
		c.runner, c.agent = 0, 0
		for _, pid := range scene.RunnerPIDs(cmd.Process.Pid) {
			st, err := procfs.Read(pid)
			if err != nil {
				b.Fatal(err)
			}
			cpu, c.runner = cpu+st.CPU, c.runner+st.RSS
		}
		all := harness.Tree{Roots: []int{cmd.Process.Pid}}
		for _, p := range all.Members() {
			if st, err := procfs.Read(p.PID); err == nil && !slices.Contains(scene.RunnerPIDs(cmd.Process.Pid), p.PID) {
				c.agent += st.RSS
			}
		}
		return cpu
	}
	before, from := used(), time.Now()
	time.Sleep(20 * time.Second) // the measured time
	c.idle = 100 * (used() - before).Seconds() / time.Since(from).Seconds()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		b.Fatal(err)
	}
	_ = cmd.Wait() // cancelled, or completed
	return c
}
