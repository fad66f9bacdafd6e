// Package browser drives a real Chromium through the page, for tests, and records what a page must not do: break its
// Content-Security-Policy, throw, open a dialog, ask another origin for anything.
//
// The browser is $ARBE_CHROMIUM, else one on PATH, else the one that "make browser" has installed.
package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/memory"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"arbe.0sk.ar/runner/internal/test/agents"
)

// Version is the version of the Chromium that "make browser" installs.
const Version = "147.0.2"

// find returns the path of a Chromium, and the folder that it was unpacked into; "" for one of the machine's own.
func find() (path, dir string, err error) {
	if path := os.Getenv("ARBE_CHROMIUM"); path != "" {
		return path, "", nil
	}
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, "", nil
		}
	}
	cache, err := agents.Cache()
	if err != nil {
		return "", "", err
	}
	dir = filepath.Join(cache, "chromium-"+Version, "unpacked")
	path = filepath.Join(dir, "chromium")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return "", "", fmt.Errorf("no Chromium on PATH, in $ARBE_CHROMIUM or in %s: run make browser", dir)
	} else if err != nil {
		return "", "", err
	}
	return path, dir, nil
}

// FontVersion is the version of the fonts that the tests take their monospaced one from: the Chromium of npm has none.
const FontVersion = "2.37.3"

// environment returns what the Chromium in a folder needs beside the test's own environment.
func environment(t testing.TB, dir string) []string {
	t.Helper()
	cache, err := agents.Cache()
	if err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(t.TempDir(), "fonts.conf")
	text := fmt.Sprintf(fonts, filepath.Join(dir, "fonts"),
		filepath.Join(cache, "dejavu-fonts-ttf-"+FontVersion, "node_modules/dejavu-fonts-ttf/ttf"))
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{
		"LD_LIBRARY_PATH=" + filepath.Join(dir, "lib"), "FONTCONFIG_FILE=" + conf, "XDG_CACHE_HOME=" + os.TempDir(),
	}
}

// ownVariables are the variables that Chromium 147 sets in its own environment when it starts, the second one in a
// thread of its own. Where they are missing, glibc before 2.41 moves the environment to make room for them, and a
// getenv of another thread meanwhile ends the browser: it dies silently, one start in some thousands.
var ownVariables = []string{"DBUS_SESSION_BUS_ADDRESS=disabled:", "FC_FONTATIONS=1"}

// fonts is a configuration of fontconfig for the fonts of two folders: all of the first one, and the monospaced ones of
// the second.
const fonts = `<fontconfig><dir>%s</dir><dir>%s</dir><selectfont>
<acceptfont><glob>*/DejaVuSansMono*</glob></acceptfont><rejectfont><glob>*/DejaVu*</glob></rejectfont>
</selectfont><alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias></fontconfig>
`

// patience bounds each wait for the browser.
const patience = 5 * time.Minute

// Tab is a tab of a browser of its own, with a profile of its own.
type Tab struct {
	t       testing.TB
	ctx     context.Context
	origins []string // that the page may ask

	scriptless bool

	mu       sync.Mutex // guards the fields below
	requests []request
	problems []string
}

// request is a request of the page.
type request struct {
	id  network.RequestID
	url string
}

// Open starts a browser, which ends with the test. The test fails where the page did what it must not do, and where it
// asked for anything but addresses that begin with one of the origins.
func Open(t testing.TB, origins ...string) *Tab {
	t.Helper()
	path, dir, err := find()
	if err != nil {
		t.Fatal(err)
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.Env(ownVariables...))
	if dir != "" {
		opts = append(opts, chromedp.Env(environment(t, dir)...))
	}
	if os.Geteuid() == 0 {
		opts = append(opts, chromedp.NoSandbox) // it refuses to start with one
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, cancel := chromedp.NewContext(allocator)
	b := &Tab{t: t, ctx: ctx, origins: origins}
	t.Cleanup(func() {
		err := chromedp.Cancel(ctx)
		cancel()
		stop()
		if err != nil {
			t.Errorf("end the browser: %v", err)
		}
		b.check()
	})
	b.start()
	return b
}

// Another opens another tab of the browser. What it asks for is checked as what the first one does.
func (b *Tab) Another() *Tab {
	b.t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx)
	other := &Tab{t: b.t, ctx: ctx, origins: b.origins}
	b.t.Cleanup(func() {
		cancel()
		other.check()
	})
	other.start()
	return other
}

