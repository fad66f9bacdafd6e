// Package page clicks through the page of the built arbe in a real Chromium, on both engines of the log.
package page_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/browser"
	"arbe.0sk.ar/runner/internal/test/built"
	"arbe.0sk.ar/runner/internal/test/natsserver"
	"arbe.0sk.ar/runner/internal/test/port"
	"arbe.0sk.ar/runner/internal/test/surroundings"
	"arbe.0sk.ar/runner/thread"
)

// arbe is the path of the built program.
var arbe string

func TestMain(m *testing.M) {
	surroundings.Enter()
	built.Main(m, "../../..", func(bin string) { arbe = filepath.Join(bin, "arbe") })
}

// host is a machine with a server.
type host struct {
	t    testing.TB
	data string
	addr string
	args []string // of arbe serve
	pid  int
	stop func()
}

// atEnd holds once a thread's page shows its end, which it does first: a scroll before that is undone by it.
const atEnd = "document.readyState === 'complete' && " +
	"innerHeight + scrollY >= document.documentElement.scrollHeight - 2"

// newHost starts a server, which ends with the test.
func newHost(t testing.TB, args ...string) *host {
	t.Helper()
	return newHostWith(t, "", args...)
}

// newHostWith starts a server with this secret; with one that it makes for "".
func newHostWith(t testing.TB, secret string, args ...string) *host {
	t.Helper()
	h := &host{t: t, data: t.TempDir(), addr: port.Reserve(t), args: args}
	if secret != "" {
		if err := os.Mkdir(filepath.Join(h.data, "arbe"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(h.data, "arbe", "secret"), []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.start()
	t.Cleanup(func() { h.stop() })
	return h
}

func (h *host) url() string { return "http://" + h.addr }

// cookie returns the name of the cookie of a login.
func (h *host) cookie() string {
	_, port, _ := strings.Cut(h.addr, ":")
	return "arbe-" + port
}

// command is a command of the program on the host.
func (h *host) command(args ...string) *exec.Cmd {
	cmd := exec.Command(arbe, args...)
	cmd.Env = []string{"HOME=" + h.data, "ARBE_DATA=" + filepath.Join(h.data, "arbe"), "PATH=" + os.Getenv("PATH")}
	return cmd
}

// start starts the server, and waits until it serves.
func (h *host) start() {
	h.t.Helper()
	cmd := h.command(append([]string{"serve", "--addr", h.addr}, h.args...)...)
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.pid = cmd.Process.Pid
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stopped := false
	h.stop = func() {
		if stopped {
			return
		}
		stopped = true
		_ = cmd.Process.Signal(syscall.SIGINT) // it may have ended
		if err := <-ended; err != nil || h.t.Failed() {
			h.t.Errorf("arbe serve: %v\n%s", err, log.String())
		}
	}
	address := filepath.Join(h.data, "arbe", "address")
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) { // between two looks
		if b, err := os.ReadFile(address); err == nil && len(b) > 0 {
			return
		}
		if time.Since(began) > 5*time.Minute {
			h.t.Fatal("arbe serve does not start")
		}
	}
}

// run runs a command of the program and returns what it prints.
func (h *host) run(stdin string, args ...string) string {
	h.t.Helper()
	cmd := h.command(args...)
	cmd.Stdin = strings.NewReader(stdin)
	var errors bytes.Buffer
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		h.t.Fatalf("arbe %s: %v\n%s", strings.Join(args, " "), err, errors.String())
	}
	return strings.TrimSpace(string(out))
}

// post posts entries to a thread.
func (h *host) post(id string, entries ...string) {
	h.t.Helper()
	h.run(strings.Join(entries, "\n")+"\n", "thread", "post", id)
}

// signal is an entry of a run with more members.
func signal(run, id, kind, more string) string {
	return fmt.Sprintf(`{"id":"%s.%s","ts":%q,"payload":{"type":%q,"runId":%q,"harness":"pi"%s}}`,
		run, id, thread.Stamp(time.Now()), kind, run, more)
}

// begin is the first entries of a run with a prompt.
func begin(run, prompt, more string) []string {
	return []string{
		signal(run, "running", thread.TypeStatus, `,"status":"running"`+more),
		fmt.Sprintf(`{"id":"%s.prompt","ts":%q,"payload":{"type":"chat","text":%q,"runId":%q}}`,
			run, thread.Stamp(time.Now()), prompt, run),
	}
}

// end is a run's verdict.
func end(run, status string) string {
	return signal(run, "end.0", thread.TypeStatus, fmt.Sprintf(`,"status":%q`, status))
}

// engines calls f with a server on each engine.
func engines(t *testing.T, f func(t *testing.T, h *host)) {
	t.Run("pebble", func(t *testing.T) { f(t, newHost(t)) })
	t.Run("nats", func(t *testing.T) {
		s, err := natsserver.Start(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { natsserver.Stop(s) })
		f(t, newHost(t, "--engine", "nats", "--nats-url", s.ClientURL(), "--nats-shards", "2",
			"--nats-replicas", "1", "--nats-allow-unsafe"))
	})
}

// login opens the page in a browser of its own by the link of arbe open.
func (h *host) login(t testing.TB, id ...string) *browser.Tab {
	t.Helper()
	b := browser.Open(t, h.url())
	b.Go(h.run("", append([]string{"open", "--print-url"}, id...)...))
	b.Wait("document.readyState === 'complete' && document.querySelector('#threads, #room')")
	return b
}

// shows is an expression: an element with this selector has this text in it.
func shows(css, text string) string {
	return fmt.Sprintf("[...document.querySelectorAll(%q)].some(e => e.innerText.includes(%q))", css, text)
}

// The link of arbe open logs in once, leaves no code behind, and everything else is asked to log in.
func TestFullPageLogin(t *testing.T) {
	engines(t, func(t *testing.T, h *host) {
		h.post("t1", begin("r1", "fix the parser", "")...)
		link := h.run("", "open", "--print-url", "t1")
		b := browser.Open(t, h.url())
		b.Go(link)
		b.Wait("location.pathname === '/t/t1'")
		b.Wait(shows("h1", "fix the parser"))
		if got := browser.Eval[string](b, "location.hash + document.cookie + document.referrer"); got != "" {
			t.Errorf("the page can read %q", got)
		}
		if n := browser.Eval[int](b, "history.length"); n > 2 {
			t.Errorf("%d pages in the history", n)
		}
		b.Go(h.url() + "/")
		b.Wait(shows("#t-t1", "working"))

		other := browser.Open(t, h.url())
		other.Go(link)
		other.Wait(shows("#status", "used already"))
		other.Go(h.url() + "/t/t1")
		other.Wait(shows("#status", "You are not logged in."))
		if got := browser.Eval[string](other, "document.body.innerText"); strings.Contains(got, "parser") {
			t.Errorf("without a login: %s", got)
		}

		b.Click("form[action='/logout'] button")
		b.Wait("location.pathname === '/login'")
		b.Go(h.url() + "/")
		b.Wait(shows("#status", "You are not logged in."))
	})
}

// The list shows runs as they go, without a reload: state, title, tree, results that were not seen, the tab's title.
func TestFullPageList(t *testing.T) {
	engines(t, func(t *testing.T, h *host) {
		b := h.login(t)
		b.Wait(shows("#none", "No thread"))
		beat := func(n int, ms int64) string {
			return signal("r1", fmt.Sprint("beat.", n), thread.TypeHeartbeat, fmt.Sprintf(`,"nextMs":%d`, ms))
		}
		h.post("parent", append(begin("r1", "fix the parser", ""), beat(1, 3_600_000))...)
		b.Wait(shows("#t-parent > article .title", "fix the parser"))
		b.Wait(shows("#t-parent > article .state", "working"))
		b.Wait("document.title === '1 working · arbe'")
		h.post("child", begin("r2", "write a test", `,"parent":{"threadId":"parent","authorId":"a"}`)...)
		b.Wait("document.querySelector('#t-parent > ul > #t-child')")

		// A heartbeat is missing, and nothing comes that would say so.
		h.post("parent", beat(2, 200))
		b.Wait(shows("#t-parent > article .state", "dead"))
		b.Wait("document.title.includes('1 dead')")
		h.post("parent", beat(3, 3_600_000))
		b.Wait(shows("#t-parent > article .state", "working"))

		h.post("parent", end("r1", "completed"))
		b.Wait(shows("#t-parent > article .state", "done"))
		b.Wait("document.querySelector('#t-parent.unseen')")
		b.Wait("document.title.startsWith('1 new')")
		if browser.Eval[bool](b, "!!document.querySelector('#t-child.unseen')") {
			t.Error("a run that has not ended is marked as new")
		}
		b.Click("#t-parent > article .title")
		b.Wait("location.pathname === '/t/parent' && document.title.startsWith('done')")
		b.Wait("(localStorage.getItem('arbe.seen') || '').includes('t-parent')")
		b.Go(h.url() + "/")
		b.Wait("document.querySelector('#t-parent:not(.unseen)')")

		b.Type("input[name=q]", "TEST")
		b.Click("form[role=search] button")
		b.Wait("location.search.includes('q=TEST') && document.querySelector('#t-child')")
		if browser.Eval[bool](b, "!!document.getElementById('t-parent')") {
			t.Error("the search shows another thread")
		}
		h.post("more", begin("r3", "another test", "")...)
		b.Wait("document.querySelector('#t-more')")
		h.post("hidden", begin("r4", "something else", "")...)
		h.post("last", begin("r5", "last test", "")...)
		b.Wait("document.querySelector('#t-last') && !document.querySelector('#t-hidden')")
	})
}

// A server that is started again mid-stream: the page reports it, and resumes.
func TestFullPageRestart(t *testing.T) {
	h := newHost(t)
	b := h.login(t)
	h.post("before", begin("r1", "before", "")...)
	b.Wait("document.querySelector('#t-before')")
	h.stop()
	b.Wait(shows("#status", "The server is away"))
	h.start()
	h.post("after", begin("r2", "after", "")...)
	b.Wait("document.querySelector('#t-after')")
	b.Wait("document.getElementById('status').innerText === ''")
}

// A share link shows one thread to a browser without a login, without acts, until it is revoked.
func TestFullPageShare(t *testing.T) {
	engines(t, func(t *testing.T, h *host) {
		h.post("t1", begin("r1", "fix the parser", "")...)
		h.post("t2", begin("r2", "a secret", "")...)
		link := h.run("", "share", "t1")
		for range 2 {
			b := browser.Open(t, h.url())
			b.Go(link)
			b.Wait("location.pathname === '/t/t1'")
			b.Wait(shows("h1", "fix the parser"))
			if browser.Eval[bool](b, "!!document.querySelector('form:not([role=search]), a[href=\"/\"]')") {
				t.Error("a shared thread can be acted on")
			}
			for _, path := range []string{"/", "/t/t2"} {
				b.Go(h.url() + path)
				b.Wait(shows("#status", "You are not logged in."))
			}
		}
		b := browser.Open(t, h.url())
		b.Go(link)
		b.Wait("location.pathname === '/t/t1'")
		h.run("", "share", "--revoke", "t1")
		b.Go(h.url() + "/t/t1")
		b.Wait(shows("#status", "this link was revoked"))
		b.Go(link)
		b.Wait(shows("#status", "this link was revoked"))
	})
}

// chat is a chat with an id and a text.
func chat(id, text string) string {
	return fmt.Sprintf(`{"id":%q,"ts":%q,"payload":{"type":"chat","text":%q}}`, id, thread.Stamp(time.Now()), text)
}

// The recorded threads are shown, each from its first to its last entry.
func TestFullPageRecorded(t *testing.T) {
	h := newHost(t)
	files, err := filepath.Glob("../../../testdata/threads/*.ndjson")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d threads, %v", len(files), err)
	}
	b := h.login(t)
	b.Size(1000, 700, false)
	for _, file := range files {
		id := strings.TrimSuffix(filepath.Base(file), ".ndjson")
		h.run("", "thread", "import", id, file)
		b.Go(h.url() + "/t/" + id)
		b.Wait("document.readyState === 'complete' && document.querySelector('#items .piece')")
		if n := browser.Eval[int](b, "new Set([...document.querySelectorAll('#items article')].map(e => e.id)).size -"+
			"document.querySelectorAll('#items article').length"); n != 0 {
			t.Errorf("%s has %d ids twice", id, -n)
		}
		shot(t, b, "thread-"+id)
	}
}

