// Package runner is one run from its start to its terminal.
//
// A run is two processes of one binary. The keeper (Keep) is the reaper of all that the agent leaves, and starts the worker. The worker (Run) takes the
// thread's run: it says so on the thread, starts the agent, ships what the agent's session says while it works, and when the agent ends, however it
// ends, decides what the run came to and posts that. What happens is written into the run's folder as it happens, so that a worker that dies, of
// whatever, is followed by another one that goes on from there: the agent lives on, and the keeper learns its true end. Should all of the runner die, Recover
// finishes from the same folder.
//
// The terminal goes out after every line that it speaks for, and stays in the folder until the thread has it. What the runner does to the agent is
// written down when it does it, not guessed afterwards. The order of the end is the design:
//
//  1. the agent ends, by itself or because it was told to
//  2. what it left behind is ended, too, or counted
//  3. the loops that follow the session end, so that nothing moves any more
//  4. the verdict is decided from what is on disk, and written down
//  5. the lines that are left are posted, the torn one at the end included
//  6. the terminal is posted
//  7. the heartbeat stops, last, so that a runner that is still trying can be told from a dead one
package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// How long things may take. A box that is stopped gives its processes ten seconds between TERM and KILL (Daytona), and within farewell an
// ordered stop is through: the agent's grace, that of what it left, and then the last lines and the terminal at a server that answers.
const (
	farewell    = 8 * time.Second
	grace       = farewell / 2
	sweepGrace  = farewell / 8
	sweepFor    = farewell / 4
	byHandFor   = 60 * time.Second // a person who waits gets an answer after so long: the terminal could not be delivered
	lookEvery   = time.Second      // between two looks at what the agent does
	maxBeatless = time.Minute      // there is a heartbeat at least so often, also while lines come
)

// Defaults of a Config.
const (
	DefaultGuard     = 72 * time.Hour
	DefaultHeartbeat = 5 * time.Second
	DefaultPatience  = 30 * time.Second
)

// Config is what a run needs to know. The zero value of a field means what its comment says.
type Config struct {
	Spec    harness.Spec
	Version string // this runner's

	ThreadID string
	RunID    string
	Author   string          // of the entries; "" for none
	Sandbox  *thread.Sandbox // the box that this runs in; nil where it is not known

	Binary  string   // the agent's; "" for what PATH has
	Args    []string // more arguments for the agent
	Model   string   // "" for the agent's own choice
	Prompt  string   // "" for the chat on the thread that asks for the run
	Cwd     string   // where the agent works, absolute
	Session string   // the session file; "" for a new one in the state folder

	Resume    bool // go on with the session of the thread's last run
	Hydrate   bool // and rebuild it from the thread in any case
	CwdGiven  bool // Cwd is where it is to go on, not where it happens to be
	NextIndex int  // the lines of Session below this index are on the thread already, if the one before it is; 0 where nobody says so
	Environ   []string
	State     string // the folder for what this machine knows of its runs

	Guard       time.Duration // against an agent that hangs; 0: DefaultGuard
	Unreachable time.Duration // an agent that waits for its provider so long is ended; 0: as its Spec says, where that says so
	Stall       time.Duration // an agent that does nothing for so long is ended; 0: never
	Heartbeat   time.Duration // between two; 0: DefaultHeartbeat
	Patience    time.Duration // with a server that doesn't answer at the start, and with an agent that has ended well and lingers; 0: DefaultPatience

	KillLeftovers bool // end what the agent left behind also after a normal end

	Client *thread.Client
	Redact *thread.Redactor
	Log    *slog.Logger

	// ByHand says that a person watches: the agent's output is copied to Stdout and Stderr, and a terminal that can't be delivered is given up
	// after a minute.
	ByHand         bool
	Stdout, Stderr io.Writer

	// TTY is the terminal of a person who is to have the agent's own interface in it, and who then ends the agent: it may linger, and needs no Prompt. nil
	// for an agent that works by itself.
	TTY *os.File

	// Under a keeper: its process id, the folder that it has taken, and how many workers there were before this one.
	Keeper   int
	Folder   *Folder
	Restarts int
	Recorded func() error // tells the keeper that run.json is written; nil without one

	// Of a lost run that is finished.
	until   int  // the index of the next run's first line in the session; 0 where there is none
	passing bool // on the way to another run: what the server refuses is left for later

	intervals intervals
}