// start starts the browser for its first tab, opens the tab, and listens to it.
func (b *Tab) start() {
	t, ctx := b.t, b.ctx
	t.Helper()
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Listen(ctx, b.see); err != nil {
		t.Fatal(err)
	}
	for _, enable := range []func() error{
		func() error { _, err := chromedp.Call(ctx, audits.Enable, cdp.Empty{}); return err },
		func() error { _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); return err },
	} {
		if err := enable(); err != nil {
			t.Fatal(err)
		}
	}
}

// see records an event.
func (b *Tab) see(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch ev := ev.(type) {
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, request{ev.RequestID, ev.Request.URL})
	case *network.EventLoadingFailed:
		if ev.BlockedReason == network.BlockedReasonCsp { // it was not sent; the violation is a problem
			b.requests = slices.DeleteFunc(b.requests, func(r request) bool { return r.id == ev.RequestID })
		}
	case *network.EventWebSocketCreated:
		b.requests = append(b.requests, request{ev.RequestID, ev.URL})
	case *page.EventJavascriptDialogOpening:
		b.problems = append(b.problems, "dialog: "+ev.Message)
	case *runtime.EventExceptionThrown:
		text, err := json.Marshal(ev.ExceptionDetails)
		b.problems = append(b.problems, fmt.Sprintf("exception: %s %v", text, err))
	case *audits.EventIssueAdded:
		if ev.Issue != nil && ev.Issue.Details != nil && ev.Issue.Details.ContentSecurityPolicyIssueDetails != nil {
			text, err := json.Marshal(ev.Issue.Details.ContentSecurityPolicyIssueDetails)
			b.problems = append(b.problems, fmt.Sprintf("CSP violation: %s %v", text, err))
		}
	}
}

// check fails the test for what the page must not have done.
func (b *Tab) check() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.problems {
		b.t.Error(p)
	}
	for _, r := range b.requests {
		ours := strings.HasPrefix(r.url, "about:") || strings.HasPrefix(r.url, "data:") // which ask nobody
		for _, origin := range b.origins {
			ours = ours || r.url == origin || strings.HasPrefix(r.url, origin+"/")
		}
		if !ours {
			b.t.Errorf("a request to %s", r.url)
		}
	}
}

// Problems returns what the page did that it must not do, and forgets it.
func (b *Tab) Problems() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.problems
	b.problems = nil
	return was
}

// Await waits until the page has done something that it must not do, with this in its description.
func (b *Tab) Await(problem string) {
	b.t.Helper()
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) { // between two looks
		b.mu.Lock()
		all := strings.Join(b.problems, "\n")
		b.mu.Unlock()
		if strings.Contains(all, problem) {
			return
		}
		if time.Since(began) > patience {
			b.t.Fatalf("waited in vain for %q, got %q", problem, all)
		}
	}
}

// Do runs steps of chromedp.
func (b *Tab) Do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatalf("%v\n%s", err, b.shown())
	}
}

// Go opens an address.
func (b *Tab) Go(url string) {
	b.t.Helper()
	b.Do(chromedp.Navigate(url))
}

// Click clicks on the element with this selector, once it has come to rest: a click goes to where it was a moment ago,
// and a page that loads may still move it.
func (b *Tab) Click(css string) {
	b.t.Helper()
	b.Do(chromedp.ScrollIntoView(chromedp.CSS(css)))
	if b.scriptless {
		b.Do(chromedp.Click(chromedp.CSS(css)))
		return
	}
	name, err := json.Marshal(css)
	if err != nil {
		b.t.Fatal(err)
	}
	b.Wait(fmt.Sprintf(rests, name))
	b.Do(chromedp.Click(chromedp.CSS(css)))
}

// rests holds once the page is loaded, and an element, by its selector, has stood at the same place for two frames.
const rests = `(() => {
  const r = document.querySelector(%s)?.getBoundingClientRect();
  const at = r && r.x + ' ' + r.y;
  if (!at || window.resting?.at !== at) {
    const now = window.resting = {at};
    requestAnimationFrame(() => requestAnimationFrame(() => now.still = true));
  }
  return at && window.resting.still && document.readyState === 'complete';
})()`

// Type types into the element with this selector.
func (b *Tab) Type(css, text string) {
	b.t.Helper()
	b.Do(chromedp.SendKeys(chromedp.CSS(css), text))
}

