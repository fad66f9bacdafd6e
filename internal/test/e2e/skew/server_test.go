package skew_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/natsserver"
	"arbe.0sk.ar/runner/internal/test/port"
	"arbe.0sk.ar/runner/thread"
)

// texts returns the chats of a thread.
func (s *site) texts(id string) (all []string) {
	s.t.Helper()
	for _, e := range s.entries(id) {
		if line := thread.ParseLine(e.Payload); line.Type != thread.TypeChat || line.Session != nil {
			continue
		}
		var c thread.Chat
		if err := json.Unmarshal(e.Payload, &c); err != nil {
			s.t.Fatal(err)
		}
		all = append(all, c.Text)
	}
	return all
}

// posted checks that a thread has n chats, which count from 0.
func (s *site) posted(id string, n int) {
	s.t.Helper()
	var want []string
	for i := range n {
		want = append(want, fmt.Sprint("chat ", i))
	}
	if got := s.texts(id); fmt.Sprint(got) != fmt.Sprint(want) {
		s.t.Errorf("the thread has %q, want %q", got, want)
	}
}

// The commands are of the first version, the server is of the second one.
func commandsOnServer(p *pair) {
	s := newSite(p.t)
	s.serve(p.then)
	id := s.arbe(p.first, "thread", "new")
	s.arbe(p.first, "thread", "post", id, "chat 0")
	s.arbe(p.first, "say", id, "--", "chat 1")
	s.posted(id, 2)
	b := newBox(s, id)
	b.plan("prompt", "say the reply")
	b.runs(p.then, "r1", "--", "do it")
	for _, args := range [][]string{
		{"thread", "read", id},
		{"thread", "tail", "--no-wait", id},
		{"thread", "export", id},
		{"thread", "export", "--html", id},
		{"thread", "status", id},
		{"thread", "status", "--json", id},
		{"ls", "--json"},
		{"reconcile", id},
		{"thread", "delete", id},
	} {
		out, status := s.try(p.first, args...)
		if status != 0 {
			p.t.Errorf("arbe %v: status %d\n%s", args, status, out)
		}
	}
}

// A run's entries go by a proxy of the first version to a server of the second one.
func proxyOnServer(p *pair) {
	s := newSite(p.t)
	s.serve(p.then)
	b := newBox(s, s.arbe(p.then, "thread", "new"))
	addr := port.Reserve(p.t)
	lasting(p.t, s.command(p.first, "proxy", "--addr", addr, "--upstream", "http://"+s.addr))
	b.env = append(b.env, "ARBE_STREAM_URL=http://"+addr)
	b.plan("prompt", "call bash", "result fine", "say done")
	b.runs(p.then, "r1", "--", "do it")
	b.whole(b.session("r1"), thread.StatusCompleted)
}

// back has servers of the first, the second and the first version, one after the other, and each has what those before
// it have acknowledged.
func back(p *pair, flags ...string) {
	s := newSite(p.t)
	s.serve(p.first, flags...)
	id := s.arbe(p.first, "thread", "new")
	b := newBox(s, s.arbe(p.first, "thread", "new"))
	b.plan("prompt", "call bash", "result fine", "say done")
	b.runs(p.first, "r1", "--", "do it")
	s.arbe(p.first, "thread", "post", id, "chat 0")
	s.replace(p.then, flags...)
	s.posted(id, 1)
	b.whole(b.session("r1"), thread.StatusCompleted)
	s.arbe(p.then, "thread", "post", id, "chat 1")
	other := newBox(s, s.arbe(p.then, "thread", "new"))
	other.plan("prompt", "say done")
	other.runs(p.then, "r1", "--", "do it")
	s.replace(p.first, flags...)
	s.arbe(p.first, "thread", "post", id, "chat 2")
	s.posted(id, 3)
	b.whole(b.session("r1"), thread.StatusCompleted)
	other.whole(other.session("r1"), thread.StatusCompleted)
	if out := s.arbe(p.first, "ls", "--json"); !strings.Contains(out, id) || !strings.Contains(out, other.thread) {
		p.t.Errorf("the list lacks a thread: %s", out)
	}
}

// The log is one of the first version, then of the second one, then of the first one again.
func storeAndBack(p *pair) { back(p) }

// The log is backed up by the first version, from a server that runs, and restored and served by the second one.
func backupRestored(p *pair) {
	s := newSite(p.t)
	s.serve(p.first)
	id := s.arbe(p.first, "thread", "new")
	b := newBox(s, s.arbe(p.first, "thread", "new"))
	b.plan("prompt", "call bash", "result fine", "say done")
	b.runs(p.first, "r1", "--", "do it")
	s.arbe(p.first, "thread", "post", id, "chat 0")
	file := filepath.Join(s.dir, "backup.tar")
	s.arbe(p.first, "serve", "backup", file)
	s.server.end()
	other := newSite(p.t)
	other.arbe(p.then, "serve", "restore", file)
	other.serve(p.then)
	other.posted(id, 1)
	b.s = other
	b.whole(b.session("r1"), thread.StatusCompleted)
	other.arbe(p.then, "thread", "post", id, "chat 1")
	other.posted(id, 2)
}

// onNATS returns the flags of servers on a NATS of the test's own.
func onNATS(t *testing.T) []string {
	t.Helper()
	n, err := natsserver.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { natsserver.Stop(n) })
	return []string{
		"--engine", "nats", "--nats-url", n.ClientURL(), "--nats-allow-unsafe", "--nats-replicas", "1",
		"--nats-shards", "2",
	}
}

// The same with the log on NATS.
func natsAndBack(p *pair) { back(p, onNATS(p.t)...) }

// A server of each version serves the log on one NATS, and what is posted at the one is read at the other.
func natsBoth(p *pair) {
	flags := onNATS(p.t)
	s, other := newSite(p.t), newSite(p.t)
	s.serve(p.first, flags...)
	other.serve(p.then, flags...)
	id := s.arbe(p.first, "thread", "new")
	for i := range 6 {
		at, v := s, p.then
		if i%2 == 1 {
			at, v = other, p.first
		}
		at.arbe(v, "thread", "post", id, fmt.Sprint("chat ", i))
		s.posted(id, i+1)
		other.posted(id, i+1)
	}
	b := talking(s, p.first)
	run := b.start(p.first, "r1", "--live", "--", "the task")
	b.takes("the task")
	other.arbe(p.then, "say", b.thread, "--", "from the other server")
	b.takes("from the other server")
	other.arbe(p.then, "say", "--end", b.thread)
	b.ends(run, 0)
	b.whole(b.session("r1"), thread.StatusCompleted)
	b.s = other
	b.whole(b.session("r1"), thread.StatusCompleted)
	b.had("the task", "from the other server")
}
