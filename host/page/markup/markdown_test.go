package markup

import (
	"strings"
	"testing"
)

func TestMarkdown(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"a *b*", "<p>a <em>b</em></p>"},
		{"<b>x</b>", "<p>&lt;b&gt;x&lt;/b&gt;</p>"},
		{"<file name=\"a\">\nx\n</file>", "<p class=\"html\">&lt;file name=&#34;a&#34;&gt;\nx\n&lt;/file&gt;</p>"},
		{"[x](https://a.example/?a=1&b=2)", `<p><a rel="noopener noreferrer" href="https://a.example/?a=1&amp;b=2">x</a></p>`},
		{"[x](javascript:alert(1))", `<p><span class="address">x (javascript:alert(1))</span></p>`},
		{"[x](./a.go)", `<p><span class="address">x (./a.go)</span></p>`},
		{"https://a.example", `<p><a rel="noopener noreferrer" href="https://a.example">https://a.example</a></p>`},
		{"![x](https://a.example/i.png)", `<p>image: <a rel="noopener noreferrer" href="https://a.example/i.png">x</a></p>`},
		{"![x](//a.example/i.png)", `<p>image: <span class="address">x (//a.example/i.png)</span></p>`},
		{
			"- [x] a\n- [ ] b", `<ul>
<li><span role="img" aria-label="done">☑</span> a</li>
<li><span role="img" aria-label="to do">☐</span> b</li>
</ul>`,
		},
		{"# a", "<h3>a</h3>"},
		{"###### a", "<h6>a</h6>"},
		{"```go\n<b>\n```", `<pre tabindex="0"><code>&lt;b&gt;` + "\n</code></pre>"},
		{"a\u202eb", "<p>a‹U+202E›b</p>"},
		{"    indented\n      code", "<pre tabindex=\"0\"><code>indented\n  code\n</code></pre>"},
	} {
		if got := strings.TrimSpace(string(Markdown(tt.text))); got != tt.want {
			t.Errorf("%q: %s, want %s", tt.text, got, tt.want)
		}
	}
	long := strings.Repeat("<", mostMarkdown+1)
	if got := string(Markdown(long)); !strings.HasPrefix(got, `<pre tabindex="0">&lt;&lt;`) || strings.Contains(got, "<<") {
		t.Errorf("a long text: %.50s", got)
	}
}

// The colours of an output are classes, and everything else is text.
func TestOutput(t *testing.T) {
	got := string(Output("\x1b[1;31m<b>\x1b[0m\x1b]8;;javascript:alert(1)\x07x\n\x1b[48;5;200my"))
	if want := "<span class=\"b f1\">&lt;b&gt;</span>x\ny\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
