package skew_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// Loops of a load, each on a thread of its own.
const (
	doorChats   = "door"   // ann mentions the bot over the server's door for members
	streamChats = "stream" // a chat of ann that the operator posts mentions the bot
	doorTasks   = "tasks"  // ann delegates a task
	hostTasks   = "orders" // the operator delegates a task, by arbe delegate
	liveChats   = "live"   // chats for a live run
	otherChats  = "other"  // as doorChats, at the second server
)

// Times between two steps of a loop.
const (
	restOfChats = 600 * time.Millisecond
	restOfTasks = time.Second
)

// load is the work of a house while its hosts are replaced: chats, mentions, tasks, and a live run.
type load struct {
	*fleet
	stop chan struct{}
	once sync.Once
	all  sync.WaitGroup
	mu   sync.Mutex
	by   map[string][]string // of each loop: the ids of its chats, or the threads of its tasks
	read map[string]string   // offset of each thread, behind what was waited for
}

// begin begins loops.
func (l *load) begin(loops ...string) {
	for _, loop := range loops {
		l.all.Go(func() { l.repeat(loop) })
	}
}

// repeat does the steps of a loop until the end.
func (l *load) repeat(loop string) {
	for n := 0; ; n++ {
		select {
		case <-l.stop:
			return
		default:
		}
		if err := l.step(loop, n); err != nil {
			l.t.Errorf("%s %d, in phase %s: %v", loop, n, l.record.now(), err)
			return
		}
		l.record.step(loop)
		rest := restOfChats
		if loop == doorTasks || loop == hostTasks {
			rest = restOfTasks
		}
		pause.For(l.t.Context(), rest)
	}
}

// end has each loop end its step, and waits for it. It may be called again.
func (l *load) end() {
	l.once.Do(func() { close(l.stop) })
	l.all.Wait()
}

// made notes a chat or a task of a loop.
func (l *load) made(loop, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.by[loop] = append(l.by[loop], id)
}

// of returns the chats or tasks of a loop.
func (l *load) of(loop string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.by[loop])
}

// step does a loop's next chat or task, and waits for its end.
func (l *load) step(loop string, n int) error {
	key := fmt.Sprint(loop, ".", n)
	switch loop {
	case liveChats:
		text := fmt.Sprint("chat ", n, " for the live run")
		at := l.first
		if l.then.serves && n%2 == 1 && l.migrated() {
			at = l.then
		}
		if err := l.post(at, loop, key, text); err != nil {
			return err
		}
		l.made(loop, key)
		return l.wait(loop, func(e thread.Entry) bool {
			return slices.Contains(thread.ParseLine(e.Payload).Named(), key)
		})
	case doorTasks:
		answer, err := l.door(l.first, "/api/threads/"+loop+"/tasks", key, `{"task":"do it"}`)
		var made struct{ ThreadID string }
		if err = errors.Join(err, json.Unmarshal([]byte(answer), &made)); err != nil {
			return err
		}
		return l.task(loop, made.ThreadID)
	case hostTasks:
		id, err := l.command("delegate", loop, "--author", ann, "--", "do it")
		if err != nil {
			return err
		}
		return l.task(loop, id)
	}
	id, text := key, fmt.Sprint("@piet question ", n)
	if loop == streamChats {
		if err := l.post(l.first, loop, id, text); err != nil {
			return err
		}
	} else {
		at := map[string]*machine{doorChats: l.first, otherChats: l.then}[loop]
		body := string(thread.Marshal(map[string]any{"payload": map[string]string{"type": "chat", "text": text}}))
		if _, err := l.door(at, "/api/threads/"+loop+"/entries", key, body); err != nil {
			return err
		}
		id = "member." + ann + "." + key
	}
	l.made(loop, id)
	return l.wait(loop, func(e thread.Entry) bool { return answers(e, id) })
}

// migrated reports whether the second machine works.
func (l *load) migrated() bool {
	return slices.Contains([]string{phaseMigrated, phaseReplacing, phaseReplaced}, l.record.now())
}

// answers reports whether an entry is the end of a reaction that answers a chat.
func answers(e thread.Entry, chat string) bool {
	var p thread.ReactionFinished
	return thread.TypeOf(e.Payload) == thread.TypeReactionFinished && json.Unmarshal(e.Payload, &p) == nil &&
		slices.Contains(p.Chats, chat)
}

// task notes a task, and waits for its result.
func (l *load) task(loop, id string) error {
	l.made(loop, id)
	return l.result(loop, id)
}

