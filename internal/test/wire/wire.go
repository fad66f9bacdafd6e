// Package wire checks what crosses the wire against the published documents: entries against docs/entry.schema.json,
// requests and answers against docs/openapi.yaml. Tests use it, also those of other packages on what they receive.
package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// The documents, by the addresses that they have for each other.
const (
	base       = "https://arbe.0sk.ar/runner/docs/"
	schemaFile = "entry.schema.json"
	apiFile    = "openapi.yaml"
	strictFile = "strict.schema.json" // of no file: schemaFile, without members and types that it does not name
)

// documents are the published documents, parsed and compiled.
type documents struct {
	schema   map[string]any // docs/entry.schema.json
	api      map[string]any // docs/openapi.yaml
	compiler *jsonschema.Compiler
	strict   *jsonschema.Schema
	types    []payloadType
	paths    []path

	mu       sync.Mutex // guards compiler and compiled
	compiled map[string]*jsonschema.Schema
}

// load reads the documents once.
var load = sync.OnceValues(func() (*documents, error) {
	dir, err := docs()
	if err != nil {
		return nil, err
	}
	d := &documents{compiler: jsonschema.NewCompiler(), compiled: map[string]*jsonschema.Schema{}}
	if d.schema, err = readJSON(filepath.Join(dir, schemaFile)); err != nil {
		return nil, err
	}
	if d.api, err = readYAML(filepath.Join(dir, apiFile)); err != nil {
		return nil, err
	}
	if d.types, err = payloadTypes(d.schema); err != nil {
		return nil, err
	}
	strict, err := readJSON(filepath.Join(dir, schemaFile))
	if err != nil {
		return nil, err
	}
	strict["$id"] = base + strictFile
	for _, p := range d.types {
		strict["$defs"].(map[string]any)[p.Def].(map[string]any)["additionalProperties"] = false
	}
	for name, doc := range map[string]any{schemaFile: d.schema, apiFile: d.api, strictFile: strict} {
		if err := d.compiler.AddResource(base+name, doc); err != nil {
			return nil, err
		}
	}
	if d.strict, err = d.compiler.Compile(base + strictFile); err != nil {
		return nil, err
	}
	d.paths, err = parsePaths(d.api)
	return d, err
})

// docs returns the path of the folder docs of this repository, from any package's test.
func docs() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "docs"), nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod above the test")
		}
		dir = up
	}
}

// readJSON reads a JSON object, its numbers as jsonschema wants them.
func readJSON(path string) (map[string]any, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	object, is := v.(map[string]any)
	if !is {
		return nil, fmt.Errorf("%s: want an object", path)
	}
	return object, nil
}

// readYAML reads a YAML document that has nothing but what JSON has.
func readYAML(path string) (map[string]any, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var v map[string]any
	if err := yaml.Unmarshal(b, &v); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if b, err = json.Marshal(v); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	again, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return again.(map[string]any), nil
}

// compile returns the schema at an address.
func (d *documents) compile(address string) (*jsonschema.Schema, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.compiled[address]; s != nil {
		return s, nil
	}
	s, err := d.compiler.Compile(address)
	if err == nil {
		d.compiled[address] = s
	}
	return s, err
}

// validate checks JSON against the schema at an address.
func (d *documents) validate(address string, raw []byte) error {
	s, err := d.compile(address)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	return s.Validate(v)
}
