package dispatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/thread"
)

// board is a thread in memory, whose clock is the test's.
type board struct {
	t    *testing.T
	mu   sync.Mutex
	list []thread.Entry
	grew []chan<- string // of hosts
	away bool
	fail func(entries []thread.Entry) error // of each append and, with none, of each read; nil for none
	lags bool                               // reads are without decisions, as of a server that is behind
}

// failing sets what goes wrong from now on.
func (b *board) failing(fail func(entries []thread.Entry) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = fail
}

func (b *board) setAway(away bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away = away
}

func (b *board) Read(ctx context.Context, from string, f func(thread.Entry)) (string, time.Time, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away || ctx.Err() != nil {
		return from, time.Time{}, errors.New("the server is away")
	}
	if b.fail != nil {
		if err := b.fail(nil); err != nil {
			return from, time.Time{}, err
		}
	}
	var n int
	if _, err := fmt.Sscan(from, &n); err != nil {
		b.t.Error(err)
	}
	for i, e := range b.list[n:] {
		if b.lags && strings.HasSuffix(e.ID, ".decided") {
			return fmt.Sprint(n + i), time.Now(), nil
		}
		if !strings.Contains(e.ID, ".d.") {
			f(e)
		}
	}
	return fmt.Sprint(len(b.list)), time.Now(), nil
}

func (b *board) Append(ctx context.Context, entries ...thread.Entry) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away || ctx.Err() != nil {
		return errors.New("the server is away")
	}
	if b.fail != nil {
		if err := b.fail(entries); err != nil {
			return err
		}
	}
	var fresh []thread.Entry
	for _, e := range entries {
		i := slices.IndexFunc(b.list, func(x thread.Entry) bool { return x.ID == e.ID })
		switch {
		case i < 0:
			e.At = thread.Stamp(time.Now())
			fresh = append(fresh, e)
		case string(b.list[i].Payload) != string(e.Payload):
			return dispatch.ErrTaken
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	b.list = append(b.list, fresh...)
	for _, grew := range b.grew {
		go func() { grew <- "t1" }()
	}
	return nil
}

// link is a host's way to the thread.
type link struct {
	*board
	dead atomic.Bool // nothing arrives any more
	slow atomic.Bool // what is appended arrives a second later
	lost atomic.Bool // appends fail
}

// wait waits while the host is dead: what seems so may be frozen, and continue later.
func (l *link) wait(ctx context.Context) {
	for l.dead.Load() && ctx.Err() == nil {
		pause.For(ctx, time.Second)
	}
}

func (l *link) Read(ctx context.Context, from string, f func(thread.Entry)) (string, time.Time, error) {
	l.wait(ctx)
	return l.board.Read(ctx, from, f)
}

func (l *link) Append(ctx context.Context, entries ...thread.Entry) error {
	l.wait(ctx)
	if l.slow.Load() {
		pause.For(ctx, time.Second)
	}
	if l.lost.Load() {
		return errors.New("the server is away")
	}
	return l.board.Append(ctx, entries...)
}

// say posts a chat.
func (b *board) say(id, author, text string) {
	b.post(entry(id, author, thread.Chat{Type: thread.TypeChat, Text: text}))
}

func (b *board) post(e thread.Entry) {
	if err := b.Append(b.t.Context(), e); err != nil {
		b.t.Error(err)
	}
}

// shown returns the thread's entries, without deltas and signs of life, as words.
func (b *board) shown() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []string
	for _, e := range b.list {
		switch p := payload(e).(type) {
		case thread.Decided:
			for _, c := range p.Bots {
				all = append(all, c.AgentID[:1]+" "+c.Decision+" "+c.Reason)
			}
		case thread.ReactionClaimed:
			all = append(all, fmt.Sprint("claim ", p.Claim))
		case thread.Round:
			text := "call"
			if len(dispatch.CallsOf(p.Message)) == 0 {
				text = dispatch.TextOf(p.Message)
			}
			all = append(all, text)
		case thread.CallResult:
			all = append(all, "result "+dispatch.TextOf(p.Message))
		case thread.ReactionFinished:
			all = append(all, strings.TrimSpace(p.Outcome+" "+p.ErrorClass))
		}
	}
	return strings.Join(all, ", ")
}

// scripted is a model that replies by a function.
type scripted func(ctx context.Context, n int, r model.Request, f func(model.Event)) (model.Reply, error)

// api is a provider, with the number of its requests.
type api struct {
	mu     sync.Mutex
	n      int
	answer scripted
}

