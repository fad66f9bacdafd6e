package reap

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// threads reads the threads of the box: who uses it, and which run used it last.
func (l *look) threads(ctx context.Context) error {
	label := l.box.Labels[sandbox.LabelThread]
	ids := []string{}
	if thread.ValidThread(label) {
		ids = append(ids, label)
	}
	for _, t := range l.row.Threads {
		ids = append(ids, t.ID)
	}
	for _, h := range l.lease.Holds {
		ids = append(ids, h.ThreadID)
	}
	slices.Sort(ids)
	last := l.box.Created // use of a box for commands
	for _, id := range slices.Compact(ids) {
		if id == "" {
			continue
		}
		t, err := l.Reaper.read(ctx, id)
		if client.NoThread(err) {
			continue // it never ran, or was deleted
		} else if err != nil {
			return err
		}
		l.thread(id, t)
		last = latest(last, t.Fold.LastExec())
	}
	for _, h := range l.lease.Holds {
		if h.TTL > 0 && !h.Expired(l.lease.Now) && h.Holder != l.by.Holder {
			l.facts.Uses = append(l.facts.Uses, HoldOf(h))
		}
	}
	switch {
	case l.condemned():
		ended := l.row.Condemned
		for _, n := range l.facts.Needs { // a run may have gone on in it
			ended = latest(ended, n.Ended)
		}
		l.facts.Ephemeral, l.facts.Needs = true, nil
		l.need(Need{Ended: ended, ask: true}, l.lease.Now)
	case ofCommands(l.box):
		for _, n := range l.facts.Needs {
			last = latest(last, n.Ended)
		}
		for i := range l.facts.Needs {
			l.facts.Needs[i].Ended, l.facts.Needs[i].Since = last, l.lease.Now.Sub(last)
		}
		if more := l.moreCommands(); more != "" || l.facts.Needs == nil {
			l.need(Need{Ended: last, Wanted: more}, l.lease.Now)
		}
	case len(l.facts.Needs) > 0:
	case l.facts.For == Sweep:
		// A launch posts its run before it makes the box, so the thread was deleted, or no run ever used the box.
		l.need(Need{Ended: l.box.Created, Wanted: "its thread has no run of it"}, l.lease.Now)
	default:
		l.need(Need{Ended: l.box.Created}, l.lease.Now)
	}
	return nil
}

// isEphemeral reports whether a box was made for a run, and goes with it.
func isEphemeral(b Box) bool {
	is, _ := strconv.ParseBool(b.Labels[sandbox.LabelEphemeral])
	return is
}

// ofCommands reports whether a box was made for a command. One that was made for a run, and is kept by hand, has its
// label.
func ofCommands(b Box) bool {
	return b.Labels[sandbox.LabelRow] != "" && b.Labels[sandbox.LabelRun] == "" && !isEphemeral(b)
}

// moreCommands returns why a box for commands is kept although none runs; "" where no thread can run another one in it,
// and for a removal by hand.
func (l *look) moreCommands() string {
	open := func(t rows.BoxThread) bool { return t.Status != rows.ThreadClosed }
	if l.row.Dead || l.facts.For != Sweep || !slices.ContainsFunc(l.row.Threads, open) {
		return ""
	}
	return "its thread may run more commands in it"
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// read returns the state of a thread.
func (r *Reaper) read(ctx context.Context, id string) (t Thread, err error) {
	if r.Read != nil {
		return r.Read(ctx, id)
	}
	cl, err := r.Client(id)
	if err != nil {
		return t, err
	}
	server, err := cl.Health(ctx)
	if err != nil {
		return t, err
	}
	t = Thread{Fold: &thread.Fold{}, Writable: server.WritableSince}
	page, err := cl.Only("signal.").Without(thread.TypeDelta).Read(ctx, "0", false, func(e thread.Entry) error {
		t.Fold.Add(e)
		return nil
	})
	if t.Now = page.Now; t.Now.IsZero() {
		t.Now = time.Now()
	}
	if err != nil {
		err = fmt.Errorf("read thread %s: %w", id, err)
	}
	return t, err
}

// thread adds what a thread does in the box.
func (l *look) thread(id string, t Thread) {
	on := slices.IndexFunc(l.row.Threads, func(r rows.BoxThread) bool { return r.ID == id })
	used := false
	var last thread.Run
	for _, run := range t.Fold.Runs() {
		mine := l.named(run)
		if mine || l.made(run) {
			last, used = run, true
		}
		if run.Status != thread.StatusRunning {
			continue
		}
		if id == l.by.ThreadID && run.ID == l.by.RunID && run.ID != "" {
			continue
		}
		coming := on >= 0 && !l.row.Dead && run.Box() == nil
		if mine || l.made(run) || coming || l.holds(id, run.ID) {
			l.facts.Uses = append(l.facts.Uses, Use{
				Kind: UseRun, Thread: id, ID: run.ID, Silence: t.Silence(run.LastEntry), Opens: !mine,
			})
		}
	}
	for _, x := range t.Fold.OpenExecs() {
		mine := x.Running != nil && x.Running.Sandbox != nil && *x.Running.Sandbox == boxRef(l.box.Ref)
		if (mine || l.holds(id, x.ID)) && !(id == l.by.ThreadID && x.ID == l.by.RunID) {
			used = true
			l.facts.Uses = append(l.facts.Uses, Use{
				Kind: UseCommand, Thread: id, ID: x.ID, Silence: t.Silence(x.Last), Begun: x.Running != nil,
			})
		}
	}
	if on >= 0 {
		used = used || l.row.Used
		row := l.row.Threads[on]
		_, known := t.Fold.Run(row.Run)
		if row.Run != "" && !known && !l.row.Dead && id != l.by.ThreadID {
			l.facts.Uses = append(l.facts.Uses, Use{Kind: UseLaunch, Thread: id, ID: row.Run, Opens: true})
		}
	}
	if used {
		l.facts.Threads = append(l.facts.Threads, id)
	}
	if last.Status == "" {
		return
	}
	keep := l.named(last) && !last.Ephemeral && !ofCommands(l.box)
	n := Need{Thread: id, Run: last.ID, Ended: last.Ended, Keep: keep, run: last, ask: last.Provisional}
	l.need(n, t.Now)
}

// need adds what a thread needs of the box.
func (l *look) need(n Need, now time.Time) {
	n.Since, n.Runner = now.Sub(n.Ended), Dead // until the provider is asked
	l.facts.Needs = append(l.facts.Needs, n)
}

// named reports whether a run names the box as its own, and made whether the box was made for the run.
func (l *look) named(run thread.Run) bool {
	in := run.Box()
	return in != nil && *in == boxRef(l.box.Ref)
}

func (l *look) made(run thread.Run) bool {
	return run.ID != "" && run.ID == l.box.Labels[sandbox.LabelRun]
}

// holds reports whether the box is held until a run, or a command, of a thread has ended.
func (l *look) holds(threadID, id string) bool {
	return id != "" && slices.ContainsFunc(l.lease.Holds, func(h rows.Hold) bool {
		return h.TTL == 0 && h.ThreadID == threadID && h.RunID == id
	})
}
