package tools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/thread"
)

// Commands run commands in the boxes of threads.
type Commands interface {
	// Run runs a command to its end, with its output to f. A second call with the id waits for the same command, and
	// the end of ctx ends none. An error that no repeat can mend is a *rows.Refusal, as is rows.ErrNoRecipe.
	Run(ctx context.Context, c Command, f func(thread.ExecOutput)) (thread.ExecFinished, error)
	// Stop ends a command, if it is open. One that nobody has started never starts.
	Stop(ctx context.Context, threadID, id, author string) error
}

// Command is a command in the box of a thread.
type Command struct {
	Thread  string
	ID      string // unique on the thread
	Author  string
	Script  string // for sh
	Cwd     string // relative to the working directory of the box, or absolute; "" for that
	Timeout time.Duration
}

// usualTimeout is that of a command, in seconds.
const usualTimeout = 120

// mostOutput is how much of the end of a command's output a model is shown, in bytes: a result of 16 KiB is not cut.
const mostOutput = 15 << 10

// noPlace is for the model of a bot on a thread without an environment.
const noPlace = "This thread has no environment, so there is nowhere to run commands. Say so, or ask for one."

type commandArguments struct {
	Command string `json:"command"`
	Cwd     string `json:"cwd"`
	Timeout int    `json:"timeout_s"`
}

// runCommand runs a command in the box of the thread. Its id is the call's key.
func (h *Host) runCommand() dispatch.Tool {
	t := shown("run_command", "Run a shell command in this thread's sandbox and wait for its end.", `{
		"command":{"type":"string","minLength":1,"maxLength":32768},"cwd":{"type":"string","maxLength":4096},
		"timeout_s":{"type":"integer","minimum":1,"maximum":600}}`, "command")
	return dispatch.Tool{Tool: t, Acts: true, Run: taking(t, h.command), Stop: h.stopCommand}
}

func (h *Host) command(ctx context.Context, c dispatch.ToolCall, a commandArguments) (dispatch.ToolResult, error) {
	if h.Commands == nil {
		return failed("this host runs no commands")
	}
	var out tail
	end, err := h.Commands.Run(ctx, Command{
		Thread: c.Thread, ID: c.Key, Author: c.Bot, Script: a.Command, Cwd: a.Cwd,
		Timeout: time.Duration(cmp.Or(a.Timeout, usualTimeout)) * time.Second,
	}, func(o thread.ExecOutput) { out.add(o.Text) })
	if err != nil {
		return refused(err)
	}
	r := dispatch.ToolResult{Text: ending(end, a), IsError: end.Error != ""}
	if text := out.String(); text != "" {
		r.Text += "\n" + text
	} else {
		r.Text += "; it printed nothing"
	}
	if end.Dropped > 0 {
		r.Text += fmt.Sprintf("\n[%d more bytes were printed, and not kept]", end.Dropped)
	}
	return r, nil
}

func (h *Host) stopCommand(ctx context.Context, c dispatch.ToolCall) error {
	if h.Commands == nil {
		return nil
	}
	return h.Commands.Stop(ctx, c.Thread, c.Key, c.Bot)
}

// ending returns how a command ended, as "exit 2, 8 s".
func ending(end thread.ExecFinished, a commandArguments) string {
	how := "its end is not known"
	switch {
	case end.Error != "":
		how = end.Error
	case end.TimedOut:
		how = fmt.Sprintf("ended at its time limit of %d s", cmp.Or(a.Timeout, usualTimeout))
	case end.Cancelled:
		how = "cancelled by a member"
	case end.ExitCode != nil:
		how = "exit " + strconv.Itoa(*end.ExitCode)
	case end.ExitSignal != nil:
		how = "ended by " + *end.ExitSignal
	}
	took := (time.Duration(end.DurationMs) * time.Millisecond).Round(100 * time.Millisecond).Seconds()
	return how + ", " + strconv.FormatFloat(took, 'f', -1, 64) + " s"
}

// refused is the result of a call that no repeat mends; other errors are the host's.
func refused(err error) (dispatch.ToolResult, error) {
	refusal, is := errors.AsType[*rows.Refusal](err)
	switch {
	case !is:
		return dispatch.ToolResult{}, err
	case errors.Is(err, rows.ErrNoRecipe):
		return result(noPlace)
	}
	return failed("%s", refusal.Text)
}

// tail keeps the end of a text.
type tail struct {
	text string
	cut  int // bytes in front of it
}

func (t *tail) add(s string) {
	if t.text += s; len(t.text) > 2*mostOutput {
		t.shorten()
	}
}

func (t *tail) shorten() {
	if over := len(t.text) - mostOutput; over > 0 {
		t.cut += over
		t.text = strings.Clone(t.text[over:])
	}
}

// String returns the end of the text, with a line in front of it where it is not all.
func (t *tail) String() string {
	t.shorten()
	text := strings.ToValidUTF8(t.text, "")
	if t.cut > 0 {
		return fmt.Sprintf("[%d bytes before this are left out]\n", t.cut) + text
	}
	return text
}
