package deps_test

import (
	"go/scanner"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// riddles are phrases that documents and Go comments don't have, with what to write in their place. Each has a noun or
// a verb of the field.
var riddles = []struct{ phrase, instead string }{
	{`says|said|saying`, "logs, returns, reports, has, prints"},
	{`tells|told|telling`, "reports, returns, sends, asks, distinguishes"},
	{`hears|heard`, "receives, reads, gets"},
	{`whoever`, "the noun: the caller, a client, a reader"},
	{`none of (?:ours|theirs)`, "the noun"},
	{`all the same`, "nevertheless, although"},
	{`what (?:came|comes|has come|becomes|became) of`, "the result of"},
	{`what (?:it|they|that|this|a run|each) (?:came|comes|has come) to`, "the result, the verdict, the cost"},
	{`by itself|by themselves`, "alone, on its own, single"},
	{`goes on|go on|went on|going on`, "continues, keeps running, resumes, reads on"},
	{`lets? go of|letting go of`, "closes, releases, frees"},
	{`(?:has|have) of`, "the noun: a column, an entry, a part"},
	{`that there (?:are|is)`, "existing, exists"},
	{`(?:is|are) what`, "the noun, or the verb without it"},
}

// TestWords looks for riddles in documents, but for code in them, and in Go comments.
func TestWords(t *testing.T) {
	var all []string
	for _, r := range riddles {
		all = append(all, r.phrase)
	}
	any := regexp.MustCompile(`(?i)\b(?:` + strings.Join(all, "|") + `)\b`)
	check := func(place, text string) {
		for _, found := range any.FindAllString(text, -1) {
			for _, r := range riddles {
				if regexp.MustCompile(`(?i)^(?:` + r.phrase + `)$`).MatchString(found) {
					t.Errorf("%s has %q: write %s", place, found, r.instead)
				}
			}
		}
	}
	for _, doc := range documents(t) {
		check(doc.path, withoutCode(doc.text))
	}
	walk(t, ".go", func(name, text string) {
		for _, c := range comments([]byte(text)) {
			check(name, c)
		}
	})
}

// comments returns the comments of a Go file. Lines of one comment are one text, so that a phrase may span two.
func comments(src []byte) (all []string) {
	fset := token.NewFileSet()
	file := fset.AddFile("", fset.Base(), len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, scanner.ScanComments)
	last := -1
	for {
		pos, kind, text := s.Scan()
		switch {
		case kind == token.EOF:
			return all
		case kind != token.COMMENT:
			continue
		}
		line := file.Line(pos)
		if text = strings.TrimPrefix(text, "//"); line == last+1 {
			all[len(all)-1] += text
		} else {
			all = append(all, text)
		}
		last = line
	}
}

var codeInText = regexp.MustCompile("(?s)```.*?```|`[^`]*`")

// withoutCode returns a document without its blocks and pieces of code.
func withoutCode(text string) string { return codeInText.ReplaceAllString(text, "") }

func TestComments(t *testing.T) {
	got := comments([]byte("package p\n\n// It goes\n// on.\n\nvar s = \"// said\" // alone\n"))
	if len(got) != 2 || got[0] != " It goes on." || got[1] != " alone" {
		t.Errorf("got %q", got)
	}
}
