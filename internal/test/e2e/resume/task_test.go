package resume_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"arbe.0sk.ar/runner/internal/test/scene"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/thread"
)

// A task whose run died before the agent's session had it waits like a chat: the next run that resumes gets it once,
// before its own, and no later run does. No line of a session makes it a second chat.
func TestFullLostTask(t *testing.T) {
	versions := scene.Others(t)
	versions["pi"] = "0.87.1"
	for _, name := range harness.Names() {
		for _, how := range []string{"print", "live"} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				s := scene.NewOf(t, name, versions[name])
				s.Prompt = "the lost-task"
				dying := filepath.Join(s.Dir, "dying")
				if err := os.WriteFile(dying, []byte("#!/bin/sh\nkill -9 $$\n"), 0o700); err != nil {
					t.Fatal(err)
				}
				if how == "live" {
					s.Args = append(s.Args, "--live", "--idle", "1s")
				}
				args := s.Args
				s.Args = append(slices.Clone(args), "--agent-bin", dying)
				if got := s.Status(s.Start()); got != 137 {
					t.Fatalf("exit status %d", got)
				}
				s.Waiting("r1.prompt")

				s.Args = append(args, "--resume")
				began := map[bool]string{true: "continue", false: "none"}
				if how == "live" { // it is a turn of its own, or joined by the next
					s.Model.More(scene.Say("I have read it."))
				}
				s.OnFrom("r2", began[name == "pi"], "the lost-task")
				s.Model.Drop()
				s.Waiting()
				if how == "print" {
					delivered(s, "r2", "[chat from e2e]\nthe lost-task\n\n[prompt]\n", "r1.prompt")
				}
				told := []string{"the lost-task", "go on with r2"}
				s.OnFrom("r3", "continue", told...)
				told = append(told, "go on with r3", "This is said in r3.")
				n := s.NextOf(name, versions[name], "r4")
				n.OnFrom("r4", "hydrate", told...)
				named := 0
				for _, e := range s.Entries() {
					p := thread.ParseLine(e.Payload)
					if p.Type == thread.TypeChat && p.Session != nil {
						t.Errorf("%s is a second chat: %.300s", e.ID, e.Payload)
					}
					if p.Names() && slices.Contains(p.Named(), "r1.prompt") {
						named++
					}
				}
				if named != 1 {
					t.Errorf("%d lines have the task", named)
				}
			})
		}
	}
}
