package skew_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/thread"
)

// Phases of the upgrade of two machines.
const (
	phaseBefore    = "before"    // the first machine works alone
	phaseWaiting   = "waiting"   // the second one is there, and its schema is not
	phaseMigrating = "migrating" // db migrate runs, or the second machine has not noticed yet
	phaseMigrated  = "migrated"  // the second one works, the first one where the schema is for it
	phaseReplacing = "replacing" // the first one is replaced
	phaseReplaced  = "replaced"  // both are of the next version
)

// Two machines share a database and a server. The second one is of the next version, whose step of the schema only
// adds. Chats, mentions, tasks and a live run meet no refusal that was not there before, and nothing is lost or twice.
func TestFullHosts(t *testing.T) { upgradeHosts(t, false, false) }

// The same with two servers on one NATS.
func TestFullHostsNATS(t *testing.T) { upgradeHosts(t, false, true) }

// The step is one that the former version can't live with: the database refuses each of its transactions. The doors for
// members at its server are shut until it is replaced, and the second machine does all other work.
func TestFullHostsBreaking(t *testing.T) { upgradeHosts(t, true, false) }

// The same with two servers on one NATS, where members have the second one.
func TestFullHostsBreakingNATS(t *testing.T) { upgradeHosts(t, true, true) }

// Threads of work that begins before the database is migrated, and ends behind it.
const (
	longCommand = "command" // a bot's command
	longModel   = "model"   // a reply of a bot's model
	longSetup   = "setup"   // the setup of a task's box
)

func upgradeHosts(t *testing.T, breaking, nats bool) {
	t.Parallel()
	var flags []string
	if nats {
		flags = onNATS(t)
	}
	f := newFleet(t, nextVersion(t, breaking), flags...)
	always := []string{streamChats, hostTasks, liveChats} // whatever the schema
	doors := []string{doorChats, doorTasks}               // of members at the first machine's server
	all := slices.Concat(always, doors)
	for _, id := range slices.Concat(all, []string{otherChats, longCommand, longModel, longSetup}) {
		f.lab.thread(id)
	}
	f.lab.sql("update threads set agent_id = '" + piet + "', status = 'idle' where id = '" + liveChats + "'")
	f.first.start()
	l := f.beginLong()
	defer l.end() // before the machines end, where the test fails
	l.begin(all...)
	f.progress(2, all...)

	f.record.enter(phaseWaiting)
	f.then.start()
	if nats {
		l.begin(otherChats) // refused until the database is migrated
	}
	until(t, "a second machine that waits", func() bool {
		return strings.Count(f.then.workerLogs(), "(it lacks 000") == 2
	})
	f.progress(2, all...)

	f.record.enter(phaseMigrating)
	f.then.arbe(f.next, "db", "migrate")
	until(t, "a second machine that works", func() bool {
		logs := f.then.workerLogs()
		return strings.Contains(logs, "launching the runs of tasks") && strings.Contains(logs, "answering on threads")
	})
	f.record.enter(phaseMigrated)
	if !breaking {
		always = all
	}
	if nats {
		always, all = append(always, otherChats), append(all, otherChats)
	}
	asked := [2]int{len(f.first.model.Requests()), len(f.then.model.Requests())}
	f.progress(2, always...)
	f.endLong(l)
	until(t, "bots of both machines", func() bool { // of the second one, where the first one can't
		return (breaking || len(f.first.model.Requests()) > asked[0]) && len(f.then.model.Requests()) > asked[1]
	})
	former := f.first.logs()

	f.record.enter(phaseReplacing)
	f.first.upgrade(f.next)
	f.record.enter(phaseReplaced)
	f.progress(2, all...)
	l.end()
	f.first.arbe(f.next, "say", "--end", liveChats)
	f.first.ends(liveChats, thread.StatusCompleted)
	f.check(l, breaking, former)
}

// beginLong begins the work that lasts until endLong, and a live run.
func (f *fleet) beginLong() *load {
	f.t.Helper()
	l := &load{fleet: f, stop: make(chan struct{}), by: map[string][]string{}, next: map[string]string{}}
	write(f.t, f.first.plan+"."+liveChats, "converse "+filepath.Join(f.gate, "messages"))
	f.first.arbe(f.now, "launch", "--thread", liveChats, "--environment", "base", "--live", "--", "the task")
	for id, text := range map[string]string{longCommand: "@piet run the command", longModel: "@piet think about it"} {
		if err := l.post(f.first, id, id+".0", text); err != nil {
			f.t.Fatal(err)
		}
		l.made(id, id+".0")
	}
	task := f.first.arbe(f.now, "delegate", longSetup, "--author", ann, "--environment", "slow", "--", "do it")
	l.made(longSetup, task)
	for _, gate := range []string{longCommand, longModel, longSetup} {
		f.begun(gate)
	}
	return l
}

// endLong opens the gates of the long work, and waits for its end.
func (f *fleet) endLong(l *load) {
	f.t.Helper()
	for _, gate := range []string{longCommand, longModel, longSetup} {
		f.open(gate)
	}
	for _, id := range []string{longCommand, longModel} {
		if err := l.wait(id, func(e thread.Entry) bool { return answers(e, id+".0") }); err != nil {
			f.t.Fatal(err)
		}
	}
	if err := l.result(longSetup, l.of(longSetup)[0]); err != nil {
		f.t.Fatal(err)
	}
}

// progress waits until loops have come some steps further.
func (f *fleet) progress(more int, loops ...string) {
	f.t.Helper()
	since := f.record.count()
	until(f.t, "progress in phase "+f.record.now(), func() bool {
		return f.t.Failed() || f.record.reached(since, more, loops...)
	})
}
