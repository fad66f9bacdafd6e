package dispatch

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"
)

// mostText bounds the text that is read as markdown for mentions, in bytes; behind it nobody is named.
const mostText = 128 << 10

// named returns the ids of the bots that a trigger names.
func (t Trigger) named(bots []Bot) []string {
	ids := Mentions(t.Text, bots)
	for _, b := range bots {
		if slices.Contains(t.Mentions, b.ID) && !slices.Contains(ids, b.ID) {
			ids = append(ids, b.ID)
		}
	}
	return ids
}

// Mentions returns the ids of the bots that a text names: @Name, @"Two Words", or @ and the first 8 characters of the
// id. Case does not count, of several names the longest counts, and what is in code or in a quote names nobody. A name
// that two bots have names none of them.
func Mentions(source string, bots []Bot) (ids []string) {
	if len(source) > mostText {
		source = source[:mostText]
	}
	if !strings.Contains(source, "@") {
		return nil
	}
	called := map[string][]string{} // ids by what a bot is called
	for _, b := range bots {
		name := strings.ToLower(b.Name)
		called[name] = append(called[name], b.ID)
		if len(b.ID) >= 8 {
			called[b.ID[:8]] = append(called[b.ID[:8]], b.ID)
		}
	}
	names := slices.SortedFunc(maps.Keys(called), func(a, b string) int {
		return cmp.Or(len(b)-len(a), strings.Compare(a, b))
	})
	for _, words := range prose(source) {
		words = strings.ToLower(words)
		for i := 0; i < len(words); i++ {
			if words[i] != '@' || wordEnds(words[:i]) {
				continue
			}
			for _, name := range names {
				if name == "" || !begins(words[i+1:], name) {
					continue
				}
				if who := called[name]; len(who) == 1 && !slices.Contains(ids, who[0]) {
					ids = append(ids, who[0])
				}
				break
			}
		}
	}
	return ids
}

// begins reports whether a text begins with a name as a whole word, or with the name in quotes.
func begins(text, name string) bool {
	if strings.HasPrefix(text, `"`+name+`"`) {
		return true
	}
	rest, ok := strings.CutPrefix(text, name)
	r, _ := utf8.DecodeRuneInString(rest)
	return ok && (rest == "" || !isWord(r))
}

// wordEnds reports whether a text ends within a word, as the text before the @ of an address of mail does.
func wordEnds(text string) bool {
	r, _ := utf8.DecodeLastRuneInString(text)
	return text != "" && (isWord(r) || r == '@')
}

func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' }

// prose returns the text of each block of a markdown document, but code and quotes.
func prose(source string) (blocks []string) {
	src := []byte(source)
	doc := goldmark.DefaultParser().Parse(text.NewReader(src))
	var b strings.Builder
	// The walker returns no error.
	_ = ast.Walk(doc, func(n ast.Node, enter bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Blockquote, *ast.CodeBlock, *ast.FencedCodeBlock:
			return ast.WalkSkipChildren, nil
		case *ast.CodeSpan:
			if enter {
				b.WriteByte(' ')
			}
			return ast.WalkSkipChildren, nil
		case *ast.Text:
			if enter {
				b.Write(n.Segment.Value(src))
				if n.SoftLineBreak() || n.HardLineBreak() {
					b.WriteByte('\n')
				}
			}
		default:
			if !enter && n.Type() == ast.TypeBlock && b.Len() > 0 {
				blocks = append(blocks, b.String())
				b.Reset()
			}
		}
		return ast.WalkContinue, nil
	})
	return blocks
}
