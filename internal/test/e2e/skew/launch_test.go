package skew_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"arbe.0sk.ar/runner/internal/test/fakeagent"
	"arbe.0sk.ar/runner/thread"
)

// host is a site whose local boxes have the fake agent as pi.
type host struct {
	*site
	plan string // file
}

// newHost makes a host with a server of a version.
func newHost(p *pair, v version) *host {
	p.t.Helper()
	s := newSite(p.t)
	h := &host{site: s, plan: filepath.Join(s.dir, "plan")}
	h.agents()
	s.serve(v)
	return h
}

// agents puts the fake agent on the PATH of the host's programs.
func (h *host) agents() {
	h.t.Helper()
	self, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	bin := filepath.Join(h.dir, "agents")
	if err := os.Mkdir(bin, 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(bin, "pi")); err != nil {
		h.t.Fatal(err)
	}
	h.env = append(h.env, "PATH="+bin+":"+os.Getenv("PATH"), fakeagent.PlanVar+"="+h.plan)
}

// launched is the output of arbe launch.
type launched struct{ ThreadID, RunID string }

// launch launches a run by a version, whose agent has a plan.
func (h *host) launch(v version, plan string, args ...string) (l launched) {
	h.t.Helper()
	write(h.t, h.plan, plan)
	args = append([]string{"launch", "--sandbox", "local", "--env", fakeagent.PlanVar}, args...)
	if err := json.Unmarshal([]byte(h.arbe(v, args...)), &l); err != nil {
		h.t.Fatal(err)
	}
	return l
}

// ends waits for the end of a thread's newest run, which has a status.
func (h *host) ends(id, status string) {
	h.t.Helper()
	until(h.t, "the end of a run", func() bool {
		var fold thread.Fold
		for _, e := range h.entries(id) {
			fold.Add(e)
		}
		return fold.Status() == status
	})
}

// boxes returns the boxes that a version lists, by their ids.
func (h *host) boxes(v version) (ids []string) {
	h.t.Helper()
	for line := range strings.Lines(h.arbe(v, "sandbox", "list", "--json")) {
		var box struct{ Sandbox thread.Sandbox }
		if err := json.Unmarshal([]byte(line), &box); err != nil {
			h.t.Fatalf("%v: %s", err, line)
		}
		ids = append(ids, box.Sandbox.Ref)
	}
	return ids
}

// boxless waits until a version has reconciled all, and neither version lists a box.
func (h *host) boxless(p *pair, by version) {
	h.t.Helper()
	until(h.t, "no box", func() bool {
		h.arbe(by, "reconcile", "--all", "--orphan-after", "1s", "--reap-after", "1s")
		return len(h.boxes(by)) == 0
	})
	for _, v := range []version{p.first, p.then} {
		if got := h.boxes(v); len(got) > 0 {
			h.t.Errorf("%s lists boxes: %q", v.name, got)
		}
	}
	if left, err := filepath.Glob(filepath.Join(h.dir, "data", "boxes", "*")); err != nil || len(left) > 0 {
		h.t.Errorf("left of boxes: %q, %v", left, err)
	}
}

// A run that the first version has launched is over, and the second one deletes its box.
func boxSettled(p *pair) {
	h := newHost(p, p.then)
	l := h.launch(p.first, "prompt\nsay done", "--", "do it")
	h.ends(l.ThreadID, thread.StatusCompleted)
	h.boxless(p, p.then)
}

// All of a run that the first version has launched is dead, and the second one ends it and deletes its box.
func boxDead(p *pair) {
	h := newHost(p, p.then)
	begun := filepath.Join(h.dir, "begun")
	l := h.launch(p.first, "prompt\ntouch "+begun+"\nsleep 5m", "--", "do it")
	until(p.t, "an agent", func() bool { return exists(begun) })
	killRun(p.t, l.RunID)
	h.boxless(p, p.then)
	h.ends(l.ThreadID, thread.StatusFailed)
}

// A live run that the first version has launched gets a chat of the second one and is cancelled by it; then its box is
// deleted.
func boxLive(p *pair) {
	h := newHost(p, p.then)
	messages := filepath.Join(h.dir, "messages")
	l := h.launch(p.first, "converse "+messages, "--live", "--", "the task")
	h.arbe(p.then, "say", l.ThreadID, "--", "a chat")
	until(p.t, "the chat", func() bool {
		return exists(messages) && strings.Contains(string(read(p.t, messages)), `"a chat"`)
	})
	h.arbe(p.then, "reconcile", "--all", "--orphan-after", "1h") // leaves a live run alone
	h.arbe(p.then, "cancel", l.ThreadID)
	h.ends(l.ThreadID, thread.StatusCompleted) // as an idle agent that is ended
	h.boxless(p, p.then)
	if got, want := string(read(p.t, messages)), "\"the task\"\n\"a chat\"\n"; got != want {
		p.t.Errorf("the agent was given\n%s", got)
	}
}

// A box that the first version has kept has the session that the second one resumes. Then it is removed.
func boxResumed(p *pair) {
	h := newHost(p, p.then)
	l := h.launch(p.first, "prompt\nsay done", "--keep", "--", "do it")
	h.ends(l.ThreadID, thread.StatusCompleted)
	again := h.launch(p.then, "prompt\nsay more", "--thread", l.ThreadID, "--resume", "--keep", "--", "go on")
	var how string
	until(p.t, "the end of the second run", func() bool {
		var fold thread.Fold
		for _, e := range h.entries(l.ThreadID) {
			fold.Add(e)
		}
		r, is := fold.Run(again.RunID)
		if is && r.Started != nil {
			how = r.Started.Resume
		}
		return is && r.Status == thread.StatusCompleted
	})
	if how != "continue" {
		p.t.Errorf("the session was resumed by %q", how)
	}
	ids := h.boxes(p.first)
	if got := h.boxes(p.then); len(ids) != 1 || !slices.Equal(ids, got) {
		p.t.Fatalf("the boxes are %q and %q", ids, got)
	}
	h.arbe(p.then, "sandbox", "rm", "local:"+ids[0])
	h.boxless(p, p.then)
}
