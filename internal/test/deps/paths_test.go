package deps_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// widest is the number of columns of a line of a document. Rows of tables may have more.
const widest = 120

// TestDocLines holds the width of the documents' lines.
func TestDocLines(t *testing.T) {
	for _, doc := range documents(t) {
		for i, line := range strings.Split(doc.text, "\n") {
			if n := utf8.RuneCountInString(line); n > widest && !strings.HasPrefix(strings.TrimSpace(line), "|") {
				t.Errorf("%s:%d has %d columns, more than %d", doc.path, i+1, n, widest)
			}
		}
	}
}

// named is a path of the repository in running text, code and tables.
var named = regexp.MustCompile("(?:^|[\\s(|`\"])(?:\\./)?(" +
	"(?:cmd|deploy|docs|harness|host|hydrate|internal|mirror|outcome|runner|session|testdata|thread)/[A-Za-z0-9_./-]*)")

// TestDocPaths looks for each file, folder and heading that a document names.
func TestDocPaths(t *testing.T) {
	docs := documents(t)
	anchors := anchorsOf(docs)
	for _, doc := range docs {
		for _, m := range link.FindAllStringSubmatch(doc.text, -1) {
			target, section, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			at := path.Join(path.Dir(doc.path), target)
			if target == "" {
				at = doc.path
			}
			if !there(at) {
				t.Errorf("%s links to %s, which is not there", doc.path, m[1])
			} else if section != "" && !anchors[at][section] {
				t.Errorf("%s links to %s: %s has no such heading", doc.path, m[1], at)
			}
		}
		for _, m := range named.FindAllStringSubmatch(doc.text, -1) {
			if name := strings.TrimRight(m[1], "./"); !there(name) {
				t.Errorf("%s names %s, which is not there", doc.path, name)
			}
		}
	}
}

// mentioned is a document in code: in a comment, a help, a message, a unit or a schema.
var mentioned = regexp.MustCompile(`(?:^|[^/\w.-])((?:docs/)?[A-Z][A-Z-]+\.md|docs/[a-z.]+\.(?:json|yaml))(?:#([a-z-]+))?`)

// TestCodePaths looks for each document and heading that code names. A name without a folder is in docs or in the root.
func TestCodePaths(t *testing.T) {
	anchors := anchorsOf(documents(t))
	found := 0
	for _, suffix := range []string{".go", ".service", ".timer", ".conf", ".sh", ".schema.json", ".yaml", "Makefile"} {
		walk(t, suffix, func(name, text string) {
			if strings.HasPrefix(name, "testdata/") {
				return // texts of agents
			}
			for _, m := range mentioned.FindAllStringSubmatch(text, -1) {
				at := m[1]
				bare := !strings.HasPrefix(at, "docs/")
				if bare && strings.HasSuffix(name, "_test.go") || at == "AGENTS.md" {
					continue // of others
				}
				found++
				if !there(at) {
					at = "docs/" + at
				}
				if !there(at) {
					t.Errorf("%s names %s, which is not there", name, m[1])
				} else if m[2] != "" && !anchors[at][m[2]] {
					t.Errorf("%s names %s#%s: there is no such heading", name, m[1], m[2])
				}
			}
		})
	}
	if found < 10 {
		t.Errorf("code names only %d documents", found)
	}
}

// there reports whether the repository has a file or folder.
func there(name string) bool {
	_, err := os.Stat(filepath.Join(root, name))
	return err == nil
}

// anchorsOf returns the anchors of documents, by their paths.
func anchorsOf(docs []document) map[string]map[string]bool {
	anchors := map[string]map[string]bool{}
	for _, doc := range docs {
		anchors[doc.path] = map[string]bool{}
		for _, m := range heading.FindAllStringSubmatch(doc.text, -1) {
			anchors[doc.path][anchor(m[1])] = true
		}
	}
	return anchors
}

// anchor returns the anchor that GitHub gives a heading.
func anchor(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		}
		return -1
	}, strings.ToLower(title))
}