// intervals are those that tests shorten. 0 means the constant of the name.
type intervals struct {
	lookEvery   time.Duration
	grace       time.Duration
	retryRead   time.Duration
	retryPrompt time.Duration
}

// Errors of a run that the caller tells from others.
var (
	// ErrRefused says that the thread's server would not let this run begin: no agent was started.
	ErrRefused = errors.New("the thread server refuses this run")
	// ErrTaken says that another runner has this run: no agent was started, or it was ended again.
	ErrTaken = errors.New("another runner has this run")
	// ErrUndelivered says that the terminal could not be delivered. It stays in the run's folder.
	ErrUndelivered = errors.New("the run's end could not be delivered")
	// ErrNoSession says that the named session file is not one.
	ErrNoSession = errors.New("not a session file")
)

// Result is what came of Run.
type Result struct {
	Verdict    outcome.Verdict
	NotStarted *NotStartedError // why the agent was not started; nil where it was
	Folder     string
}

// run is a Run under way.
type run struct {
	Config
	folder    *Folder
	record    Record
	progress  progress      // of the workers before this one
	created   bool          // the session file is of our making
	known     *mirror.Known // ids of the session's lines on the thread; nil where it was not read
	binary    string
	opening   []thread.Entry // the run's first entries, as far as the thread doesn't have them
	opened    chan struct{}  // closed when the thread has them
	offset    string         // of the thread, behind the first entries; "" where it is not known
	follower  *follower
	mirror    *mirror.Mirror
	subagents subagents

	end   context.CancelCauseFunc // ends the agent
	acked atomic.Int64            // when the server last acknowledged entries: clock
	agent atomic.Pointer[harness.Process]
	place atomic.Pointer[harness.Session] // the session, once it is known
	moved atomic.Int64                    // when the agent last showed a sign of life: clock
	beats int64                           // heartbeats so far; the beat loop's own

	closing atomic.Bool // the terminal is on its way

	// Of a session that can't be read when the agent is gone: since when, and at last that it is ended without the
	// rest.
	unreadSince time.Duration // clock
	unread      error

	leftovers int            // processes that the agent left running
	trimmer   *trimmer       // of the agent's output; nil where it has a terminal
	group     *harness.Group // of the agent's processes; nil where there is none
}

// Run runs the agent, or goes on with the run where an earlier worker left it, and returns when the run's end is on the thread. Ending ctx ends the
// agent in order; the cause is said on the thread. abandon, when it is done, stops all trying at once: what is not delivered then stays in the
// run's folder (ErrUndelivered).
func Run(ctx, abandon context.Context, cfg Config) (Result, error) {
	cfg.defaults()
	folder := cfg.Folder
	if folder == nil {
		var err error
		if folder, err = NewFolder(cfg.State, cfg.ThreadID, cfg.RunID); err != nil {
			return Result{}, err
		}
		if folder.Used() {
			return Result{Folder: folder.Path}, errors.Join(used(cfg.RunID), folder.Close())
		}
	}
	r := &run{Config: cfg, folder: folder, opened: make(chan struct{})}
	res, err := r.run(ctx, abandon)
	res.Folder = folder.Path
	return res, errors.Join(err, folder.Close())
}

func used(runID string) error {
	return fmt.Errorf("%w: run %s was begun on this machine already", ErrTaken, runID)
}

func (c *Config) defaults() {
	if c.Guard == 0 {
		c.Guard = DefaultGuard
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = DefaultHeartbeat
	}
	if c.Patience == 0 {
		c.Patience = DefaultPatience
	}
	if c.Unreachable == 0 {
		c.Unreachable = c.Spec.Unreachable
	}
	c.intervals.lookEvery = cmp.Or(c.intervals.lookEvery, lookEvery)
	c.intervals.grace = cmp.Or(c.intervals.grace, grace)
	c.intervals.retryRead = cmp.Or(c.intervals.retryRead, retryRead)
	c.intervals.retryPrompt = cmp.Or(c.intervals.retryPrompt, retryPrompt)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Redact == nil {
		c.Redact = &thread.Redactor{}
	}
}

