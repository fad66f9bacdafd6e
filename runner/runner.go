// Package runner runs one agent from its start to the run's terminal, the entries that end the run on the thread.
//
// A run is two processes of one binary. The keeper (Keep) starts the worker and reaps the processes that the agent
// leaves behind. The worker (Run) announces the run on the thread, starts the agent, posts the lines of the agent's
// session while it works, and after the agent's end decides the verdict and posts it. Both record each fact in the
// run's folder when it happens. If the worker dies, the keeper starts another one, which continues from the folder; the
// agent keeps running meanwhile, and the keeper learns its exit. If both die, Recover finishes the run from the folder.
//
// The terminal is posted after all lines that it counts, and stays in the folder until the thread has it. The order of
// the end is the design:
//
//  1. the agent ends, or the runner ends it
//  2. the processes that it left behind are ended or counted
//  3. the loops that follow the session end, so that nothing changes any more
//  4. the verdict is decided from the files on disk, and recorded
//  5. the remaining lines are posted, the torn one at the end included
//  6. the terminal is posted
//  7. the heartbeat stops last, so that a reader can tell a runner that is still trying from a dead one
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
	"sync"
	"sync/atomic"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/runner/stdio"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// Bounds and intervals. Daytona gives the processes of a box that it stops ten seconds between TERM and KILL. An
// ordered stop takes at most stopTime: the agent's grace, that of the processes it left behind, and then the last lines
// and the terminal, if the server answers.
const (
	stopTime    = 8 * time.Second
	grace       = stopTime / 2
	sweepGrace  = stopTime / 8
	sweepFor    = stopTime / 4
	byHandFor   = 60 * time.Second // a person waits so long for the delivery of the terminal
	lookEvery   = time.Second      // between two looks at the agent
	maxBeatless = time.Minute      // a heartbeat is due at least so often, also while lines are posted
)

// Errors of a run that callers branch on.
var (
	// ErrRefused: the thread's server refused the run, and no agent was started.
	ErrRefused = errors.New("the thread server refuses this run")
	// ErrTaken: another runner has this run. No agent was started, or it was ended again.
	ErrTaken = errors.New("another runner has this run")
	// ErrUndelivered: the terminal could not be delivered. It stays in the run's folder.
	ErrUndelivered = errors.New("the run's end could not be delivered")
	// ErrNoSession: the named file is not a session file.
	ErrNoSession = errors.New("not a session file")
)

// Result is the result of Run.
type Result struct {
	Verdict    outcome.Verdict
	NotStarted *NotStartedError // why the agent was not started; nil if it was
	Folder     string           // that the run is recorded in; "": it is in memory alone
}

// run is the state of a Run.
type run struct {
	Config
	record       runfolder.Record
	progress     runfolder.Progress // of the workers before this one
	created      bool               // this run made the session file
	earlier      earlier            // chats that stand before the prompt
	known        *mirror.Known      // ids of the session's lines on the thread; nil if the thread was not read
	binary       string
	pending      *thread.Pending // the chats that no run has had; nil if the thread was not read
	promptLength int             // of the run's prompt on the thread, in characters; 0 if it was not read there
	lostRuns     bool            // a lost run of the thread is not finished

	adopted   bool           // an earlier worker started the agent
	opening   []thread.Entry // those of the run's first entries that the thread does not have
	opened    chan struct{}  // closed when the thread has them
	offset    string         // of the thread, behind the first entries; "": unknown
	follower  *follower
	trail     *trail
	finding   sync.Mutex    // held while a session of the trail is searched for
	live      *conversation // nil: the run is not live
	subagents subagents

	end   context.CancelCauseFunc // ends the agent
	acked atomic.Int64            // when the server last acknowledged entries: clock
	agent atomic.Pointer[harness.Process]
	moved atomic.Int64 // when the agent last wrote, printed or worked: clock
	beats int64        // heartbeats so far; the beat loop's own

	closing atomic.Bool // the terminal is being posted

	// Of a session file that can't be read after the agent's end.
	unreadSince time.Duration // clock; 0: it can be read
	unread      error         // the error with which the run ends without the rest; nil: none

	leftovers int            // number of processes that the agent left running
	trimmer   *stdio.Trimmer // of the agent's output; nil if it has a terminal
	group     *harness.Group // of the agent's processes; nil: none
}

