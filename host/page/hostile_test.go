package page

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/internal/test/hostile"
	"arbe.0sk.ar/runner/thread"
)

// What may stand in an item, beside text.
var (
	itemElements = strings.Fields("article h1 h2 h3 h4 h5 h6 a time div p span em strong del ins code pre b hr br " +
		"blockquote ul ol li table thead tbody tr th td details summary figure figcaption img")
	itemAttributes = map[string]*regexp.Regexp{
		"id":            regexp.MustCompile(`^[ia]-[A-Za-z0-9._:~/-]+$`),
		"data-sub":      regexp.MustCompile(``),
		"data-reaction": regexp.MustCompile(`^x_[a-z0-9]+$`),
		"class":         regexp.MustCompile(`^[a-z0-9 _-]*$`),
		"datetime":      regexp.MustCompile(`^[0-9T:.Z-]*$`),
		"rel":           regexp.MustCompile(`^noopener noreferrer$`),
		"align":         regexp.MustCompile(`^(left|center|right)$`),
		"start":         regexp.MustCompile(`^[0-9]+$`),
		"tabindex":      regexp.MustCompile(`^0$`),
		"role":          regexp.MustCompile(`^img$`),
		"data-n":        regexp.MustCompile(`^[0-9]+$`),
		"data-child":    regexp.MustCompile(`^[A-Za-z0-9_-]+$`),
		"data-ended":    regexp.MustCompile(`^[0-9]*$`),
		"data-silent":   regexp.MustCompile(`^[0-9]+$`),
		"data-dead":     regexp.MustCompile(`^[0-9]+$`),
		"loading":       regexp.MustCompile(`^lazy$`),
		"alt":           regexp.MustCompile(`^an image$`),
		"open":          regexp.MustCompile(`^$`),
		"title":         regexp.MustCompile(`^(Link to this entry|The entry as it is on the thread|[0-9: -]+ UTC)$`),
		"href": regexp.MustCompile(
			`^(https?://|mailto:|#i-[A-Za-z0-9._:~/%-]+$|/t/t1/(raw|image)/[A-Za-z0-9._:~/%-]+$|/t/[A-Za-z0-9_-]+$)`,
		),
		"aria-hidden": regexp.MustCompile(`^true$`),
		"aria-label":  regexp.MustCompile(`^(done|to do)$`),
		"data-result": regexp.MustCompile(`^i-[A-Za-z0-9._:~-]+$`),
		"data-chats":  regexp.MustCompile(``), // ids
		"hidden":      regexp.MustCompile(`^$`),
		"src": regexp.MustCompile(
			`^(/t/t1/image/[A-Za-z0-9._:~/%-]+$|data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$)`,
		),
	}
	// What stands around the items has these, too.
	frameElements = strings.Fields("html head meta title link script style body header main section form label " +
		"textarea select option button template dl dt dd noscript nav mark output kbd input footer fieldset legend")
	frameAttributes = map[string]*regexp.Regexp{
		"src":        regexp.MustCompile(`^/assets/[0-9a-f]+/(page\.js|icon\.svg)$`),
		"alt":        regexp.MustCompile(`^$`),
		"role":       regexp.MustCompile(`^(search|status|feed)$`),
		"aria-label": regexp.MustCompile(`^[A-Z][a-z ]+$`),
		"tabindex":   regexp.MustCompile(`^-?[01]$`),
		"form":       regexp.MustCompile(`^cancel$`),
		"href": regexp.MustCompile(
			`^(/|https://[a-z].*|/t/[A-Za-z0-9_-]+|/t/t1/[a-z]+(\?[a-z0-9=&]*)?|/t/t1/find\?q=[A-Za-z0-9%._~-]*&before=[0-9]+|` +
				`/t/t1\?at=[A-Za-z0-9._~%-]+&q=[A-Za-z0-9%._~-]*#i-[A-Za-z0-9._:~/%-]+|/assets/[0-9a-f]+/[a-z.]+|data:,|/\?cursor=[a-z]+)$`,
		),
		"action":     regexp.MustCompile(`^(/|/logout|/t/t1/[a-z]+)$`),
		"method":     regexp.MustCompile(`^post$`),
		"data-post":  regexp.MustCompile(`^/t/t1/[a-z]+$`),
		"rel":        regexp.MustCompile(`^(icon|stylesheet|noopener noreferrer)$`),
		"type":       regexp.MustCompile(`^(image/svg\+xml|checkbox|radio|search|hidden)$`),
		"id":         regexp.MustCompile(`^([a-z]+|t-[A-Za-z0-9_-]+)$`),
		"http-equiv": regexp.MustCompile(`^Content-Security-Policy$`),
		"name":       regexp.MustCompile(`^(viewport|color-scheme|referrer|generator|q|state|harness|text|deliver|reason|reaction|hours)$`),
	}
	frameFree = regexp.MustCompile(
		`^(data-[a-z]+|aria-[a-z]+|class|role|lang|charset|content|defer|hidden|rows|required|` +
			`value|maxlength|placeholder|selected|checked|open)$`,
	)
)

