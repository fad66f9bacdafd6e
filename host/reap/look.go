package reap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
)

// look is one look at a box: for a purpose, and at a state of its lease.
type look struct {
	*Reaper
	box   Box
	row   Row // the zero Row for none
	lease lease.State
	by    lease.Hold // the caller's own, which stands against nothing
	facts Facts

	// Of each of facts.Needs: its run, and whether the provider has to be asked for the run's runner.
	runs []thread.Run
	asks []bool
}

// Look gathers the facts about a box, and changes nothing. For Sweep and Replace it asks only what the decision depends
// on. by is the caller's own hold; the zero Hold for none.
func (r *Reaper) Look(ctx context.Context, b Box, purpose Purpose, by lease.Hold) (Facts, error) {
	b, leases, err := r.find(ctx, b)
	if err != nil {
		return Facts{}, err
	}
	s, err := leases.Read(ctx)
	if err != nil {
		return Facts{}, err
	}
	l, err := r.look(ctx, b, purpose, by, s)
	return l.facts, err
}

// Lease returns the lease of a box: in a database if it has a row, or on a stream of its own.
func (r *Reaper) Lease(ctx context.Context, b Box) (lease.Lease, error) {
	_, l, err := r.find(ctx, b)
	return l, err
}

// find returns a box with the id of its row, and its lease.
func (r *Reaper) find(ctx context.Context, b Box) (Box, lease.Lease, error) {
	var err error
	b.Row = cmp.Or(b.Row, b.Labels[sandbox.LabelRow])
	if b.Row == "" && r.Rows != nil {
		b.Row, err = r.Rows.BoxAt(ctx, b.Ref.Provider, b.Ref.ID)
	}
	switch {
	case err != nil:
	case b.Row != "" && r.Rows == nil:
		err = ErrNoRows
	case b.Row != "":
		return b, r.Rows.Lease(b.Row), nil
	default:
		var client *thread.Client
		if client, err = r.Client(lease.Stream(b.Ref)); err == nil {
			return b, lease.OnStream{Client: client}, nil
		}
	}
	return b, nil, fmt.Errorf("the sandbox %s: %w", b.Ref, err)
}

// look gathers the facts at a state of the lease.
func (r *Reaper) look(ctx context.Context, b Box, purpose Purpose, by lease.Hold, s lease.State) (*look, error) {
	l := r.begin(b, purpose)
	l.by, l.lease = by, s
	if b.Row != "" {
		row, is, err := r.Rows.Row(ctx, b.Row)
		if err != nil {
			return l, fmt.Errorf("the sandbox %s: %w", b.Ref, err)
		}
		if l.row = row; !is { // deleted with its house: nobody can hold the box
			l.row = Row{ID: b.Row, Dead: true}
		}
	}
	return l, l.gather(ctx)
}

// begin begins a look with what the provider's list has.
func (r *Reaper) begin(b Box, purpose Purpose) *look {
	f := Facts{
		For: purpose, Why: "its provider's list does not have it",
		GoneAfter: cmp.Or(r.GoneAfter, DefaultGoneAfter), ReapAfter: cmp.Or(r.ReapAfter, DefaultReapAfter),
	}
	if b.Listed {
		f.Why = "its provider's list has it as " + b.State
	}
	if b.Listed && b.Health == sandbox.Live {
		f.Answer, f.Why = There, b.State
	}
	f.Ephemeral, _ = strconv.ParseBool(b.Labels[sandbox.LabelEphemeral]) // a box without the label is kept
	return &look{Reaper: r, box: b, facts: f}
}

// known decides by what is known of the box's own thread alone; false where that does not suffice.
func (r *Reaper) known(b Box) (Verdict, bool) {
	l := r.begin(b, Sweep)
	if b.Known == nil || l.facts.Answer != There {
		return Verdict{}, false
	}
	l.thread(b.Labels[sandbox.LabelThread], *b.Known)
	return Decide(l.facts), l.enough()
}

// condemned reports whether the box's row died of an answer of its provider. What nobody can hold otherwise was decided
// about before, or never used.
func (l *look) condemned() bool { return l.row.Dead && !l.row.Condemned.IsZero() }

