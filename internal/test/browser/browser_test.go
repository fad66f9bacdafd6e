package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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

// It does so for a file with a policy of its own, too. There a dialog and a request are kept from a page by that alone.
func TestFullBrowserReportsFile(t *testing.T) {
	const policy = `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:">`
	for _, tt := range []struct{ name, text, want string }{
		{"fine", `<title>fine</title><img src="data:image/gif;base64,R0lGODlhAQABAAAAACw=">`, ""},
		{"script", "<title>script</title><script>alert(1)</script>", "CSP violation"},
		{"handler", `<title>handler</title><img src=data:x onerror="alert(1)">`, "CSP violation"},
		{"style", `<title>style</title><p style="color:red">`, "CSP violation"},
		{"image", `<title>image</title><img src="https://evil.invalid/secret.png">`, "CSP violation"},
	} {
		file := filepath.Join(t.TempDir(), tt.name+".html")
		if err := os.WriteFile(file, []byte("<!doctype html>"+policy+tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		b := browser.Open(t, "file://"+file)
		b.Go("file://" + file)
		b.Wait("document.readyState === 'complete'")
		if tt.want != "" {
			b.Await(tt.want)
		}
		if got := b.Problems(); tt.want == "" && len(got) > 0 {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
}

// An audit finds what it is for.
func TestFullBrowserAudit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.html")
	const text = `<!doctype html><html lang="en"><title>t</title><p style="color:#999;background:#fff">pale</p>` +
		`<img src="data:image/gif;base64,R0lGODlhAQABAAAAACw="><input>`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b := browser.Open(t, "file://"+file)
	b.Go("file://" + file)
	all := strings.Join(b.Audit(), "\n")
	for _, rule := range []string{"color-contrast", "image-alt", "label"} {
		if !strings.Contains(all, rule+": ") {
			t.Errorf("%s is not in %s", rule, all)
		}
	}
}
