package page_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/browser"
	"arbe.0sk.ar/runner/internal/test/hostile"
)

// An exported file looks as the page does, has the same items, and works without a script: folds, the switch for
// thinking, links to an entry, dark colours.
func TestFullPageExport(t *testing.T) { engines(t, exportAll) }

func exportAll(t *testing.T, h *host) {
	files, err := filepath.Glob("../../../testdata/threads/*.ndjson")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d threads, %v", len(files), err)
	}
	const items = "[...document.querySelectorAll('#items .item')].map(e => e.id).join(' ')"
	const texts = "[...document.querySelectorAll('#items .item :is(.text, pre)')].map(e => e.textContent).join('\\n')"
	b := h.login(t)
	dir := t.TempDir()
	for _, file := range files {
		id := strings.TrimSuffix(filepath.Base(file), ".ndjson")
		h.run("", "thread", "import", id, file)
		out := filepath.Join(dir, id+".html")
		h.run("", "thread", "export", "--html", "--out", out, id)
		f := browser.Open(t, "file://"+out)
		f.Go("file://" + out)
		f.Wait("document.readyState === 'complete'")
		b.Go(h.url() + "/t/" + id)
		b.Wait("document.readyState === 'complete'")
		if browser.Eval[bool](b, "!!document.querySelector('.older')") {
			continue // the page has a part of it
		}
		for _, what := range []string{items, texts, "document.querySelector('h1').textContent"} {
			got, want := browser.Eval[string](f, what), browser.Eval[string](b, what)
			if got != want {
				t.Errorf("%s: %s: %.500s\nwant %.500s", id, what, got, want)
			}
		}
	}
	h.post("shown", fmt.Sprintf(`{"id":"pi:s:1","ts":"2026-01-01T00:00:00.000Z","payload":{"type":"pi.assistant","message":`+
		`{"role":"assistant","content":[{"type":"thinking","thinking":"a thought"},{"type":"text","text":"an answer"},`+
		`{"type":"image","data":%q,"mimeType":"image/png"}]}}}`, hostile.PNG))
	out := filepath.Join(dir, "shown.html")
	h.run("", "thread", "export", "--html", "--out", out, "shown")
	f := browser.Open(t, "file://"+out)
	f.Go("file://" + out + "#i-pi:s:1/1")
	f.Wait("document.querySelector('img').naturalWidth === 1")
	f.Wait("document.querySelector(':target').innerText.includes('an answer')")
	f.Wait("getComputedStyle(document.body).maxWidth === '864px'") // its style is let through
	f.Click("#items .thinking summary")
	f.Wait(shows(".thinking .text", "a thought"))
	f.Click("#thinking")
	f.Wait("!document.querySelector('.thinking').getClientRects().length")
	light := browser.Eval[string](f, "getComputedStyle(document.body).backgroundColor")
	f.Dark()
	f.Wait("getComputedStyle(document.body).backgroundColor !== '" + light + "'")
	f.Size(1000, 700, false)
	shot(t, f, "file-dark")
}

// The session of each recorded thread is a file to download, and the command line beside it makes the same one.
func TestFullPageSession(t *testing.T) { engines(t, sessionFiles) }

func sessionFiles(t *testing.T, h *host) {
	b := h.login(t)
	files, err := filepath.Glob("../../../testdata/threads/*.ndjson")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d threads, %v", len(files), err)
	}
	sessions := 0
	for _, file := range files {
		id := strings.TrimSuffix(filepath.Base(file), ".ndjson")
		h.run("", "thread", "import", id, file)
		b.Go(h.url() + "/t/" + id)
		b.Wait("document.querySelector('.hand')")
		if !browser.Eval[bool](b, "!!document.querySelector('.hand a')") {
			continue
		}
		b.Run("window.got = null; fetch(document.querySelector('.hand a').href).then(async (r) => {" +
			"window.status = r.status + ' ' + r.headers.get('content-disposition'); window.got = await r.text(); })")
		b.Wait("window.got")
		if status := browser.Eval[string](b, "window.status"); strings.HasPrefix(status, "404") {
			continue
		} else if status != fmt.Sprintf("200 attachment; filename=%q", id+".jsonl") {
			t.Errorf("%s: %s", id, status)
		}
		sessions++
		line := browser.Eval[string](b, "[...document.querySelectorAll('.hand pre')].at(-1).textContent")
		cmd := h.command()
		cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", line}
		cmd.Dir = t.TempDir()
		cmd.Env = append(cmd.Env, "PATH="+filepath.Dir(arbe)+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %s: %v\n%s", id, line, err, out)
			continue
		}
		want, err := os.ReadFile(filepath.Join(cmd.Dir, "session.jsonl"))
		got, made := browser.Eval[string](b, "window.got"), string(want)
		if id == "launch_failed" || id == "resumed" { // no agent started: the header is of a new session, made now
			_, got, _ = strings.Cut(got, "\n")
			_, made, _ = strings.Cut(made, "\n")
		}
		if err != nil || got != made || got == "" {
			t.Errorf("%s: %v, the download is\n%.500s\nwant\n%.500s", id, err, got, made)
		}
	}
	if sessions < 3 {
		t.Errorf("%d sessions", sessions)
	}
	link := h.run("", "share", "pushed")
	other := browser.Open(t, h.url())
	other.Go(link)
	other.Wait("location.pathname === '/t/pushed'")
	other.Go(h.url() + "/t/pushed/session")
	other.Wait(shows("#status", "You are not logged in."))
}
