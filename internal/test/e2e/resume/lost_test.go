package resume_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"arbe.0sk.ar/runner/internal/test/scene"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/thread"
)

// A run whose runner and agent were killed in mid-tool is finished by the next run of its thread, before that one
// begins: as what it was, and with no line of the next one.
func TestFullNextRunFinishesLost(t *testing.T) {
	for _, name := range harness.Names() {
		version := scene.Pi078
		if name != "pi" {
			version = scene.Others(t)[name]
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scene.NewOf(t, name, version, scene.Calling(name, "echo $$ > tool.pid; exec sleep 300"))
			s.Prompt = "the first question"
			r := s.Start()
			tool := filepath.Join(s.Dir, "work", "tool.pid")
			scene.Until(t, "the call is on the thread", func() bool {
				return scene.PidIn(tool) > 0 && strings.Contains(scene.TextOf(s.Entries()), `"type":"toolCall"`)
			})
			agent := scene.AgentPID(t, s)
			for _, pid := range append(scene.RunnerPIDs(r.Process.Pid), agent) {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			s.Status(r)
			scene.Until(t, "the run is lost", func() bool { return s.Known("r1").State == "lost" })
			s.Args = append(s.Args, "--resume")
			s.OnFrom("r2", "continue", "the first question", "exec sleep 300")
			s.Whole("r2")
			s.Once()
			all := s.Entries()
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
