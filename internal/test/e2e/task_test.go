package e2e_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/thread"
)

// A task whose run died before the agent's session had it waits like a chat: the next run that resumes gets it once,
// before its own, and no later run does. No line of a session makes it a second chat.
func TestFullLostTask(t *testing.T) {
	versions := others(t)
	versions["pi"] = "0.87.1"
	for _, name := range harness.Names() {
		for _, how := range []string{"print", "live"} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				s := newSceneOf(t, name, versions[name])
				s.prompt = "the lost-task"
				dying := filepath.Join(s.dir, "dying")
				if err := os.WriteFile(dying, []byte("#!/bin/sh\nkill -9 $$\n"), 0o700); err != nil {
					t.Fatal(err)
				}
				if how == "live" {
					s.args = append(s.args, "--live", "--idle", "1s")
				}
				args := s.args
				s.args = append(slices.Clone(args), "--agent-bin", dying)
				if got := s.status(s.start()); got != 137 {
					t.Fatalf("exit status %d", got)
				}
				s.waiting("r1.prompt")

				s.args = append(args, "--resume")
				began := map[bool]string{true: "continue", false: "none"}
				if how == "live" { // it is a turn of its own, or joined by the next
					s.model.More(say("I have read it."))
				}
				s.onFrom("r2", began[name == "pi"], "the lost-task")
				s.model.Drop()
				s.waiting()
				if how == "print" {
					s.delivered("r2", "[chat from e2e]\nthe lost-task\n\n[prompt]\n", "r1.prompt")
				}
				told := []string{"the lost-task", "go on with r2"}
				s.onFrom("r3", "continue", told...)
				told = append(told, "go on with r3", "This is said in r3.")
				n := s.nextOf(name, versions[name], "r4")
				n.onFrom("r4", "hydrate", told...)
				named := 0
				for _, e := range s.entries() {
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

// waiting checks which chats are pending, for readers of the thread and in the list of threads.
func (s *scene) waiting(want ...string) {
	s.t.Helper()
	var p thread.Pending
	for _, e := range s.entries() {
		p.Add(e)
	}
	var got []string
	for _, c := range p.Chats() {
		got = append(got, c.ID)
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("pending %q, want %q", got, want)
	}
	shown := strings.Contains(s.arbe("thread", "status", "--json", s.thread), `"pending": 1`)
	if shown != (len(want) == 1) {
		s.t.Errorf("the thread's status has a pending chat: %v", shown)
	}
}
