package e2e_test

import (
	"slices"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/thread"
)

// delivered checks which chats the line with a run's prompt names, and how the text of it begins in the session.
func (s *scene) delivered(run, text string, chats ...string) {
	s.t.Helper()
	want := append(slices.Clone(chats), run+".prompt")
	found := 0
	for _, e := range s.entries() {
		p := thread.ParseLine(e.Payload)
		if !p.Names() || !slices.Contains(p.Named(), run+".prompt") {
			continue
		}
		found++
		if got := p.Named(); !slices.Equal(got, want) {
			s.t.Errorf("the line of %s names %q, want %q", run, got, want)
		}
		spec, err := harness.Lookup(s.agent.Harness)
		if err != nil {
			s.t.Fatal(err)
		}
		if got := spec.Dialect.Decode(p.Line).Text; !strings.HasPrefix(got, text) || !strings.HasSuffix(got, s.prompt) {
			s.t.Errorf("the line of %s has %.300q, want %.300q and %q", run, got, text, s.prompt)
		}
	}
	if found != 1 {
		s.t.Errorf("%d lines have the prompt of %s", found, run)
	}
}

// A chat that comes between the runs of a thread is in the next run's first turn, once, in the same box, in a fresh one
// and with another agent.
func someEarlier(row, column, _ int) bool { return row == column || row == 0 && column == 2 }

func TestFullEarlierChats(t *testing.T) {
	versions := others(t)
	versions["pi"] = "0.87.1"
	names := harness.Names()
	for _, from := range names {
		for _, to := range names {
			t.Run(from+" to "+to, func(t *testing.T) {
				t.Parallel()
				s := newSceneOf(t, from, versions[from], say("This is said in r1."))
				s.prompt = "the first question"
				if got := s.status(s.start()); got != 0 {
					t.Fatalf("exit status %d", got)
				}
				told := []string{"the first question", "This is said in r1."}

				first := s.arbe("say", s.thread, "--author", "ada", "--", "/look at\nthe table-1")
				second := s.arbe("say", s.thread, "--follow-up", "and the old-names")
				s.args = append(s.args, "--resume")
				s.onFrom("r2", "continue", append(told, "table-1", "old-names")...)
				s.delivered("r2", "[chat from ada]\n/look at\nthe table-1\n\n[chat]\nand the old-names\n\n[prompt]\n",
					first, second)
				s.whole("r2")
				told = append(told, "table-1", "old-names", "go on with r2", "This is said in r2.")

				// Longer than the system takes in an argument.
				long := s.arbe("say", s.thread, "begins-here "+strings.Repeat("x ", 50<<10)+"ends-here")
				more := s.arbe("say", s.thread, strings.Repeat("y ", 50<<10)+"more-ends-here")
				n := s.nextOf(to, versions[to], "r3")
				n.onFrom("r3", "hydrate", append(told, "begins-here", " ends-here", " more-ends-here")...)
				n.delivered("r3", "[chat]\nbegins-here x x", long, more)
				told = append(told, "begins-here", " ends-here", " more-ends-here")
				told = append(told, "go on with r3", "This is said in r3.")
				n.onFrom("r4", "continue", told...)
				n.delivered("r4", "go on with r4")
				told = append(told, "go on with r4", "This is said in r4.")

				// And back in the first box, whose own file lacks what the other one has posted.
				last := s.arbe("say", s.thread, "the last-word")
				s.onFrom("r5", "hydrate", append(told, "last-word")...)
				s.delivered("r5", "[chat]\nthe last-word\n\n[prompt]\n", last)
				if from == to {
					s.whole("r5")
				}
				s.once()
				var p thread.Pending
				for _, e := range s.entries() {
					p.Add(e)
				}
				if len(p.Chats()) != 0 {
					t.Errorf("%d chats are pending", len(p.Chats()))
				}
			})
		}
	}
}