// gather asks for one group of facts after the other, until they suffice.
func (l *look) gather(ctx context.Context) error {
	f := &l.facts
	f.Released = l.lease.Released && !l.condemned()
	f.Stray = !l.row.Dead && l.row.Ref != "" && l.row.Ref != l.box.Ref.ID
	if err := l.threads(ctx); err != nil || f.Released || f.Stray || f.Answer == There && l.enough() {
		return err
	}
	if f.Answer != There || f.For == Replace {
		err := l.answer(ctx)
		if err != nil || f.Answer == Unsure || f.Answer == Gone || f.For == Replace || l.enough() {
			return err
		}
	}
	err := l.runners(ctx)
	if err == nil && !l.enough() {
		err = l.works(ctx)
	}
	if errors.Is(err, sandbox.ErrGone) { // its list has it
		f.Answer, f.Why = Unsure, f.Why+" by its provider's list, and the provider answers that it is gone"
		return nil
	}
	return err
}

// enough reports whether the box stays whatever else there is to ask.
func (l *look) enough() bool { return l.facts.For == Sweep && Decide(l.facts).What <= Wait }

// answer asks the provider about a box that it does not list as live, or that the caller could not use.
func (l *look) answer(ctx context.Context) error {
	e, err := l.Evidence(ctx, l.box.Ref, nil)
	f := &l.facts
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		f.Answer, f.Why = Unsure, err.Error()
	case e.Gone && e.Faulty:
		f.Answer, f.Why = Faulty, e.Why
	case e.Gone:
		f.Answer, f.Why = Gone, e.Why
	case e.Live && f.For == Replace:
		f.Answer, f.Why = There, e.Why
	case e.Why != "":
		f.Why += ", and the provider answers " + e.Why
	default:
		f.Why = "its own host alone can ask about it"
	}
	return nil
}

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
	for _, id := range slices.Compact(ids) {
		if id == "" {
			continue
		}
		t, err := l.Reaper.read(ctx, id)
		if thread.NoThread(err) {
			continue // it never ran, or was deleted
		} else if err != nil {
			return err
		}
		l.thread(id, t)
	}
	for _, h := range l.lease.Holds {
		if h.TTL > 0 && !h.Expired(l.lease.Now) && h.Holder != l.by.Holder {
			l.facts.Uses = append(l.facts.Uses, HoldOf(h))
		}
	}
	switch {
	case l.condemned():
		last := Need{Ended: l.row.Condemned}
		for _, n := range l.facts.Needs { // a run may have gone on in it
			if n.Ended.After(last.Ended) {
				last.Ended = n.Ended
			}
		}
		l.facts.Ephemeral, l.facts.Needs, l.runs, l.asks = true, nil, nil, nil
		l.need(last, l.lease.Now, thread.Run{}, true)
	case len(l.facts.Needs) > 0:
	case l.facts.For == Sweep:
		// A launch posts its run before it makes the box, so the thread was deleted, or no run ever used the box.
		l.need(Need{Ended: l.box.Created, Wanted: "its thread has no run of it"}, l.lease.Now, thread.Run{}, false)
	default:
		l.need(Need{Ended: l.box.Created}, l.lease.Now, thread.Run{}, false)
	}
	return nil
}

