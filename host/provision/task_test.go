package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/reap"
	"arbe.0sk.ar/runner/host/resolve"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/local"
	"arbe.0sk.ar/runner/thread/client"
)

// Which errors of a launch pass.
func TestTemporary(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"the database is away", rows.ErrAway, true},
		{"the database is busy", rows.ErrBusy, true},
		{"the database is slow", rows.ErrTimeout, true},
		{"the database is migrated meanwhile", &rows.SchemaError{Kind: rows.ErrNewer}, true},
		{"the database is of another log", rows.ErrOtherLog, false},
		{"a refusal of the rows", rows.Refuse(rows.ErrArchived, "the environment"), false},
		{"no environment", rows.ErrNoRecipe, false},
		{"a secret is missing", rows.Refuse(rows.ErrMissing, "environment e"), false},
		{"a local box", ErrLocal, false},
		{"a claim", &rows.ClaimedError{Thread: "t", Run: "r"}, true},
		{"a box in doubt", &reap.DoubtError{}, true},
		{"another launch makes the box", resolve.ErrSlow, true},
		{"the box was released", lease.ErrReleased, true},
		{"an answer breaks off", io.ErrUnexpectedEOF, true},
		{"a timeout", context.DeadlineExceeded, true},
		{"a file is missing", fs.ErrNotExist, false},
		{"no answer that the server means", &client.StatusError{Status: http.StatusBadGateway}, true},
		{"a token that has expired", &client.StatusError{Status: http.StatusUnauthorized}, true},
		{"a bad request", &client.StatusError{Status: http.StatusBadRequest}, false},
		{"an id that is taken", &client.StatusError{Status: http.StatusConflict}, false},
		{"a deleted thread", &client.StatusError{Status: http.StatusGone}, false},
		{"an entry that is too large", &client.StatusError{Status: http.StatusRequestEntityTooLarge}, false},
		{"anything else", errors.New("no such repository"), false},
	} {
		if got := temporary(fmt.Errorf("launch: %w", tt.err)); got != tt.want {
			t.Errorf("%s: got %v", tt.name, got)
		}
	}
}

// What a task's run gets: a member's has no token of the operator.
func TestTask(t *testing.T) {
	h := &Host{
		Box: sandbox.Options{GitHub: "https://github.example", Target: "eu"}, Token: "operator's",
		Env: map[string]string{"KEY": "value"}, Files: []launch.File{{Path: "~/.npmrc"}},
	}
	for _, tt := range []struct {
		name             string
		of               rows.Task
		token            string
		ephemeral, child bool
	}{
		{"a member's", rows.Task{Thread: "t"}, "", true, false},
		{"the operator's", rows.Task{Thread: "t", Trusted: true}, "operator's", true, false},
		{"in a box that it shares", rows.Task{Thread: "t", Sandbox: "s"}, "", false, false},
		{"with a parent", rows.Task{Thread: "t", Parent: "p", Result: "bot"}, "", true, true},
	} {
		got := h.task(tt.of)
		if got.Box.Token != tt.token || got.Box.Ephemeral != tt.ephemeral || (got.Parent != nil) != tt.child ||
			got.Box.GitHub != "https://github.example" || got.Box.Target != "eu" || got.Env["KEY"] != "value" ||
			len(got.Files) != 1 || got.Run != tt.of.Run() || !got.Queued {
			t.Errorf("%s: got %+v", tt.name, got)
		}
	}
}

// A task without a harness and an agent is pi's; a harness that is not known is refused.
func TestCheckHarness(t *testing.T) {
	for _, tt := range []struct{ agent, harness, want string }{
		{"", "", "pi"}, {"", "codex", "codex"}, {"bot", "", ""}, {"bot", "claude-code", "claude-code"},
	} {
		o := rows.Task{Agent: tt.agent, Harness: tt.harness}
		if err := CheckHarness(&o); err != nil || o.Harness != tt.want {
			t.Errorf("%+v: got %q, %v", tt, o.Harness, err)
		}
	}
	if err := CheckHarness(&rows.Task{Harness: "none"}); err == nil {
		t.Error("took a harness that does not exist")
	}
}

// Only the operator's tasks get local boxes, but where the host allows them.
func TestLocalTask(t *testing.T) {
	for _, tt := range []struct {
		provider string
		trusted  bool
		boxes    bool
		refused  bool
	}{
		{local.Name, false, false, true},
		{local.Name, true, false, false},
		{local.Name, false, true, false},
		{"daytona", false, false, false},
	} {
		h := host(tt.provider)
		h.LocalBoxes = tt.boxes
		_, _, err := h.prepare(t.Context(), rows.Task{Thread: "t", Harness: "pi", Trusted: tt.trusted})
		if errors.Is(err, ErrLocal) != tt.refused || !tt.refused && err != nil {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

// A run in a box whose hours the house limits lasts until the box is so old, and not longer than its environment
// allows. Its end has which of the two it was.
func TestBoxHours(t *testing.T) {
	const over = "the hours of its box (24) are over: see arbe house set --box-hours"
	for _, tt := range []struct {
		name, recipe string
		hours        int
		age          time.Duration
		want         time.Duration // 0: it is refused
		why          string
	}{
		{"no limit", `{"limits": {"run": "2h"}}`, 0, 900 * time.Hour, 2 * time.Hour, ""},
		{"a new box", `{}`, 24, 0, 24 * time.Hour, over},
		{"an old box", `{}`, 24, 20*time.Hour - time.Millisecond, 4 * time.Hour, over},
		{"the environment allows less", `{"limits": {"run": "2h"}}`, 24, 20 * time.Hour, 2 * time.Hour, ""},
		{"the environment allows more", `{"limits": {"run": "20h"}}`, 24, 20 * time.Hour, 4 * time.Hour, over},
		{"more than any run lasts", `{}`, 1000, 0, 72 * time.Hour, ""},
		{"nearly too old", `{}`, 24, 24*time.Hour - time.Second, 0, ""},
		{"too old", `{}`, 24, 30 * time.Hour, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := host("daytona")
			all, err := h.Rows(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			stored := all.(*house)
			stored.threads["t"] = rows.Thread{ID: "t", House: "h", Agent: "old"}
			stored.place.Environment.Config = json.RawMessage(tt.recipe)
			stored.place.BoxHours, stored.place.Age = tt.hours, tt.age
			order := rows.Task{Thread: "t", Agent: "old", Harness: "pi", Prompt: "go"}
			_, task, taskErr := h.prepare(t.Context(), order)
			_, chat, chatErr := h.resumed(t.Context(), Resume{Thread: "t", Run: "r", Author: "ann"})
			if tt.want == 0 {
				const want = "the thread's box is too old for a run: the house's may exist for 24 hours: "
				for _, err := range []error{taskErr, chatErr} {
					if !errors.Is(err, ErrOldBox) || !strings.HasPrefix(err.Error(), want) || temporary(err) {
						t.Errorf("got %v", err)
					}
				}
				return
			}
			if taskErr != nil || chatErr != nil || task.Limit != tt.want || chat.Limit != tt.want {
				t.Errorf("got %v and %v; %v, %v", task.Limit, chat.Limit, taskErr, chatErr)
			}
			if task.LimitWhy != tt.why || chat.LimitWhy != tt.why {
				t.Errorf("because %q and %q, want %q", task.LimitWhy, chat.LimitWhy, tt.why)
			}
		})
	}
}
