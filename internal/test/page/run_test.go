package page_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/browser"
	"arbe.0sk.ar/runner/internal/test/model"
)

// A run of each real agent is shown as it goes: its prompt, its call while it runs, the result in it, its thoughts, the
// verdict. Nothing is loaded again meanwhile.
func TestFullPageRun(t *testing.T) {
	for _, name := range harnesses {
		t.Run(name, func(t *testing.T) {
			engines(t, func(t *testing.T, h *host) { runLive(t, h, name) })
		})
	}
}

func runLive(t *testing.T, h *host, name string) {
	x := newBox(t, h, name, model.Reply{
		Thinking: "First I look.", Text: "I will **call** a tool.",
		Tools: []model.Tool{shell(name, "until [ -e go ]; do sleep 0.05; done; echo by-the-agent")},
	}, model.Reply{Text: "All is done."})
	id := h.run("", "thread", "new")
	b := h.login(t, id)
	b.Run("window.loaded = 'once'")
	x.start(id, "r1", "do the work")
	b.Wait(shows("#items .chat", "do the work"))
	b.Wait("document.querySelector('#items .tool.running')")
	b.Wait(shows("#pulse", "until [ -e go ]"))
	b.Wait("document.title.startsWith('working')")
	b.Wait("document.querySelector('#items .text strong').innerText === 'call'")
	b.Run("document.querySelectorAll('#items details').forEach(d => d.open = true)")
	b.Wait(shows("#items .thinking", "First I look."))
	b.Wait(shows("#items .rule", strings.TrimSuffix(name, "-code")))
	x.write("go", "")
	b.Wait(shows("#items .tool.done[open] .output", "by-the-agent")) // it stays unfolded
	if n := browser.Eval[int](b, "document.querySelectorAll('#items .tool').length"); n != 1 {
		t.Errorf("%d folds for a call and its result", n)
	}
	b.Wait(shows("#items .text", "All is done."))
	b.Wait(shows("#items .verdict", "completed"))
	b.Wait("document.title.startsWith('done') && document.getElementById('pulse').innerText === ''")
	b.Wait("window.loaded === 'once'")
}

// The summary that an agent makes of a long conversation is a fold at the place where it was made.
func TestFullPageCompaction(t *testing.T) {
	h := newHost(t)
	for _, name := range harnesses {
		t.Run(name, func(t *testing.T) {
			first := model.Reply{Text: "I will call a tool.", Tools: []model.Tool{shell(name, "echo before")}}
			first.InputTokens = map[string]int{"pi": 125_000, "codex": 9_000, "claude-code": 990_000}[name]
			x := newBox(t, h, name, first, model.Reply{Text: "<summary>What was **done** so far.</summary>"},
				model.Reply{Text: "All is done."})
			switch name {
			case "codex":
				for _, arg := range []string{"model_context_window=10000", "model_auto_compact_token_limit=5000"} {
					x.args = append(x.args, "--agent-arg", "-c", "--agent-arg", arg)
				}
			case "pi":
				file := filepath.Join(x.home, ".pi/agent/settings.json")
				settings, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				more := `{"compaction": {"enabled": true, "keepRecentTokens": 1},` + string(settings[1:])
				if err := os.WriteFile(file, []byte(more), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			id := h.run("", "thread", "new")
			b := h.login(t, id)
			x.start(id, "r1", "do the work")
			b.Wait(shows("#items .verdict", "completed"))
			b.Wait("document.querySelector('#items .rule details:not([open])')")
			b.Wait(shows("#items .rule", "summar"))
			b.Click("#items .rule summary")
			b.Wait(shows("#items .rule details[open] .text", "so far."))
			b.Type("#find input", "what was\r")
			b.Wait(shows("#found mark", "What was"))
		})
	}
}