// Run runs the agent, or continues the run where an earlier worker left it, and returns when the run's end is on the
// thread. When ctx is done, it ends the agent in order and posts the cause. When abandon is done, it gives up at once:
// what is not delivered by then stays in the run's folder (ErrUndelivered).
func Run(ctx, abandon context.Context, cfg Config) (Result, error) {
	cfg.defaults()
	r := &run{
		Config: cfg, opened: make(chan struct{}), trail: &trail{grown: make(chan struct{}, 1)},
		subagents: subagents{known: map[string]bool{}, others: map[string]bool{}},
	}
	res, err := r.run(ctx, abandon)
	if cfg.Unwritable == "" {
		res.Folder = r.Folder.Place()
	}
	return res, errors.Join(err, r.Folder.Close())
}

func (r *run) run(ctx, abandon context.Context) (Result, error) {
	defer start(abandon, r.Client.KeepToken)()
	notStarted, err := r.begin(ctx)
	if err != nil {
		return Result{}, err
	}
	if r.progress.Taken {
		return Result{}, ErrTaken
	}
	var mute error
	if r.Live {
		if r.live, mute = r.newConversation(); mute != nil { // no record shows what the agent has had
			r.Live = false
		}
		defer r.live.close() // what is noted is written
	}
	r.moved.Store(int64(runfolder.Clock()))
	r.follower = r.newFollower()
	defer r.follower.close() // read only: nothing to lose
	r.trail.begin(r.newMirror)
	defer r.trail.Close() // read only: nothing to lose
	defer r.closeSubagents()

	if r.opening != nil && r.progress.Spawned == nil {
		if err := r.openThread(ctx); err != nil {
			return Result{}, errors.Join(err, r.turnedAway(err))
		}
	}

	// The agent ends with agentCtx; what must outlive it ends with abandon.
	agentCtx, end := context.WithCancelCause(ctx)
	defer end(nil)
	r.end = end
	if mute != nil {
		end(cause{outcome.ActionInput, mute.Error()})
	}
	stopBeat := start(abandon, r.beat)
	defer stopBeat()
	stopMirror := start(abandon, r.trail.Run)
	defer stopMirror()
	stopSubagents := start(abandon, r.followSubagents)
	defer stopSubagents()
	obey := r.obey
	if r.Live {
		obey = r.live.listen
	}
	stopOrders := start(abandon, obey)
	defer stopOrders()

	facts, notStarted := r.agentPhase(agentCtx, notStarted)
	r.agent.Store(nil)
	stopOrders()
	stopSubagents()
	stopMirror()

	res := Result{NotStarted: notStarted}
	if errors.Is(context.Cause(agentCtx), ErrTaken) {
		r.note(runfolder.Fact{Fact: runfolder.FactTaken})
		return res, ErrTaken // the other runner posts the run's end
	}
	verdict, terminal, err := r.decide(abandon, facts)
	res.Verdict = verdict
	if err == nil {
		err = r.deliver(abandon, terminal)
	}
	if errors.Is(err, ErrTaken) {
		r.note(runfolder.Fact{Fact: runfolder.FactTaken})
	}
	r.trimmer.Close()                       // after the delivery: the kernel takes some 15 ms
	if err := r.group.Close(); err != nil { // here, too
		r.Log.Debug("remove the agent's cgroup", "error", err)
	}
	return res, err
}

