package recipe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// MaxSize is the most bytes that an environment may have.
const MaxSize = 1 << 20

// Parse reads an environment of a house, as YAML or JSON. Its error is an *Error with all problems.
func (all Runtimes) Parse(data []byte) (Recipe, error) { return all.parse(data, false) }

// ParseHost is Parse for an environment that may name folders, files and repositories by paths of this host.
func (all Runtimes) ParseHost(data []byte) (Recipe, error) { return all.parse(data, true) }

func (all Runtimes) parse(data []byte, host bool) (r Recipe, err error) {
	n, problem := tree(data)
	if problem != nil {
		return Recipe{}, in([]Problem{*problem})
	}
	d := &decoder{runtimes: all, host: host, at: map[string]*yaml.Node{}}
	d.recipe(n, &r)
	if len(d.problems) == 0 {
		d.check(&r)
	}
	if err := in(d.problems); err != nil {
		return Recipe{}, err
	}
	return r, nil
}

// tree returns the value of a document, or why it has none.
func tree(data []byte) (*yaml.Node, *Problem) {
	if len(data) > MaxSize {
		return nil, &Problem{1, 1, "", fmt.Sprintf("larger than %d bytes", MaxSize)}
	}
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '{' && json.Valid(data) {
		return jsonTree(data), nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, next yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, &Problem{1, 1, "", "the document is empty"}
	case err != nil:
		return nil, syntaxProblem(err)
	}
	if err := dec.Decode(&next); err == nil {
		return nil, &Problem{next.Line, next.Column, "", "a second document: want one"}
	} else if !errors.Is(err, io.EOF) {
		return nil, syntaxProblem(err)
	}
	return doc.Content[0], nil
}

// parserTexts are errors of the YAML library whose line is one too small, as of version 3.0.6: it counts from 0 there.
var parserTexts = []string{
	"did not find expected key", "did not find expected '-' indicator", "did not find expected node content",
	"did not find expected ',' or ']'", "did not find expected ',' or '}'", "did not find expected <document start>",
}

// syntaxProblem places an error of the YAML library, which has the line in its text alone, "yaml: line 3: …", and none
// for the first line. It is the line where the faulty part begins.
func syntaxProblem(err error) *Problem {
	p := &Problem{0, 1, "", strings.TrimPrefix(err.Error(), "yaml: ")}
	if rest, is := strings.CutPrefix(p.Text, "line "); is {
		number, text, _ := strings.Cut(rest, ": ")
		if n, err := strconv.Atoi(number); err == nil {
			p.Line, p.Text = n, text
		}
	}
	if p.Line == 0 || slices.Contains(parserTexts, p.Text) {
		p.Line++
	}
	return p
}

// decoder reads values, and collects what it refuses.
type decoder struct {
	runtimes Runtimes
	host     bool // paths of this host are allowed
	problems []Problem
	at       map[string]*yaml.Node // the value of each key that was read
}

// field reads the value of one key.
type field func(n *yaml.Node, key string)

func (d *decoder) refuse(n *yaml.Node, key, format string, args ...any) {
	d.problems = append(d.problems, Problem{n.Line, n.Column, key, fmt.Sprintf(format, args...)})
}

// refuseKey refuses the value of a key that was read.
func (d *decoder) refuseKey(key, format string, args ...any) {
	d.refuse(d.at[key], key, format, args...)
}

// kind names what a value is, for messages.
func kind(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "an object"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!str":
		return "a string"
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "a boolean"
	case "!!null":
		return "nothing"
	}
	return "a " + strings.TrimLeft(n.ShortTag(), "!")
}

