package markup

import (
	"html/template"
	"regexp"
	"strings"

	"arbe.0sk.ar/runner/host/view"
)

// address matches an address on the web, and what may stand behind it in a sentence.
var address = regexp.MustCompile(`\bhttps?://[\pL\pN\[][^\s<>"'` + "`" + `]*`)

// Written renders a text as a person has written it: with its spaces, lines and marks, which mean nothing here. The
// style of what is around it keeps them. Addresses on the web are links.
func Written(text string) template.HTML {
	text = view.Visible(text)
	var b strings.Builder
	at := 0
	for _, found := range address.FindAllStringIndex(text, -1) {
		from, to := found[0], found[0]+len(addressIn(text[found[0]:found[1]]))
		template.HTMLEscape(&b, []byte(text[at:from]))
		one := template.HTMLEscapeString(text[from:to])
		b.WriteString(`<a rel="noopener noreferrer" href="` + one + `">` + one + `</a>`)
		at = to
	}
	template.HTMLEscape(&b, []byte(text[at:]))
	return template.HTML(b.String())
}

// addressIn returns an address without the marks of the sentence around it: a full stop, or a bracket that does not
// begin in it.
func addressIn(found string) string {
	for {
		last := found[len(found)-1]
		switch {
		case strings.ContainsRune(".,;:!?*_", rune(last)):
		case last == ')' && strings.Count(found, "(") < strings.Count(found, ")"):
		case last == ']' && strings.Count(found, "[") < strings.Count(found, "]"):
		case last == '}' && strings.Count(found, "{") < strings.Count(found, "}"):
		default:
			return found
		}
		found = found[:len(found)-1]
	}
}