// Press presses keys, one after the other, wherever the focus is: "\t" is Tab, "\r" is Enter.
func (b *Tab) Press(keys string) {
	b.t.Helper()
	b.Do(chromedp.KeyEvent(keys))
}

// Eval returns the value of a JavaScript expression.
func Eval[T any](b *Tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// Scriptless makes the browser run no script of a page.
func (b *Tab) Scriptless() {
	b.t.Helper()
	b.scriptless = true
	_, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: true})
	if err != nil {
		b.t.Fatal(err)
	}
}

// Media makes the browser show pages as on a medium: "print"; "" for a screen.
func (b *Tab) Media(medium string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: medium})
	if err != nil {
		b.t.Fatal(err)
	}
}

// Before runs JavaScript in each page that the tab opens from now on, before the page's own.
func (b *Tab) Before(script string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, page.AddScriptToEvaluateOnNewDocument,
		page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
	if err != nil {
		b.t.Fatal(err)
	}
}

// Run runs JavaScript for its effect.
func (b *Tab) Run(script string) {
	b.t.Helper()
	b.Do(chromedp.Evaluate[chromedp.Void](script))
}

// Wait waits until a JavaScript expression is true.
func (b *Tab) Wait(expression string) {
	b.t.Helper()
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) { // between two looks
		ctx, cancel := context.WithTimeout(b.ctx, patience)
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		cancel()
		if err == nil && is {
			return
		}
		if time.Since(began) > patience {
			b.t.Fatalf("waited in vain for %s (%v)\n%s", expression, err, b.shown())
		}
	}
}

// shown returns the address and the text of the page, for a failure.
func (b *Tab) shown() string {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](
		"location.href + '\\n' + document.title + '\\n' + document.body.innerText"))
	if err != nil {
		return err.Error()
	}
	return text
}

// Cookie sets a cookie for an address, which scripts can't read.
func (b *Tab) Cookie(url, name, value string) {
	b.t.Helper()
	httpOnly := true
	_, err := chromedp.Call(b.ctx, network.SetCookie, network.SetCookieParams{
		Name: name, Value: value, URL: url, HTTPOnly: &httpOnly, SameSite: network.CookieSameSiteStrict,
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// Cookies returns the values of the browser's cookies for an address.
func (b *Tab) Cookies(url string) (values []string) {
	b.t.Helper()
	all, err := chromedp.Call(b.ctx, network.GetCookies, network.GetCookiesParams{URLs: []string{url}})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range all.Cookies {
		values = append(values, c.Value)
	}
	return values
}

// Size makes the tab's view so many pixels wide and high, as a phone's for mobile.
func (b *Tab) Size(width, height int64, mobile bool) {
	b.t.Helper()
	var opts []chromedp.EmulateViewportOption
	if mobile {
		opts = append(opts, chromedp.EmulateMobile)
	}
	b.Do(chromedp.EmulateViewport(width, height, opts...))
}

// Dark makes the browser prefer dark colours.
func (b *Tab) Dark() { b.Scheme(true) }

// Scheme makes the browser prefer dark colours, or light ones.
func (b *Tab) Scheme(dark bool) {
	b.t.Helper()
	if dark {
		b.prefer("prefers-color-scheme", "dark")
	} else {
		b.prefer("prefers-color-scheme", "light")
	}
}

// Still makes the browser prefer reduced motion.
func (b *Tab) Still() {
	b.t.Helper()
	b.prefer("prefers-reduced-motion", "reduce")
}

// prefer sets the value of a media feature. Others have the browser's own.
func (b *Tab) prefer(feature, value string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: feature, Value: value}},
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// Memory returns how many nodes of documents the tab holds, and how many bytes they and the page's script take. Garbage
// is collected before.
func (b *Tab) Memory() (nodes int64, bytes float64) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	_, err := chromedp.Call(ctx, heapprofiler.CollectGarbage, cdp.Empty{})
	if err != nil {
		b.t.Fatal(err)
	}
	counters, err := chromedp.Call(ctx, memory.GetDOMCounters, cdp.Empty{})
	if err != nil {
		b.t.Fatal(err)
	}
	heap, err := chromedp.Call(ctx, runtime.GetHeapUsage, cdp.Empty{})
	if err != nil {
		b.t.Fatal(err)
	}
	return counters.Nodes, heap.UsedSize + heap.EmbedderHeapUsedSize
}

// Shot writes a picture of the whole page to a file (PNG).
func (b *Tab) Shot(file string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(file, png, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}
