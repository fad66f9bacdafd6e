package recipe

import (
	"bytes"
	"encoding/json"
	"strings"

	"go.yaml.in/yaml/v3"
)

// jsonTree returns the value of a JSON document, which is valid, as a YAML node. The YAML library takes no tabs between
// tokens and no surrogate pairs in strings.
func jsonTree(data []byte) *yaml.Node {
	j := &jsonReader{data: data, dec: json.NewDecoder(bytes.NewReader(data))}
	j.dec.UseNumber()
	return j.value(j.next())
}

type jsonReader struct {
	data []byte
	dec  *json.Decoder
}

// token is a token with its place.
type token struct {
	value        json.Token
	line, column int
}

// next returns the next token.
func (j *jsonReader) next() token {
	from := int(j.dec.InputOffset())
	for strings.IndexByte(" \t\r\n,:", j.data[from]) >= 0 {
		from++
	}
	before := j.data[:from]
	line := 1 + bytes.Count(before, []byte("\n"))
	t, err := j.dec.Token()
	if err != nil {
		panic(err) // the document is valid
	}
	return token{t, line, from - bytes.LastIndexByte(before, '\n')}
}

// value returns the node of the value that begins with a token.
func (j *jsonReader) value(t token) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: t.line, Column: t.column}
	switch v := t.value.(type) {
	case json.Delim:
		n.Kind = yaml.MappingNode
		if v == '[' {
			n.Kind = yaml.SequenceNode
		}
		for t := j.next(); t.value != json.Delim('}') && t.value != json.Delim(']'); t = j.next() {
			n.Content = append(n.Content, j.value(t))
		}
	case string:
		n.Tag, n.Value = "!!str", v
	case json.Number:
		n.Tag, n.Value = "!!int", v.String()
		if strings.ContainsAny(n.Value, ".eE") {
			n.Tag = "!!float"
		}
	case bool:
		n.Tag, n.Value = "!!bool", "false"
		if v {
			n.Value = "true"
		}
	default:
		n.Tag = "!!null"
	}
	return n
}
