package e2e_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/thread"
)

// A run whose runner and agent were killed in mid-tool is finished by the next run of its thread, before that one
// begins: as what it was, and with no line of the next one.
func TestFullNextRunFinishesLost(t *testing.T) {
	for _, name := range harness.Names() {
		version := pi078
		if name != "pi" {
			version = others(t)[name]
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSceneOf(t, name, version, calling(name, "echo $$ > tool.pid; exec sleep 300"))
			s.prompt = "the first question"
			r := s.start()
			tool := filepath.Join(s.dir, "work", "tool.pid")
			until(t, "the call is on the thread", func() bool {
				return pidIn(tool) > 0 && strings.Contains(textOf(s.entries()), `"type":"toolCall"`)
			})
			agent := agentPID(t, s)
			for _, pid := range append(runnerPIDs(r.Process.Pid), agent) {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			s.status(r)
			until(t, "the run is lost", func() bool { return s.known("r1").State == "lost" })
			s.args = append(s.args, "--resume")
			s.onFrom("r2", "continue", "the first question", "exec sleep 300")
			s.whole("r2")
			s.once()
			all := s.entries()
			at := func(id string) int { return slices.IndexFunc(all, func(e thread.Entry) bool { return e.ID == id }) }
			if end, next := at("r1.end.1"), at("r2.running"); end < 0 || end > next {
				t.Fatalf("r1 ended at %d, and r2 began at %d", end, next)
			}
			var p thread.Orphaned
			if err := json.Unmarshal(all[at("r1.end.0")].Payload, &p); err != nil ||
				p.Type != thread.TypeOrphaned || p.Reason != "runner_lost" {
				t.Errorf("r1 ended as %s, %v", all[at("r1.end.0")].Payload, err)
			}
		})
	}
}
