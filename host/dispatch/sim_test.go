package dispatch_test

import (
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/jetstream"
	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/internal/test/natsserver"
	"arbe.0sk.ar/runner/thread"
)

// The virtual clock: a step of a schedule takes half a second.
const (
	tick  = 500 * time.Millisecond
	lease = 20 * time.Second
	steps = 6000
	wild  = 2500 // in the steps before it hosts die and stop
)

var epoch = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)

// wrong is a rule of the protocol that a schedule leaves out.
type wrong string

const (
	none       wrong = ""
	keyless    wrong = "effects by attempt, not by call"
	unjournal  wrong = "calls of a round that is not on the thread"
	noTakeover wrong = "nobody continues a reaction"
	firstDraft wrong = "ids made of the first trigger"
)

// world is a thread of a log, some hosts that dispatch, and the models and tools that they call.
type world struct {
	t       *testing.T
	rnd     *rand.Rand
	wrong   wrong
	log     *log.Log
	thread  string
	room    dispatch.Room
	now     time.Time
	offset  uint64
	entries []thread.Entry // what the log has, by the virtual clock
	said    []string       // mentions that must be answered: chat and bot
	effects map[string][]string
	tools   int
	models  int
}

// append appends entries, and reports whether they are on the thread.
func (w *world) append(all ...thread.Entry) bool {
	for i := range all {
		all[i].TS = thread.Stamp(w.now)
	}
	_, err := w.log.Append(w.t.Context(), w.thread, all)
	if conflict := (*log.ConflictError)(nil); errors.As(err, &conflict) {
		return false
	} else if err != nil {
		w.t.Fatal(err)
	}
	v, err := w.log.Stat(w.t.Context(), thread.StreamName(w.thread))
	if err != nil {
		w.t.Fatal(err)
	}
	for w.offset < v.Tail() {
		records, err := w.log.Read(w.t.Context(), v, w.offset, v.Tail(), 1<<20)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, r := range records {
			e, err := thread.ParseStored(r.Data)
			if err != nil {
				w.t.Fatal(err)
			}
			e.At = thread.Stamp(w.now)
			w.entries = append(w.entries, e)
			w.offset = r.Seq
		}
	}
	return true
}

// entry returns an entry of a host.
func entry(id, author string, payload any) thread.Entry {
	return thread.Entry{ID: id, AuthorID: author, Payload: thread.Marshal(payload)}
}

// model returns what a model replies, which is never the same twice.
func (w *world) model(round int) (text string, calls []model.Call) {
	w.models++
	text = fmt.Sprint("reply ", w.rnd.Uint64())
	if n := w.rnd.IntN(4) - 1; n > 0 && round < 3 {
		for i := range n {
			calls = append(calls, model.Call{
				ID: fmt.Sprint("c", i), Name: "echo", Arguments: fmt.Appendf(nil, `{"text":"%d"}`, w.rnd.Uint64()),
			})
		}
		return text, calls
	}
	if w.rnd.Float64() < .25 { // bots wake bots
		text += " @" + w.room.Bots[w.rnd.IntN(len(w.room.Bots))].Name
	}
	return text, nil
}

// call has the effect of a tool.
func (w *world) call(key string, c model.Call) {
	w.tools++
	if w.wrong == keyless {
		key = fmt.Sprint(key, " ", w.tools)
	}
	w.effects[key] = append(w.effects[key], string(c.Arguments))
}

// host is a host that dispatches.
type host struct {
	*world
	instance string
	state    *dispatch.State
	read     int // entries
}

func (h *host) sync() {
	for ; h.read < len(h.entries); h.read++ {
		h.state.Add(h.entries[h.read])
	}
}

// run dispatches for ever. It yields before it reads or changes anything, where it may be stopped for good or a while.
func (w *world) run(instance string) iter.Seq[string] {
	return func(yield func(string) bool) {
		h := &host{world: w, instance: instance, state: dispatch.NewState(w.thread, epoch)}
		for h.pass(yield) {
		}
	}
}

func (h *host) pass(yield func(string) bool) bool {
	if !yield("look") {
		return false
	}
	h.sync()
	work := h.state.Open(h.now)
	for _, t := range work.Decide[:min(3, len(work.Decide))] {
		if !yield("decide") {
			return false
		}
		h.append(entry(thread.DecidedID(t.ID), "", h.state.Select(t, h.room)))
		h.sync()
	}
	work = h.state.Open(h.now)
	for _, j := range work.Take {
		if h.wrong != noTakeover && !h.take(&j, yield) {
			return false
		}
	}
	for _, st := range work.Start {
		if !h.start(st, yield) {
			return false
		}
	}
	return true
}

