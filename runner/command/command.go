// Package command runs one command in a box under a supervisor, and posts its output and its end on a thread.
//
// The supervisor needs no host: it posts on its own, tries again while the server is away, and keeps what is not posted
// in memory, at most mostOutput. It posts its own entry before it starts the command, and does not start it
// without the server's answer: a command that another has ended, or that runs already, never begins.
//
// All entries of a command have numbers (thread.ExecID), and the server takes each number once. Where another writer,
// such as a reconciler that took the supervisor for dead, has posted the end, the supervisor kills the command and
// posts nothing more. The end is posted last, after all output.
//
// All processes of the command are ended at a cancel request, after the timeout, and when the supervisor is asked to
// end: those of its process group, its descendants in other groups and sessions, and those that have its mark in their
// environment. Processes that outlive the command itself are left alone: their output is posted for a
// moment longer. If the supervisor is killed, the command's first process is killed with it.
package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/internal/procfs"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
	"arbe.0sk.ar/runner/thread/redact"
)

// Config is a command to run. ID, Argv, Dir, Client and Redact are required.
type Config struct {
	ID      string // of the command on the thread; it is in the ids of its entries
	Argv    []string
	Dir     string   // absolute
	Env     []string // the whole environment
	Stdin   *os.File // nil for an empty one
	Timeout time.Duration
	From    string // the offset of the thread behind which a request to cancel can stand; "" for the start

	Client  *client.Client
	Author  string
	Sandbox *thread.Sandbox // nil if it is not known
	Boot    string          // id of the machine's boot; "" if it is not known
	Redact  *redact.Redactor
	Log     *slog.Logger

	// Reaper reports that this process reaps the orphans of its descendants (PR_SET_CHILD_SUBREAPER), and has no child
	// but the command. Then orphans without the mark are found, too.
	Reaper bool
}

// Timeouts.
const (
	batch = 200 * time.Millisecond // for more output
	grace = 5 * time.Second        // between TERM and KILL
	// Of the tries to post: the first entry, before the command starts, and what is left after its end.
	firstTimeout = 2 * time.Minute
	restTimeout  = 6 * time.Hour
	// outputGrace bounds the wait for the output of processes that have outlived the command.
	outputGrace = time.Second
)

// ErrTaken is returned if another writer has posted the command's beginning or its end.
var ErrTaken = errors.New("the command was started or ended by another")

// supervisor is a command under way.
type supervisor struct {
	Config
	next int // the number of the next entry
	out  *output
	outs int // entries of output so far
}

// Run runs the command to its end, and returns when its end is on the thread. The end of ctx ends the command. An error
// means that the end could not be posted, or that another posted it.
func Run(ctx context.Context, c Config) error {
	s := &supervisor{Config: c, next: 1, out: newOutput(c.Redact)}
	if err := s.begin(ctx); err != nil {
		return err
	}
	// What is posted outlives the order to end.
	life := context.WithoutCancel(ctx)
	p, err := start(c)
	if err != nil {
		return s.finish(life, unstarted(err))
	}
	return s.attend(ctx, life, p)
}

// begin posts the supervisor's own entry.
func (s *supervisor) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, firstTimeout)
	defer cancel()
	stat, _ := procfs.Read(os.Getpid()) // a system without /proc has no start
	return s.post(ctx, s.entry(thread.ExecRunning{
		Exec: s.signal(thread.TypeExecRunning), PID: os.Getpid(), StartTicks: stat.Started, BootID: s.Boot,
		Cwd: s.Dir, Sandbox: s.Sandbox,
	}))
}

