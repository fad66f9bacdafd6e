package markup

import (
	"strings"
	"testing"
)

// What a person wrote stands as it was written; addresses on the web are links.
func TestWritten(t *testing.T) {
	link := func(address string) string {
		return `<a rel="noopener noreferrer" href="` + address + `">` + address + `</a>`
	}
	for _, tt := range []struct{ text, want string }{
		{"# x\n\n  - a\n\tb  c\n", "# x\n\n  - a\n\tb  c\n"},
		{"**a** `b` <b>c</b> &amp;", "**a** `b` &lt;b&gt;c&lt;/b&gt; &amp;amp;"},
		{"see https://a.example/b?c=1&d=2#e.", "see " + link("https://a.example/b?c=1&amp;d=2#e") + "."},
		{"(http://a.example/b_(c))", "(" + link("http://a.example/b_(c)") + ")"},
		{"[x](https://a.example)", "[x](" + link("https://a.example") + ")"},
		{"https://a.example/\"onmouseover=\"alert(1)", link("https://a.example/") + "&#34;onmouseover=&#34;alert(1)"},
		{"javascript:alert(1) data:text/html,x", "javascript:alert(1) data:text/html,x"},
		{"xhttps://a.example", "xhttps://a.example"},
		{"https://", "https://"},
		{"https://...", "https://..."},
		{"a\u202eb\x1b", "a‹U+202E›b·"},
	} {
		if got := string(Written(tt.text)); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.text, got, tt.want)
		}
	}
	if got := string(Written(strings.Repeat("<", 1<<20))); strings.Contains(got, "<") {
		t.Error("a long text is not escaped")
	}
}