// real returns the value that an alias stands for.
func real(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// object reads an object with these keys.
func (d *decoder) object(n *yaml.Node, at string, fields map[string]field, required ...string) {
	n = real(n)
	if n.Kind != yaml.MappingNode {
		d.refuse(n, at, "want an object, got %s", kind(n))
		return
	}
	seen := map[string]bool{}
	d.pairs(n, at, func(k, v *yaml.Node, name, path string) {
		read, known := fields[name]
		switch {
		case !known:
			d.refuse(k, path, "unknown key: want %s", strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		case seen[name]:
			d.refuse(k, path, "the key is there twice")
		default:
			seen[name] = true
			d.at[path] = real(v)
			read(real(v), path)
		}
	})
	for _, name := range required {
		if !seen[name] {
			d.refuse(n, below(at, name), "missing")
		}
	}
}

// pairs calls do with each key and value of an object.
func (d *decoder) pairs(n *yaml.Node, at string, do func(k, v *yaml.Node, name, path string)) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := real(n.Content[i])
		if k.Kind != yaml.ScalarNode {
			d.refuse(k, at, "want a string as the key, got %s", kind(k))
			continue
		}
		do(n.Content[i], n.Content[i+1], k.Value, below(at, k.Value))
	}
}

// below returns the path of a key in an object.
func below(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

// list reads a list of at most most items.
func list[T any](d *decoder, to *[]T, most int, read func(n *yaml.Node, key string) T) field {
	return func(n *yaml.Node, at string) {
		if n.Kind != yaml.SequenceNode {
			d.refuse(n, at, "want a list, got %s", kind(n))
			return
		}
		if len(n.Content) > most {
			d.refuse(n, at, "%d items: want at most %d", len(n.Content), most)
			return
		}
		for i, item := range n.Content {
			path := key(at, i)
			d.at[path] = real(item)
			*to = append(*to, read(real(item), path))
		}
	}
}

// rule returns why a text is refused; "" if it is not.
type rule func(text string) string

// text reads a string.
func (d *decoder) text(to *string, rules ...rule) field {
	return func(n *yaml.Node, at string) {
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
			hint := ""
			if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" {
				hint = ": write it in quotes"
			}
			d.refuse(n, at, "want a string, got %s%s", kind(n), hint)
			return
		}
		for _, check := range rules {
			if why := check(n.Value); why != "" {
				d.refuse(n, at, "%s", why)
				return
			}
		}
		*to = n.Value
	}
}

// item returns what reads an item of a list of strings.
func (d *decoder) item(rules ...rule) func(n *yaml.Node, at string) string {
	return func(n *yaml.Node, at string) (s string) {
		d.text(&s, rules...)(n, at)
		return s
	}
}

// number reads a whole number from 1 on.
func (d *decoder) number(to *int, most int) field {
	return func(n *yaml.Node, at string) {
		v, err := strconv.Atoi(n.Value)
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || err != nil || v < 1 || v > most {
			d.refuse(n, at, "want a whole number from 1 to %d", most)
			return
		}
		*to = v
	}
}

// truth reads a boolean.
func (d *decoder) truth(to *bool) field {
	return func(n *yaml.Node, at string) {
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
			d.refuse(n, at, "want true or false, got %s", kind(n))
			return
		}
		*to = strings.EqualFold(n.Value, "true")
	}
}

// span reads a duration of whole seconds.
func (d *decoder) span(to *Duration, least, most time.Duration) field {
	return func(n *yaml.Node, at string) {
		var s string
		before := len(d.problems)
		d.text(&s, matches(durationPattern, "want a duration, such as 90s, 10m or 1h30m"))(n, at)
		if len(d.problems) > before {
			return
		}
		v, err := time.ParseDuration(s)
		if err != nil || v < least || v > most || v%time.Second != 0 {
			d.refuse(n, at, "want a duration from %v to %v", least, most)
			return
		}
		*to = Duration(v)
	}
}

// variables reads names and values of variables.
func (d *decoder) variables(to *map[string]string) field {
	return func(n *yaml.Node, at string) {
		if n.Kind != yaml.MappingNode {
			d.refuse(n, at, "want an object, got %s", kind(n))
			return
		}
		all := map[string]string{}
		d.pairs(n, at, func(k, v *yaml.Node, name, path string) {
			if why := variableName(name); why != "" {
				d.refuse(k, path, "%s", why)
				return
			}
			if _, twice := all[name]; twice {
				d.refuse(k, path, "the key is there twice")
				return
			}
			var value string
			d.text(&value, withoutNUL)(real(v), path)
			all[name] = value
			d.at[path] = real(v)
		})
		if len(all) > 0 {
			*to = all
		}
	}
}
