// Package markup makes HTML of texts that anybody may have written: markdown, text as it was written, code with its
// words coloured, the output of a tool.
//
// A text stands in the HTML as text: of its elements, addresses and styles none works but those that a function's
// comment names. Characters that a reader would not see are made visible. Colours are classes: no HTML of this package
// has a style.
package markup

import (
	"bytes"
	"fmt"
	"html/template"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"arbe.0sk.ar/runner/host/view"
)

// mostMarkdown bounds the text of an item that is rendered as markdown, in bytes. A longer one is shown as it stands.
const mostMarkdown = 128 << 10

// Markdown renders a text that anybody may have written. Its HTML stands there as text, and its images are links: to
// show one would ask another server for it. Links lead to web and mail addresses alone.
func Markdown(source string) template.HTML {
	source = view.Visible(source)
	if len(source) <= mostMarkdown {
		var b bytes.Buffer
		if err := converter.Convert([]byte(source), &b); err == nil {
			return template.HTML(b.String()) // by the renderers below
		}
	}
	return template.HTML(`<pre tabindex="0">` + template.HTMLEscapeString(source) + "</pre>")
}

var converter = goldmark.New(
	goldmark.WithExtensions(
		extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)), // not by a style
		extension.Strikethrough, extension.Linkify, extension.TaskList,
	),
	goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(safe{}, 100))),
)

// safe renders what goldmark's own renderers would drop or load.
type safe struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (safe) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindRawHTML, func(w util.BufWriter, src []byte, n ast.Node, enter bool) (ast.WalkStatus, error) {
		if enter {
			for _, s := range segments(n.(*ast.RawHTML).Segments, src) {
				template.HTMLEscape(w, s)
			}
		}
		return ast.WalkSkipChildren, nil
	})
	r.Register(ast.KindHTMLBlock, func(w util.BufWriter, src []byte, n ast.Node, enter bool) (ast.WalkStatus, error) {
		if !enter {
			return ast.WalkContinue, nil
		}
		block := n.(*ast.HTMLBlock)
		_, _ = w.WriteString("<p class=\"html\">") // a buffer's Write does not fail
		for _, s := range segments(block.Lines(), src) {
			template.HTMLEscape(w, s)
		}
		if block.HasClosure() {
			template.HTMLEscape(w, block.ClosureLine.Value(src))
		}
		_, _ = w.WriteString("</p>\n") // as above
		return ast.WalkContinue, nil
	})
	// A reader without a mouse scrolls code by the keyboard.
	code := func(w util.BufWriter, src []byte, n ast.Node, enter bool) (ast.WalkStatus, error) {
		if enter {
			_, _ = w.WriteString(`<pre tabindex="0"><code>`) // as above
			for _, s := range segments(n.Lines(), src) {
				template.HTMLEscape(w, s)
			}
			_, _ = w.WriteString("</code></pre>\n") // as above
		}
		return ast.WalkSkipChildren, nil
	}
	r.Register(ast.KindCodeBlock, code)
	r.Register(ast.KindFencedCodeBlock, code)
	// The page has h1, and an item h2.
	r.Register(ast.KindHeading, func(w util.BufWriter, _ []byte, n ast.Node, enter bool) (ast.WalkStatus, error) {
		slash := "/"
		if enter {
			slash = ""
		}
		_, _ = fmt.Fprintf(w, "<%sh%d>", slash, min(6, n.(*ast.Heading).Level+2)) // as above
		return ast.WalkContinue, nil
	})
	r.Register(east.KindTaskCheckBox, func(w util.BufWriter, _ []byte, n ast.Node, enter bool) (ast.WalkStatus, error) {
		if !enter {
			return ast.WalkContinue, nil
		}
		box := `<span role="img" aria-label="to do">☐</span> `
		if n.(*east.TaskCheckBox).IsChecked {
			box = `<span role="img" aria-label="done">☑</span> `
		}
		_, _ = w.WriteString(box) // as above
		return ast.WalkContinue, nil
	})
	r.Register(ast.KindLink, func(w util.BufWriter, src []byte, n ast.Node, enter bool) (ast.WalkStatus, error) {
		link(w, string(n.(*ast.Link).Destination), enter)
		return ast.WalkContinue, nil
	})
	r.Register(ast.KindAutoLink, func(w util.BufWriter, src []byte, n ast.Node, enter bool) (ast.WalkStatus, error) {
		if auto := n.(*ast.AutoLink); enter {
			address := string(auto.URL(src))
			if auto.AutoLinkType == ast.AutoLinkEmail && !strings.HasPrefix(address, "mailto:") {
				address = "mailto:" + address
			}
			link(w, address, true)
			template.HTMLEscape(w, auto.Label(src))
			link(w, address, false)
		}
		return ast.WalkContinue, nil
	})
	r.Register(ast.KindImage, func(w util.BufWriter, src []byte, n ast.Node, enter bool) (ast.WalkStatus, error) {
		if enter {
			_, _ = w.WriteString("image: ") // as above
		}
		link(w, string(n.(*ast.Image).Destination), enter)
		return ast.WalkContinue, nil
	})
}

// link writes the beginning or the end of a link. One whose address has another scheme, or none, is no link: it would
// run something, or lead to a path of this server. Its address stands behind it.
func link(w util.BufWriter, address string, begin bool) {
	lower := strings.ToLower(address)
	good := strings.HasPrefix(lower, "https://") || strings.HasPrefix(lower, "http://") ||
		strings.HasPrefix(lower, "mailto:")
	text := template.HTMLEscapeString(address)
	switch {
	case good && begin:
		text = `<a rel="noopener noreferrer" href="` + text + `">`
	case good:
		text = "</a>"
	case begin:
		text = `<span class="address">`
	default:
		text = " (" + text + ")</span>"
	}
	_, _ = w.WriteString(text) // a buffer's Write does not fail
}

func segments(s *text.Segments, source []byte) (all [][]byte) {
	for i := range s.Len() {
		at := s.At(i)
		all = append(all, at.Value(source))
	}
	return all
}
