package skew_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"arbe.0sk.ar/runner/thread"
)

// check checks what a load has left behind, once all machines are of the next version. former is the log of the first
// machine's programs before.
func (f *fleet) check(l *load, breaking bool, former string) {
	f.t.Helper()
	for _, id := range []string{doorChats, streamChats, otherChats, longCommand, longModel} {
		f.answeredOnce(id, l.of(id))
	}
	if !breaking { // whose machine can't keep what it holds
		for _, id := range []string{longCommand, longModel} {
			f.heldOnce(id)
		}
	}
	for _, id := range []string{doorTasks, hostTasks, longSetup} {
		f.doneOnce(id, l.of(id))
	}
	f.deliveredOnce(l.of(liveChats))
	f.cleaned()
	if strings.Contains(former, "a newer arbe has migrated the database") != breaking {
		f.t.Errorf("the log of the former version: %s", former)
	}
	allowed := []refusal{
		{phaseReplacing, "first", "no answer"},
		{phaseMigrated, "first", "no answer"}, // the request began before the server was replaced
	}
	if breaking {
		for _, phase := range []string{phaseMigrating, phaseMigrated, phaseReplacing} {
			allowed = append(allowed, refusal{phase, "first", "503 schema"})
		}
	}
	for _, phase := range []string{phaseWaiting, phaseMigrating} { // of a server before the database is migrated
		allowed = append(allowed, refusal{phase, "second", "503 schema"})
	}
	for _, wrong := range f.record.unexpected(allowed...) {
		f.t.Errorf("refused: %s", wrong)
	}
	f.record.enter("checked")
	f.t.Logf("%ssteps %v, refused %v", f.record.took, f.record.count(), f.record.refused)
}

// answeredOnce checks that each chat of a thread was decided on once, and is answered in one end of one reaction.
func (f *fleet) answeredOnce(id string, chats []string) {
	f.t.Helper()
	decided, answered := map[string]int{}, map[string]int{}
	rounds, ends, open := map[string]int{}, map[string]int{}, map[string]bool{}
	for _, e := range f.first.entries(id) {
		var p struct {
			Type, Trigger, Outcome string
			Chats                  []string
			Reaction               json.RawMessage // an id, or an object with one
		}
		if err := json.Unmarshal(e.Payload, &p); err != nil {
			f.t.Fatalf("%v: %s", err, e.Payload)
		}
		switch p.Type {
		case thread.TypeDecided:
			decided[p.Trigger]++
		case thread.TypeReactionClaimed:
			open[string(p.Reaction)] = true
		case thread.TypeRound:
			if len(p.Chats) > 0 { // the reply
				for _, chat := range p.Chats {
					rounds[chat]++
				}
			}
		case thread.TypeReactionFinished:
			ends[string(p.Reaction)]++
			if p.Outcome != thread.ReactionAnswered {
				f.t.Errorf("%s: %s", id, e.Payload)
			}
			for _, chat := range p.Chats {
				answered[chat]++
			}
		}
	}
	for _, chat := range chats {
		if decided[chat] != 1 || answered[chat] != 1 || rounds[chat] != 1 {
			f.t.Errorf("%s: chat %s has %d decisions, %d replies, %d ends", id, chat, decided[chat], rounds[chat],
				answered[chat])
		}
	}
	for reaction := range open {
		if ends[reaction] != 1 {
			f.t.Errorf("%s: reaction %s has %d ends", id, reaction, ends[reaction])
		}
	}
	if len(answered) != len(chats) {
		f.t.Errorf("%s: %d chats are answered, %d were posted", id, len(answered), len(chats))
	}
}

// heldOnce checks that the reaction on a thread had one host.
func (f *fleet) heldOnce(id string) {
	f.t.Helper()
	claims := 0
	for _, e := range f.first.entries(id) {
		if thread.TypeOf(e.Payload) == thread.TypeReactionClaimed {
			claims++
		}
	}
	if claims != 1 {
		f.t.Errorf("%s: %d claims", id, claims)
	}
}

// doneOnce checks that each task of a parent had one run, which completed, and that the parent has its result once.
func (f *fleet) doneOnce(parent string, tasks []string) {
	f.t.Helper()
	entries := f.first.entries(parent)
	spawned := map[string]int{}
	for _, e := range entries {
		var p thread.AgentSpawn
		if thread.TypeOf(e.Payload) == thread.TypeAgentSpawn && json.Unmarshal(e.Payload, &p) == nil {
			spawned[p.ChildThreadID]++
		}
	}
	for _, task := range tasks {
		var fold thread.Fold
		for _, e := range f.first.entries(task) {
			fold.Add(e)
		}
		chats, signals := results(entries, task)
		got := fmt.Sprintf("%d runs, %s, delegated %d times, %d and %d results", fold.Len(), fold.Status(),
			spawned[task], chats, signals)
		if got != "1 runs, completed, delegated 1 times, 1 and 1 results" {
			f.t.Errorf("%s: task %s: %s", parent, task, got)
		}
	}
	if len(spawned) != len(tasks) {
		f.t.Errorf("%s has %d tasks, and %d were delegated", parent, len(spawned), len(tasks))
	}
}

// deliveredOnce checks that the live run was the only one of its thread, and that its agent got each chat once and in
// order.
func (f *fleet) deliveredOnce(chats []string) {
	f.t.Helper()
	var fold thread.Fold
	var pending thread.Pending
	want := "\"the task\"\n"
	for _, e := range f.first.entries(liveChats) {
		fold.Add(e)
		pending.Add(e)
		var c thread.Chat
		if slices.Contains(chats, e.ID) && json.Unmarshal(e.Payload, &c) == nil {
			want += fmt.Sprintf("%q\n", c.Text)
		}
	}
	if got := string(read(f.t, filepath.Join(f.gate, "messages"))); got != want {
		f.t.Errorf("the live run's agent got\n%swant\n%s", got, want)
	}
	if fold.Len() != 1 || fold.Status() != thread.StatusCompleted || len(pending.Chats()) > 0 {
		f.t.Errorf("the live run: %d runs, %s, pending %v", fold.Len(), fold.Status(), pending.Chats())
	}
}

// cleaned checks that rows follow the log, that no box is left, and that the database is as the steps make it.
func (f *fleet) cleaned() {
	f.t.Helper()
	until(f.t, "rows that follow the log", func() bool {
		return f.lab.text("select count(*)::text from threads where task is not null and status <> 'completed'") == "0"
	})
	for _, m := range []*machine{f.first, f.then} {
		why := ""
		defer func() {
			if f.t.Failed() {
				f.t.Logf("boxes of the %s machine: %s", f.name(m), why)
			}
		}()
		until(f.t, "no box", func() bool {
			why = m.arbe(f.next, "reconcile", "--explain")
			m.arbe(f.next, "reconcile", "--all", "--reap-after", "1s")
			left, err := filepath.Glob(filepath.Join(m.dir, "data", "boxes", "*"))
			why += fmt.Sprint("\n", left)
			return err == nil && len(left) == 0
		})
	}
	f.first.arbe(f.next, "db", "status")
}
