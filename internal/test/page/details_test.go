package page_test

import (
	"fmt"
	"testing"

	"arbe.0sk.ar/runner/internal/test/browser"
	"arbe.0sk.ar/runner/thread"
)

// The list shows how long a silent run has until it is dead, and shows the threads of one state alone.
func TestFullPageStates(t *testing.T) {
	h := newHost(t)
	h.post("docs", append(begin("r1", "describe it", ""), end("r1", "completed"))...)
	h.post("lost", append(begin("r2", "update it", ""), signal("r2", "beat.1", thread.TypeHeartbeat, `,"nextMs":1500`))...)
	b := h.login(t)
	b.Wait(shows("#t-lost > article .state", "silent, dead in "))
	b.Wait(shows("#t-lost > article .state", "dead"))
	b.Wait(shows("#t-docs > article .age", "now"))
	b.Run("document.querySelector('select[name=state]').value = 'done'")
	b.Click("header [role=search] button")
	b.Wait("location.search.includes('state=done') && document.querySelector('#t-docs')")
	if browser.Eval[bool](b, "!!document.getElementById('t-lost')") {
		t.Error("a dead run is among those that are done")
	}
	h.post("tests", append(begin("r3", "test it", ""), end("r3", "completed"))...)
	b.Wait("document.querySelector('#t-tests')")
	h.post("docs", begin("r4", "describe more", "")...) // it runs again
	b.Wait("!document.querySelector('#t-docs')")
}

// What a thread's items have: the raw entry, an image of its own, a call's duration, thoughts that can be hidden, rules
// where a run resumes with another harness, and a verdict with its cause, the end of stderr and the totals.
func TestFullPageDetails(t *testing.T) {
	engines(t, func(t *testing.T, h *host) {
		h.rich("rich")
		h.post("rich", signal("r1", "end.0", thread.TypeFailed, `,"errorClass":"pi_exit","message":"the agent exited with 7"`+
			`,"exitCode":7,"stderrTail":"first\n\u001b[31mout of tokens\u001b[0m\n"`),
			signal("r1", "end.1", thread.TypeStatus, `,"status":"failed","exitCode":7,"durationMs":75000,"lines":9,`+
				`"usage":{"totalTokens":1234,"cost":{"total":0.25}}`))
		h.post("rich", append(begin("r2", "continue", ""), fmt.Sprintf(`{"id":"r2.started","ts":"2026-01-02T00:00:00.000Z",`+
			`"payload":{"type":%q,"runId":"r2","harness":"codex","agentVersion":"0.169.0","cwd":"/w","resume":"hydrate"}}`,
			thread.TypeStarted))...)
		b := h.login(t, "rich")
		b.Wait(shows("#items .rule", "pi 0.87.1 starts in /src/parser"))
		b.Wait(shows("#items .rule", "codex 0.169.0 continues in /w (run r2), resumed (rebuilt), after pi"))
		b.Wait(shows("#items .call .state", "done 14s"))
		b.Wait(shows("#items .call .state", "failed 4.2s"))
		b.Wait(shows("#items .verdict h2.failed", "failed: the agent exited with 7"))
		b.Wait(shows("#items .verdict .output", "out of tokens"))
		b.Wait(shows("#items .verdict .totals", "pi_exit · exit 7 · 1m15s · 9 lines · 1234 tokens · $0.2500"))
		b.Wait("document.querySelector('#items .thinking').checkVisibility()")
		b.Click(".menu > summary")
		b.Click("#thinking")
		b.Wait("!document.querySelector('#items .thinking').checkVisibility()")
		b.Click("#thinking")
		b.Click(".menu > summary")
		b.Click("#items .thinking summary")
		b.Wait(shows("#items .thinking .text strong", "accept"))
		b.Run("const s = document.querySelector('#items .call summary'); getSelection().selectAllChildren(s);" +
			"s.click()")
		b.Run("getSelection().collapse(document.body); document.querySelector('#items .call ~ .call summary').click()")
		b.Wait("document.querySelectorAll('#items .tool[open]').length === 1")
		b.Wait("!document.querySelector('#items .tool').open") // the click that ended a selection
		for _, css := range []string{
			"table td", "blockquote", "pre code", "h4", "[aria-label=done]", "a[rel~=noopener]",
		} {
			b.Wait("document.querySelector('#items .text " + css + "')")
		}
		b.Click("#items .chat .at a[href^='/t/rich/raw/']")
		b.Wait("location.pathname === '/t/rich/raw/r1.prompt'")
		b.Wait(`JSON.parse(document.body.innerText).payload.text === 'Make the parser accept trailing commas'`)
		b.Go(h.url() + "/t/rich")
		b.Wait("document.querySelector('#items img')?.naturalWidth === 320")
		b.Click("#items a:has(> img)")
		b.Wait("location.pathname.startsWith('/t/rich/image/') && document.images[0].naturalWidth === 320")
		b.Await("style-src-attr") // the browser's own page around an image has a style, which the policy refuses
		b.Go(h.url() + "/")
		b.Problems()
	})
}

// A result is marked as new in the list once its run has ended, in no tab that has shown it, and again after the next
// run.
func TestFullPageUnseen(t *testing.T) {
	h := newHost(t)
	b := h.login(t)
	h.post("t1", begin("r1", "work", "")...)
	b.Wait(shows("#t-t1 > article .state", "working"))
	h.post("t1", chat("c1", "a chat"), signal("r1", "beat.1", thread.TypeHeartbeat, `,"nextMs":3600000`))
	b.Wait("document.querySelector('#t-t1:not(.unseen)')")
	h.post("t1", end("r1", "completed"))
	b.Wait("document.querySelector('#t-t1.unseen')")
	b.Wait("document.title.startsWith('1 new')")
	b.Run("window.other = window.open('/t/t1'); undefined") // another tab of the same browser
	b.Wait("document.querySelector('#t-t1:not(.unseen)')")
	b.Wait("document.title === 'arbe'")
	b.Run("window.other.close()")
	h.post("t1", begin("r2", "work on", "")...)
	b.Wait(shows("#t-t1 > article .state", "working"))
	h.post("t1", end("r2", "completed"))
	b.Wait("document.querySelector('#t-t1.unseen')")
}
