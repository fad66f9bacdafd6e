package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// obey follows the thread, and ends the agent when an entry asks for it. While the thread can't be read, the run
// continues.
func (r *run) obey(ctx context.Context) error {
	if r.awaitOpen(ctx) != nil {
		return nil
	}
	offset, began := r.offset, r.offset != ""
	obey := func(e thread.Entry) error { return r.take(e, &began) }
	follow := func() (err error) {
		var asked bool
		if offset == "" { // of a run that the host, or an earlier worker, has begun
			offset, asked, err = r.obeyBegun(ctx)
			began = offset != "0"
		}
		if err == nil && !asked {
			err = r.Client.Only(signals).Without(thread.TypeDelta).Follow(ctx, offset, obey, nil)
		}
		return err
	}
	r.keepFollowing(ctx, "requests to cancel", follow, func() { offset, began = "0", false })
	return nil
}

// keepFollowing calls follow until it has no error, it stopped, or ctx is done. what does not arrive meanwhile. A
// thread that was restored to an earlier state is read from its start, after rewind.
func (r *run) keepFollowing(ctx context.Context, what string, follow func() error, rewind func()) {
	logged := false
	for wait := r.intervals.retryRead; ; wait = min(2*wait, maxRetryRead) {
		err := follow()
		switch {
		case err == nil, errors.Is(err, client.ErrStop):
			return
		case errors.Is(err, client.ErrRewound):
			r.Log.Warn("thread was restored to an earlier state; reading it from its start")
			rewind()
		case !logged:
			r.Log.Warn("follow thread; "+what+" do not arrive, retrying", "error", err)
			logged = true
		}
		if !pause.For(ctx, wait) {
			return
		}
	}
}

// signals is the prefix of the types of all signals.
const signals = "signal."

// asksToEnd reports whether an entry asks this run to end. A request without a run id is for the runs that have
// started: it must come after this run's started entry.
func (r *run) asksToEnd(e thread.Entry, began bool) (p thread.Cancel, is bool) {
	is = json.Unmarshal(e.Payload, &p) == nil && p.Type == thread.TypeCancel &&
		(p.RunID == r.RunID || p.RunID == "" && began)
	return p, is
}

// take ends the agent where an entry asks for that: its error is client.ErrStop then. It notes in began that the run's
// started entry has come.
func (r *run) take(e thread.Entry, began *bool) error {
	*began = *began || e.ID == startedID(r.RunID)
	if p, is := r.asksToEnd(e, *began); is {
		r.obeyed(e, p)
		return client.ErrStop
	}
	return nil
}

// obeyed ends the agent for a request.
func (r *run) obeyed(e thread.Entry, p thread.Cancel) {
	r.Log.Info("cancel requested", "by", e.AuthorID, "reason", p.Reason)
	r.end(cause{outcome.ActionCancel, cancelWhy(e.AuthorID, p.Reason)})
}

// obeyBegun obeys a request that came before now. It reads back from the thread's end to the run's beginning, and
// returns the offset of that end. From a server that can't read backwards it reads nothing: the offset is "0".
func (r *run) obeyBegun(ctx context.Context) (offset string, asked bool, err error) {
	var first struct {
		thread.Entry
		thread.Cancel
	}
	began := true
	offset, err = r.Client.Only(signals).Without(thread.TypeDelta).ReadBack(ctx, "now", func(e thread.Entry) error {
		if p, is := r.asksToEnd(e, began); is {
			first.Entry, first.Cancel, asked = e, p, true
		}
		switch e.ID {
		case runningID(r.RunID):
			return client.ErrStop
		case startedID(r.RunID):
			began = false
		}
		return nil
	})
	if err != nil {
		return "", false, err
	}
	if asked {
		r.obeyed(first.Entry, first.Cancel)
	}
	return cmp.Or(offset, "0"), asked, nil
}

// The first and the longest wait before the thread is read again after the server refused it. An expired token may
// yet be replaced.
const (
	retryRead    = 5 * time.Second
	maxRetryRead = time.Minute
)

// cancelWhy is the reason of a cancel request, for people: "too dear (requested by ada)".
func cancelWhy(author, reason string) string {
	switch {
	case author == "" && reason == "":
		return "requested on the thread"
	case author == "":
		return reason
	case reason == "":
		return "requested by " + author
	}
	return fmt.Sprintf("%s (requested by %s)", reason, author)
}

// listen follows the thread of a live run: chats, and requests to cancel or to end. While the thread can't be read, the
// run continues with what it has.
func (c *conversation) listen(ctx context.Context) error {
	if !c.awaitThread(ctx) {
		return nil
	}
	began := false
	follow := func() error {
		if err := c.readFirst(ctx, &began); err != nil {
			return err
		}
		take := func(e thread.Entry) error { return c.take(e, &began) }
		input := c.run.Client.Only(thread.TypeChat, signals).Without(thread.TypeDelta)
		return input.Follow(ctx, c.shared.offset(), take, nil)
	}
	c.run.keepFollowing(ctx, "chats and requests", follow, c.forgetThread)
	return nil
}