// read returns the state of a thread.
func (r *Reaper) read(ctx context.Context, id string) (t Thread, err error) {
	if r.Read != nil {
		return r.Read(ctx, id)
	}
	client, err := r.Client(id)
	if err != nil {
		return t, err
	}
	server, err := client.Health(ctx)
	if err != nil {
		return t, err
	}
	t = Thread{Fold: &thread.Fold{}, Writable: server.WritableSince}
	page, err := client.Only("signal.").Read(ctx, "0", false, func(e thread.Entry) error { t.Fold.Add(e); return nil })
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
	silence := func(last time.Time) time.Duration {
		if t.Writable.After(last) {
			last = t.Writable
		}
		return t.Now.Sub(last)
	}
	on := slices.IndexFunc(l.row.Threads, func(r RowThread) bool { return r.ID == id })
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
		coming := on >= 0 && !l.row.Dead && run.Sandbox == nil
		if mine || l.made(run) || coming || l.holds(id, run.ID) {
			l.facts.Uses = append(l.facts.Uses, Use{
				Kind: UseRun, Thread: id, ID: run.ID, Silence: silence(run.LastEntry), Opens: !mine,
			})
		}
	}
	for _, x := range t.Fold.OpenExecs() {
		mine := x.Running != nil && x.Running.Sandbox != nil && *x.Running.Sandbox == boxRef(l.box.Ref)
		if (mine || l.holds(id, x.ID)) && !(id == l.by.ThreadID && x.ID == l.by.RunID) {
			used = true
			l.facts.Uses = append(l.facts.Uses, Use{
				Kind: UseCommand, Thread: id, ID: x.ID, Silence: silence(x.Last), Begun: x.Running != nil,
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
	keep := l.named(last) && !last.Ephemeral
	l.need(Need{Thread: id, Run: last.ID, Ended: last.Ended, Keep: keep}, t.Now, last, last.Provisional)
}

// need adds what a thread needs of the box. ask is set if its run's runner may be alive.
func (l *look) need(n Need, now time.Time, run thread.Run, ask bool) {
	n.Since, n.Runner = now.Sub(n.Ended), Dead // until the provider is asked
	l.facts.Needs, l.runs, l.asks = append(l.facts.Needs, n), append(l.runs, run), append(l.asks, ask)
}

// named reports whether a run names the box as its own, and made whether the box was made for the run.
func (l *look) named(run thread.Run) bool {
	return run.Sandbox != nil && *run.Sandbox == boxRef(l.box.Ref)
}

func (l *look) made(run thread.Run) bool {
	return run.ID != "" && run.ID == l.box.Labels[sandbox.LabelRun]
}

// holds reports whether the box is held until a run, or a command, of a thread has ended.
func (l *look) holds(threadID, id string) bool {
	return id != "" && slices.ContainsFunc(l.lease.Holds, func(h lease.Hold) bool {
		return h.TTL == 0 && h.ThreadID == threadID && h.RunID == id
	})
}

// runners asks for the runners of runs that a host has ended: they may still run behind a network that is down.
func (l *look) runners(ctx context.Context) error {
	for i := range l.facts.Needs {
		n := &l.facts.Needs[i]
		if !l.asks[i] || l.facts.Answer == Faulty {
			continue
		}
		p := RunnerOf(l.runs[i])
		if l.condemned() {
			p = sandbox.Process{} // any
		}
		var err error
		if n.Runner, err = l.Reaper.runner(ctx, l.box.Ref.ID, p); err != nil {
			return fmt.Errorf("ask about the runner in %s: %w", l.box.Ref, err)
		}
	}
	return nil
}

// works looks for work that would be lost.
func (l *look) works(ctx context.Context) error {
	for i := range l.facts.Needs {
		n, run := &l.facts.Needs[i], l.runs[i]
		if l.facts.For == Sweep && n.Since >= l.facts.ReapAfter {
			continue
		}
		switch {
		case WantsPush(run):
			n.Wanted = "its work is not pushed"
		case WantsSync(run):
			n.Wanted = "its folder is not copied back"
		}
		rest, any := unsavedTrees(l.box.Box, run)
		if !any || n.Wanted != "" && l.facts.For == Sweep {
			continue
		}
		var err error
		if n.Unsaved, err = l.unsaved(ctx, rest, run); err != nil {
			return fmt.Errorf("look into the sandbox %s: %w", l.box.Ref, err)
		}
	}
	return nil
}

// unsaved describes work that exists in the box only. A stopped box is not started for that, but kept. An error means
// that the answer is unknown now.
func (l *look) unsaved(ctx context.Context, b sandbox.Box, run thread.Run) (what string, err error) {
	tree := b.Labels[sandbox.LabelTree] != "" && l.Unsaved != nil // else its working directory was empty
	switch {
	case l.facts.Answer == Faulty && (tree || l.condemned()):
		return "what is in it is not known: it is " + l.facts.Why, nil
	case l.facts.For == Sweep && run.Kept != nil && run.Kept.Sandbox.Ref == b.Ref.ID:
		return run.Kept.Reason, nil // known already: a stopped box stays stopped
	case !tree:
		return "", nil
	}
	var why string
	health, err := l.Reaper.probe(ctx, b.Ref.ID, &why)
	switch {
	case err != nil:
		return "", err
	case health == sandbox.Gone:
		return "", sandbox.ErrGone
	case health != sandbox.Live || why != "started" && b.Ref.Provider != sandbox.LocalName:
		return "what is in it is not known: it is " + why, nil
	}
	box, err := l.Provider.Open(ctx, b.Ref.ID)
	if err == nil {
		what, err = l.Unsaved(ctx, box, b)
	}
	return what, err
}
