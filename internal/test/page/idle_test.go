package page_test

import (
	"fmt"
	"testing"

	"arbe.0sk.ar/runner/internal/test/browser"
	"arbe.0sk.ar/runner/thread"
)

// clock gives a page a clock that advance moves on: the page's timers fire by it. fired counts them.
const clock = `(() => {
  let at = Date.now(), count = 0;
  const timers = new Map();
  window.fired = 0;
  Date.now = () => at;
  const set = (f, ms, every) => {
    timers.set(++count, {f, every, due: at + Math.max(1, ms || 0)});
    return count;
  };
  window.setTimeout = (f, ms) => set(f, ms);
  window.setInterval = (f, ms) => set(f, ms, ms);
  window.clearTimeout = window.clearInterval = (id) => timers.delete(id);
  window.advance = (ms) => {
    const end = at + ms;
    for (;;) {
      const next = [...timers].filter(([, t]) => t.due <= end).sort((a, b) => a[1].due - b[1].due)[0];
      if (!next) break;
      const [id, t] = next;
      at = Math.max(at, t.due);
      timers.delete(id);
      if (t.every) timers.set(id, {...t, due: at + t.every});
      window.fired++;
      t.f();
    }
    at = end;
  };
  // record counts the changes of the document from now on, and written returns them.
  window.record = () => {
    window.recorder = new MutationObserver(() => {});
    window.recorder.observe(document.body, {subtree: true, childList: true, characterData: true, attributes: true});
    window.fired = 0;
  };
  window.written = () => window.recorder.takeRecords().filter((r) => r.target.id !== 'news').length;
})()`

// An open list costs nothing while nothing happens: in a minute of 500 threads there are a few timers, and each age is
// written once. So is the page of a thread whose run has ended. A run that is silent has its seconds.
func TestFullPageIdle(t *testing.T) {
	h := newHost(t)
	const threads = 500
	secret := h.secret()
	for i := range threads {
		h.append(secret, fmt.Sprint("t", i), chat("a", fmt.Sprint("thread number ", i)))
	}
	h.post("ended", append(begin("r1", "it is done", ""), end("r1", "completed"))...)
	h.post("open", append(begin("r2", "it works", ""), signal("r2", "beat.1", thread.TypeHeartbeat, `,"nextMs":20000`))...)
	b := h.login(t)
	b.Before(clock)
	b.Go(h.url() + "/")
	const count = "document.querySelectorAll('#threads li[data-state]').length"
	b.Wait(count)
	for browser.Eval[int](b, count) < threads {
		was := browser.Eval[int](b, count)
		b.Run("document.getElementById('more').scrollIntoView()")
		b.Wait(fmt.Sprint(count, " > ", was))
	}
	minute := func() (fired, written int) {
		b.Run("advance(1000)")
		b.Run("record()")
		b.Run("advance(60000)")
		return browser.Eval[int](b, "fired"), browser.Eval[int](b, "written()")
	}
	b.Run("scrollTo(0, 0)")
	h.post("open", end("r2", "completed"))
	b.Wait(shows("#t-open .state", "done"))
	b.Run("advance(3600000)") // each age is counted in hours
	if fired, written := minute(); fired > 10 || written > threads {
		t.Errorf("a list: %d timers and %d changes in a minute", fired, written)
	}
	b.Go(h.url() + "/t/ended")
	b.Wait(shows("#items .verdict", "completed"))
	if fired, written := minute(); fired > 3 || written > 3 {
		t.Errorf("a thread whose run has ended: %d timers and %d changes in a minute", fired, written)
	}

	h.post("lost", append(begin("r3", "it is lost", ""), signal("r3", "beat.1", thread.TypeHeartbeat, `,"nextMs":20000`))...)
	for path, state := range map[string]string{"/": "#t-lost .state", "/t/lost": "#head .state"} {
		b.Go(h.url() + path)
		b.Wait(shows(state, "working"))
		b.Run("advance(32000)")
		b.Wait(shows(state, "silent, dead in "))
		left := browser.Eval[int](b, "Number(document.querySelector('"+state+"').innerText.match(/\\d+/)[0])")
		b.Run("record()")
		for range 3 {
			left--
			b.Run("advance(1000)")
			b.Wait(shows(state, fmt.Sprintf("silent, dead in %ds", left)))
		}
		fired, written := browser.Eval[int](b, "fired"), browser.Eval[int](b, "written()")
		if fired > 8 || written > 24 {
			t.Errorf("%s: %d timers and %d changes in 3 seconds", path, fired, written)
		}
		b.Run("advance(60000)")
		b.Wait(shows(state, "dead"))
	}
}

// Where thousands of threads change at once, the list shows those that belong there, in one step, and nothing of the
// others.
func TestFullPageManyChanges(t *testing.T) {
	h := newHost(t)
	for i := range 150 {
		h.append(h.secret(), fmt.Sprint("old", i), chat("a", fmt.Sprint("thread number ", i)))
	}
	b := h.login(t)
	b.Wait("document.querySelectorAll('#threads li').length === 100 && !document.getElementById('more').hidden")
	const changes, most = 10_000, 100
	b.Run(fmt.Sprintf(`
		window.steps = 0;
		window.added = 0;
		new MutationObserver((all) => {
			window.steps++;
			for (const r of all) window.added += [...r.addedNodes].filter((n) => n.localName === 'li').length;
		}).observe(document.getElementById('threads'), {subtree: true, childList: true});
		const like = document.querySelector('#threads [data-section=earlier] li'), rows = [];
		for (let i = 0; i < %d; i++) {
			const old = i %% 2, id = 'new' + i, started = Date.now() + (old ? -1e9 : 1) * (i + 1);
			rows.push({id, offset: '1', started, html: like.outerHTML.replaceAll(like.id.slice(2), id)
				.replace(/data-started="\d+"/, 'data-started="' + started + '"')});
		}
		for (let i = 0; i < rows.length; i += 100) hand(0, 'rows', {rows: rows.slice(i, i + 100)});`, changes))
	b.Wait(fmt.Sprintf("document.getElementById('t-new%d')", changes-2))
	if n := browser.Eval[int](b, "document.querySelectorAll('#threads li').length"); n != most {
		t.Errorf("%d rows are kept", n)
	}
	if n := browser.Eval[int](b, "window.steps"); n != 1 {
		t.Errorf("%d steps for changes that came at once", n)
	}
	if n := browser.Eval[int](b, "window.added"); n > 2*most {
		t.Errorf("%d rows were added for %d that are shown", n, most)
	}
	// The rest is loaded as before.
	b.Wait("document.getElementById('t-old0') || document.getElementById('more').scrollIntoView()")
	// And real ones come, too.
	b.Run("scrollTo(0, 0)")
	h.post("real", begin("r1", "a real one", "")...)
	b.Wait(shows("[data-section=working] #t-real", "a real one"))
}
