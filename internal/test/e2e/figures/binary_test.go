package figures_test

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/scene"

	"arbe.0sk.ar/runner/internal/test/program"
)

// The box's binary is put into machines that we don't know: it brings all it needs, and little more.
func TestRunnerBinary(t *testing.T) {
	path := filepath.Join(scene.Bin, "arbe-pi-runner")
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	// 10 MB are allowed. What is far below that may grow, and be seen to: one call of reflect's MethodByName, as in
	// text/template, makes the linker keep 1.5 MB of methods.
	if st.Size() > 9_000_000 {
		t.Errorf("%d bytes, more than 9 MB", st.Size())
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("it is not static")
		}
	}
	if f.Section(".symtab") != nil || f.Section(".debug_info") != nil {
		t.Error("it is not stripped")
	}
	t.Logf("%d bytes", st.Size())
}

// runPeak runs cmd and returns the most memory that it had, in bytes: its own and, of a run, its worker's. (wait4
// returns at least what this process had when it forked.)
func runPeak(cmd *exec.Cmd) (peak int64, err error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				err = fmt.Errorf("%w\n%s", err, stderr.String())
			}
			return peak, err
		case <-tick.C:
			var now int64
			for _, pid := range scene.RunnerPIDs(cmd.Process.Pid) {
				now += highWater(pid)
			}
			peak = max(peak, now)
		}
	}
}

// highWater is the most memory that a process has had, 0 where it is gone.
func highWater(pid int) (n int64) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if _, hwm, ok := strings.Cut(string(b), "VmHWM:"); err == nil && ok {
		if _, err := fmt.Sscan(hwm, &n); err != nil {
			return 0
		}
	}
	return n << 10
}

// However long a line is and however many there are, the box's memory is the agent's.
func TestFullMemory(t *testing.T) {
	const mib = 1 << 20
	line := func(text string) string {
		return `{"type":"message","id":"a1","parentId":null,"timestamp":"2026-01-01T00:00:01.000Z","message":{"role":"toolResult","toolCallId":"c","content":[{"type":"text","text":"` + text + `"}]}}` + "\n"
	}
	header := `{"type":"session","version":3,"id":"s1","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w"}` + "\n"
	for _, tt := range []struct {
		name    string
		content []byte
		most    int64
	}{
		{"a line of 64 MiB", []byte(header + line(strings.Repeat(`0123456789abc\n\"`, 4*mib-20))), 48 * mib},
		{
			"a line that is just held whole", []byte(header + line(strings.Repeat(`0123456789abc\n\"`, mib*7/16))),
			72 * mib,
		},
		{
			"a line of 64 MiB that is no JSON", []byte(header + strings.Repeat("0123456789abcdef", 4*mib) + "\n"),
			48 * mib,
		},
		{"a line of NULs", slices.Concat([]byte(header), make([]byte, 64*mib), []byte("\n")), 48 * mib},
		{
			"a line that is too long to be held", []byte(header + strings.Repeat("0123456789abcdef", 10*mib) + "\n"),
			48 * mib,
		},
		{"100,000 lines", sessionLines(100_000), 20_000_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s.jsonl")
			if err := os.WriteFile(path, tt.content, 0o600); err != nil {
				t.Fatal(err)
			}
			s := scene.New(t, scene.Pi078)
			// As it is mirrored on its own, and as a run's agent writes it.
			cmd := exec.Command(filepath.Join(scene.Bin, "arbe-pi-runner"), "mirror", "--session", path)
			cmd.Env = s.Env
			peak, err := runPeak(cmd)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("mirror: %d MiB at most", peak/mib)
			if peak > tt.most {
				t.Errorf("mirror takes %d bytes, more than %d", peak, tt.most)
			}
			s = scene.New(t, scene.Pi078)
			agent := filepath.Join(s.Dir, "agent")
			program.Write(t, agent, []byte("#!/bin/sh\ntail -n +2 "+path+" >> $2\n"))
			cmd = exec.Command(filepath.Join(scene.Bin, "arbe-pi-runner"), "run", "--agent-bin", agent, "--", "hi")
			cmd.Env = s.Env
			peak, err = runPeak(cmd)
			if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 1 { // such an agent fails
				t.Fatal(err)
			}
			most := tt.most + 8_000_000 // its keeper is counted with the program's pages, which the worker has, too
			if most < 48*mib {
				most += tt.most / 2 // a run holds its lines twice: the entries, and the session's totals
			}
			t.Logf("run: %d MiB at most", peak/mib)
			if peak > most {
				t.Errorf("run takes %d bytes, more than %d", peak, most)
			}
			e := s.End()
			if want := int64(bytes.Count(tt.content, []byte("\n"))); e.Totals.Lines != want {
				t.Errorf("%d lines, want %d", e.Totals.Lines, want)
			}
		})
	}
}

// BenchmarkStart measures what the runner adds to an agent's life: from its own start to the agent's, first entries
// on the thread included, and from the agent's end to the terminal on the thread.
func BenchmarkStart(b *testing.B) {
	dir := b.TempDir()
	var spawn, finish []float64
	for b.Loop() {
		arbe := func(args ...string) string {
			out, err := exec.Command(filepath.Join(scene.Bin, "arbe"), args...).Output()
			if err != nil {
				b.Fatal(err)
			}
			return strings.TrimSpace(string(out))
		}
		id := arbe("thread", "new")
		token := arbe("token", "mint", "--thread", id)
		cmd := exec.Command(filepath.Join(scene.Bin, "arbe-pi-runner"), "run", "--agent-bin", "/bin/true", "--", "hi")
		cmd.Env = []string{
			"PATH=/bin:/usr/bin",
			"HOME=" + dir,
			"ARBE_THREAD_ID=" + id,
			"ARBE_STREAM_URL=" + scene.Server,
			"ARBE_STREAM_TOKEN=" + token,
			"ARBE_RUN_ID=r1",
		}
		began := time.Now()
		if err := cmd.Run(); cmd.ProcessState == nil ||
			cmd.ProcessState.ExitCode() != 1 { // /bin/true has no output: orphaned
			b.Fatal(err)
		}
		facts := readFacts(b, filepath.Join(dir, ".arbe", "runs", id, "r1", "facts.jsonl"))
		spawn = append(spawn, facts["spawned"].Sub(began).Seconds()*1000)
		finish = append(finish, facts["delivered"].Sub(facts["exited"]).Seconds()*1000)
	}
	for name, all := range map[string][]float64{"start": spawn, "end": finish} {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2], "ms-"+name+"-p50")
		b.ReportMetric(all[len(all)*99/100], "ms-"+name+"-p99")
	}
	b.ReportMetric(0, "ns/op")
}

func readFacts(t testing.TB, path string) map[string]time.Time {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	facts := map[string]time.Time{}
	for line := range strings.Lines(string(b)) {
		var f struct {
			At   time.Time
			Fact string
		}
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatal(err)
		}
		facts[f.Fact] = f.At
	}
	return facts
}
