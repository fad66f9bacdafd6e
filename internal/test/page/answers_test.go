package page_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/browser"
	"arbe.0sk.ar/runner/internal/test/reaction"
	"arbe.0sk.ar/runner/thread"
)

// hosts posts the entries of a host about bots.
func (h *host) hosts(id string, entries ...thread.Entry) {
	h.t.Helper()
	var lines []string
	for _, e := range entries {
		lines = append(lines, string(e.AppendJSON(nil)))
	}
	h.append(h.secret(), id, "["+strings.Join(lines, ",")+"]")
}

// A bot's answer is on the page while it is written, also on one that is loaded meanwhile, and its reply replaces it.
// What the bot called is folded in front of that. The list has who answers.
func TestFullPageAnswer(t *testing.T) {
	engines(t, func(t *testing.T, h *host) {
		h.post("t1", chat("ask", "@piet how long do the tests take?"))
		b, list := h.login(t, "t1"), h.login(t)
		b.Wait(shows("#i-ask", "how long"))
		r := &reaction.Reaction{
			Thread: "t1", Bot: "piet", Chats: []string{"ask"}, At: time.Now(), Took: 12 * time.Second,
		}
		live := "#a-" + r.ID()
		h.hosts("t1", r.Claim(0))
		b.Wait(shows(live, "is answering"))
		list.Wait(shows("#t-t1 .bots", "piet answering"))
		h.hosts("t1", r.Delta(0, 0, 0, 0, "I will run **them**"), r.Delta(0, 0, 1, 19, " now.", "run_command"))
		b.Wait(shows(live, "I will run them now."))
		b.Wait(shows(live, "calls run_command"))

		b.Go(h.url() + "/t/t1") // in mid-round
		text := fmt.Sprintf("document.querySelector(%q)?.innerText", live+" .body")
		b.Wait(shows(live, "I will run them now."))
		early := browser.Eval[string](b, text)
		h.hosts("t1", r.Delta(0, 0, 2, 24, " It takes a while."))
		b.Wait(shows(live, "It takes a while."))
		if got := browser.Eval[string](b, text); !strings.HasPrefix(got, "I will run them now. It") {
			t.Errorf("behind %q the page shows %q", early, got)
		}
		h.hosts("t1", r.Claim(1), r.Delta(0, 1, 0, 0, "Another host begins anew."))
		b.Wait(shows(live, "Another host") + " && !" + shows(live, "I will run"))

		h.hosts("t1", r.Round(0, "I run them.", "make test"))
		b.Wait(shows(live, "is answering") + " && !" + shows(live, "Another host"))
		h.hosts("t1", r.Result(0, 0, "exit 2, 231 s\nreal 3m51s", false), r.Delta(1, 1, 0, 0, "3 min"))
		b.Wait(shows(live, "3 min"))
		h.hosts("t1", r.Reply(1, "3 min 51 s.")...)
		reply := "#i-" + strings.ReplaceAll(thread.RoundID(r.ID(), 1), ".", `\.`)
		b.Wait(shows(reply, "3 min 51 s.") + fmt.Sprintf(" && !document.querySelector(%q)", live))
		b.Wait(shows(reply+" h2", "piet bot") + " && " + shows(reply+" h2", "1 call · 12s"))
		list.Wait("!document.querySelector('#t-t1 .bots')")
		for _, how := range []string{"live", "loaded"} {
			b.Wait("document.querySelectorAll('#items details.subagent').length === 1")
			b.Wait(shows("details.subagent > summary", "steps of piet"))
			if browser.Eval[bool](b, "!!document.querySelector('.undelivered, #answering article')") {
				t.Errorf("%s: the answered chat is marked, or an answer is still written", how)
			}
			b.Run("document.querySelector('details.subagent').open = true")
			b.Wait(shows("details.subagent", "make test") + " && " + shows("details.subagent .state", "exit 2"))
			b.Go(h.url() + "/t/t1")
			b.Wait(shows(reply, "3 min 51 s."))
		}
	})
}

// Stop asks for a bot's end: of the one that it stands at, with the focus kept while text comes. A share has no Stop,
// and of a bot that has ended meanwhile the page reports that.
func TestFullPageStop(t *testing.T) {
	h := newHost(t)
	h.post("t1", chat("ask", "@piet @alma which one?"))
	piet := &reaction.Reaction{Thread: "t1", Bot: "piet", Chats: []string{"ask"}, At: time.Now()}
	alma := &reaction.Reaction{Thread: "t1", Bot: "alma", Chats: []string{"ask"}, At: time.Now()}
	h.hosts("t1", piet.Claim(0), piet.Delta(0, 0, 0, 0, "I think"))
	b := h.login(t, "t1")
	h.hosts("t1", alma.Claim(0), alma.Delta(0, 0, 0, 0, "It is"))
	b.Wait(shows("#a-"+piet.ID(), "I think") + " && " + shows("#a-"+alma.ID(), "It is"))
	shared := browser.Open(t, h.url())
	shared.Go(h.run("", "share", "t1"))
	shared.Wait(shows("#a-"+alma.ID(), "It is"))
	if browser.Eval[bool](shared, "!!document.querySelector('.stop, #stop')") {
		t.Error("who reads a shared thread can stop a bot")
	}
	for _, r := range []*reaction.Reaction{piet, alma} {
		stop := "#a-" + r.ID() + " .stop button"
		b.Run(fmt.Sprintf("document.querySelector(%q).focus()", stop))
		h.hosts("t1", r.Delta(0, 0, 1, 99, " and more"))
		b.Wait(shows("#a-"+r.ID(), "and more"))
		if !browser.Eval[bool](b, fmt.Sprintf("document.activeElement.matches(%q)", stop)) {
			t.Error("the text that came took the focus from Stop")
		}
		b.Click(stop)
		b.Wait(shows("#status", "Posted."))
		b.Wait(shows("#items .notice", "stop of a reply requested"))
		want := fmt.Sprintf(`"type":%q,"reaction":%q`, thread.TypeReactionCancel, r.ID())
		if got := h.run("", "thread", "read", "t1"); strings.Count(got, want) != 1 {
			t.Errorf("want one %s in %s", want, got)
		}
		h.hosts("t1", r.End(thread.ReactionCancelled, "", ""))
		b.Wait(shows("#items .notice", r.Bot+" was stopped"))
		b.Wait(fmt.Sprintf("!document.getElementById(%q)", "a-"+r.ID()))
		shared.Wait(fmt.Sprintf("!document.getElementById(%q)", "a-"+r.ID()))
		b.Run("document.querySelectorAll('#items .notice').forEach(e => e.remove())")
	}
	b.Run(fmt.Sprintf("fetch('/t/t1/stop', {method: 'POST', body: JSON.stringify({reaction: %q})})"+
		".then(async (r) => { window.late = r.status + (await r.json()).error.message; })", alma.ID()))
	b.Wait("window.late === '409The bot does not answer any more.'")
}