// begin makes the run's record, or reads the one of an earlier worker. notStarted is why the agent can't be started;
// the run still gets its first entries and its terminal.
func (r *run) begin(ctx context.Context) (notStarted *NotStartedError, err error) {
	r.record, err = r.Folder.Record()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.record = runfolder.Record{
			Thread: r.ThreadID, Run: r.RunID, Harness: r.Spec.Name, Cwd: r.Cwd, Named: r.Session != "",
			Live: r.Live, PID: r.pid(), Instance: NewID(), Boot: runfolder.BootID(), Clock: runfolder.Clock(),
			Started: time.Now().UTC(),
		}
		if r.Resume { // which may take long, while the thread has the run as running
			r.saveRecord()
		}
	case err != nil:
		return nil, err
	default:
		facts, err := r.Folder.Facts()
		if err != nil {
			return nil, err
		}
		r.Log.Info("continuing the run of an earlier worker")
		r.progress, r.Cwd, r.Live = runfolder.Replay(facts), r.record.Cwd, r.record.Live
		if f := r.progress.NotStarted; f != nil {
			notStarted = &NotStartedError{f.Status, errors.New(f.Why)}
		}
		if r.record.Opening == nil {
			break // the earlier worker died while it prepared the run
		}
		r.beginIn(r.progress.Sessions...)
		if err := r.readEarlier(); err != nil {
			return nil, err
		}
		if r.progress.Opened {
			close(r.opened)
			return notStarted, nil
		}
		return notStarted, json.Unmarshal(r.record.Opening, &r.opening)
	}
	var refused []thread.ChatRefused
	if notStarted == nil {
		r.lostRuns = !r.finishLost(ctx)
		if notStarted = r.prepare(ctx); notStarted == nil && !r.Live {
			refused = r.takeEarlier(ctx)
		}
	}
	r.record.Resume = cmp.Or(r.record.Resume, ResumeNone)
	r.beginIn()
	r.opening = r.firstEntries()
	for i, p := range refused {
		r.opening = append(r.opening, r.entry(fmt.Sprintf("%s.refused.%d", r.RunID, i), p))
	}
	r.record.Opening = encodeEntries(r.opening)
	r.saveRecord()
	if notStarted != nil { // at once: without this fact the next worker would start the agent
		r.noteNotStarted(notStarted)
	}
	return notStarted, nil
}

// beginIn begins the trail with the session in the record, and those that earlier workers have found since.
func (r *run) beginIn(since ...harness.Session) {
	for _, s := range append([]harness.Session{{Path: r.record.Session, ID: r.record.SessionID}}, since...) {
		r.trail.put(s, func(bool) {})
	}
}

// prepare finds the agent's binary and makes its session file, and sets both in the record.
func (r *run) prepare(ctx context.Context) *NotStartedError {
	if r.Unwritable != "" {
		return notStartedError(errors.New(r.Unwritable))
	}
	binary, binaryErr := harness.Find(r.Spec, r.Binary, r.getenv)
	if binaryErr == nil && r.Live {
		binaryErr = r.Spec.Live.Refuses(r.Spec, r.Spec.Version(binary))
	}
	s, sessionErr := r.prepareSession(ctx)
	if sessionErr != nil && ctx.Err() != nil {
		sessionErr = nil // stopped while the thread was read: the run ends as cancelled
	}
	if sessionErr != nil {
		s = sessionFile{} // no line of a refused file is posted
	}
	r.binary, r.created = binary, s.created
	r.record.Cwd, r.record.Session, r.record.SessionID = r.Cwd, s.path, s.id
	r.record.From, r.record.Posted, r.record.Resume = s.from, s.posted, s.resume
	if cause := cmp.Or(binaryErr, sessionErr); cause != nil {
		return notStartedError(cause)
	}
	r.noteSubagents()
	return nil
}

// saveRecord writes run.json. If it fails, only the keeper has the record.
func (r *run) saveRecord() {
	b, err := r.record.Encode()
	if err == nil {
		err = r.Folder.WriteFile("run.json", b)
	}
	if err != nil {
		r.Log.Warn("write run.json; if keeper and worker die, only the host can end the run", "error", err)
	}
}

// pid is the process id in the record: the keeper's, else this process's.
func (r *run) pid() int {
	if r.Keeper != 0 {
		return r.Keeper
	}
	return os.Getpid()
}

