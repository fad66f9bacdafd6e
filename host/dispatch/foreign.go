package dispatch

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// What others have written reaches a model beside what this host writes: the heads of messages, in brackets, and the
// block of a tool's result. These are the marks of both, as a model might read them in a text, whatever their case and
// with characters that nobody sees.
var (
	heads = regexp.MustCompile(`(?i)(^|[\n\r\v\f\x{85}\x{2028}\x{2029}])([\s\p{Z}\p{Cf}]*)\[([\s\p{Z}\p{Cf}]*` +
		`(?:chat from|reply from|task on|command by|run of|answer this|[0-9]+ entries))`)
	blocks = regexp.MustCompile(`(?i)<([\s\p{Z}\p{Cf}]*/?[\s\p{Z}\p{Cf}]*tool_output)`)
)

// foreign returns a text of others in which no line begins as a head, and no block begins or ends.
func foreign(text string) string {
	text = heads.ReplaceAllString(text, `$1$2\[$3`)
	return blocks.ReplaceAllString(text, `<\$1`)
}

// data returns the result of a tool in a form that has it end where it ends, whatever it has in it.
func data(tool, text string) string {
	return fmt.Sprintf("<tool_output name=%q>\n%s\n</tool_output>", tool, foreign(text))
}

// label returns a name for a head, or for a line of the instructions, which it does not end.
func label(name string) string {
	return strings.Join(strings.FieldsFunc(name, func(r rune) bool {
		return strings.ContainsRune("[]()", r) || unicode.IsSpace(r) || unicode.Is(unicode.Cc, r) ||
			unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
	}), " ")
}
