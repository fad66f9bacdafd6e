package page_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/internal/test/browser"
	"arbe.0sk.ar/runner/thread"
)

// BenchmarkPage measures what a reader waits for: the end of a thread of 100,000 entries on screen, a piece of older
// ones, a live one, and the list of 10,000 threads. Each is the mean of b.N. It also measures what the tab holds at the
// thread's end, and when 1,000 entries for each of b.N have come.
func BenchmarkPage(b *testing.B) {
	h := newHost(b)
	const entries, threads = 100_000, 10_000
	file := filepath.Join(b.TempDir(), "long.ndjson")
	var lines strings.Builder
	for i := range entries {
		lines.WriteString(chat(fmt.Sprint("c", i), fmt.Sprintf("chat %d with *markdown*:\n\n- one\n- two\n", i)) + "\n")
	}
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	h.run("", "thread", "import", "long", file)
	secret := h.secret()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := i; n < threads; n += 8 {
				h.append(secret, fmt.Sprint("t", n), chat("a", fmt.Sprint("thread number ", n)))
			}
		})
	}
	all.Wait()
	tab := h.login(b)
	// ready is how long a page took from the click to its end on screen, in milliseconds.
	const ready = "Math.max(performance.getEntriesByType('navigation')[0].domComplete, " +
		"performance.getEntriesByType('paint').at(-1)?.startTime || 0)"
	b.Run("tail", func(b *testing.B) {
		var sum float64
		for range b.N {
			tab.Go(h.url() + "/t/long")
			tab.Wait("document.getElementById('i-c99999')")
			tab.Wait("performance.getEntriesByType('paint').length")
			sum += browser.Eval[float64](tab, ready)
		}
		b.ReportMetric(sum/float64(b.N), "ms/tail")
		const answered = "performance.getEntriesByType('navigation')[0].responseEnd"
		b.ReportMetric(browser.Eval[float64](tab, answered), "ms/server")
	})
	b.Run("older", func(b *testing.B) {
		var sum float64
		for range b.N {
			const id = "document.querySelector('#items article').id"
			first := browser.Eval[string](tab, id)
			tab.Run("window.began = performance.now(); new MutationObserver((_, o) => requestAnimationFrame(() => {" +
				"window.took = performance.now() - window.began; o.disconnect(); }))" +
				".observe(document.getElementById('items'), {childList: true}); window.took = 0; scrollTo(0, 0)")
			tab.Wait("window.took && " + id + " !== '" + first + "'")
			sum += browser.Eval[float64](tab, "window.took")
		}
		b.ReportMetric(sum/float64(b.N), "ms/older")
	})
	b.Run("live", func(b *testing.B) {
		tab.Go(h.url() + "/t/long")
		tab.Wait("document.getElementById('i-c99999')")
		var sum float64
		for range b.N {
			id := fmt.Sprint("live", time.Now().UnixNano())
			tab.Run("window.shown = 0;" +
				"new MutationObserver((_, o) => { if (document.getElementById('i-" + id + "')) {" +
				"window.shown = Date.now(); o.disconnect(); } })" +
				".observe(document.getElementById('items'), {childList: true, subtree: true})")
			h.append(secret, "long", chat(id, "a live entry"))
			acknowledged := float64(time.Now().UnixMicro()) / 1000
			tab.Wait("window.shown")
			sum += browser.Eval[float64](tab, "window.shown") - acknowledged
		}
		b.ReportMetric(sum/float64(b.N), "ms/live")
	})
	b.Run("memory", func(b *testing.B) {
		tab.Go(h.url() + "/t/long")
		tab.Wait("document.querySelectorAll('#items .chat').length >= 200")
		nodes, memory := tab.Memory()
		b.ReportMetric(float64(nodes), "nodes/first")
		b.ReportMetric(memory/1e6, "MB/first")
		for from := 0; from < 1000*b.N; from += 500 {
			var some []string
			last := ""
			for i := range 500 {
				last = fmt.Sprint("more", b.N, "-", from+i)
				some = append(some, chat(last, fmt.Sprintf("chat %d with *markdown*:\n\n- one\n- two\n", from+i)))
			}
			h.append(secret, "long", "["+strings.Join(some, ",")+"]")
			tab.Wait("document.getElementById('i-" + last + "')")
		}
		nodes, memory = tab.Memory()
		b.ReportMetric(float64(nodes), "nodes/last")
		b.ReportMetric(memory/1e6, "MB/last")
		b.ReportMetric(0, "ns/op")
	})
	b.Run("list", func(b *testing.B) {
		var sum float64
		for range b.N {
			tab.Go(h.url() + "/")
			tab.Wait("performance.getEntriesByType('paint').length")
			sum += browser.Eval[float64](tab, ready)
		}
		b.ReportMetric(sum/float64(b.N), "ms/list")
	})
}

// secret returns the server's secret.
func (h *host) secret() []byte {
	h.t.Helper()
	secret, err := os.ReadFile(filepath.Join(h.data, "arbe", "secret"))
	if err != nil {
		h.t.Fatal(err)
	}
	return bytes.TrimSpace(secret)
}

// append posts an entry, or an array of them, without a process.
func (h *host) append(secret []byte, id, entry string) {
	signed, err := token.Sign(secret, token.Grant{
		Stream: thread.StreamName(id), Scope: []string{token.ScopeWrite}, Until: time.Now().Add(time.Minute),
	})
	if err != nil {
		h.t.Error(err)
		return
	}
	req, err := http.NewRequest("POST", h.url()+"/api/stream/"+thread.StreamName(id), strings.NewReader(entry))
	if err != nil {
		h.t.Error(err)
		return
	}
	req.Header.Set("Authorization", "Bearer "+signed)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		h.t.Error(err)
		return
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		h.t.Errorf("%s, %v", resp.Status, err)
	}
}
