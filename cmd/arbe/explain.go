package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

func (p *program) dispatchExplainCommand() *cli.Command {
	return &cli.Command{
		Name:      "explain",
		Usage:     "print which bots answer an entry, and why; change nothing",
		ArgsUsage: "THREAD ENTRY",
		Description: `ENTRY is the id of a chat, or of a bot's reply. The command prints what the thread has: the
decision, and the state of each answer. Where no host has decided yet, it prints what one would decide now by
the rows, which takes the --database; with it bots have their names.`,
		Flags: []cli.Flag{
			databaseFlag(), &cli.BoolFlag{Name: "json", Usage: "print one JSON object"},
		},
		Action: p.dispatchExplain,
	}
}

func (p *program) dispatchExplain(c *cli.Context) error {
	cmd := p.command(c)
	if len(cmd.args) != 2 {
		return cmdline.Usage("want a thread id and the id of an entry")
	}
	id, err := cmd.resolve(c.Context, cmd.args[0], leastPrefix)
	if err != nil {
		return err
	}
	cl, err := cmd.client(id, token.ScopeRead)
	if err != nil {
		return err
	}
	h, err := cmd.host()
	if err != nil {
		return err
	}
	r, off, err := h.explainedRoom(c.Context, id)
	if err != nil {
		return err
	}
	x, err := explain(c.Context, cl, cmd.args[1], r)
	if err != nil {
		return err
	}
	if !x.Decided && x.Why == "" {
		x.Why = off
	}
	if cmd.json {
		return json.NewEncoder(p.stdout).Encode(x)
	}
	return x.print(p.stdout)
}

// explainedRoom returns the room of a thread, or, as far as the command can find out, why no host decides there.
func (h host) explainedRoom(ctx context.Context, id string) (r *room, off string, err error) {
	if h.database == nil {
		return nil, "no host has decided yet; with --database the rows have what one would decide", nil
	}
	db, err := h.database(ctx)
	if err != nil {
		return nil, "", databaseExit(err)
	}
	switch _, err := db.Host().Thread(ctx, id); {
	case rows.Present(err) != nil:
		return nil, "", databaseExit(err)
	case err != nil:
		return nil, "the thread is of no house", nil
	}
	if r, err = roomOf(ctx, db, id); r == nil {
		off = "the bots of the thread's house don't answer: arbe house set --dispatch on"
	}
	return r, off, err
}

// explained has the decision on an entry, and the reactions to it. Its JSON is that of --json.
type explained struct {
	Entry     string            `json:"entry"`
	Author    string            `json:"author,omitempty"`
	Decided   bool              `json:"decided"` // else Bots has what a host would decide now
	At        string            `json:"at,omitempty"`
	Why       string            `json:"why,omitempty"` // there is no decision
	Depth     int               `json:"depth"`
	Root      *thread.Root      `json:"root,omitempty"`
	Bots      []explainedChoice `json:"bots"`
	Reactions []explainedAnswer `json:"reactions"`
}

// explainedChoice is the decision on a bot.
type explainedChoice struct {
	thread.Choice
	Name string `json:"name,omitempty"`
	Why  string `json:"why"`

	// Of a bot that drives the thread: the run that a host launches for the chat, where no other run has it before.
	Run    string `json:"run,omitempty"`
	Status string `json:"status,omitempty"` // none while the run is not there
	Waits  string `json:"waits,omitempty"`  // why it is not there
}

// explainedAnswer is a reaction to the entry.
type explainedAnswer struct {
	ID         string   `json:"id"`
	AgentID    string   `json:"agentId"`
	Name       string   `json:"name,omitempty"`
	Chats      []string `json:"chats"` // that it answers
	Model      string   `json:"model,omitempty"`
	Claims     int      `json:"claims"` // of hosts that have held it
	Rounds     int      `json:"rounds"`
	Calls      int      `json:"calls"`
	Outcome    string   `json:"outcome,omitempty"` // none while it is open
	ErrorClass string   `json:"errorClass,omitempty"`
	Message    string   `json:"message,omitempty"`
	DurationMs int64    `json:"durationMs,omitempty"`
}

// explain reads a thread, and explains one of its entries.
func explain(ctx context.Context, cl *client.Client, id string, r *room) (x explained, err error) {
	x = explained{Entry: id, Bots: []explainedChoice{}, Reactions: []explainedAnswer{}}
	trace := dispatch.Trace{Trigger: id}
	state := dispatch.NewState(cl.Thread, time.Time{})
	if r != nil {
		state = dispatch.NewState(cl.Thread, r.since)
	}
	var entry *thread.Entry
	var fold thread.Fold
	waits := map[string]string{} // by the chats of runs
	_, err = cl.Only(thread.TypeChat, "signal.", thread.TypeRound, thread.TypeResult).
		Without(thread.TypeDelta).Read(ctx, "0", false, func(e thread.Entry) error {
		if e.ID == id {
			entry = &e
		}
		fold.Add(e)
		state.Add(e)
		if w, is := thread.ParseWaits(e.Payload); is {
			waits[w.Chat] = w.Reason
		}
		if trace.Add(e); trace.Decided != nil && x.At == "" {
			x.At = cmp.Or(e.At, e.TS)
		}
		return nil
	})
	switch {
	case err != nil:
		return x, reachThread(cl, err)
	case entry == nil:
		return x, cmdline.Fail(exitNoThread, "thread %s has no chat and no reply %s; arbe thread read %[1]s has all "+
			"entries", cl.Thread, id)
	}
	x.Author, x.Why = entry.AuthorID, dispatch.NoTrigger(*entry)
	t, open := state.Undecided(id)
	switch {
	case trace.Decided != nil:
		x.Decided, x.Why = true, ""
		x.choices(*trace.Decided, r)
	case x.Why != "" || r == nil:
	case !open:
		x.Why = "it is older than the thread's row, or than the time from which on the bots of the house answer, " +
			thread.Stamp(r.since)
	default:
		x.choices(state.Select(t, r.Room), r)
	}
	if x.Depth == 0 {
		x.run(dispatch.RunOf(cl.Thread, id), &fold, waits[id])
	}
	for _, a := range trace.Reactions {
		x.Reactions = append(x.Reactions, answerOf(a, r))
	}
	return x, nil
}

