package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/dispatch/tools"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/thread"
)

// call is a call of a bot's on the thread t1.
func call(arguments string) dispatch.ToolCall {
	return dispatch.ToolCall{
		Key: "x_a-0-0", Thread: "t1", Bot: "b1", Arguments: json.RawMessage(arguments),
		Room: dispatch.Room{Bots: []dispatch.Bot{
			{ID: "b1", Name: "Piet"}, {ID: "b2", Name: "Alma"}, {ID: "b3", Name: "Gus"}, {ID: "b4", Name: "gus"},
		}},
	}
}

// tool returns a host's tool.
func tool(t *testing.T, h *tools.Host, name string) dispatch.Tool {
	t.Helper()
	for _, x := range h.All() {
		if x.Name == name {
			return x
		}
	}
	t.Fatalf("there is no tool %s", name)
	return dispatch.Tool{}
}

// commands are a tools.Commands whose only command prints a text, and ends.
type commands struct {
	got     tools.Command
	out     []string
	end     thread.ExecFinished
	fails   error
	stopped string
}

func (c *commands) Run(
	_ context.Context, is tools.Command, f func(thread.ExecOutput),
) (thread.ExecFinished, error) {
	c.got = is
	for _, text := range c.out {
		f(thread.ExecOutput{Text: text})
	}
	return c.end, c.fails
}

func (c *commands) Stop(_ context.Context, threadID, id, author string) error {
	c.stopped = threadID + " " + id + " " + author
	return c.fails
}

// A command runs by the call's key, as the bot, with its time limit or the usual one.
func TestCommand(t *testing.T) {
	zero := 0
	c := &commands{end: thread.ExecFinished{ExitCode: &zero}}
	x := tool(t, &tools.Host{Commands: c}, "run_command")
	if !x.Acts || x.Asked {
		t.Errorf("%+v", x)
	}
	for arguments, want := range map[string]tools.Command{
		`{"command":"make test"}`: {
			Thread: "t1", ID: "x_a-0-0", Author: "b1", Script: "make test", Timeout: 2 * time.Minute,
		},
		`{"command":"ls","cwd":"sub","timeout_s":600}`: {
			Thread: "t1", ID: "x_a-0-0", Author: "b1", Script: "ls", Cwd: "sub", Timeout: 10 * time.Minute,
		},
	} {
		if _, err := x.Run(t.Context(), call(arguments)); err != nil || c.got != want {
			t.Errorf("%s: got %+v, %v", arguments, c.got, err)
		}
	}
	for _, arguments := range []string{
		`{}`, `{"command":""}`, `{"command":["ls"]}`, `{"command":"ls","timeout_s":0}`, `{"command":"ls","timeout_s":601}`,
		`{"command":"ls","cwd":7}`, `{"command":"` + strings.Repeat("x", 32769) + `"}`,
	} {
		c.got = tools.Command{}
		if r, err := x.Run(t.Context(), call(arguments)); err != nil || !r.Invalid || c.got.ID != "" {
			t.Errorf("%.40s: got %+v, %v", arguments, r, err)
		}
	}
	if err := x.Stop(t.Context(), call("")); err != nil || c.stopped != "t1 x_a-0-0 b1" {
		t.Errorf("stopped %q, %v", c.stopped, err)
	}
	none := tool(t, &tools.Host{}, "run_command")
	if r, err := none.Run(t.Context(), call(`{"command":"ls"}`)); err != nil || !r.IsError {
		t.Errorf("a host without boxes: %+v, %v", r, err)
	}
}

