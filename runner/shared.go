package runner

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/thread"
)

// shared is common to the goroutines of a conversation: what the thread asks of it, and what others ask about it. Its
// methods may be called by any goroutine.
type shared struct {
	failed  atomic.Bool  // the agent is being ended because of its input
	busy    atomic.Bool  // a turn is running
	quiet   atomic.Bool  // the agent has ended its turn and has no message to take
	waiting atomic.Bool  // the same, and the thread was read
	stdout  atomic.Int64 // the agent's stdout before it is not needed any more

	mu      sync.Mutex
	pending thread.Pending  // the chats that no session has on record, as far as the thread was read
	known   map[string]bool // ids of all chats that were read
	from    string          // offset of the thread behind its first reading; "": it was not read
	orders  orders
}

// orders are the reasons to end the run.
type orders struct {
	finish   string         // why the run ends once all is done; "": it does not
	tail     bool           // no chat came since the thread was read to its tail
	aborting time.Duration  // since when the run ends at once: clock; 0: it does not
	ended    outcome.Action // why the input was closed
	endedWhy string
}

// view returns the chats, whether the thread was read, and the orders.
func (s *shared) view() (chats []thread.PendingChat, read bool, o orders) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.pending.Chats()), s.from != "", s.orders
}

// chat returns the pending chat with the id.
func (s *shared) chat(id string) (chat thread.PendingChat, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	chats := s.pending.Chats()
	i := slices.IndexFunc(chats, func(chat thread.PendingChat) bool { return chat.ID == id })
	if i < 0 {
		return chat, false
	}
	return chats[i], true
}

// add adds a chat of the thread, for the run. It returns false for one that it has already.
func (s *shared) add(e thread.Entry, runID string) (fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[e.ID] {
		return false
	}
	s.known[e.ID], s.orders.tail = true, false
	s.pending.Run = runID
	s.pending.Add(e)
	return true
}

// begin takes what the first reading of the thread found. A prompt that was offered without the thread stays.
func (s *shared) begin(r threadRead, prompt thread.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.pending.Chats()
	for _, chat := range r.Pending.Chats() {
		s.known[chat.ID] = true
	}
	offered := len(before) > 0 && before[0].ID == prompt.ID
	s.pending, s.from = *r.Pending, r.Offset
	if offered && !s.known[prompt.ID] {
		s.pending.Add(prompt)
	}
	if r.End {
		s.orders.finish = endWhy("")
	}
}

// offset returns the offset behind the first reading of the thread; "": it was not read.
func (s *shared) offset() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.from
}

// forget has the thread read from its start.
func (s *shared) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.from = ""
	clear(s.known)
}

// toTail notes that the thread is about to be read to its tail, from the offset that it returns.
func (s *shared) toTail() (offset string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders.tail = true // until a chat comes
	return s.from
}

// drop forgets chats that no message will have any more.
func (s *shared) drop(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		s.pending.Drop(id)
	}
}

// finish has the run end once all is done. It returns false if that was asked before.
func (s *shared) finish(why string) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.orders.finish != "" {
		return false
	}
	s.orders.finish = why
	return true
}

// finishAgain has the run end for the reason of an earlier worker, which was closing the input for it.
func (s *shared) finishAgain(action outcome.Action, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders = orders{finish: why, tail: true, aborting: s.orders.aborting, ended: action, endedWhy: why}
}

// abort has the run end at once. It returns false where the input has ended long ago, or can't be continued.
func (s *shared) abort() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders.aborting = runfolder.Clock()
	return s.orders.ended == outcome.ActionNone && !s.failed.Load()
}

// end notes that the input is closed: for the reason to finish, else for idle. note records a reason that is new,
// before anyone can read it.
func (s *shared) end(idle string, note func(action outcome.Action, why string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.orders.aborting != 0 || s.orders.ended != outcome.ActionNone {
		return
	}
	s.orders.ended, s.orders.endedWhy = outcome.ActionEnd, s.orders.finish
	if s.orders.endedWhy == "" {
		s.orders.endedWhy = idle
	}
	note(s.orders.ended, s.orders.endedWhy)
}

// endedBy returns why the input was closed.
func (s *shared) endedBy() (outcome.Action, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.orders.ended, s.orders.endedWhy
}