func (r *run) run(ctx, abandon context.Context) (Result, error) {
	defer start(abandon, r.Client.KeepToken)()
	notStarted, err := r.begin(ctx)
	if err != nil {
		return Result{}, err
	}
	if r.progress.taken {
		return Result{}, ErrTaken
	}
	r.moved.Store(int64(clock()))
	r.follower = r.newFollower()
	defer r.follower.close() // read only: nothing to lose
	r.mirror = r.newMirror()
	defer r.mirror.Close() // read only: nothing to lose
	defer r.closeSubagents()

	if r.opening != nil && r.progress.spawned == nil {
		if err := r.openThread(ctx); err != nil {
			return Result{}, errors.Join(err, r.turnedAway(err))
		}
	}

	// Ending the agent is one thing, ending all that must outlive it another.
	agentCtx, end := context.WithCancelCause(ctx)
	defer end(nil)
	r.end = end
	stopBeat := start(abandon, r.beat)
	defer stopBeat()
	stopMirror := start(abandon, r.mirror.Run)
	defer stopMirror()
	stopSubagents := start(abandon, r.followSubagents)
	defer stopSubagents()
	stopOrders := start(abandon, r.obey)
	defer stopOrders()

	facts, notStarted := r.agentPhase(agentCtx, notStarted)
	r.agent.Store(nil)
	stopOrders()
	stopSubagents()
	stopMirror()

	res := Result{NotStarted: notStarted}
	if errors.Is(context.Cause(agentCtx), ErrTaken) {
		r.note(Fact{Fact: FactTaken})
		return res, ErrTaken // the run is the other's: so is its end
	}
	verdict, terminal, err := r.decide(abandon, facts)
	res.Verdict = verdict
	if err == nil {
		err = r.deliver(abandon, terminal)
	}
	if errors.Is(err, ErrTaken) {
		r.note(Fact{Fact: FactTaken})
	}
	r.trimmer.close()                       // last, for the kernel takes its time
	if err := r.group.Close(); err != nil { // so it does here
		r.Log.Debug("the agent's cgroup is still in use", "error", err)
	}
	return res, err
}

// begin makes the run's record, or reads what an earlier worker left. notStarted says why the agent can't be started;
// the run then still has its beginning and its end on the thread.
func (r *run) begin(ctx context.Context) (notStarted *NotStartedError, err error) {
	r.record, err = readRecord(r.folder.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.record = Record{
			Thread: r.ThreadID, Run: r.RunID, Harness: r.Spec.Name, Cwd: r.Cwd, Named: r.Session != "",
			PID: r.pid(), Instance: newID(), Boot: bootID(), Clock: clock(), Started: time.Now().UTC(),
		}
		if r.Resume { // which may take long, and the host has said perhaps that this run is running
			r.saveRecord()
		}
	case err != nil:
		return nil, err
	default:
		facts, err := readFacts(r.folder.Path)
		if err != nil {
			return nil, err
		}
		r.Log.Info("going on with the run where the worker before left it")
		r.progress, r.Cwd = replay(facts), r.record.Cwd
		if f := r.progress.notStarted; f != nil {
			notStarted = &NotStartedError{f.Status, errors.New(f.Why)}
		}
		if r.record.Opening == nil {
			break // it was still being prepared
		}
		at := &harness.Session{Path: r.record.Session, ID: r.record.SessionID}
		r.locatedAt(cmp.Or(r.progress.located, at))
		if r.progress.opened {
			close(r.opened)
			return notStarted, nil
		}
		return notStarted, json.Unmarshal(r.record.Opening, &r.opening)
	}
	if notStarted == nil {
		r.finishLost(ctx)
		notStarted = r.prepare(ctx)
	}
	r.record.Resume = cmp.Or(r.record.Resume, ResumeNone)
	r.locatedAt(&harness.Session{Path: r.record.Session, ID: r.record.SessionID})
	r.opening = r.firstEntries()
	r.record.Opening = encodeEntries(r.opening)
	r.saveRecord()
	if notStarted != nil { // at once: the next worker has no other word of it, and would start the agent
		r.noteNotStarted(notStarted)
	}
	return notStarted, nil
}

