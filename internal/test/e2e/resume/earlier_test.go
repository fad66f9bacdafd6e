package resume_test

import (
	"slices"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/scene"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/thread"
)

// delivered checks which chats the line with a run's prompt names, and how the text of it begins in the session.
func delivered(s *scene.Scene, run, text string, chats ...string) {
	s.T.Helper()
	want := append(slices.Clone(chats), run+".prompt")
	found := 0
	for _, e := range s.Entries() {
		p := thread.ParseLine(e.Payload)
		if !p.Names() || !slices.Contains(p.Named(), run+".prompt") {
			continue
		}
		found++
		if got := p.Named(); !slices.Equal(got, want) {
			s.T.Errorf("the line of %s names %q, want %q", run, got, want)
		}
		spec, err := harness.Lookup(s.Agent.Harness)
		if err != nil {
			s.T.Fatal(err)
		}
		if got := spec.Dialect.Decode(p.Line).Text; !strings.HasPrefix(got, text) || !strings.HasSuffix(got, s.Prompt) {
			s.T.Errorf("the line of %s has %.300q, want %.300q and %q", run, got, text, s.Prompt)
		}
	}
	if found != 1 {
		s.T.Errorf("%d lines have the prompt of %s", found, run)
	}
}

// A chat that comes between the runs of a thread is in the next run's first turn, once, in the same box, in a fresh one
// and with another agent.
func TestFullEarlierChats(t *testing.T) {
	versions := scene.Others(t)
	versions["pi"] = "0.87.1"
	names := harness.Names()
	for _, from := range names {
		for _, to := range names {
			t.Run(from+" to "+to, func(t *testing.T) {
				t.Parallel()
				s := scene.NewOf(t, from, versions[from], scene.Say("This is said in r1."))
				s.Prompt = "the first question"
				if got := s.Status(s.Start()); got != 0 {
					t.Fatalf("exit status %d", got)
				}
				told := []string{"the first question", "This is said in r1."}

				first := s.Arbe("say", s.Thread, "--author", "ada", "--", "/look at\nthe table-1")
				second := s.Arbe("say", s.Thread, "--follow-up", "and the old-names")
				s.Args = append(s.Args, "--resume")
				s.OnFrom("r2", "continue", append(told, "table-1", "old-names")...)
				delivered(s, "r2", "[chat from ada]\n/look at\nthe table-1\n\n[chat]\nand the old-names\n\n[prompt]\n",
					first, second)
				s.Whole("r2")
				told = append(told, "table-1", "old-names", "go on with r2", "This is said in r2.")

				// Longer than the system takes in an argument.
				long := s.Arbe("say", s.Thread, "begins-here "+strings.Repeat("x ", 50<<10)+"ends-here")
				more := s.Arbe("say", s.Thread, strings.Repeat("y ", 50<<10)+"more-ends-here")
				n := s.NextOf(to, versions[to], "r3")
				n.OnFrom("r3", "hydrate", append(told, "begins-here", " ends-here", " more-ends-here")...)
				delivered(n, "r3", "[chat]\nbegins-here x x", long, more)
				told = append(told, "begins-here", " ends-here", " more-ends-here")
				told = append(told, "go on with r3", "This is said in r3.")
				n.OnFrom("r4", "continue", told...)
				delivered(n, "r4", "go on with r4")
				told = append(told, "go on with r4", "This is said in r4.")

				// And back in the first box, whose own file lacks what the other one has posted.
				last := s.Arbe("say", s.Thread, "the last-word")
				s.OnFrom("r5", "hydrate", append(told, "last-word")...)
				delivered(s, "r5", "[chat]\nthe last-word\n\n[prompt]\n", last)
				if from == to {
					s.Whole("r5")
				}
				s.Once()
				var p thread.Pending
				for _, e := range s.Entries() {
					p.Add(e)
				}
				if len(p.Chats()) != 0 {
					t.Errorf("%d chats are pending", len(p.Chats()))
				}
			})
		}
	}
}
