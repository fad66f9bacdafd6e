package runner

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/durable"
	"arbe.0sk.ar/runner/runner/live"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// journalFile is the journal of a live run's input, in the run's folder: a live.Record a line.
const journalFile = "input.jsonl"

// compactAt is the size in bytes from which the journal is written anew once all that it has is taken in.
const compactAt = 1 << 20

// journal is a live run's memory of its agent's input, on disk. It is safe for concurrent use: the mirror asks it for
// the chats in a line while the live loop writes.
type journal struct {
	path string
	live *harness.Live

	mu     sync.Mutex
	f      *os.File
	size   int64
	ledger live.Ledger
	failed error // a record of a line could not be written; the next record to write reports it
}

// openJournal opens the journal in the run's folder, and adds up its records. prompt is that of the command line.
func openJournal(folder, prompt string, spec *harness.Live) (*journal, error) {
	j := &journal{path: filepath.Join(folder, journalFile), live: spec}
	j.ledger.SetPrompt(prompt)
	f, err := os.OpenFile(j.path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	end, err := j.read(f)
	if err == nil { // half a record, as a full disk leaves it, was not written: nothing was done for it
		err = f.Truncate(end)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read %s: %w", j.path, err), f.Close())
	}
	j.f, j.size = f, end
	return j, nil
}

// read adds up the records, and returns the end of the last whole one.
func (j *journal) read(f *os.File) (end int64, err error) {
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return end, nil
		}
		if err != nil {
			return end, err
		}
		var r live.Record
		if err := json.Unmarshal(line, &r); err != nil {
			return end, err
		}
		j.ledger.Add(r)
		end += int64(len(line))
	}
}

// note appends records that need not outlive the machine.
func (j *journal) note(records ...live.Record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.append(records)
}

// sync appends records that must be on disk before they are acted upon.
func (j *journal) sync(records ...live.Record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.append(records); err != nil {
		return err
	}
	return unix.Fdatasync(int(j.f.Fd()))
}

func (j *journal) append(records []live.Record) error {
	if j.failed != nil {
		return j.failed
	}
	var b bytes.Buffer
	for _, r := range records {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	n, err := j.f.Write(b.Bytes())
	if err != nil {
		if n > 0 {
			err = errors.Join(err, j.f.Truncate(j.size))
		}
		return err
	}
	j.size += int64(n)
	for _, r := range records {
		j.ledger.Add(r)
	}
	return nil
}

// view calls f with the ledger, which is f's until it returns.
func (j *journal) view(f func(*live.Ledger)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f(&j.ledger)
}

// judge returns the chats in the session's line with the number. What it finds is written before the line can be
// posted.
func (j *journal) judge(number int, line []byte, e session.Entry) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	chats, fresh := j.ledger.Judge(j.live, number, line, e)
	if fresh {
		r := live.Record{Op: live.OpTaken, Line: number, Chats: chats}
		if err := j.append([]live.Record{r}); err != nil {
			j.ledger.Add(r) // a worker after this one may give the chat again: this one writes no further message
			j.failed = err
		}
	}
	return chats
}

// compact writes a long journal anew, without the texts of messages that are through.
func (j *journal) compact() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.size < compactAt || len(j.ledger.Open()) > 0 {
		return nil
	}
	b, err := json.Marshal(j.ledger.Compact())
	if err != nil {
		return err
	}
	if err := durable.WriteFile(j.path, append(b, '\n')); err != nil {
		return err
	}
	f, err := os.OpenFile(j.path, os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		j.failed = err
		return err
	}
	_ = j.f.Close() // the file is replaced
	j.f, j.size = f, int64(len(b))+1
	return nil
}

func (j *journal) close() error {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.f.Close()
}

// talkFile is the state of the conversation with a live run's agent, in the run's folder, up to a place in its stdout.
const talkFile = "talk.json"

// talkState is the content of talkFile. What it rests on may be cut off the beginning of the agent's stdout.
type talkState struct {
	At      int64          // in stdout
	Talk    harness.Talk   // state there
	Report  harness.Report // the last one of a turn
	Printed bool           // there was a line
	Idles   int            // how often the agent has become idle

	Sessions []harness.Session // those that the agent has printed, in order; mostly without a path
}

// readJSON reads a file of the run's folder.
func readJSON(path string, to any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, to)
}

// writeJSON replaces a file of the run's folder, without a sync.
func writeJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return runfolder.Replace(path, b)
}

// postRecord is the record of an entry to post once the lines before line are on the thread.
func postRecord(e thread.Entry, line int) live.Record {
	return live.Record{Op: live.OpPost, ID: e.ID, Line: line, Entry: e.AppendJSON(nil)}
}

// postOn posts the conversation's entries as they come, until ctx is done.
func (c *conversation) postOn(ctx context.Context) error {
	logged := ""
	for wait := time.Duration(0); ; {
		var timer <-chan time.Time
		if wait > 0 {
			timer = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.posts:
		case <-timer:
		}
		if c.run.awaitOpen(ctx) != nil {
			return nil
		}
		wait = 0
		err := c.post(ctx, c.run.trail.Next())
		switch {
		case errors.Is(err, errLinesFirst):
			wait = postPoll
		case err != nil && ctx.Err() == nil:
			if wait = retryPost; err.Error() != logged {
				c.run.Log.Warn("post an entry of the live run; retrying", "error", err)
				logged = err.Error()
			}
		}
	}
}

// Waits before the next try to post.
const (
	postPoll  = 50 * time.Millisecond // where lines come first
	retryPost = 2 * time.Second       // after an error
)

// errLinesFirst: lines come before the next entry.
var errLinesFirst = errors.New("lines are to be posted first")

// postAll posts all that is left. The run's lines are on the thread.
func (c *conversation) postAll(ctx context.Context) error {
	if c == nil {
		return nil
	}
	return c.post(ctx, math.MaxInt)
}

// post posts the entries whose lines are before posted.
func (c *conversation) post(ctx context.Context, posted int) error {
	var posts []live.Post
	c.journal.view(func(l *live.Ledger) { posts = slices.Clone(l.Posts) })
	for _, p := range posts {
		if p.Line > posted {
			return errLinesFirst
		}
		var e thread.Entry
		if err := json.Unmarshal(p.Entry, &e); err != nil {
			return err
		}
		_, err := c.run.post(ctx, []thread.Entry{e})
		var se *client.StatusError
		if errors.As(err, &se) {
			switch se.Status {
			case http.StatusConflict: // it is there, from a worker before
				err = nil
			case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
				c.run.Log.Warn("the server refused an entry of the live run", "id", e.ID, "error", err)
				err = nil
			}
		}
		if err != nil {
			return err
		}
		c.note("a posted entry", live.Record{Op: live.OpPosted, ID: p.ID})
	}
	if err := c.journal.compact(); err != nil {
		c.run.Log.Warn("shorten the journal", "error", err)
	}
	return nil
}
