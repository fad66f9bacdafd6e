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

// upgrade is an upgrade of two machines, and the work meanwhile.
type upgrade struct {
	*load
	breaking, nats bool
	work           []string // the loops of the load
	free           []string // those of them that the first machine's version does not hold up
}

func upgradeHosts(t *testing.T, breaking, nats bool) {
	t.Parallel()
	var flags []string
	if nats {
		flags = onNATS(t)
	}
	f := newFleet(t, nextVersion(t, breaking), flags...)
	u := upgrade{
		load:     &load{fleet: f, stop: make(chan struct{}), by: map[string][]string{}, read: map[string]string{}},
		breaking: breaking, nats: nats,
	}
	u.free = []string{streamChats, hostTasks, liveChats}
	doors := []string{doorChats, doorTasks} // for members at the first machine's server
	u.work = slices.Concat(u.free, doors)
	if !breaking {
		u.free = u.work
	}
	for _, id := range slices.Concat(u.work, []string{otherChats, longCommand, longModel, longSetup}) {
		u.lab.thread(id)
	}
	u.lab.sql("update threads set agent_id = '" + piet + "', status = 'idle' where id = '" + liveChats + "'")
	u.first.start()
	u.beginLong()
	defer u.end() // before the machines end, also where the test fails
	u.begin(u.work...)
	got, stop := u.follow(streamChats)
	defer stop()
	u.progress(2, u.work...)
	u.arrive()
	u.migrate()
	former := u.first.logs()
	u.replace()
	until(t, "a reader that has all", func() bool {
		var want []string
		for _, e := range u.first.entries(streamChats) {
			want = append(want, e.ID)
		}
		return slices.Equal(got(), want)
	})
	u.check(u.load, breaking, former)
}

// arrive starts the second machine, which waits for the database to be migrated.
func (u *upgrade) arrive() {
	u.t.Helper()
	u.record.enter(phaseWaiting)
	u.then.start()
	if u.nats {
		u.begin(otherChats) // refused until the database is migrated
	}
	until(u.t, "a second machine that waits", func() bool {
		return strings.Count(u.then.workerLogs(), "(it lacks 000") == 2
	})
	u.progress(2, u.work...)
}

// migrate migrates the database by the second machine's version, and waits until that machine works, and has done what
// the first one has begun and can't end.
func (u *upgrade) migrate() {
	u.t.Helper()
	u.record.enter(phaseMigrating)
	u.then.arbe(u.next, "db", "migrate")
	wants := []string{"launching the runs of tasks", "answering on threads"}
	if u.nats {
		wants = append(wants, "database open")
	}
	until(u.t, "a second machine that works", func() bool {
		logs := u.then.logs()
		return !slices.ContainsFunc(wants, func(line string) bool { return !strings.Contains(logs, line) })
	})
	u.record.enter(phaseMigrated)
	if u.nats {
		u.free, u.work = append(u.free, otherChats), append(u.work, otherChats)
	}
	asked := [2]int{len(u.first.model.Requests()), len(u.then.model.Requests())}
	u.progress(2, u.free...)
	u.endLong()
	until(u.t, "bots of both machines", func() bool { // of the second one, where the first one can't
		return (u.breaking || len(u.first.model.Requests()) > asked[0]) && len(u.then.model.Requests()) > asked[1]
	})
}

// replace replaces the programs of the first machine, and ends the work.
func (u *upgrade) replace() {
	u.t.Helper()
	u.record.enter(phaseReplacing)
	u.first.upgrade(u.next)
	u.record.enter(phaseReplaced)
	u.progress(2, u.work...)
	u.end()
	u.record.enter("checking")
	u.first.arbe(u.next, "say", "--end", liveChats)
	u.first.ends(liveChats, thread.StatusCompleted)
}

// beginLong begins the work that lasts until endLong, and a live run.
func (l *load) beginLong() {
	l.t.Helper()
	write(l.t, l.first.plan+"."+liveChats, "converse "+filepath.Join(l.gate, "messages"))
	l.first.arbe(l.now, "launch", "--thread", liveChats, "--environment", "base", "--live", "--", "the task")
	for id, text := range map[string]string{longCommand: "@piet run the command", longModel: "@piet think about it"} {
		if err := l.post(l.first, id, id+".0", text); err != nil {
			l.t.Fatal(err)
		}
		l.made(id, id+".0")
	}
	task := l.first.arbe(l.now, "delegate", longSetup, "--author", ann, "--environment", "slow", "--", "do it")
	l.made(longSetup, task)
	for _, gate := range []string{longCommand, longModel, longSetup} {
		l.begun(gate)
	}
}

// endLong opens the gates of the long work, and waits for its end.
func (l *load) endLong() {
	l.t.Helper()
	for _, gate := range []string{longCommand, longModel, longSetup} {
		l.open(gate)
	}
	for _, id := range []string{longCommand, longModel} {
		if err := l.wait(id, func(e thread.Entry) bool { return answers(e, id+".0") }); err != nil {
			l.t.Fatal(err)
		}
	}
	if err := l.result(longSetup, l.of(longSetup)[0]); err != nil {
		l.t.Fatal(err)
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