func (h *host) take(j *dispatch.Journal, yield func(string) bool) bool {
	if !yield("claim") {
		return false
	}
	if j.Crashed() {
		h.append(h.end(j, thread.ReactionFailed))
		return true
	}
	claim := thread.ReactionClaimed{
		Type: thread.TypeReactionClaimed, Reaction: j.ID, Claim: j.Claim + 1, AgentID: j.Bot, Instance: h.instance,
		LeaseMs: lease.Milliseconds(),
	}
	if !h.append(entry(thread.ReactionClaimID(j.ID, claim.Claim), j.Bot, claim)) {
		return true
	}
	return h.react(j.ID, yield)
}

func (h *host) start(st dispatch.Start, yield func(string) bool) bool {
	if h.wrong == firstDraft {
		st.ID = thread.ReactionID(h.thread, st.Bot+st.Chats[0], 0)
	}
	if !yield("claim") {
		return false
	}
	claim := thread.ReactionClaimed{
		Type: thread.TypeReactionClaimed, Reaction: st.ID, AgentID: st.Bot, Instance: h.instance,
		LeaseMs: lease.Milliseconds(), Begun: &st.Begun,
	}
	if !h.append(entry(thread.ReactionClaimID(st.ID, 0), st.Bot, claim)) {
		return true
	}
	return h.react(st.ID, yield)
}

func (h *host) end(j *dispatch.Journal, outcome string) thread.Entry {
	return entry(thread.ReactionEndID(j.ID), j.Bot, thread.ReactionFinished{
		Type: thread.TypeReactionFinished, Reaction: j.ID, Chats: j.Chats, Outcome: outcome,
	})
}

// react does the steps of a reaction while this host holds it.
func (h *host) react(id string, yield func(string) bool) bool {
	for {
		if !yield("read") {
			return false
		}
		h.sync()
		j := h.state.Reaction(id)
		if j == nil || j.Instance != h.instance {
			return true
		}
		switch step := dispatch.Next(j, dispatch.CapsOf(rows.Caps{}), h.now); step.Do {
		case dispatch.DoFinish:
			h.append(h.end(j, step.Outcome))
		case dispatch.DoGate:
			if !yield("gate") {
				return false
			}
			if j.Gated = h.rnd.IntN(3) > 0; !j.Gated {
				h.append(h.end(j, thread.ReactionDeclined))
			}
		case dispatch.DoCalls:
			for _, i := range step.Calls {
				if !h.result(j, step.Round, i, yield) {
					return false
				}
			}
		case dispatch.DoModel:
			if !h.round(j, step, yield) {
				return false
			}
		}
	}
}

func (h *host) result(j *dispatch.Journal, n, i int, yield func(string) bool) bool {
	if !yield("tool") {
		return false
	}
	call := j.Rounds[n].Calls[i]
	h.call(thread.CallKey(j.ID, n, i), call)
	if !yield("result") {
		return false
	}
	h.append(entry(thread.CallResultID(j.ID, n, i), j.Bot, thread.CallResult{
		Type: thread.TypeResult, Reaction: thread.InReaction{ID: j.ID, Round: n, Depth: j.Depth}, ToolCallID: call.ID,
		ToolName: call.Name, Message: []byte(`{"role":"toolResult","content":[]}`),
	}))
	return true
}

func (h *host) round(j *dispatch.Journal, step dispatch.Step, yield func(string) bool) bool {
	if !yield("model") {
		return false
	}
	text, calls := h.model(step.Round)
	for range h.rnd.IntN(4) {
		if !yield("delta") {
			return false
		}
	}
	parts := []model.Part{{Text: text}}
	for _, c := range calls {
		parts = append(parts, model.Part{Call: &c})
	}
	r := thread.Round{
		Type: thread.TypeRound, Reaction: thread.InReaction{ID: j.ID, Round: step.Round, Depth: j.Depth},
		Message: thread.Marshal(dispatch.MessageOf(parts)),
	}
	if len(calls) == 0 {
		r.Chats = j.Chats
		h.append(entry(thread.RoundID(j.ID, step.Round), j.Bot, r), h.end(j, thread.ReactionAnswered))
	} else if !h.append(entry(thread.RoundID(j.ID, step.Round), j.Bot, r)) && h.wrong == unjournal {
		for i, c := range calls {
			h.call(thread.CallKey(j.ID, step.Round, i), c)
		}
	}
	return true
}

// tally counts what schedules did.
type tally struct{ kills, reactions, joined, pairs, models, rounds, failed, deepest int }

