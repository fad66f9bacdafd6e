package screen

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

// What the recorded runs do not have: a second run with another harness, a subagent, a summary, a stub, a refused
// chat, a step that failed, a chat with an image, a call without a result, a day later.
func TestParts(t *testing.T) {
	utc(t)
	synctest.Test(t, func(t *testing.T) {
		all := parsed(t, parts)
		got := painted(t, all, 0, nil, false)
		if d := cmp.Diff(wantParts, got); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
		full := painted(t, all, 0, nil, true)
		for _, want := range []string{
			"task of subagent agent-1", "m (subagent agent-1) ", "› Grep\n", "the summary\n  what was before", "so far",
		} {
			if !strings.Contains(full, want) {
				t.Errorf("--full: %q is not in %s", want, full)
			}
		}
	})
}

const parts = `
{"id":"r1.prompt","ts":"2026-01-01T12:00:00.000Z","payload":{"type":"chat","text":"go","runId":"r1"}}
{"id":"r1.started","ts":"2026-01-01T12:00:00.000Z","payload":{"type":"signal.dispatch.session_started","runId":"r1","harness":"claude-code","agentVersion":"2","cwd":"/w","resume":"none"}}
{"id":"a","ts":"2026-01-01T12:00:01.000Z","payload":{"type":"claude.assistant","model":"m","message":{"content":[{"type":"toolCall","id":"1","name":"Agent","arguments":{"description":"look","prompt":"the task"}}]},"session":{"id":"s","index":1}}}
{"id":"b","ts":"2026-01-01T12:00:02.000Z","payload":{"type":"claude.session","kind":"user","subagentOf":"s","session":{"id":"agent-1","index":0},"line":{"type":"user","isSidechain":true,"message":{"role":"user","content":"the task\nin full"}}}}
{"id":"c","ts":"2026-01-01T12:00:03.000Z","payload":{"type":"claude.assistant","model":"m","subagentOf":"s","message":{"content":[{"type":"toolCall","id":"2","name":"Grep","arguments":{"pattern":"x"}}]},"session":{"id":"agent-1","index":1}}}
{"id":"d","ts":"2026-01-01T12:00:04.000Z","payload":{"type":"claude.tool_result","toolCallId":"1","toolName":"Agent","isError":false,"message":{"content":"all found"},"session":{"id":"s","index":2}}}
{"id":"e","ts":"2026-01-01T12:00:05.000Z","payload":{"type":"claude.session","kind":"compact_boundary","line":{"compactMetadata":{"preTokens":9000}}}}
{"id":"e2","ts":"2026-01-01T12:00:05.000Z","payload":{"type":"claude.session","kind":"user","line":{"type":"user","isCompactSummary":true,"message":{"role":"user","content":"what was before"}}}}
{"id":"f","ts":"2026-01-01T12:00:05.000Z","payload":{"type":"pi.session","kind":"compaction","line":{"summary":"so far"}}}
{"id":"g","ts":"2026-01-01T12:00:05.000Z","payload":{"type":"claude.session","kind":"stub","bytes":9000000,"reason":"too large"}}
{"id":"h","ts":"2026-01-01T12:00:06.000Z","payload":{"type":"claude.assistant","model":"m","message":{"content":[{"type":"toolCall","id":"3","name":"Bash","arguments":{"command":"sleep 9"}}]},"session":{"id":"s","index":1}}}
{"id":"i","ts":"2026-01-01T12:00:07.000Z","payload":{"type":"signal.dispatch.cancel_requested","runId":"r1","reason":"enough"}}
{"id":"r1.end.0","ts":"2026-01-01T12:00:08.000Z","payload":{"type":"signal.thread.status_changed","runId":"r1","harness":"claude-code","status":"cancelled","exitCode":143,"signal":null,"durationMs":8000,"lines":6}}
{"id":"r2.prompt","ts":"2026-01-02T12:00:00.000Z","authorId":"ada\u001b[31m","payload":{"type":"chat","text":"see","runId":"r2","message":{"role":"user","content":[{"type":"text","text":"see"},{"type":"image","mimeType":"image/png","data":"AAAA"}]}}}
{"id":"r2.setup.0","ts":"2026-01-02T12:00:01.000Z","payload":{"type":"signal.setup.agent","runId":"r2","harness":"pi","name":"install pi","durationMs":900}}
{"id":"r2.setup.1","ts":"2026-01-02T12:00:01.000Z","payload":{"type":"signal.setup.command","runId":"r2","harness":"pi","name":"make deps","durationMs":900,"error":"exit status 2"}}
{"id":"r2.started","ts":"2026-01-02T12:00:02.000Z","payload":{"type":"signal.dispatch.session_started","runId":"r2","harness":"pi","agentVersion":"1","cwd":"/w","resume":"hydrate","sandbox":{"provider":"local","ref":"b"}}}
{"id":"r2.refused.0","ts":"2026-01-02T12:00:03.000Z","payload":{"type":"signal.dispatch.chat_refused","runId":"r2","harness":"pi","chat":"x1","reason":"it is empty"}}
{"id":"j","ts":"2026-01-02T12:00:04.000Z","payload":{"type":"pi.tool_result","toolCallId":"9","toolName":"bash","isError":true,"message":{"content":[{"type":"text","text":"late"}]},"session":{"id":"s2","index":2}}}
{"id":"r2.end.0","ts":"2026-01-02T12:00:08.000Z","payload":{"type":"signal.thread.pi_failed","runId":"r2","harness":"pi","errorClass":"pi_exit","message":"boom","exitCode":1,"signal":null,"stderrTail":"one\n\u001b[31mtwo\u001b[0m\n"}}
`

const wantParts = `
chat 2026-01-01 12:00:00
go
claude-code 2 starts in /w (run r1)

m 12:00:01
› Agent look
  subagent agent-1: the task
  Agent look: all found
  took 3s
the conversation was summarised, at 9000 tokens
the conversation was summarised
a line of 9 MiB was refused by the server: too large

m 12:00:06
› Bash sleep 9
cancel requested: enough
  Bash sleep 9: (no result)

✘ cancelled · exit 143 · 8s · 6 lines

────────────────────────────────────────────────────────────────────────────────

ada·[31m 2026-01-02 12:00:00
see
[image/png image]
make deps: exit status 2
pi 1 continues in /w on local:b (run r2), resumed (rebuilt), after claude-code
chat x1 was refused: it is empty
  ✗ bash: late

✘ failed: boom
  pi_exit
  stderr: one
  stderr: two
`