// awaitThread waits for the run's first entries to be on the thread. After Timeout the agent gets the prompt of the
// command line without it. false: ctx is done.
func (c *conversation) awaitThread(ctx context.Context) bool {
	timer := time.NewTimer(c.run.Timeout)
	defer timer.Stop()
	for {
		select {
		case <-c.run.opened:
			return true
		case <-ctx.Done():
			return false
		case <-timer.C:
			c.offerPrompt()
		}
	}
}

// offerPrompt takes the prompt of the command line as the first chat.
func (c *conversation) offerPrompt() {
	if c.run.Prompt == "" {
		return
	}
	_ = c.take(c.prompt(), new(bool)) // a chat is no request
}

// prompt is the prompt of the command line as a chat.
func (c *conversation) prompt() thread.Entry {
	text := thread.Chat{Type: thread.TypeChat, Text: c.run.Prompt, RunID: c.run.RunID}
	return c.run.entry(promptID(c.run.RunID), text)
}

// threadFile, in the run's folder, records the run's first read of its thread. The next worker reads on from
// there.
const threadFile = "thread.json"

// threadRead is the content of threadFile.
type threadRead struct {
	Offset  string
	Pending *thread.Pending
	Began   bool // the run's started entry is among what was read
	End     bool // a request to end, too
}

// readFirst reads the whole thread once, for the chats that no run has had, up to where a Follow continues.
func (c *conversation) readFirst(ctx context.Context, began *bool) error {
	if c.shared.offset() != "" {
		return nil
	}
	s, err := c.readState()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.run.Log.Warn("read what an earlier worker has read of the thread", "error", err)
	}
	if err != nil {
		if s, err = c.readThread(ctx); err != nil {
			return err
		}
		if err := writeJSON(filepath.Join(c.run.Folder.Path, threadFile), s); err != nil {
			c.run.Log.Debug("save what was read of the thread", "error", err) // the next worker reads the thread again
		}
	}
	*began = s.Began
	c.shared.begin(s, c.prompt())
	notify(c.wake)
	return nil
}

// readThread reads the thread from its start. Its error is client.ErrStop where a request to cancel the run is there.
func (c *conversation) readThread(ctx context.Context) (threadRead, error) {
	s := threadRead{Pending: &thread.Pending{Run: c.run.RunID}}
	stop := false
	page, err := c.run.Client.Read(ctx, "0", false, func(e thread.Entry) error {
		s.Pending.Add(e)
		s.End = s.End || c.asksToFinish(e)
		stop = c.run.take(e, &s.Began) != nil || stop
		return nil
	})
	if err == nil && stop {
		err = client.ErrStop
	}
	s.Offset = cmp.Or(page.Next, "0")
	return s, err
}

// readState reads what an earlier worker has read of the thread; fs.ErrNotExist if none has.
func (c *conversation) readState() (s threadRead, err error) {
	err = readJSON(filepath.Join(c.run.Folder.Path, threadFile), &s)
	if err == nil && (s.Pending == nil || s.Offset == "") {
		err = fs.ErrNotExist
	}
	return s, err
}

// forgetThread has the thread read from its start.
func (c *conversation) forgetThread() {
	if err := os.Remove(filepath.Join(c.run.Folder.Path, threadFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.run.Log.Warn("remove what was read of the thread", "error", err)
	}
	c.shared.forget()
}

// take takes an entry of the thread. It may get one again. Its error is client.ErrStop where nothing more is to be
// read.
func (c *conversation) take(e thread.Entry, began *bool) error {
	if err := c.run.take(e, began); err != nil {
		return err
	}
	if c.asksToFinish(e) && c.shared.finish(endWhy(e.AuthorID)) {
		c.run.Log.Info("end requested", "by", e.AuthorID)
		notify(c.wake)
	}
	if _, is := thread.ParseChat(e, c.run.RunID); is && c.shared.add(e, c.run.RunID) {
		notify(c.wake)
	}
	return nil
}

// asksToFinish reports whether an entry asks this run to do what is queued and to end.
func (c *conversation) asksToFinish(e thread.Entry) bool {
	var p thread.EndRequested
	return json.Unmarshal(e.Payload, &p) == nil && p.Type == thread.TypeEnd && p.RunID == c.run.RunID
}

// readTail reads the thread to its tail, before the run ends. If that fails, what it has not read waits for the next
// run.
func (c *conversation) readTail(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.run.Timeout)
	defer cancel()
	from := c.shared.toTail()
	if from == "" {
		c.run.Log.Warn("the thread was not read; its chats wait for the next run")
		return
	}
	began := true
	input := c.run.Client.Only(thread.TypeChat, signals).Without(thread.TypeDelta)
	_, err := input.Read(ctx, from, false, func(e thread.Entry) error {
		return c.take(e, &began)
	})
	if err != nil && !errors.Is(err, client.ErrStop) {
		c.run.Log.Warn("read the thread before the end; chats that came late wait for the next run", "error", err)
	}
}

// endWhy is the reason of a request to end, for people.
func endWhy(author string) string {
	return strings.TrimSuffix("the end was requested by "+author, " by ")
}
