package skew_test

import (
	"fmt"
	"path/filepath"
	"strings"

	"arbe.0sk.ar/runner/thread"
)

// The runner is of the first version, the server and the commands of people of the second one.
func runOnServer(p *pair) {
	s := newSite(p.t)
	s.serve(p.then)
	done := newBox(s, s.arbe(p.then, "thread", "new"))
	done.plan("prompt", "call bash", "result fine", "say done")
	done.runs(p.first, "r1", "--", "do it")
	done.whole(done.session("r1"), thread.StatusCompleted)

	failed := newBox(s, s.arbe(p.then, "thread", "new"))
	failed.plan("prompt", "fail the provider said no", "exit 1")
	failed.ends(failed.start(p.first, "r1", "--", "do it"), 1)
	failed.whole(failed.session("r1"), thread.StatusFailed)

	cancelled := newBox(s, s.arbe(p.then, "thread", "new"))
	cancelled.plan("prompt", "touch "+filepath.Join(cancelled.dir, "begun"), "sleep 5m")
	run := cancelled.start(p.first, "r1", "--", "do it")
	until(p.t, "an agent", func() bool { return exists(filepath.Join(cancelled.dir, "begun")) })
	s.arbe(p.then, "cancel", cancelled.thread)
	cancelled.ends(run, 143)
	cancelled.whole(cancelled.session("r1"), thread.StatusCancelled)
}

// talking prepares a live run on a thread of a server.
func talking(s *site, v version) *box {
	b := newBox(s, s.arbe(v, "thread", "new"))
	b.plan("converse " + filepath.Join(b.dir, "messages"))
	return b
}

// takes waits until the agent of a live run has taken in a chat.
func (b *box) takes(text string) {
	b.s.t.Helper()
	until(b.s.t, "the agent takes "+text, func() bool {
		turns := 0
		for _, e := range b.s.entries(b.thread) {
			if line := thread.ParseLine(e.Payload); line.Names() && strings.Contains(string(e.Payload), text) {
				turns++
			}
		}
		return turns > 0
	})
}

// had checks what the agent of a live run was given: these texts, once each and in this order. Nothing is pending.
func (b *box) had(texts ...string) {
	b.s.t.Helper()
	want := ""
	for _, text := range texts {
		want += fmt.Sprintf("%q\n", text)
	}
	if got := string(read(b.s.t, filepath.Join(b.dir, "messages"))); got != want {
		b.s.t.Errorf("the agent was given\n%swant\n%s", got, want)
	}
	var pending thread.Pending
	for _, e := range b.s.entries(b.thread) {
		pending.Add(e)
	}
	if chats := pending.Chats(); len(chats) > 0 {
		b.s.t.Errorf("pending: %+v", chats)
	}
}

// The live run is of the first version, the server and the chats are of the second one.
func liveOnServer(p *pair) {
	s := newSite(p.t)
	s.serve(p.then)
	b := talking(s, p.then)
	run := b.start(p.first, "r1", "--live", "--", "the task")
	b.takes("the task")
	held := "hold " + filepath.Join(b.dir, "go")
	s.arbe(p.then, "say", b.thread, "--", held)
	b.takes(held)
	s.arbe(p.then, "say", "--follow-up", b.thread, "--", "and then")
	write(p.t, filepath.Join(b.dir, "go"), "")
	b.takes("and then")
	s.arbe(p.then, "say", "--end", b.thread)
	b.ends(run, 0)
	b.whole(b.session("r1"), thread.StatusCompleted)
	b.had("the task", held, "and then")
}

// A live run of the first version continues while its server is replaced by one of the second version, and back.
func serverReplaced(p *pair) {
	s := newSite(p.t)
	s.serve(p.first)
	b := talking(s, p.first)
	run := b.start(p.first, "r1", "--live", "--", "the task")
	b.takes("the task")
	s.replace(p.then)
	s.arbe(p.first, "say", b.thread, "--", "one")
	b.takes("one")
	s.arbe(p.then, "say", b.thread, "--", "two")
	b.takes("two")
	s.replace(p.first)
	s.arbe(p.then, "say", b.thread, "--", "three")
	b.takes("three")
	s.arbe(p.then, "say", "--end", b.thread)
	b.ends(run, 0)
	b.whole(b.session("r1"), thread.StatusCompleted)
	b.had("the task", "one", "two", "three")
}

// A thread's run of the first version is resumed by the second one in the box that has the session, and by the first
// one again; and in boxes without it, where it is rebuilt from the thread.
func resumed(p *pair) {
	s := newSite(p.t)
	s.serve(p.then)
	b := newBox(s, s.arbe(p.then, "thread", "new"))
	b.plan("prompt", "call bash", "result fine", "say done")
	b.runs(p.first, "r1", "--", "do it")
	for i, v := range []version{p.then, p.first} {
		b.runs(v, fmt.Sprint("r", 2+i), "--resume", "--", "go on")
	}
	b.whole(b.session("r3"), thread.StatusCompleted, thread.StatusCompleted, thread.StatusCompleted)
	for i, v := range []version{p.then, p.first} {
		other := newBox(s, b.thread)
		other.plan("prompt", "say well")
		other.runs(v, fmt.Sprint("r", 4+i), "--resume", "--", "go on elsewhere")
		b = other
	}
	var all []string
	for range 5 {
		all = append(all, thread.StatusCompleted)
	}
	b.whole(b.session("r5"), all...)
}

// The session of a run of the first version is rebuilt from the thread by the second one.
func hydrated(p *pair) {
	s := newSite(p.t)
	s.serve(p.first)
	b := newBox(s, s.arbe(p.first, "thread", "new"))
	b.plan("prompt", "call bash", "big 100000", "say done")
	b.runs(p.first, "r1", "--", "do it")
	file := filepath.Join(b.dir, "rebuilt")
	if out, status := result(b.command(p.then, "r2", "hydrate", "--out", file)); status != 0 {
		p.t.Fatalf("hydrate: status %d\n%s", status, out)
	}
	got := strings.Split(strings.TrimSpace(string(read(p.t, file))), "\n")
	want := strings.Split(strings.TrimSpace(string(b.session("r1"))), "\n")
	for i := range min(len(got), len(want)) {
		if !same([]byte(got[i]), []byte(want[i])) {
			p.t.Errorf("line %d:\ngot  %.300s\nwant %.300s", i, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		p.t.Errorf("%d lines, want %d", len(got), len(want))
	}
}

// All of a runner of the first version is killed, and what it has left is finished by the second one.
func recovered(p *pair) {
	s := newSite(p.t)
	s.serve(p.then)
	b := newBox(s, s.arbe(p.then, "thread", "new"))
	id := "r-" + b.thread
	b.plan("prompt", "say done", "touch "+filepath.Join(b.dir, "begun"), "sleep 5m")
	run := b.start(p.first, id, "--", "do it")
	until(p.t, "an agent", func() bool { return exists(filepath.Join(b.dir, "begun")) })
	killRun(p.t, id)
	b.ends(run, -1)
	until(p.t, "the lock of a dead runner is free", func() bool {
		out, status := result(b.command(p.then, id, "status"))
		return status == 0 && !strings.HasPrefix(out, "running") && !strings.HasPrefix(out, "ending")
	})
	if out, status := result(b.command(p.then, id, "recover")); status != 0 {
		p.t.Fatalf("recover: status %d\n%s", status, out)
	}
	b.whole(b.session(id), thread.StatusCompleted)
}