// result waits for the result of a task on its parent. Servers would post it within 15 s.
func (l *load) result(parent, id string) error {
	ended := func(e thread.Entry) bool {
		var p thread.StatusChanged
		return thread.TypeOf(e.Payload) == thread.TypeStatus && json.Unmarshal(e.Payload, &p) == nil &&
			p.Status != thread.StatusRunning
	}
	if err := l.wait(id, ended); err != nil {
		return err
	}
	if _, err := l.command("reconcile", id); err != nil {
		return err
	}
	return l.wait(parent, func(e thread.Entry) bool {
		return thread.TypeOf(e.Payload) == thread.TypeChildFinished && strings.HasPrefix(e.ID, id+".")
	})
}

// command runs a command of the operator's, by the programs of the second machine where those have migrated the
// database, else by those of the first one.
func (l *load) command(args ...string) (out string, err error) {
	for {
		phase := l.record.now()
		m, v := l.first, l.now
		if phase != phaseBefore && phase != phaseWaiting {
			m, v = l.then, l.next
		}
		out, status := result(m.command(v, args...))
		switch {
		case status == 0:
			return out, nil
		case status != 69 && status != 78:
			return "", fmt.Errorf("arbe %v: status %d: %s", args, status, out)
		case phase == phaseMigrating: // the second machine's arbe db migrate is not done
		case phase == phaseReplacing: // the server is away
		case l.record.now() != phase: // one of both since
		default:
			return "", fmt.Errorf("arbe %v: status %d: %s", args, status, out)
		}
		pause.For(l.t.Context(), between)
	}
}

// between is the time between two tries of a request.
const between = 150 * time.Millisecond

// door posts for ann with a key at the door of a machine's server, until it is accepted, and returns the answer. The
// record has each other answer.
func (l *load) door(m *machine, path, key, body string) (answer string, err error) {
	for began := time.Now(); time.Since(began) < patience; pause.For(l.t.Context(), between) {
		phase := l.record.now()
		status, answer, err := l.lab.asks(m.addr, http.MethodPost, path, body, "Idempotency-Key", key)
		if err == nil && status/100 == 2 {
			return answer, nil
		}
		var refused struct{ Error struct{ Code string } }
		what := "no answer"
		if err == nil {
			what = fmt.Sprint(status)
			if json.Unmarshal([]byte(answer), &refused) == nil {
				what += " " + refused.Error.Code
			}
		}
		l.record.refuse(phase, l.name(m), what)
	}
	return "", fmt.Errorf("%s is never accepted", key)
}

// name returns the name of a machine.
func (f *fleet) name(m *machine) string {
	if m == f.first {
		return "first"
	}
	return "second"
}

// post posts a chat of ann as the operator, until a machine's server has it. The record has each failure.
func (l *load) post(m *machine, id, entry, text string) error {
	e := thread.NewEntry(entry, ann, thread.Chat{Type: thread.TypeChat, Text: text})
	for began := time.Now(); time.Since(began) < patience; pause.For(l.t.Context(), between) {
		phase := l.record.now()
		_, err := m.client(id).Append(l.t.Context(), []thread.Entry{e})
		if err == nil {
			return nil
		}
		what := "no answer"
		if status, is := errors.AsType[*client.StatusError](err); is {
			what = fmt.Sprint(status.Status, " of the thread API")
		}
		l.record.refuse(phase, l.name(m), what)
	}
	return fmt.Errorf("%s is never accepted", entry)
}

// follow follows a thread as a person's program does, until stop is called. ids returns the entries that it got.
func (f *fleet) follow(id string) (ids func() []string, stop func()) {
	var mu sync.Mutex
	var all []string
	ctx, cancel := context.WithCancel(f.t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- f.first.client(id).Follow(ctx, "0", func(e thread.Entry) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, e.ID)
			return nil
		}, nil)
	}()
	ids = func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
	return ids, func() {
		cancel()
		if err := <-ended; err != nil {
			f.t.Errorf("the reader of %s: %v", id, err)
		}
	}
}

// client returns a client that may write a thread.
func (s *site) client(id string) *client.Client {
	return &client.Client{
		Base: thread.BaseURL("http://" + s.addr), Thread: id, Token: func() (string, error) { return signed(id) },
	}
}

// wait waits for an entry on a thread, behind those that the waits for it have read before.
func (l *load) wait(id string, meant func(thread.Entry) bool) error {
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	l.mu.Lock()
	next := cmp.Or(l.read[id], "0")
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.read[id] = next
	}()
	for found := false; !found; {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("waited in vain on thread %s: %w", id, err)
		}
		page, err := l.first.client(id).Read(ctx, next, true, func(e thread.Entry) error {
			found = found || meant(e)
			return nil
		})
		if err != nil { // a server that is replaced, or a thread without entries
			pause.For(ctx, between)
			continue
		}
		next = page.Next
	}
	return nil
}
