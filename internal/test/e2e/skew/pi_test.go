package skew_test

import (
	"net/http/httptest"
	"strings"

	"arbe.0sk.ar/runner/internal/test/agents"
	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/thread"
)

// A live run of the real pi is of the first version, and its server is replaced by one of the second one. Then the
// second version resumes it in its box, and the first one in another box, where the session is rebuilt. The model gets
// all of it.
func piAcross(p *pair) {
	s := newSite(p.t)
	s.serve(p.first)
	bash := model.Tool{Name: "bash", Arguments: map[string]any{"command": "echo made >made.txt; cat made.txt"}}
	m := &model.Server{Script: model.Script{Replies: []model.Reply{
		{Text: "I will call a tool.", Tools: []model.Tool{bash}}, {Text: "Well done.", Times: -1},
	}}}
	provider := httptest.NewServer(m)
	p.t.Cleanup(func() {
		provider.CloseClientConnections()
		provider.Close()
	})
	b := withPi(s, s.arbe(p.first, "thread", "new"), provider.URL)
	run := b.start(p.first, "r1", "--live", "--", "the task of the first run")
	b.takes("the task of the first run")
	until(p.t, "the end of a turn", func() bool { return b.turns() == 1 })
	s.replace(p.then)
	s.arbe(p.first, "say", b.thread, "--", "a chat behind it")
	until(p.t, "the end of a turn", func() bool { return b.turns() == 2 })
	s.arbe(p.then, "say", "--end", b.thread)
	b.ends(run, 0)
	b.whole(b.session("r1"), thread.StatusCompleted)

	b.runs(p.then, "r2", "--resume", "--", "the task of the second run")
	b.whole(b.session("r2"), thread.StatusCompleted, thread.StatusCompleted)
	other := withPi(s, b.thread, provider.URL)
	other.runs(p.first, "r3", "--resume", "--", "the task of the third run")
	other.whole(other.session("r3"), thread.StatusCompleted, thread.StatusCompleted, thread.StatusCompleted)

	all := m.Requests()
	told := string(all[len(all)-1].Body)
	for _, text := range []string{
		"the task of the first run", "a chat behind it", "the task of the second run", "the task of the third run",
		"echo made ",
	} {
		if n := strings.Count(told, text); n != 1 {
			p.t.Errorf("the model was told %q %d times", text, n)
		}
	}
}

// withPi makes a box whose agent is the real pi, with a model.
func withPi(s *site, id, url string) *box {
	s.t.Helper()
	agent, err := agents.Find("pi", "0.87.1")
	if err != nil {
		s.t.Fatal(err)
	}
	b := newBox(s, id)
	b.agent, b.env = nil, agent.Env(b.dir)
	if err := agent.Home(b.dir, url, 50); err != nil {
		s.t.Fatal(err)
	}
	return b
}

// turns counts the turns of live runs that have ended.
func (b *box) turns() (n int) {
	for _, e := range b.s.entries(b.thread) {
		if thread.TypeOf(e.Payload) == thread.TypeWaiting {
			n++
		}
	}
	return n
}
