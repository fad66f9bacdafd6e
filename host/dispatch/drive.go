package dispatch

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"arbe.0sk.ar/runner/thread"
)

// Resume is a run that resumes a thread for a chat of a human, which the bot that drives the thread takes by a run.
type Resume struct {
	Chat   string // the trigger
	Run    string // its id
	Author string // of the chat
	Bot    string // that drives the thread
	Last   bool   // the last try: a failure is for good

	// From is when the run can be launched at the earliest: a run that a host launches now is left to that host while
	// entries of it come. Zero for at once.
	From time.Time
}

// runs is the namespace of the ids of runs that take chats.
var runs = uuid.MustParse("0c9f5a0e-6c1b-4b0e-8a51-5d6f7f0b9c3e")

// RunOf returns the id of the run that a host launches for a chat on a driven thread. The thread is in it since ids of
// chats are unique on one thread only, and a box may be of several.
func RunOf(threadID, chat string) string {
	stem, _, _ := strings.Cut(thread.DecidedID(chat), ".")
	return uuid.NewSHA1(runs, []byte(threadID+"\n"+stem)).String()
}

// launchLease is how long no entry of a run may come before another host continues its launch. A launch posts one every
// 30 s while a step lasts. The lease saves work alone: of two runners of one run one gets its beginning.
const launchLease = time.Minute

// drive is the fold of a thread's runs, and of the chats that no run has had. A chat waits as thread.Pending has it,
// and for one run at the most: what that one does not take is left to the runs of others, or to a person.
type drive struct {
	threadID string
	fold     thread.Fold
	chats    []driven // in the order of the log
	is       bool     // a bot drives the thread: a decision names it
}

// driven is a chat that no run has had.
type driven struct {
	id, author, run string
	bot             string // that takes it; "" before a decision
	had             bool   // another run has had it since, and the launch of its own has to come to an end
}

// add adds the thread's next entry.
func (d *drive) add(f thread.Fields, e thread.Entry) {
	d.fold.AddScanned(f, e)
	if len(d.chats) == 0 {
		return
	}
	switch {
	case f.Type == thread.TypeStarted, f.Type == thread.TypeStatus, f.Type == thread.TypeFailed,
		f.Type == thread.TypeOrphaned:
		d.drop(func(c driven) bool {
			run, there := d.fold.Run(c.run)
			return there && (run.Status != thread.StatusRunning || c.had && run.Started != nil)
		})
	case f.Type == thread.TypeRefused, !f.Signal():
		line, _ := thread.ParseMirrored(e.Payload)
		ids, all := line.Delivers()
		if f.Type == thread.TypeRefused {
			ids = []string{line.Chat}
		}
		if all || len(ids) > 0 {
			d.deliver(func(c driven) bool { return all || slices.Contains(ids, c.id) })
		}
	}
}

// deliver drops chats that a run has had.
func (d *drive) deliver(f func(driven) bool) {
	for i, c := range d.chats {
		d.chats[i].had = c.had || f(c)
	}
	d.drop(func(c driven) bool {
		run, there := d.fold.Run(c.run)
		return c.had && (!there || run.Started != nil)
	})
}

func (d *drive) drop(f func(driven) bool) { d.chats = slices.DeleteFunc(d.chats, f) }

// chat adds a chat that is a trigger.
func (d *drive) chat(e thread.Entry) {
	if _, pending := thread.ParseChat(e, ""); pending {
		d.chats = append(d.chats, driven{id: e.ID, author: e.AuthorID, run: RunOf(d.threadID, e.ID)})
	}
}

// decided adds the decision on a trigger.
func (d *drive) decided(p thread.Decided) {
	bot := ""
	for _, c := range p.Bots {
		if c.Decision == thread.DecisionReact && c.Reason == thread.ReasonDriver {
			bot, d.is = c.AgentID, true
		}
	}
	if bot == "" || p.Depth > 0 {
		d.drop(func(c driven) bool { return c.id == p.Trigger })
		return
	}
	for i := range d.chats {
		if d.chats[i].id == p.Trigger {
			d.chats[i].bot = bot
		}
	}
}

// waits reports whether a chat waits for a run.
func (d *drive) waits() bool {
	return slices.ContainsFunc(d.chats, func(c driven) bool { return c.bot != "" })
}

// open returns the runs that can be launched, one for each chat that waits: any of them takes all chats. While a run is
// open it returns nil, or that run where it was launched for one of the chats and its runner has not begun.
func (d *drive) open() (all []Resume) {
	latest, _ := d.fold.Latest()
	running := latest.Status == thread.StatusRunning
	for _, c := range d.chats {
		r := Resume{Chat: c.id, Run: c.run, Author: c.author, Bot: c.bot}
		switch {
		case c.bot == "":
		case !running: // none of them had its chat
			all = append(all, r)
		case latest.ID == c.run && latest.Started == nil:
			r.From = latest.LastEntry.Add(launchLease)
			return []Resume{r}
		}
	}
	return all
}