// attend posts the output of a process while it runs, and then its end.
func (s *supervisor) attend(ctx, life context.Context, p *process) error {
	watching, stopWatch := context.WithCancel(life)
	var watch sync.WaitGroup
	watch.Go(func() { s.watch(watching, p) })
	posting, abandon := context.WithCancel(life)
	defer abandon()
	running, ended := context.WithCancel(posting)
	posted := make(chan error, 1)
	go func() { posted <- s.postOutput(posting, running, p) }()

	end := p.wait(ctx, s.Config, s.out)
	stopWatch()
	watch.Wait()
	limit := time.AfterFunc(restTimeout, abandon)
	defer limit.Stop()
	ended()
	if err := <-posted; err != nil {
		return err
	}
	end.Dropped = s.out.cut()
	return s.finish(posting, end)
}

// watch ends the process when the thread asks for it.
func (s *supervisor) watch(ctx context.Context, p *process) {
	from := cmp.Or(s.From, "0")
	for ctx.Err() == nil {
		err := s.Client.Only(thread.TypeExecCancel).Follow(ctx, from, func(e thread.Entry) error {
			if asks(e, s.ID) {
				p.cancel()
				return client.ErrStop
			}
			return nil
		}, nil)
		if err == nil {
			return
		}
		from = "0" // the thread was restored, or the server refuses: try again
		pause.For(ctx, 15*time.Second)
	}
}

// postOutput posts the output in batches until running is done, and then the rest.
func (s *supervisor) postOutput(ctx, running context.Context, p *process) error {
	for done := false; !done; {
		select {
		case <-s.out.news:
			pause.For(running, s.wait())
		case <-running.Done():
			done = true
		}
		var entries []thread.Entry
		for _, piece := range s.out.take() {
			entries = append(entries, s.entry(thread.ExecOutput{
				Exec: s.signal(thread.TypeExecOutput), Stream: piece.stream, Text: piece.text, Truncated: piece.last,
			}))
		}
		if err := s.post(ctx, entries...); err != nil {
			p.kill()
			return err
		}
		if s.outs += len(entries); s.outs >= manyOutputs {
			s.out.few()
		}
	}
	return nil
}

// Bounds of the entries of a long command, whose output comes drop by drop: the more there are, the longer output waits
// for more, and after manyOutputs each post has at most one or two for each stream.
const (
	slowAfter   = 200 // entries: the wait is doubled
	manyOutputs = 1000
	mostWait    = 30 * time.Second
)

// wait is how long output waits for more.
func (s *supervisor) wait() time.Duration {
	return max(batch, min(batch<<min(s.outs/slowAfter, 16), mostWait))
}

func (s *supervisor) finish(ctx context.Context, end thread.ExecFinished) error {
	ctx, cancel := context.WithTimeout(ctx, restTimeout)
	defer cancel()
	end.Exec = s.signal(thread.TypeExecFinished)
	end.Error = s.Redact.Text(end.Error)
	return s.post(ctx, s.entry(end))
}

func (s *supervisor) signal(typ string) thread.Exec { return thread.Exec{Type: typ, ExecID: s.ID} }

// entry returns the command's next entry.
func (s *supervisor) entry(payload any) thread.Entry {
	id := thread.ExecID(s.ID, s.next)
	s.next++
	return thread.Entry{
		ID: id, TS: thread.Stamp(time.Now()), AuthorID: s.Author, Payload: thread.Marshal(payload),
	}
}

// postAgain is the longest wait between two tries to post.
const postAgain = 15 * time.Second

// post posts entries. It tries until they are on the thread, the server has another entry in their place, or ctx ends.
func (s *supervisor) post(ctx context.Context, entries ...thread.Entry) error {
	for wait := time.Second; ; wait = min(2*wait, postAgain) {
		_, err := s.Client.Append(ctx, entries)
		switch {
		case err == nil:
			return nil
		case client.Taken(err):
			return ErrTaken
		case ctx.Err() != nil:
			return err
		}
		s.Log.Warn("not posted; trying again", "entry", entries[0].ID, "error", err)
		pause.For(ctx, wait)
	}
}

// asks reports whether an entry asks for the end of a command.
func asks(e thread.Entry, id string) bool {
	var p thread.ExecCancel
	return json.Unmarshal(e.Payload, &p) == nil && p.Type == thread.TypeExecCancel && p.ExecID == id
}