// schedule plays one schedule on a thread of its own, and returns what is wrong with the thread in the end.
func schedule(t *testing.T, l *log.Log, name string, seed uint64, broken wrong) (bad []string, n tally) {
	w := &world{
		t: t, rnd: rand.New(rand.NewPCG(seed, 0)), wrong: broken, log: l, thread: fmt.Sprint(name, seed), now: epoch,
		effects: map[string][]string{},
	}
	for i, name := range []string{"piet", "alma", "gus"} {
		w.room.Bots = append(w.room.Bots, dispatch.Bot{
			ID: fmt.Sprintf("%08d-b", i), Name: name, AmbientDelay: 4 * time.Second, Cooldown: 30 * time.Second,
			Mode: []string{rows.ModeMention, rows.ModeMention, rows.ModeAmbient}[w.rnd.IntN(3)],
		})
	}
	w.room.Humans = []dispatch.Member{{ID: "ann", Name: "ann"}}
	type running struct {
		next  func() (string, bool)
		stop  func()
		until int
	}
	hosts, made := make([]running, 1+w.rnd.IntN(4)), 0
	start := func(i int) {
		if hosts[i].stop != nil {
			hosts[i].stop()
		}
		next, stop := iter.Pull(w.run(fmt.Sprint("h", made)))
		hosts[i] = running{next: next, stop: stop}
		made++
	}
	for i := range hosts {
		start(i)
	}
	for step := range steps {
		w.now = epoch.Add(time.Duration(step) * tick)
		if chats := len(w.said); chats < 12 && w.rnd.Float64() < .03 {
			var text string
			for _, b := range w.room.Bots {
				if w.rnd.Float64() < .3 {
					text += " @" + b.Name
				}
			}
			id := fmt.Sprint("m", step)
			w.append(entry(id, "ann", thread.Chat{Type: thread.TypeChat, Text: "hello" + text}))
			w.said = append(w.said, id)
		}
		i := w.rnd.IntN(len(hosts))
		h, x := &hosts[i], w.rnd.Float64()
		switch {
		case h.until > step:
		case step < wild && x < .02:
			start(i) // KILL: what it knew is gone
			n.kills++
		case step < wild && x < .03:
			h.until = step + 20 + w.rnd.IntN(180) // frozen, and then it continues as if nothing had been
		default:
			if at, _ := h.next(); at == "claim" && step < wild && w.rnd.IntN(2) == 0 {
				h.until = step + 20 + w.rnd.IntN(100) // between the read and the claim
			}
		}
	}
	for _, h := range hosts {
		h.stop()
	}
	return w.judge(n)
}

var engines = map[string]func(t *testing.T) log.Engine{
	"pebble": func(t *testing.T) log.Engine {
		e, err := pebble.Open(t.TempDir(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return e
	},
	"nats": func(t *testing.T) log.Engine {
		s, err := natsserver.Start(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { natsserver.Stop(s) })
		e, err := jetstream.Open(t.Context(), jetstream.Config{
			URL: s.ClientURL(), Shards: 2, Replicas: 1, AllowUnsafe: true, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		return e
	},
}

func newLog(t *testing.T, engine string) *log.Log {
	l := log.New(engines[engine](t))
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// protocol plays schedules: each mention is answered exactly once, and each call has one effect, whatever dies.
func protocol(t *testing.T, schedules int) {
	for _, name := range slices.Sorted(maps.Keys(engines)) {
		t.Run(name, func(t *testing.T) {
			l := newLog(t, name)
			var all tally
			for seed := range schedules {
				bad, n := schedule(t, l, name, uint64(seed), none)
				if len(bad) > 0 {
					t.Errorf("schedule %d: %s", seed, strings.Join(bad, "\n"))
				}
				all.kills += n.kills
				all.reactions += n.reactions
				all.joined += n.joined
				all.pairs += n.pairs
				all.models += n.models
				all.rounds += n.rounds
				all.failed += n.failed
				all.deepest = max(all.deepest, n.deepest)
			}
			t.Logf("%d schedules: %+v", schedules, all)
			if all.kills == 0 || all.joined == 0 || all.deepest < 2 {
				t.Errorf("the schedules are too tame: %+v", all)
			}
		})
	}
}

func TestProtocol(t *testing.T)      { protocol(t, 10) }
func TestLargeProtocol(t *testing.T) { protocol(t, 250) }

// With a rule left out, the schedules find it.
func TestProtocolBroken(t *testing.T) {
	for _, rule := range []wrong{keyless, unjournal, noTakeover, firstDraft} {
		t.Run(string(rule), func(t *testing.T) {
			l := newLog(t, "pebble")
			for seed := range uint64(100) {
				if bad, _ := schedule(t, l, "t", seed, rule); len(bad) > 0 {
					t.Log(seed, bad[0])
					return
				}
			}
			t.Error("100 schedules, and nothing was wrong")
		})
	}
}
