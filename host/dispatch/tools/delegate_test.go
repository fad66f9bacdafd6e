package tools_test

import (
	"context"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/dispatch/tools"
	"arbe.0sk.ar/runner/host/rows"
)

// A task gets the call's key as its thread, and is the bot's. Without a wish it is for the bot's own harness.
func TestDelegate(t *testing.T) {
	var got rows.Task
	x := tool(t, &tools.Host{Delegate: func(_ context.Context, is rows.Task) (rows.Task, error) {
		if err := is.Check(); err != nil {
			return is, err
		}
		got = is
		return is, nil
	}}, "delegate_task")
	if !x.Acts || x.Most != 4 || x.Asked || x.Stop != nil {
		t.Errorf("%+v", x)
	}
	base := rows.Task{Thread: "x_a-0-0", Parent: "t1", Author: "b1", Prompt: "do it"}
	for arguments, want := range map[string]func(*rows.Task){
		`{"task":"do it"}`:                              func(t *rows.Task) { t.Agent = "b1" },
		`{"task":"do it","harness":"codex"}`:            func(t *rows.Task) { t.Harness = "codex" },
		`{"task":"do it","agent":"alma"}`:               func(t *rows.Task) { t.Agent = "b2" },
		`{"task":"do it","agent":"b3","harness":"pi"}`:  func(t *rows.Task) { t.Agent, t.Harness = "b3", "pi" },
		`{"task":"do it","sandbox":"own"}`:              func(t *rows.Task) { t.Agent = "b1" },
		`{"task":"do it","sandbox":"thread"}`:           func(t *rows.Task) { t.Agent, t.Sandbox = "b1", "parent" },
		`{"task":"do it","repo":"a/b","branch":"main"}`: func(t *rows.Task) { t.Agent, t.Repo, t.Branch = "b1", "a/b", "main" },
		`{"task":"do it","repo":"a/b","branch":"c","pr":true}`: func(t *rows.Task) {
			t.Agent, t.Repo, t.Branch, t.Push, t.PR = "b1", "a/b", "c", true, true
		},
		`{"task":"do it","repo":"a/b","agent":"Piet"}`:          func(t *rows.Task) { t.Agent, t.Repo = "b1", "a/b" },
		`{"task":"do it","harness":"claude-code","repo":"a/b"}`: func(t *rows.Task) { t.Harness, t.Repo = "claude-code", "a/b" },
	} {
		task := base
		want(&task)
		r, err := x.Run(t.Context(), call(arguments))
		if err != nil || r.IsError || got != task || !strings.Contains(r.Text, "thread x_a-0-0,") {
			t.Errorf("%s: got %+v, %+v, %v", arguments, got, r, err)
		}
	}
	for arguments, want := range map[string]string{
		`{"task":"do it","agent":"Zoe"}`:                   "the house has no bot Zoe. It has: Alma, Gus, Piet, gus",
		`{"task":"do it","agent":"GUS"}`:                   "several bots of the house have the name GUS",
		`{"task":"do it","repo":"a/b","push":true}`:        "push needs repo and branch",
		`{"task":"do it","branch":"main"}`:                 "branch needs repo",
		`{"task":"do it","sandbox":"thread","repo":"a/b"}`: "leave repo out",
		`{"task":" "}`:                                  "the task is empty",
		`{"task":"do it","sandbox":"other"}`:            "sandbox",
		`{"task":"do it","repo":"a"}`:                   "repo",
		`{"task":"do it","harness":"none"}`:             "harness",
		`{"task":"` + strings.Repeat("x", 65537) + `"}`: "task",
	} {
		got = rows.Task{}
		r, err := x.Run(t.Context(), call(arguments))
		if err != nil || !r.IsError || !strings.Contains(r.Text, want) || got.Thread != "" {
			t.Errorf("%.60s: got %+v, %v", arguments, r, err)
		}
	}
}

// A refusal of the rows is for the model; the call is repeated where they are away.
func TestDelegateFails(t *testing.T) {
	for _, tt := range []struct {
		err     error
		want    string
		isError bool
	}{
		{rows.Refuse(rows.ErrNoRecipe, "thread t1"), "This thread has no environment", false},
		{rows.Refuse(rows.ErrNoSandbox, "thread t1"), "thread t1: the parent has no sandbox", true},
		{rows.ErrAway, "", false},
	} {
		h := &tools.Host{Delegate: func(context.Context, rows.Task) (rows.Task, error) { return rows.Task{}, tt.err }}
		r, err := tool(t, h, "delegate_task").Run(t.Context(), call(`{"task":"do it"}`))
		if !strings.HasPrefix(r.Text, tt.want) || r.IsError != tt.isError || (err != nil) != (tt.want == "") {
			t.Errorf("%v: got %+v, %v", tt.err, r, err)
		}
	}
	if r, err := tool(t, &tools.Host{}, "delegate_task").Run(t.Context(), call(`{"task":"x"}`)); err != nil || !r.IsError {
		t.Errorf("a host without rows: %+v, %v", r, err)
	}
}