// turnedAway cleans up after a run that could not begin. The folder of another runner's run is removed. A run that the
// server refused may begin later, with another token. Its folder stays until Recover has asked the thread: it may have
// the run's first entries, because an answer can have been lost.
func (r *run) turnedAway(why error) (err error) {
	if !errors.Is(why, ErrTaken) {
		r.note(runfolder.Fact{Fact: runfolder.FactTurnedAway, Why: r.Redact.Text(why.Error())})
		return nil
	}
	if r.created {
		err = os.Remove(r.record.Session)
	}
	return errors.Join(err, os.RemoveAll(r.Folder.Path))
}

// newMirror is the run's opener.
func (r *run) newMirror(k int, id string, before *mirror.Mirror, last bool) *mirror.Mirror {
	m := &mirror.Mirror{
		Encoder: mirror.Encoder{
			Namer:  mirror.Namer{Dialect: r.Spec.Dialect, Session: id},
			Redact: r.Redact, Author: r.Author,
			Prompt: r.promptChat(), Before: r.earlier.Chats, Delivered: r.live.delivered(k),
		},
		Find:  func() (path, id string) { return r.trail.at(k) },
		Notes: r.mirrorNotes(k),
		Append: func(ctx context.Context, entries []thread.Entry) error {
			_, err := r.post(ctx, entries)
			return err
		},
		Tally: r.follower.take,
		Gate:  r.ensureOpen,
		Saved: func(p session.Position) error {
			return r.trail.ifLast(k, func() error { r.saveCursor(p); return nil })
		},
		Log: r.Log,
	}
	if before == nil {
		m.Known, m.RunFrom, m.Named, m.From = r.known, r.record.From.Index, r.record.Named, r.record.Posted
	} else {
		m.Gate = func(ctx context.Context) error { return passable(before.Sync(ctx)) }
	}
	if last {
		m.Until, m.From = r.until, r.cursor(m.From)
	}
	return m
}

// saveCursor saves the position up to which the last session is on the thread. A full disk must not keep lines from the
// thread: a stale cursor costs posting some of them again.
func (r *run) saveCursor(p session.Position) {
	if err := r.Folder.SaveCursor(p); err != nil {
		r.Log.Debug("save cursor", "error", err)
	}
}

// mirrorNotes is the path of the notes of the mirror of session k.
func (r *run) mirrorNotes(k int) string {
	if k == 0 {
		return filepath.Join(r.Folder.Path, "mirror.notes")
	}
	return filepath.Join(r.Folder.Path, fmt.Sprintf("mirror-%d.notes", k))
}

// cursor is the position of the first line of the last session to post, where that is behind p.
func (r *run) cursor(p session.Position) session.Position {
	if saved := runfolder.Cursor(r.Folder.Path); saved.Index > p.Index {
		return saved
	}
	return p
}

// look reads the agent's new output and session lines. It posts nothing.
func (r *run) look() {
	if err := r.readOn(false); err != nil {
		r.Log.Debug("read session", "error", err)
	}
}

// readOn reads the agent's new output and session lines. last: the agent has ended, so that an unterminated line
// counts.
func (r *run) readOn(last bool) error {
	return errors.Join(r.follower.read(last), r.trail.Look(last))
}

// post posts entries and stores when the server acknowledged them.
func (r *run) post(ctx context.Context, entries []thread.Entry) (client.Ack, error) {
	ack, err := r.Client.Append(ctx, entries)
	if err == nil {
		r.acked.Store(int64(runfolder.Clock()))
	}
	return ack, err
}

// note records a fact. A full or broken disk must not end the run: this process has the fact in memory.
func (r *run) note(f runfolder.Fact) {
	if err := r.Folder.Note(f); err != nil {
		r.Log.Warn("record fact", "fact", f.Fact, "error", err)
	}
}

// start runs f in a goroutine. stop cancels f's context and waits for its return; it may be called twice.
func start(ctx context.Context, f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = f(ctx) }) // the loops handle their errors
	return func() {
		cancel()
		running.Wait()
	}
}
