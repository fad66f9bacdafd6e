package page_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/browser"
	"arbe.0sk.ar/runner/thread"
)

// shot writes a picture of the page into the folder $ARBE_SHOTS, where that is set.
func shot(t *testing.T, b *browser.Tab, name string) {
	t.Helper()
	if dir := os.Getenv("ARBE_SHOTS"); dir != "" {
		b.Shot(filepath.Join(dir, name+".png"))
	}
}

// scene posts threads in each state.
func (h *host) scene() {
	h.t.Helper()
	reply := func(n int, model string, cost float64) string {
		return fmt.Sprintf(`{"id":"claude:s%d:1","ts":%[4]q,"payload":{"type":"claude.assistant",`+
			`"model":%[2]q,"session":{"id":"s%[1]d","entry":"e","index":1},"usage":{"cost":{"total":%[3]v}},`+
			`"message":{"role":"assistant","content":[{"type":"text","text":"I look at it."}]}}}`, n, model, cost, thread.Stamp(time.Now()))
	}
	run := func(id, title, harness, model, more string, after ...string) {
		all := append(append(begin(id, title, ""),
			signal(id, "sandbox", thread.TypeSandbox, `,"sandbox":{"provider":"daytona","ref":"`+id+`-box","ephemeral":true}`),
			signal(id, "started", thread.TypeStarted, `,"agentVersion":"1","cwd":"/work","resume":"none"`+more),
			reply(len(id), model, 0.42)), after...)
		for i := range all {
			all[i] = strings.ReplaceAll(all[i], `"harness":"pi"`, `"harness":"`+harness+`"`)
		}
		h.post(id, all...)
	}
	beat := func(id string, ms int) string {
		return signal(id, "beat.1", thread.TypeHeartbeat, fmt.Sprintf(
			`,"nextMs":%d,"agent":{"pid":1,"rssBytes":187000000,"cpuMs":41000,"quietMs":2000}`, ms))
	}
	run("docs", "Describe the grammar in the manual", "codex", "gpt-5.5", "", end("docs", "completed"))
	run("printer", "Print lists one item a line", "pi", "sonnet-5", "", signal("printer", "end.0", thread.TypeFailed,
		`,"errorClass":"provider_error","message":"429 rate limit","exitCode":1,"stderrTail":"Error: 429 rate limit\n"`))
	run("flaky", "Find the flaky test", "claude-code", "opus-5.5", "", end("flaky", "cancelled"))
	run("lost", "Update the dependencies", "pi", "sonnet-5", "", beat("lost", 200))
	const hour = 3_600_000 // else a run without a heartbeat is silent after a while
	run("ask", "Which of both grammars?", "claude-code", "opus-5.5", `,"live":true`, beat("ask", hour),
		signal("ask", "waiting.1", thread.TypeWaiting, `,"turn":1,"outcome":"completed"`))
	h.rich("parser")
	h.post("parser", beat("r1", hour))
	h.post("tests", append(begin("r2", "Write tests for trailing commas", `,"parent":{"threadId":"parser","authorId":"a"}`),
		beat("r2", hour), reply(99, "opus-5.5", 0.07))...)
}

// The list shows each state with its facts: harness, model, cost, box, parent. A thread shows its items folded and
// unfolded. This is where the pictures of "make shots" are made.
func TestFullPagePictures(t *testing.T) {
	h := newHost(t)
	h.scene()
	b := h.login(t)
	b.Size(1000, 700, false)
	b.Wait("document.querySelector('#t-parser > ul > #t-tests')")
	b.Wait(shows("#t-lost > article .state", "dead"))
	for id, want := range map[string][]string{
		"parser": {"working", "now", "pi", "scripted-1"}, "ask": {"waiting", "opus-5.5", "daytona ask-box"},
		"printer": {"failed"}, "docs": {"done", "gpt-5.5"}, "flaky": {"cancelled"},
	} {
		for _, text := range want {
			b.Wait(shows("#t-"+id+" > article", text))
		}
	}
	shot(t, b, "list")
	b.Go(h.url() + "/t/printer")
	b.Wait(shows("#items .verdict", "429 rate limit"))
	shot(t, b, "failure")
	b.Go(h.url() + "/t/parser")
	b.Wait("document.querySelector('#items .diff')")
	b.Wait(shows("#pulse", "read print.go · CPU 41s · memory 178 MiB · quiet for 2s"))
	b.Wait("document.querySelector('#items img').naturalWidth === 320")
	b.Run("document.querySelector('#items .diff').closest('details').open = true")
	shot(t, b, "thread")
	unfold := func() { b.Run("document.querySelectorAll('#items details').forEach(d => d.open = true)") }
	unfold()
	b.Wait("document.querySelector('.diff ins').dataset.n === '42'")
	b.Wait("getComputedStyle(document.querySelector('.diff ins'), '::before').content === '\"42\"'")
	shot(t, b, "diff")
	b.Dark()
	shot(t, b, "diff-dark")
	b.Go(h.url() + "/")
	b.Wait("document.querySelector('#t-parser')")
	shot(t, b, "list-dark")
	b.Size(390, 844, true)
	shot(t, b, "list-phone-dark")
	b.Scheme(false)
	shot(t, b, "list-phone")
	b.Go(h.url() + "/t/parser")
	b.Wait("document.querySelector('#items .diff')")
	shot(t, b, "thread-phone")
	unfold()
	shot(t, b, "diff-phone")
	b.Go(h.url() + "/t/printer")
	b.Wait(shows("#items .verdict", "429 rate limit"))
	shot(t, b, "failure-phone")
}