func (a *api) Stream(ctx context.Context, r model.Request, f func(model.Event)) (model.Reply, error) {
	a.mu.Lock()
	n := a.n
	a.n++
	a.mu.Unlock()
	return a.answer(ctx, n, r, f)
}

func text(s string) model.Reply {
	return model.Reply{Parts: []model.Part{{Text: s}}, Stop: model.StopEnd}
}

func calls(names ...string) (r model.Reply) {
	for i, name := range names {
		r.Parts = append(r.Parts, model.Part{Call: &model.Call{
			ID: fmt.Sprint("c", i), Name: name, Arguments: json.RawMessage(`{"text":"hi"}`),
		}})
	}
	r.Stop = model.StopCalls
	return r
}

// stage is a thread with hosts, in a bubble of virtual time.
type stage struct {
	*board
	*api
	room  dispatch.Room
	rows  error // that the rooms can't be read
	none  bool  // there is no row
	looks int   // at the rows
	hosts []*running
	tools []dispatch.Tool
	purse *purse // nil for no limits of money

	settled []string // offsets
	resume  func(ctx context.Context, h *running, r dispatch.Resume) error
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// running is a host that dispatches.
type running struct {
	link
	grew  chan string
	stop  func() // and wait
	ended chan bool
	older atomic.Bool // the rows refuse its version
}

// play runs a test with a thread on which a model answers.
func play(t *testing.T, answer scripted, f func(s *stage)) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{board: &board{t: t}, api: &api{answer: answer}, room: room()}
		for i := range s.room.Bots {
			s.room.Bots[i].Provider, s.room.Bots[i].Model = "p", "m"
			s.room.Bots[i].Joined = time.Unix(int64(i), 0) // before the bubble's time
		}
		defer func() {
			for _, h := range s.hosts {
				h.stop()
			}
		}()
		f(s)
	})
}

// host starts a host.
func (s *stage) host() *running {
	r := &running{link: link{board: s.board}, grew: make(chan string, 100)}
	h := &dispatch.Host{
		Instance: fmt.Sprint("i", len(s.hosts)), Reactions: 2, Log: discard(), Tools: s.tools,
		Threads: func(string) dispatch.Thread { return &r.link },
		Room: func(context.Context, string) (dispatch.Room, time.Time, bool, error) {
			s.board.mu.Lock()
			defer s.board.mu.Unlock()
			if s.looks++; r.older.Load() {
				return dispatch.Room{}, time.Time{}, false, &rows.SchemaError{Kind: rows.ErrNewer}
			}
			return s.room, time.Time{}, !s.none, s.rows
		},
		Settled: func(_ context.Context, _, upto string) {
			s.board.mu.Lock()
			defer s.board.mu.Unlock()
			s.settled = append(s.settled, upto)
		},
		Model: func(context.Context, string, string) (model.Model, error) { return s.api, nil },
	}
	if s.resume != nil {
		h.Resume = func(ctx context.Context, _ string, x dispatch.Resume) error { return s.resume(ctx, r, x) }
	}
	if s.purse != nil {
		h.Reserve = s.purse.reserve
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.ended = make(chan bool)
	go func() {
		defer close(r.ended)
		h.Run(ctx, r.grew)
	}()
	r.stop = func() {
		cancel()
		<-r.ended
	}
	s.hosts = append(s.hosts, r)
	s.board.mu.Lock()
	s.board.grew = append(s.board.grew, r.grew)
	s.board.mu.Unlock()
	r.grew <- "t1"
	return r
}

func (s *stage) want(want string) {
	s.t.Helper()
	if got := s.shown(); got != want {
		s.t.Errorf("got  %s\nwant %s", got, want)
	}
}

// echo is a tool with one effect for each key.
type echo struct {
	mu   sync.Mutex
	keys []string
	slow time.Duration
}

func (e *echo) tool() dispatch.Tool {
	return dispatch.Tool{
		Tool: model.Tool{Name: "echo", Schema: json.RawMessage(`{"type":"object"}`)}, Run: e.run,
	}
}

func (e *echo) run(ctx context.Context, c dispatch.ToolCall) (dispatch.ToolResult, error) {
	e.mu.Lock()
	if !slices.Contains(e.keys, c.Key) {
		e.keys = append(e.keys, c.Key)
	}
	e.mu.Unlock()
	select {
	case <-time.After(e.slow):
		return dispatch.ToolResult{Text: "echoed"}, nil
	case <-ctx.Done():
		return dispatch.ToolResult{}, ctx.Err()
	}
}
