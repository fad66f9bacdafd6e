package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/browser"
)

// The browser reports what the tests of the page rely on it to report.
func TestFullBrowserReports(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer elsewhere.Close()
	pages := map[string]string{
		"/fine":      "<title>fine</title>",
		"/script":    "<title>script</title><script>document.title = 'ran'</script>",
		"/exception": `<title>exception</title><script src="/throws.js"></script>`,
		"/image":     fmt.Sprintf(`<title>image</title><img src="%s/secret.png">`, elsewhere.URL),
		"/throws.js": "throw new Error('thrown')",
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'self'")
		if strings.HasSuffix(r.URL.Path, ".js") {
			w.Header().Set("Content-Type", "text/javascript")
		} else {
			w.Header().Set("Content-Type", "text/html")
		}
		fmt.Fprint(w, pages[r.URL.Path])
	}))
	defer srv.Close()
	b := browser.Open(t, srv.URL)
	for path, want := range map[string]string{
		"/fine": "", "/script": "CSP violation", "/exception": "thrown", "/image": "CSP violation",
	} {
		b.Go(srv.URL + path)
		b.Wait("document.readyState === 'complete'")
		if want == "" {
			if got := b.Problems(); len(got) > 0 {
				t.Errorf("%s: %q", path, got)
			}
			continue
		}
		b.Await(want)
		b.Problems()
		if got := browser.Eval[string](b, "document.title"); got != path[1:] {
			t.Errorf("%s has the title %q", path, got)
		}
	}
}