// A long thread opens at its end. Older entries come when the reader scrolls up, and what is read stays where it is;
// live items come at the end, and move nothing for a reader who is elsewhere.
func TestFullPageLong(t *testing.T) {
	engines(t, func(t *testing.T, h *host) {
		const n = 2500
		for from := 0; from < n; from += 500 {
			var some []string
			for i := from; i < from+500; i++ {
				some = append(some, chat(fmt.Sprint("c", i), fmt.Sprintf("chat %d end\n\nand a second paragraph", i)))
			}
			h.post("long", some...)
		}
		b := h.login(t, "long")
		b.Wait(shows("#items .chat", fmt.Sprintf("chat %d end", n-1)))
		at := func(id string) string {
			return fmt.Sprintf("document.getElementById('i-%s').getBoundingClientRect().top", id)
		}
		b.Wait(at(fmt.Sprint("c", n-1)) + " < innerHeight")
		if got := browser.Eval[int](b, "document.querySelectorAll('#items .chat').length"); got > 1200 {
			t.Errorf("%d entries at first", got)
		}
		h.post("long", chat("live1", "a live chat"))
		b.Wait(shows("#i-live1", "a live chat"))
		b.Wait(at("live1") + " < innerHeight") // the reader follows
		for browser.Eval[bool](b, "!document.getElementById('i-c0')") {
			first := browser.Eval[string](b, "document.querySelector('#items .chat').id.slice(2)")
			b.Run("document.querySelector('#items .chat').scrollIntoView()")
			b.Wait("document.querySelector('#items .chat').id !== 'i-" + first + "'")
			if top := browser.Eval[float64](b, at(first)); top < -50 || top > 2000 {
				t.Fatalf("%s was moved to %v", first, top)
			}
		}
		b.Wait("!document.querySelector('.older')")
		ids := browser.Eval[string](b,
			"[...document.querySelectorAll('#items .chat')].map(e => e.id.slice(2)).join(' ')")
		var want []string
		for i := range n {
			want = append(want, fmt.Sprint("c", i))
		}
		if got := strings.Fields(ids); !slices.Equal(got, append(want, "live1")) {
			t.Errorf("%d entries, want %d", len(got), n+1)
		}
		b.Run("document.getElementById('i-c100').scrollIntoView()")
		b.Wait("Math.abs(" + at("c100") + ") < 150")
		was := browser.Eval[float64](b, at("c100"))
		h.post("long", chat("live2", "another"))
		b.Wait("document.getElementById('i-live2') && !document.getElementById('new').hidden")
		if now := browser.Eval[float64](b, at("c100")); now-was > 5 || was-now > 5 {
			t.Errorf("a live entry moved what is read from %v to %v", was, now)
		}
		b.Click("#new")
		b.Wait(at("live2") + " < innerHeight")
	})
}

// A chat and a request to cancel are posted from the page, and the thread has them.
func TestFullPageActs(t *testing.T) {
	engines(t, func(t *testing.T, h *host) {
		h.post("t1", begin("r1", "work", "")...)
		b := h.login(t, "t1")
		b.Wait(shows("#items .chat", "work"))
		b.Type("textarea[name=text]", "look at the tests, too")
		b.Click(".say button.main")
		b.Wait(shows("#items .chat", "look at the tests, too"))
		b.Click(".stopping > summary")
		b.Type("input[name=reason]", "enough")
		b.Click(".stopping button")
		b.Wait(shows("#items .notice", "cancel"))
		want := `"type":"signal.dispatch.cancel_requested","runId":"r1"`
		if got := h.run("", "thread", "read", "t1"); !strings.Contains(got, want) {
			t.Errorf("got %s", got)
		}
		h.post("t1", end("r1", "cancelled"))
		b.Wait("!document.querySelector('.stopping').checkVisibility()")
	})
}