// run sets the run of the bot that drives the thread, and why it waited last.
func (x *explained) run(id string, fold *thread.Fold, waits string) {
	for i, c := range x.Bots {
		if c.Reason == thread.ReasonDriver {
			run, there := fold.Run(id)
			if x.Bots[i].Run, x.Bots[i].Status = id, run.Status; !there {
				x.Bots[i].Waits = waits
			}
		}
	}
}

// choices sets the decision on each bot.
func (x *explained) choices(d thread.Decided, r *room) {
	x.Depth, x.Root = d.Depth, d.Root
	for _, c := range d.Bots {
		x.Bots = append(x.Bots, explainedChoice{Choice: c, Name: r.known(c.AgentID), Why: reasonOf(c)})
	}
}

// known returns the name of a bot; "" where it is not known.
func (r *room) known(id string) string {
	if r == nil {
		return ""
	}
	return r.names[id]
}

// reactReasons are the reasons for which bots react, in words. view.Skipped has those for which they don't.
var reactReasons = map[string]string{
	thread.ReasonMention: "it is named",
	thread.ReasonAlways:  "its mode is always",
	thread.ReasonAmbient: "its mode is ambient: a model decides whether it answers",
	thread.ReasonDriver:  "it drives the thread: a run takes the chat",
}

// reasonOf returns the reason of a decision on a bot, in words.
func reasonOf(c thread.Choice) string {
	switch {
	case c.Decision == thread.DecisionReact:
		return cmp.Or(reactReasons[c.Reason], c.Reason)
	case c.Reason == thread.ReasonCooldown:
		return "it has answered within its cooldown"
	}
	return cmp.Or(view.Skipped(c.Reason), c.Reason)
}

// answerOf returns a reaction as it is printed.
func answerOf(t dispatch.Traced, r *room) explainedAnswer {
	a := explainedAnswer{
		ID: t.ID, AgentID: t.Bot, Name: r.known(t.Bot), Chats: t.Chats, Claims: t.Claims, Rounds: len(t.Rounds),
	}
	if t.Model != "" {
		a.Model = t.Provider + "/" + t.Model
	}
	for _, round := range t.Rounds {
		a.Calls += len(round.Calls)
	}
	if end := t.End; end != nil {
		a.Outcome, a.ErrorClass, a.Message, a.DurationMs = end.Outcome, end.ErrorClass, end.Message, end.DurationMs
	}
	return a
}

// print prints the explanation for people.
func (x explained) print(w io.Writer) error {
	var b strings.Builder
	switch {
	case x.Why != "":
		fmt.Fprintf(&b, "%s: no decision: %s\n", x.Entry, x.Why)
	case x.Decided:
		fmt.Fprintf(&b, "%s: decided at %s, depth %d\n", x.Entry, x.At, x.Depth)
	default:
		fmt.Fprintf(&b, "%s: no host has decided; one would decide now, depth %d\n", x.Entry, x.Depth)
	}
	if x.Why == "" && len(x.Bots) == 0 {
		fmt.Fprintln(&b, "  no bot: none is named, and none answers here unnamed")
	}
	for _, c := range x.Bots {
		fmt.Fprintf(&b, "  %s  %s: %s", cmp.Or(view.Visible(c.Name), c.AgentID), c.Decision, c.Why)
		if i := slices.IndexFunc(x.Reactions, func(a explainedAnswer) bool { return a.AgentID == c.AgentID }); i >= 0 {
			fmt.Fprintf(&b, "\n    %s", x.Reactions[i])
		} else if c.Run != "" {
			state := cmp.Or(c.Status, "not launched")
			if c.Waits != "" {
				state = "waits: " + c.Waits
			}
			fmt.Fprintf(&b, "\n    run %s: %s", c.Run, state)
		} else if x.Decided && c.Decision == thread.DecisionReact && c.Reason != thread.ReasonDriver {
			fmt.Fprint(&b, "\n    no host has begun the answer")
			if c.DueAt != "" {
				fmt.Fprintf(&b, ", due at %s", c.DueAt)
			}
		}
		fmt.Fprintln(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// String returns the answer in one line.
func (a explainedAnswer) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", a.ID, cmp.Or(a.Outcome, "open"))
	if why := cmp.Or(a.Message, a.ErrorClass); why != "" {
		fmt.Fprintf(&b, " (%s)", view.Visible(why))
	}
	fmt.Fprintf(&b, ", %s, %s", view.Count(int64(a.Rounds), "round"), view.Count(int64(a.Calls), "call"))
	if a.DurationMs > 0 {
		fmt.Fprintf(&b, ", %s", time.Duration(a.DurationMs)*time.Millisecond)
	}
	if a.Model != "" {
		fmt.Fprintf(&b, ", %s", view.Visible(a.Model))
	}
	if a.Claims > 1 {
		fmt.Fprintf(&b, ", held by %d hosts", a.Claims)
	}
	if len(a.Chats) > 1 {
		fmt.Fprintf(&b, ", answers %d chats", len(a.Chats))
	}
	return b.String()
}
