package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/cmd/internal/screen"
	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// undecidedFor is how long say waits for a decision before it reports that none has come.
const undecidedFor = 10 * time.Second

// awaitAnswers follows a thread from an offset, and shows what its bots answer to a chat, until all of them have.
func (p *program) awaitAnswers(ctx context.Context, cl *client.Client, offset, chat string, r *room) error {
	a := &answers{out: p.stdout, room: r, trace: dispatch.Trace{Trigger: chat}}
	if _, terminal := cmdline.Terminal(p.stdout); terminal {
		a.screen = p.show(cl, screen.Options{Name: r.known})
		defer a.screen.Stop()
	}
	decided := p.awaitDecision(ctx, cl.Thread)
	defer decided()
	entries := cl.Only("signal.dispatch.", thread.TypeRound, thread.TypeResult)
	if a.screen == nil {
		entries = entries.Without(thread.TypeDelta)
	}
	err := entries.Follow(ctx, offset, func(e thread.Entry) error {
		if err := a.add(e); err != nil {
			return err
		}
		if a.trace.Decided != nil {
			decided()
		}
		if a.trace.Over() {
			return client.ErrStop
		}
		return nil
	}, nil)
	if err != nil || ctx.Err() != nil {
		return reach(err)
	}
	return a.status(cl.Thread)
}

// awaitDecision reports that nobody has decided on a chat for long, unless decided is called before. The caller calls
// it in any case.
func (p *program) awaitDecision(ctx context.Context, threadID string) (decided func()) {
	stop := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() { p.undecided(ctx, stop, threadID) })
	return sync.OnceFunc(func() {
		close(stop)
		waiting.Wait()
	})
}

// undecided reports that nobody has decided on a chat for long.
func (p *program) undecided(ctx context.Context, decided <-chan struct{}, threadID string) {
	select {
	case <-decided:
	case <-ctx.Done():
	case <-time.After(undecidedFor):
		fmt.Fprintf(p.stderr, "arbe: no host has decided in %[2]s which bots of thread %[1]s answer: "+
			"does arbe dispatch run? Still waiting; the chat stays on the thread\n", threadID, undecidedFor)
	}
}

// answers shows the reactions to a chat: on a terminal as arbe thread tail does, else the final replies alone, one
// after the other.
type answers struct {
	out    io.Writer
	screen *screen.Screen // nil where out is no terminal
	room   *room

	trace   dispatch.Trace
	builder view.Builder // has why a bot did not answer
	printed int          // reactions, to their ends
	failed  []string     // why bots did not answer
}

// add adds the thread's next entry.
func (a *answers) add(e thread.Entry) error {
	a.trace.Add(e)
	id, _, _ := strings.Cut(e.ID, ".")
	if a.trace.Reaction(id) == nil {
		return nil
	}
	if a.screen != nil {
		if err := a.screen.Entry(e); err != nil {
			return err
		}
	}
	for _, c := range a.builder.Add(e) {
		if n := c.Item.Notice; n != nil && n.Kind == view.NoticeReaction {
			a.failed = append(a.failed, a.room.name(n.Bot)+" "+view.Visible(n.Text))
		}
	}
	for ; a.printed < len(a.trace.Reactions) && a.trace.Reactions[a.printed].End != nil; a.printed++ {
		if err := a.print(a.trace.Reactions[a.printed]); err != nil {
			return err
		}
	}
	return nil
}

// print prints the final reply of a reaction, where no screen shows it, with the bot's name if there are several.
func (a *answers) print(r dispatch.Traced) error {
	text := strings.TrimSuffix(view.Visible(r.Answer()), "\n")
	if a.screen != nil || text == "" {
		return nil
	}
	if len(a.trace.Reacting()) > 1 {
		text = a.room.name(r.Bot) + ":\n" + text
	}
	_, err := fmt.Fprintln(a.out, text)
	return err
}

// status returns the exit status of say, once all bots have answered: 0 where one has, and none failed to.
func (a *answers) status(threadID string) error {
	switch answered := slices.ContainsFunc(a.trace.Reactions, func(r dispatch.Traced) bool {
		return r.End != nil && r.End.Outcome == thread.ReactionAnswered
	}); {
	case len(a.failed) > 0 && a.screen != nil: // it shows why
		return &cmdline.Exit{Status: 1}
	case len(a.failed) > 0:
		return cmdline.Fail(1, "thread %s: %s", threadID, strings.Join(a.failed, "; "))
	case answered:
		return nil
	case len(a.trace.Reactions) > 0:
		const nothing = "thread %s has the chat, and its bots found nothing to answer"
		return cmdline.Fail(launch.StatusNoTurn, nothing, threadID)
	case driven(*a.trace.Decided):
		return cmdline.Fail(launch.StatusNoTurn, noLiveRun, threadID)
	}
	return cmdline.Fail(launch.StatusNoTurn,
		"thread %s has the chat, and %s", threadID, a.room.unanswered(*a.trace.Decided))
}

// noLiveRun reports which run gets a chat on a thread without a live run.
const noLiveRun = "no live run is on thread %s: its next run with --resume gets the chat"
