package page_test

import (
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/browser"
	"arbe.0sk.ar/runner/thread"
)

// The text of a person stands as it was written, on the page and in a file: a log, a diff and marks of markdown stay
// unchanged, and an address is a link.
func TestFullPageAsWritten(t *testing.T) {
	h := newHost(t)
	const text = "# not a heading\n\n   - 3 spaces\n\tand a tab\n\n--- a/x.go\n+++ b/x.go\n" +
		"@@ -1 +1 @@\n-\told  *line*\n+\tnew\n\nsee https://example.com/log?a=1&b=2."
	entry := thread.NewEntry("pasted", "ann", thread.Chat{Type: thread.TypeChat, Text: text})
	h.post("t1", string(entry.AppendJSON(nil)))
	file := filepath.Join(t.TempDir(), "t1.html")
	h.run("", "thread", "export", "--html", "--out", file, "t1")
	b, exported := h.login(t, "t1"), browser.Open(t, "file://"+file)
	exported.Go("file://" + file)
	for _, tab := range []*browser.Tab{b, exported} {
		tab.Wait("document.readyState === 'complete' && document.getElementById('i-pasted')")
		const shown = "document.querySelector('#i-pasted .text')"
		if got := browser.Eval[string](tab, shown+".innerText"); got != text {
			t.Errorf("got %q, want %q", got, text)
		}
		const link = "https://example.com/log?a=1&b=2"
		if got := browser.Eval[string](tab, shown+".querySelector('a').href"); got != link {
			t.Errorf("a link to %q", got)
		}
		if n := browser.Eval[int](tab, shown+".children.length"); n != 1 {
			t.Errorf("%d elements for a text with one link", n)
		}
		wide := browser.Eval[float64](tab, "(() => { const r = document.createRange(), n = "+shown+".firstChild;"+
			"const left = (i) => { r.setStart(n, i); r.setEnd(n, i + 1); return r.getBoundingClientRect().left; };"+
			"return left("+shown+".textContent.indexOf('- 3 spaces')) - left(0); })()")
		if wide <= 0 {
			t.Errorf("an indented line begins %v pixels behind another one", wide)
		}
	}
}

// A browser without a script reads a thread and posts a chat, which is on the page that it gets then. One that is
// refused is shown with the reason.
func TestFullPageScriptless(t *testing.T) {
	h := newHost(t)
	h.post("t1", append(begin("r1", "work", ""),
		signal("r1", "started", thread.TypeStarted, `,"live":true,"cwd":"/w","resume":"none"`))...)
	b := h.login(t, "t1")
	b.Scriptless()
	b.Go(h.url() + "/t/t1")
	b.Wait(shows("#items .chat", "work"))
	b.Type(".say textarea", "a line\nand another")
	b.Click("[value=followUp]")
	b.Click(".say button.main")
	b.Wait("location.hash.startsWith('#i-page.') && document.querySelector(':target .text')")
	b.Wait("document.querySelector(':target .text').innerText === 'a line\\nand another'")
	if got := h.run("", "thread", "read", "t1"); !strings.Contains(got, `"text":"a line\nand another","deliver":"followUp"`) {
		t.Errorf("got %s", got)
	}
	b.Click(".stopping > summary")
	b.Type("input[name=reason]", "enough")
	b.Click(".stopping button")
	b.Wait("document.querySelector('#items .notice:target')?.innerText.includes('cancel requested: enough')")
	b.Type(".say textarea", "too late")
	h.post("t1", end("r1", "cancelled"))
	h.run("", "thread", "delete", "t1")
	b.Click(".say button.main")
	b.Wait(shows("#status", "There is no such thread."))
	b.Wait(shows(".unsent", "too late"))
}

// When a live run's agent gets a chat is the writer's choice, and the form has what will happen.
func TestFullPageDeliver(t *testing.T) {
	h := newHost(t)
	h.post("t1", append(begin("r1", "work", ""),
		signal("r1", "started", thread.TypeStarted, `,"live":true,"cwd":"/w","resume":"none"`))...)
	b := h.login(t, "t1")
	for deliver, hint := range map[string]string{
		"steer": "The agent gets it with its next step.", "followUp": "The agent gets it once its turn has ended.",
		"interrupt": "The agent's turn is stopped, and then it gets this.",
	} {
		b.Run("document.querySelector('[value=" + deliver + "]').click()")
		b.Wait(shows(".hint > span", hint))
		b.Type("textarea[name=text]", "a chat for "+deliver+"\r")
		b.Wait(shows("#items .chat", "a chat for "+deliver))
		b.Run("document.querySelector('textarea').value = ''") // a driver's key types even where its event is prevented
		want := `a chat for ` + deliver + `"`
		if deliver != "steer" {
			want += `,"deliver":"` + deliver + `"`
		}
		if got := h.run("", "thread", "read", "t1"); !strings.Contains(got, want+"}") {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	h.post("t1", signal("r1", "waiting.1", thread.TypeWaiting, `,"turn":1,"outcome":"completed"`))
	b.Wait(shows(".hint > span", "The agent waits for it."))
	b.Wait("!document.querySelector('.deliver').checkVisibility()")
	h.post("t1", end("r1", "completed"))
	b.Wait(shows(".hint > span", "The next run of this thread gets it"))
}

// What is typed with Shift+Enter is a new line.
func TestFullPageNewLine(t *testing.T) {
	h := newHost(t)
	h.post("t1", chat("a", "hello"))
	b := h.login(t, "t1")
	b.Type("textarea[name=text]", "one")
	b.Run("document.querySelector('textarea').dispatchEvent(new KeyboardEvent('keydown', " +
		"{key: 'Enter', shiftKey: true, bubbles: true, cancelable: true}))")
	b.Type("textarea[name=text]", " two\r")
	b.Wait(shows("#items .chat", "one two"))
}