// The result has how the command ended, in its first line, and then its output. A command that has no end of its own is
// an error.
func TestCommandResult(t *testing.T) {
	code := func(n int) *int { return &n }
	kill := "SIGKILL"
	for _, tt := range []struct {
		name    string
		out     []string
		end     thread.ExecFinished
		want    string
		isError bool
	}{
		{
			"a failure",
			[]string{"one\n", "two\n"},
			thread.ExecFinished{ExitCode: code(2), DurationMs: 8012},
			"exit 2, 8 s\none\ntwo\n", false,
		},
		{"nothing printed", nil, thread.ExecFinished{ExitCode: code(0), DurationMs: 349}, "exit 0, 0.3 s; it printed nothing", false},
		{"a signal", []string{"x"}, thread.ExecFinished{ExitSignal: &kill, DurationMs: 100}, "ended by SIGKILL, 0.1 s\nx", false},
		{
			"its time is over",
			[]string{"x"},
			thread.ExecFinished{ExitSignal: &kill, TimedOut: true, DurationMs: 9000},
			"ended at its time limit of 9 s, 9 s\nx", false,
		},
		{
			"a member ended it",
			[]string{"x"},
			thread.ExecFinished{ExitSignal: &kill, Cancelled: true, DurationMs: 9000},
			"cancelled by a member, 9 s\nx", false,
		},
		{
			"its box died",
			[]string{"x"},
			thread.ExecFinished{Error: "its sandbox is gone", DurationMs: 4000},
			"its sandbox is gone, 4 s\nx", true,
		},
		{
			"more than is kept",
			[]string{"x"},
			thread.ExecFinished{ExitCode: code(0), Dropped: 7},
			"exit 0, 0 s\nx\n[7 more bytes were printed, and not kept]", false,
		},
	} {
		x := tool(t, &tools.Host{Commands: &commands{out: tt.out, end: tt.end}}, "run_command")
		r, err := x.Run(t.Context(), call(`{"command":"make","timeout_s":9}`))
		if err != nil || r.Text != tt.want || r.IsError != tt.isError {
			t.Errorf("%s: got %q, error %t, %v", tt.name, r.Text, r.IsError, err)
		}
	}
}

// Of a long output a model is shown the end.
func TestCommandTail(t *testing.T) {
	c := &commands{end: thread.ExecFinished{ExitCode: new(int)}}
	for i := range 10000 {
		c.out = append(c.out, fmt.Sprintf("line %d é\n", i))
	}
	x := tool(t, &tools.Host{Commands: c}, "run_command")
	r, err := x.Run(t.Context(), call(`{"command":"make"}`))
	all := len(strings.Join(c.out, ""))
	_, rest, _ := strings.Cut(r.Text, "are left out]\n")
	cut := 0
	if _, serr := fmt.Sscanf(r.Text, "exit 0, 0 s\n[%d bytes", &cut); serr != nil || err != nil {
		t.Fatalf("%.100s: %v, %v", r.Text, serr, err)
	}
	if len(r.Text) > 16<<10 || cut+15<<10 < all || !strings.HasSuffix(rest, "line 9998 é\nline 9999 é\n") ||
		all-cut-len(rest) > 1 { // half an é
		t.Errorf("%d of %d bytes, %d left out", len(rest), all, cut)
	}
}

// What no repeat mends is for the model; what may pass is the host's, which repeats the call.
func TestCommandFails(t *testing.T) {
	for _, tt := range []struct {
		name    string
		err     error
		text    string
		isError bool
		again   bool
	}{
		{
			name: "no environment", err: &rows.Refusal{Kind: fmt.Errorf("thread t1: %w", rows.ErrNoRecipe), Text: "no"},
			text: "This thread has no environment, so there is nowhere to run commands. Say so, or ask for one.",
		},
		{
			name: "no provider", err: &rows.Refusal{Kind: errors.New("x"), Text: "no provider"}, text: "no provider",
			isError: true,
		},
		{name: "the database is away", err: rows.ErrAway, again: true},
	} {
		x := tool(t, &tools.Host{Commands: &commands{fails: tt.err}}, "run_command")
		r, err := x.Run(t.Context(), call(`{"command":"make"}`))
		if r.Text != tt.text || r.IsError != tt.isError || (err != nil) != tt.again {
			t.Errorf("%s: got %+v, %v", tt.name, r, err)
		}
	}
}
