package bots_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/internal/test/scene"
	"arbe.0sk.ar/runner/thread"
)

// BenchmarkStop: from a member's request that stops an answer until the provider's connection is closed in the middle
// of a reply, and until the process of a command in a local box has ended. One arbe serve --dispatch, its database, the
// provider and the box on this machine.
func BenchmarkStop(b *testing.B) {
	b.Run("stream", func(b *testing.B) {
		h := newHouse(b, model.Reply{
			Text: strings.Repeat("word ", 10_000), Pace: model.Duration(50 * time.Millisecond), Times: -1,
		})
		h.serve(h.dispatching("--dispatch")...)
		id := h.thread()
		var all []time.Duration
		for i := range b.N {
			h.ask(id, i)
			h.await(id, thread.DeltaID(reactionOf(id, i), 0, 0, 0))
			began := h.stop(id, i)
			all = append(all, (<-h.left).Sub(began))
		}
		report(b, "stop", all)
		b.ReportMetric(0, "ns/op")
	})
	b.Run("command", func(b *testing.B) {
		at := filepath.Join(b.TempDir(), "pid")
		command := fmt.Sprintf("echo $$ > %[1]s.new; mv %[1]s.new %[1]s; exec sleep 1000", at)
		h := newHouse(b, model.Reply{Times: -1, Tools: []model.Tool{{
			Name: "run_command", Arguments: map[string]any{"command": command},
		}}})
		h.environment("quick", `{}`)
		h.serve(h.dispatching("--dispatch", "--local-boxes")...)
		id := h.in("quick")
		var all []time.Duration
		for i := range b.N {
			h.ask(id, i)
			h.there(at)
			pid := h.pidIn(at)
			began := h.stop(id, i)
			for syscall.Kill(pid, 0) == nil {
				time.Sleep(time.Millisecond)
			}
			all = append(all, time.Since(began))
			h.await(id, thread.ReactionEndID(reactionOf(id, i)))
			if err := os.Remove(at); err != nil {
				b.Fatal(err)
			}
		}
		report(b, "stop", all)
		b.ReportMetric(0, "ns/op")
	})
}

// reactionOf is the bot's n-th reaction on a thread.
func reactionOf(id string, n int) string { return thread.ReactionID(id, piet, n) }

// ask posts the n-th chat to the bot.
func (h *house) ask(id string, n int) {
	h.Helper()
	e := thread.NewEntry(fmt.Sprint("m", n), ann, thread.Chat{Type: thread.TypeChat, Text: "@piet hello"})
	if _, err := h.client(id).Append(h.Context(), []thread.Entry{e}); err != nil {
		h.Fatal(err)
	}
}

// stop asks for the end of the bot's n-th reaction, and returns when.
func (h *house) stop(id string, n int) (began time.Time) {
	h.Helper()
	stop := thread.ReactionCancel{Type: thread.TypeReactionCancel, Reaction: reactionOf(id, n)}
	cl := h.client(id)
	began = time.Now()
	if _, err := cl.Append(h.Context(), []thread.Entry{thread.NewEntry(fmt.Sprint("stop", n), ann, stop)}); err != nil {
		h.Fatal(err)
	}
	return began
}

// await waits for an entry.
func (h *house) await(id, entry string) {
	h.Helper()
	cl := h.client(id)
	scene.Until(h, "the entry "+entry, func() bool {
		_, found, err := cl.Entry(h.Context(), entry)
		return err == nil && found
	})
}

// pidIn returns the process id in a file.
func (h *house) pidIn(path string) int {
	h.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		h.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		h.Fatal(err)
	}
	return pid
}
