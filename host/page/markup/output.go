package markup

import (
	"fmt"
	"html/template"
	"strings"

	"arbe.0sk.ar/runner/host/view"
)

// Output renders a tool's output: colours as classes, everything else as text.
func Output(text string) template.HTML {
	var b strings.Builder
	for line := range view.Lines(text) {
		for _, s := range line {
			class := classes(s.Style)
			if class != "" {
				b.WriteString(`<span class="` + class + `">`)
			}
			template.HTMLEscape(&b, []byte(s.Text))
			if class != "" {
				b.WriteString("</span>")
			}
		}
		b.WriteByte('\n')
	}
	return template.HTML(b.String())
}

// classes returns the classes of a style. Colours beyond the 16 of a terminal are left out.
func classes(s view.Style) string {
	var all []string
	for _, c := range []struct {
		is   bool
		name string
	}{
		{s.Bold, "b"}, {s.Dim, "d"}, {s.Italic, "i"}, {s.Underline, "u"}, {s.Inverse, "v"}, {s.Strike, "k"},
	} {
		if c.is {
			all = append(all, c.name)
		}
	}
	if n, ok := s.Text.Palette(); ok && n < 16 {
		all = append(all, fmt.Sprint("f", n))
	}
	if n, ok := s.Back.Palette(); ok && n < 16 {
		all = append(all, fmt.Sprint("g", n))
	}
	return strings.Join(all, " ")
}
