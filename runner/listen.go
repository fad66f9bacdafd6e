package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/thread"
)

// listen follows the thread of a live run: chats, and requests to cancel or to end. While the thread can't be read, the
// run continues with what it has.
func (c *conversation) listen(ctx context.Context) error {
	if !c.awaitThread(ctx) {
		return nil
	}
	logged, began := false, false
	for wait := c.intervals.retryRead; ; wait = min(2*wait, maxRetryRead) {
		err := c.readFirst(ctx, &began)
		if err == nil {
			err = c.Client.Only(thread.TypeChat, signals).Follow(ctx, c.offsetRead(), func(e thread.Entry) error {
				return c.take(e, &began)
			}, nil)
		}
		switch {
		case err == nil, errors.Is(err, thread.ErrStop):
			return nil
		case errors.Is(err, thread.ErrRewound):
			c.Log.Warn("thread was restored to an earlier state; reading it from its start")
			c.forgetThread()
		case !logged:
			c.Log.Warn("follow thread; chats and requests do not arrive, retrying", "error", err)
			logged = true
		}
		if !pause.For(ctx, wait) {
			return nil
		}
	}
}

// awaitThread waits for the run's first entries to be on the thread. After Timeout the agent gets the prompt of the
// command line without it. false: ctx is done.
func (c *conversation) awaitThread(ctx context.Context) bool {
	timer := time.NewTimer(c.Timeout)
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
	if c.Prompt == "" {
		return
	}
	e := c.entry(promptID(c.RunID), thread.Chat{Type: thread.TypeChat, Text: c.Prompt, RunID: c.RunID})
	_ = c.take(e, new(bool)) // a chat is no request
}

// threadFile is what a run has read of its thread when it began, in the run's folder. The next worker reads on from
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
	if c.offsetRead() != "" {
		return nil
	}
	s, err := c.readState()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.Log.Warn("read what an earlier worker has read of the thread", "error", err)
	}
	if err != nil {
		s = threadRead{Pending: &thread.Pending{Run: c.RunID}}
		stop := false
		page, err := c.Client.Read(ctx, "0", false, func(e thread.Entry) error {
			s.Pending.Add(e)
			s.Began = s.Began || e.ID == startedID(c.RunID)
			s.End = s.End || c.asksToFinish(e)
			if p, is := c.asksToEnd(e, s.Began); is {
				c.obeyed(e, p)
				stop = true
			}
			return nil
		})
		if err != nil {
			return err
		}
		if stop {
			return thread.ErrStop
		}
		s.Offset = cmp.Or(page.Next, "0")
		c.saveState(s)
	}
	*began = s.Began
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.pending.Chats() // taken without the thread
	for _, chat := range s.Pending.Chats() {
		c.known[chat.ID] = true
	}
	offered := len(before) > 0 && before[0].ID == promptID(c.RunID)
	c.pending, c.from = *s.Pending, s.Offset
	if offered && !c.known[promptID(c.RunID)] {
		c.pending.Add(c.entry(promptID(c.RunID), thread.Chat{Type: thread.TypeChat, Text: c.Prompt, RunID: c.RunID}))
	}
	if s.End {
		c.finish = endWhy("")
	}
	notify(c.wake)
	return nil
}

func (c *conversation) readState() (s threadRead, err error) {
	b, err := os.ReadFile(filepath.Join(c.folder.Path, threadFile))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err == nil && (s.Pending == nil || s.Offset == "") {
		err = fs.ErrNotExist
	}
	return s, err
}

func (c *conversation) saveState(s threadRead) {
	b, err := json.Marshal(s)
	if err == nil {
		err = runfolder.Replace(filepath.Join(c.folder.Path, threadFile), b)
	}
	if err != nil { // the next worker reads the thread again
		c.Log.Debug("save what was read of the thread", "error", err)
	}
}

func (c *conversation) offsetRead() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.from
}

// forgetThread has the thread read from its start.
func (c *conversation) forgetThread() {
	if err := os.Remove(filepath.Join(c.folder.Path, threadFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.Log.Warn("remove what was read of the thread", "error", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.from = ""
	clear(c.known)
}

// take takes an entry of the thread. It may get one again. Its error is thread.ErrStop where nothing more is to be
// read.
func (c *conversation) take(e thread.Entry, began *bool) error {
	*began = *began || e.ID == startedID(c.RunID)
	if p, is := c.asksToEnd(e, *began); is {
		c.obeyed(e, p)
		return thread.ErrStop
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asksToFinish(e) && c.finish == "" {
		c.Log.Info("end requested", "by", e.AuthorID)
		c.finish = endWhy(e.AuthorID)
		notify(c.wake)
		return nil
	}
	if _, is := thread.ParseChat(e, c.RunID); is && !c.known[e.ID] {
		c.known[e.ID], c.tail = true, false
		c.pending.Run = c.RunID
		c.pending.Add(e)
		notify(c.wake)
	}
	return nil
}

// asksToFinish reports whether an entry asks this run to do what is queued and to end.
func (c *conversation) asksToFinish(e thread.Entry) bool {
	var p thread.EndRequested
	return json.Unmarshal(e.Payload, &p) == nil && p.Type == thread.TypeEnd && p.RunID == c.RunID
}

// readTail reads the thread to its tail, before the run ends. If that fails, what it has not read waits for the next
// run.
func (c *conversation) readTail(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	c.mu.Lock()
	c.tail = true // until a chat comes
	from := c.from
	c.mu.Unlock()
	if from == "" {
		c.Log.Warn("the thread was not read; its chats wait for the next run")
		return
	}
	began := true
	_, err := c.Client.Only(thread.TypeChat, signals).Read(ctx, from, false, func(e thread.Entry) error {
		return c.take(e, &began)
	})
	if err != nil && !errors.Is(err, thread.ErrStop) {
		c.Log.Warn("read the thread before the end; chats that came late wait for the next run", "error", err)
	}
}