// checkHTML reports what a document has that it must not have, and returns its text.
func checkHTML(t *testing.T, what, text string) string {
	t.Helper()
	doc, err := html.Parse(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	var shown strings.Builder
	ids := map[string]bool{}
	var visit func(n *html.Node, inItem bool)
	visit = func(n *html.Node, inItem bool) {
		switch n.Type {
		case html.TextNode:
			shown.WriteString(n.Data)
			if i := strings.IndexFunc(n.Data, bad); i >= 0 {
				t.Errorf("%s: a character that nobody sees in %.80q", what, n.Data[i:])
			}
		case html.CommentNode:
			t.Errorf("%s: a comment %.80q", what, n.Data)
		case html.ElementNode:
			for _, a := range n.Attr {
				inItem = inItem || n.Data == "article" && a.Key == "id"
			}
			known := slices.Contains(itemElements, n.Data) || !inItem && slices.Contains(frameElements, n.Data)
			if n.Namespace != "" || !known {
				t.Errorf("%s: an element %s", what, n.Data)
			}
			for _, a := range n.Attr {
				checkAttribute(t, what, n.Data, a, inItem)
				if a.Key == "id" {
					if ids[a.Val] {
						t.Errorf("%s: the id %s twice", what, a.Val)
					}
					ids[a.Val] = true
				}
			}
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			visit(c, inItem)
		}
	}
	visit(doc, false)
	return shown.String()
}

// bad reports whether a character of a text should have been made visible.
func bad(r rune) bool { return r != '\r' && view.Visible(string(r)) != string(r) }

func checkAttribute(t *testing.T, what, element string, a html.Attribute, inItem bool) {
	t.Helper()
	allowed := itemAttributes[a.Key]
	if of := frameAttributes[a.Key]; of != nil && !inItem {
		allowed = of
	}
	switch {
	case allowed == nil && !inItem && frameFree.MatchString(a.Key):
	case allowed == nil || a.Namespace != "" || !allowed.MatchString(a.Val):
		t.Errorf("%s: <%s %s=%.120q>", what, element, a.Key, a.Val)
	}
}

// hostileSummary returns a thread's summary with a text in every field.
func hostileSummary(text string) thread.Summary {
	cost := 1.5
	return thread.Summary{
		ID: "t1", Title: text, Status: "failed", ErrorClass: text, Harness: text, Model: text, Run: text, Cost: &cost,
		Sandbox: &thread.Sandbox{Provider: text, Ref: text}, Parent: &thread.Parent{ThreadID: text}, Offset: text,
		StartedAt: text, LastEntryAt: text, EndedAt: text,
	}
}

// pieceOf returns the items of entries as the page renders them.
func pieceOf(entries []thread.Entry) piece {
	var b view.Builder
	var list view.List
	for _, e := range entries {
		for _, c := range b.Add(e) {
			list.Change(c)
		}
	}
	return piece{
		Groups: grouped(list.Items, "t1", beside{}), Before: 1, After: 2, Thread: "t1",
		Coming: answers(b.Answering(), nil),
	}
}

func execute(t *testing.T, name string, data any) string {
	t.Helper()
	var b strings.Builder
	if err := templates.ExecuteTemplate(&b, name, data); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Whatever stands in a field that an agent, a tool or another writer can choose, the page and an exported file have it
// as text: their elements, attributes and addresses are their own, and those that markdown allows.
func TestLargeHostile(t *testing.T) {
	for n, text := range hostile.Texts {
		entries := hostile.Entries("r1", n, text)
		for _, e := range entries {
			if err := e.Check(); err != nil {
				t.Fatalf("%.60q: %v", text, err)
			}
		}
		name := fmt.Sprintf("text %d, %.60q", n, text)
		v := hostileSummary(text)
		r := newRow(v, at)
		for _, readOnly := range []bool{false, true} {
			shown := checkHTML(t, name+" on its page", execute(t, "thread", threadPage{
				newFrame(r.State + " · " + r.Name()), &head{newRow(v, at), text, webAddress(text)}, readOnly, false,
				false, "http://localhost", 2, pieceOf(entries), nil,
				[]string{text},
			}))
			// A text without markdown and without escape sequences stands there as it is, in a field without markdown.
			if want := view.Visible(text); !strings.Contains(plain(shown), plain("stderr: "+want+" end")) {
				t.Errorf("%s: not on its page", name)
			}
		}
		for _, query := range []string{"x", text} {
			all := found{Thread: "t1", Query: query, Before: 1}
			for _, e := range entries {
				for _, i := range view.Items(e, nil) {
					if h, ok := hitOf(i, "t1", text); ok {
						all.Hits = append(all.Hits, h)
					}
				}
			}
			if len(all.Hits) == 0 && text != "" {
				t.Errorf("%s: not found", name)
			}
			checkHTML(t, name+" found", execute(t, "found", all))
		}
		checkHTML(t, name+" in the list", execute(t, "list", listPage{
			newFrame(tabTitle([]*row{r})), filter{Text: text}, states, nil, part{Sections: sections([]*row{r}, at)},
		}))
		checkHTML(t, name+" as a problem", execute(t, "problem", problemPage{newFrame(text), text, true, text}))

		var file strings.Builder
		x, err := NewExport(&file, v, nil, at)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if err := x.Add(e); err != nil {
				t.Fatal(err)
			}
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
		shown := checkHTML(t, name+" in a file", file.String())
		if want := view.Visible(text); !strings.Contains(plain(shown), plain("stderr: "+want+" end")) {
			t.Errorf("%s: not in the file", name)
		}
		if t.Failed() {
			return
		}
	}
}

// plain returns a text without the characters that a parser of HTML changes.
func plain(text string) string { return strings.Join(strings.Fields(text), " ") }

// The images of an exported file are in it, and only those of the checked types. Nothing else in it is an address that
// a browser loads, and its policy allows its own style alone.
func TestExportImages(t *testing.T) {
	var file bytes.Buffer
	x, err := NewExport(&file, thread.Summary{ID: "t1"}, nil, at)
	if err != nil {
		t.Fatal(err)
	}
	for n, data := range hostile.Images {
		e := thread.Entry{
			ID: fmt.Sprint("pi:s:", n), TS: thread.Stamp(at),
			Payload: fmt.Appendf(
				nil,
				`{"type":"pi.tool_result","toolCallId":"c","message":{"role":"toolResult","content":`+
					`[{"type":"image","mimeType":"image/png","data":%s}]}}`,
				thread.Marshal(data),
			),
		}
		if err := x.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	text := file.String()
	checkHTML(t, "images", text)
	if n := strings.Count(text, "<img "); n != hostile.Shown {
		t.Errorf("%d images are shown, want %d", n, hostile.Shown)
	}
	if n := strings.Count(text, "is not in this file"); n != len(hostile.Images)-hostile.Shown {
		t.Errorf("%d images are left out, want %d", n, len(hostile.Images)-hostile.Shown)
	}
	style := regexp.MustCompile(`(?s)<style>(.*)</style>`).FindStringSubmatch(text)[1]
	sum := sha256.Sum256([]byte(style))
	policy := html.UnescapeString(
		regexp.MustCompile(`Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(text)[1],
	)
	want := "style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	if !strings.Contains(policy, want) || !strings.HasPrefix(policy, "default-src 'none'; ") ||
		strings.Contains(policy, "script-src") {
		t.Errorf("policy %q, want %s", policy, want)
	}
	if i, j := strings.Index(text, "Content-Security-Policy"), strings.Index(text, "<style>"); i > j {
		t.Error("the policy stands behind the style")
	}
}

// An export has what the page has, each item once: results in their calls while they come soon, and on their own after
// that. Its memory does not grow with the thread.
func TestExportLong(t *testing.T) {
	const n = 4 * exportItems
	call := func(i int) thread.Entry {
		return thread.Entry{ID: fmt.Sprint("pi:s:c", i), TS: thread.Stamp(at), Payload: fmt.Appendf(
			nil,
			`{"type":"pi.assistant","message":{"role":"assistant","content":[{"type":"toolCall","id":"c%d","name":"bash",`+
				`"arguments":{"command":"echo %d"}}]}}`,
			i,
			i,
		)}
	}
	result := func(i int) thread.Entry {
		return thread.Entry{ID: fmt.Sprint("pi:s:r", i), TS: thread.Stamp(at), Payload: fmt.Appendf(nil,
			`{"type":"pi.tool_result","toolCallId":"c%d","toolName":"bash","message":{"role":"toolResult","content":`+
				`[{"type":"text","text":"output %d."}]}}`, i, i)}
	}
	var file bytes.Buffer
	x, err := NewExport(&file, thread.Summary{ID: "t1"}, nil, at)
	if err != nil {
		t.Fatal(err)
	}
	most := 0
	add := func(e thread.Entry) {
		if err := x.Add(e); err != nil {
			t.Fatal(err)
		}
		most = max(most, len(x.list.Items), len(x.sizes), len(x.has))
	}
	add(call(n))
	for i := range n {
		add(call(i))
		if i > 0 {
			add(result(i - 1))
		}
	}
	add(result(n)) // of a call long ago
	if most > 3*exportItems {
		t.Errorf("%d entries are kept", most)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	text := checkHTML(t, "a long thread", file.String())
	times := map[string]int{}
	for _, found := range regexp.MustCompile(`output \d+\.`).FindAllString(text, -1) {
		times[found]++
	}
	for i := range n - 1 {
		if c := times[fmt.Sprintf("output %d.", i)]; c != 1 {
			t.Fatalf("the result %d is there %d times", i, c)
		}
	}
	if got := strings.Count(file.String(), "<article id="); got != n+2 {
		t.Errorf("%d items, want %d calls and a result of its own", got, n+2)
	}
}

// failing is a writer that fails.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// An export reports that it can't be written.
func TestExportWriteFails(t *testing.T) {
	if _, err := NewExport(failing{}, thread.Summary{ID: "t1"}, nil, at); err == nil {
		t.Error("no error")
	}
}
