package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

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
		return c.run.Client.Only(thread.TypeChat, signals).Follow(ctx, c.shared.offset(), take, nil)
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
		c.saveState(s)
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
		s.Began = s.Began || e.ID == startedID(c.run.RunID)
		s.End = s.End || c.asksToFinish(e)
		if p, is := c.run.asksToEnd(e, s.Began); is {
			c.run.obeyed(e, p)
			stop = true
		}
		return nil
	})
	if err == nil && stop {
		err = client.ErrStop
	}
	s.Offset = cmp.Or(page.Next, "0")
	return s, err
}

func (c *conversation) readState() (s threadRead, err error) {
	err = readJSON(filepath.Join(c.run.Folder.Path, threadFile), &s)
	if err == nil && (s.Pending == nil || s.Offset == "") {
		err = fs.ErrNotExist
	}
	return s, err
}

func (c *conversation) saveState(s threadRead) {
	if err := writeJSON(filepath.Join(c.run.Folder.Path, threadFile), s); err != nil {
		c.run.Log.Debug("save what was read of the thread", "error", err) // the next worker reads the thread again
	}
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
	*began = *began || e.ID == startedID(c.run.RunID)
	if p, is := c.run.asksToEnd(e, *began); is {
		c.run.obeyed(e, p)
		return client.ErrStop
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
	_, err := c.run.Client.Only(thread.TypeChat, signals).Read(ctx, from, false, func(e thread.Entry) error {
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