// prepare finds what the agent needs, and puts its session into the record.
func (r *run) prepare(ctx context.Context) *NotStartedError {
	binary, binaryErr := harness.Find(r.Spec, r.Binary, r.getenv)
	s, sessionErr := r.prepareSession(ctx)
	if sessionErr != nil && ctx.Err() != nil {
		sessionErr = nil // told to stop while the thread was read: the run ends as a cancelled one
	}
	if sessionErr != nil {
		s = sessionFile{} // nothing of a file that is refused is posted
	}
	r.binary, r.created = binary, s.created
	r.record.Cwd, r.record.Session, r.record.SessionID = r.Cwd, s.path, s.id
	r.record.From, r.record.Posted, r.record.Resume = s.from, s.posted, s.resume
	if cause := cmp.Or(binaryErr, sessionErr); cause != nil {
		return notStartedError(cause)
	}
	return nil
}

// saveRecord writes the record down. Without it nobody can go on with this run if this process dies. That is no reason
// not to run it. The keeper keeps a record that has the run's beginning.
func (r *run) saveRecord() {
	b, err := r.record.encode()
	if err == nil {
		err = r.folder.WriteFile("run.json", b)
	}
	if err != nil {
		r.Log.Warn("the run can't be written down; should the runner die, its end is for the host to tell", "error", err)
		return
	}
	if r.Recorded != nil && r.record.Opening != nil {
		if err := r.Recorded(); err != nil {
			r.Log.Warn("tell the keeper that the run is written down", "error", err)
		}
	}
}

// pid is the process that stands for this runner.
func (r *run) pid() int {
	if r.Keeper != 0 {
		return r.Keeper
	}
	return os.Getpid()
}

// turnedAway ends a run that was not to be. Another runner's is none of ours. One that the server refuses may yet be begun, with another token; until
// then its folder says that the thread may know of it, for an answer can have been lost: Recover gives it an end.
func (r *run) turnedAway(why error) (err error) {
	if !errors.Is(why, ErrTaken) {
		r.note(Fact{Fact: FactTurnedAway, Why: r.Redact.Text(why.Error())})
		return nil
	}
	if r.created {
		err = os.Remove(r.record.Session)
	}
	return errors.Join(err, os.RemoveAll(r.folder.Path))
}

func (r *run) newMirror() *mirror.Mirror {
	return &mirror.Mirror{
		Encoder: mirror.Encoder{
			Namer:  mirror.Namer{Dialect: r.Spec.Dialect, Session: r.record.SessionID, Known: r.known},
			Redact: r.Redact, Author: r.Author,
			Prompt: r.promptChat(), RunFrom: r.record.From.Index,
		},
		Find:  r.session,
		Named: r.record.Named,
		Until: r.until,
		From:  r.cursor(),
		Notes: filepath.Join(r.folder.Path, "mirror.notes"),
		Append: func(ctx context.Context, entries []thread.Entry) error {
			_, err := r.post(ctx, entries)
			return err
		},
		Tally: r.follower.take,
		Gate:  r.ensureOpen,
		Saved: func(p session.Position) error {
			// A full disk must not keep lines from the thread: a stale cursor only means posting some of them again.
			if err := r.folder.SaveCursor(p); err != nil {
				r.Log.Debug("the cursor was not saved", "error", err)
			}
			return nil
		},
		Log: r.Log,
	}
}

// cursor is from where on the session is to be posted.
func (r *run) cursor() session.Position {
	if p := cursor(r.folder.Path); p.Index > r.record.Posted.Index {
		return p
	}
	return r.record.Posted
}

// look reads what has come of the agent's stdout and of its session. It posts nothing.
func (r *run) look() {
	if err := r.readOn(false); err != nil {
		r.Log.Debug("the session can't be read now", "error", err)
	}
}

func (r *run) readOn(last bool) error {
	return errors.Join(r.follower.read(last), r.mirror.Look(last))
}

// post posts entries and notes that the server has spoken.
func (r *run) post(ctx context.Context, entries []thread.Entry) (thread.Ack, error) {
	ack, err := r.Client.Append(ctx, entries)
	if err == nil {
		r.acked.Store(int64(clock()))
	}
	return ack, err
}

// note writes a fact down. A disk that is full or broken must not end the run: the verdict doesn't hang on the note while this process lives.
func (r *run) note(f Fact) {
	if err := r.folder.Note(f); err != nil {
		r.Log.Warn("a fact was not written down", "fact", f.Fact, "error", err)
	}
}

// start runs f and returns what stops it: it cancels, waits, and may be called twice.
func start(ctx context.Context, f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = f(ctx) // the loops handle what goes wrong in them and return nil
	}()
	return func() {
		cancel()
		<-done
	}
}
