package tools

import (
	"context"
	"strings"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/rows"
)

// mostTasks is how many tasks a bot may delegate in one answer.
const mostTasks = 4

type taskArguments struct {
	Task    string `json:"task"`
	Repo    string `json:"repo"`
	Branch  string `json:"branch"`
	Sandbox string `json:"sandbox"`
	Agent   string `json:"agent"`
	Harness string `json:"harness"`
	Push    bool   `json:"push"`
	PR      bool   `json:"pr"`
}

// delegateTask delegates a task. The id of its thread is the call's key.
func (h *Host) delegateTask() dispatch.Tool {
	t := shown("delegate_task", "Give a coding task of minutes to hours to an agent on a thread of its own. "+
		"Returns the thread's id at once; its result is posted here later.", `{
		"task":{"type":"string","minLength":1,"maxLength":65536},
		"repo":{"type":"string","pattern":"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$"},
		"branch":{"type":"string","maxLength":200},"sandbox":{"enum":["own","thread"]},
		"agent":{"type":"string","maxLength":200},"harness":{"enum":["pi","codex","claude-code"]},
		"push":{"type":"boolean","description":"Push branch to repo after a completed run."},
		"pr":{"type":"boolean","description":"Push, and open a pull request."}}`, "task")
	return dispatch.Tool{Tool: t, Acts: true, Most: mostTasks, Run: taking(t, h.delegate)}
}

func (h *Host) delegate(ctx context.Context, c dispatch.ToolCall, a taskArguments) (dispatch.ToolResult, error) {
	if h.Delegate == nil {
		return failed("this host delegates no tasks")
	}
	t := rows.Task{
		Thread: c.Key, Parent: c.Thread, Author: c.Bot, Prompt: a.Task, Harness: a.Harness, Repo: a.Repo,
		Branch: a.Branch, Push: a.Push || a.PR, PR: a.PR,
	}
	if a.Sandbox == "thread" {
		t.Sandbox = rows.SandboxOfParent
	}
	switch {
	case strings.TrimSpace(a.Task) == "":
		return failed("the task is empty")
	case a.Agent != "":
		bot, err := botNamed(c.Room, a.Agent)
		if err != nil {
			return ended(err)
		}
		t.Agent = bot.ID
	case a.Harness == "":
		t.Agent = c.Bot // its own harness
	}
	made, err := h.Delegate(ctx, t)
	if err != nil {
		return refused(err)
	}
	return result("The task is on the thread %s, and waits for a sandbox. Its result is posted here once it has "+
		"ended, maybe in hours: do not wait for it.", made.Thread)
}
