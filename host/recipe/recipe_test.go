package recipe_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"arbe.0sk.ar/runner/host/provision"
	"arbe.0sk.ar/runner/host/recipe"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox/providers"
)

// published returns docs/environment.schema.json, compiled.
func published(t *testing.T) *jsonschema.Schema {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile("../../docs/environment.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// valid reports what a schema has against a document in YAML or JSON.
func valid(t *testing.T, schema *jsonschema.Schema, doc []byte) error {
	t.Helper()
	var v any
	if err := yaml.Unmarshal(doc, &v); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	v, err = jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return schema.Validate(v)
}

// known are the runtimes that arbe has.
var known = provision.Runtimes(providers.All())

// Each example is valid for the parser and the schema, and its canonical JSON is read back as the same recipe.
func TestExamples(t *testing.T) {
	schema := published(t)
	paths, err := filepath.Glob("../../docs/examples/environment*.yaml")
	if err != nil || len(paths) < 2 {
		t.Fatalf("examples: %v, %v", paths, err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			doc, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			r, err := known.ParseHost(doc)
			if err != nil {
				t.Fatal(err)
			}
			if err := valid(t, schema, doc); err != nil {
				t.Errorf("the schema: %v", err)
			}
			canonical, err := json.MarshalIndent(r, "", "\t") // a tab is no YAML
			if err != nil {
				t.Fatal(err)
			}
			again, err := known.ParseHost(canonical)
			if err != nil || !reflect.DeepEqual(again, r) {
				t.Errorf("read back: %v\n%+v\nwant\n%+v", err, again, r)
			}
			if err := valid(t, schema, bytes.ReplaceAll(canonical, []byte("\t"), []byte(" "))); err != nil {
				t.Errorf("the schema, of the canonical JSON: %v", err)
			}
		})
	}
}

// wrong are documents that are refused, with the one problem that Parse finds.
var wrong = []struct{ doc, want string }{
	{"[]", "1:1: want an object, got a list"},
	{"null", "1:1: want an object, got nothing"},
	{"name: web\nimages: x", "2:1: images: unknown key: want env, files, folders, image, limits, name, repositories, " +
		"resources, runtime, secrets, setup, snapshot, target, volumes"},
	{"name: 3", "1:7: name: want a string, got a number: write it in quotes"},
	{"name: null", "1:7: name: want a string, got nothing"},
	{"name: ' web'", "1:7: name: want 1 to 100 characters in one line"},
	{"runtime: docker", "1:10: runtime: want local or daytona"},
	{"image: 'a\n\n  RUN b'", "1:8: image: want the name of an image: letters, digits and . _ / : @ -"},
	{"image: a\nsnapshot: b", "2:11: snapshot: image and snapshot exclude each other"},
	{"resources: {cpu: 2}", "1:12: resources: want an image: a snapshot has resources of its own"},
	{"image: a\nresources: {cpu: 0}", "2:18: resources.cpu: want a whole number from 1 to 1024"},
	{"image: a\nresources: {memory: 1.5}", "2:21: resources.memory: want a whole number from 1 to 1048576"},
	{"image: a\nresources: {disc: 3}", "2:13: resources.disc: unknown key: want cpu, disk, memory"},
	{"runtime: local\nvolumes: []", "2:10: volumes: a local box has none: it is a folder of this machine"},
	{"runtime: local\ntarget: us", "2:9: target: a local box has none: it is a folder of this machine"},
	{"target: ../us", "1:9: target: want the name of a region"},
	{"repositories: a/b", "1:15: repositories: want a list, got a string"},
	{"repositories:\n  - a/b", "2:5: repositories[0]: want an object, got a string"},
	{"repositories:\n  - path: x", "2:5: repositories[0].repo: missing"},
	{"repositories:\n  - repo: https://u:p@example.org/b", "2:11: repositories[0].repo: " +
		"want org/repo, or an address that begins with https://, http:// or ssh:// and has no password"},
	{"repositories:\n  - repo: ext::sh", "2:11: repositories[0].repo: " +
		"want org/repo, or an address that begins with https://, http:// or ssh:// and has no password"},
	{"repositories:\n  - repo: ../b", "2:11: repositories[0].repo: " +
		"want org/repo, or an address that begins with https://, http:// or ssh:// and has no password"},
	{"repositories:\n  - {repo: a/b, branch: -x}", "2:25: repositories[0].branch: want the name of a branch"},
	{"repositories:\n  - {repo: a/b, branch: x, tag: y}", "2:5: repositories[0]: " +
		"branch, tag and commit exclude each other"},
	{"repositories:\n  - {repo: a/b, commit: abc123}", "2:25: repositories[0].commit: " +
		"want all 40 or 64 digits of the commit"},
	{"repositories:\n  - {repo: a/b, depth: '1'}", "2:24: repositories[0].depth: " +
		"want a whole number from 1 to 1073741824"},
	{"repositories:\n  - {repo: a/b, path: ../b}", "2:23: repositories[0].path: " +
		"want a path below the workspace: names of letters, digits and . _ @ + - with / between"},
	{"folders: [{host: x, path: y, access: rw}]", "1:38: folders[0].access: want readonly or sync"},
	{"folders: [{host: x}]", "1:11: folders[0].path: missing"},
	{"files: [{path: ~/x}]", "1:9: files[0]: want either content or host"},
	{"files: [{path: x, content: y, host: z}]", "1:9: files[0]: want either content or host"},
	{"files: [{path: x, content: y, mode: 0600}]", "1:37: files[0].mode: want a string, got a number: " +
		"write it in quotes"},
	{"files: [{path: x, content: y, mode: '0999'}]", "1:37: files[0].mode: want octal digits in quotes, such as \"0600\""},
	{"files: [{path: /etc/x, content: y}]", "1:16: files[0].path: want a path below the workspace: names of letters, " +
		"digits and . _ @ + - with / between, or ~/ and a path below the home folder"},
	{"setup: [{env: {A: b}}]", "1:9: setup[0].run: missing"},
	{"setup: [{run: ' '}]", "1:15: setup[0].run: want a text that is not blank"},
	{"setup: [{run: a, timeout: 10}]", "1:27: setup[0].timeout: want a string, got a number: write it in quotes"},
	{"setup: [{run: a, timeout: ten}]", "1:27: setup[0].timeout: want a duration, such as 90s, 10m or 1h30m"},
	{"setup: [{run: a, env: {A: 1}}]", "1:27: setup[0].env.A: want a string, got a number: write it in quotes"},
	{"env: {A-B: x}", "1:7: env.A-B: want the name of a variable: letters, digits and _, no digit first"},
	{"env: {ARBE_RUN_ID: x}", "1:7: env.ARBE_RUN_ID: " +
		"variables that begin with ARBE_, AGENT_BOX and HOME are the box's own"},
	{"env: [A]", "1:6: env: want an object, got a list"},
	{"secrets: [A]", "1:11: secrets[0]: want an object, got a string"},
	{"secrets: [{name: A, required: maybe}]", "1:31: secrets[0].required: want true or false, got a string"},
	{"limits: {run: forever}", "1:15: limits.run: want a duration, such as 90s, 10m or 1h30m"},
	{"volumes: [{name: v, path: data}]", "1:27: volumes[0].path: want an absolute path of plain names"},
	{"volumes: [{name: v, path: /etc/v}]", "1:27: volumes[0].path: want no folder of the system"},
	{"volumes: [{path: /v}]", "1:11: volumes[0].name: missing"},
}

// The parser and the schema refuse the same documents, the parser with place and key.
func TestWrong(t *testing.T) {
	schema := published(t)
	for _, tt := range wrong {
		_, err := known.ParseHost([]byte(tt.doc))
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s\ngot  %v\nwant %s", tt.doc, err, tt.want)
		}
		if valid(t, schema, []byte(tt.doc)) == nil {
			t.Errorf("the schema takes\n%s", tt.doc)
		}
	}
}

// What no schema can express, the parser refuses.
func TestParserAlone(t *testing.T) {
	const autostop = "limits.run (or 72h) and 30m0s: a stop ends the run"
	for _, tt := range []struct{ doc, want string }{
		{"", "1:1: the document is empty"},
		{"a: b\n---\nc: d", "2:1: a second document: want one"},
		{"name: web\nenv: {A: b", "2:1: did not find expected ',' or '}'"},
		{"name: web\n\tenv: x", "2:1: found a tab character that violates indentation"},
		{"name: a\nname: b", "2:1: name: the key is there twice"},
		{"{\"name\": \"a\",\n\t\"name\": \"b\"}", "2:2: name: the key is there twice"},
		{"env: {A: b, A: c}", "1:13: env.A: the key is there twice"},
		{"repositories: [{repo: a/b}, {repo: c/b}]", "1:29: repositories[1]: " +
			"its path b and that of repositories[0], b, are not apart"},
		{"repositories: [{repo: a/b}]\nfolders: [{host: x, path: b/c}]", "2:11: folders[0]: " +
			"its path b/c and that of repositories[0], b, are not apart"},
		{"limits: {run: 73h}", "1:15: limits.run: want a duration from 1m0s to 72h0m0s"},
		{"limits: {run: 2h, autostop: 1h}", "1:29: limits.autostop: want at least 2h30m0s, " + autostop},
		{"limits: {run: 1h, autostop: 1h29m}", "1:29: limits.autostop: want at least 1h30m0s, " + autostop},
		{"name: a\nlimits: {autostop: 30m}", "2:20: limits.autostop: want at least 72h30m0s, " + autostop},
		{"limits: {autostop: 1m}", "1:20: limits.autostop: want at least 72h30m0s, " + autostop},
		{"secrets: [{name: A}, {name: A}]", "1:29: secrets[1].name: another secret has this name"},
		{"env: {A: b}\nsecrets: [{name: A}]", "2:18: secrets[0].name: env has a variable of this name"},
		{"setup: [{run: a, secrets: [A]}]", "1:28: setup[0].secrets[0]: secrets has none of this name"},
		{"volumes: [{name: a, path: /v}, {name: b, path: /v}]", "1:48: volumes[1].path: another volume has this path"},
		{strings.Repeat("#", recipe.MaxSize+1), "1:1: larger than 1048576 bytes"},
	} {
		if _, err := known.ParseHost([]byte(tt.doc)); err == nil || err.Error() != tt.want {
			t.Errorf("%.200s\ngot  %v\nwant %s", tt.doc, err, tt.want)
		}
	}
}

// All problems are reported at once, in the order of their places, with the file.
func TestAllProblems(t *testing.T) {
	_, err := known.Parse([]byte("runtime: docker\nsetup:\n  - run: 1\n    tiemout: 5m\nfolders:\n" +
		"  - {host: x, path: y}\nfiles:\n  - {path: a, host: b}\nrepositories:\n  - repo: /srv/git\n"))
	var e *recipe.Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	e.File = "env.yaml"
	const house = "a house's environment can't name a path of a host: use arbe launch --environment-file"
	want := strings.Join([]string{
		"env.yaml:1:10: runtime: want local or daytona",
		"env.yaml:3:10: setup[0].run: want a string, got a number: write it in quotes",
		"env.yaml:4:5: setup[0].tiemout: unknown key: want env, run, secrets, timeout",
		"env.yaml:6:12: folders[0].host: " + house,
		"env.yaml:8:21: files[0].host: " + house,
		"env.yaml:10:11: repositories[0].repo: " + house,
	}, "\n")
	if err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// JSON has places as well, and its strings are JSON's.
func TestJSON(t *testing.T) {
	r, err := known.Parse([]byte("{\n\t\"name\": \"\\ud83d\\ude00\\/\"," +
		" \"setup\": [ {\"run\": \"a\\tb\"}, {\"run\":\"c\"}]\n}"))
	if err != nil || r.Name != "😀/" || len(r.Setup) != 2 || r.Setup[0].Run != "a\tb" {
		t.Errorf("%+v, %v", r, err)
	}
	_, err = known.Parse([]byte("{\"name\": \"a\",\n  \"env\": {\"A\": 1, \"B\" : true}, \"limits\": null}"))
	const want = "2:16: env.A: want a string, got a number: write it in quotes\n" +
		"2:25: env.B: want a string, got a boolean: write it in quotes\n2:42: limits: want an object, got nothing"
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// Defaults are filled in, and the config of a row has neither name nor runtime nor secrets.
func TestCanonical(t *testing.T) {
	r, err := known.Parse([]byte("name: web\nruntime: daytona\n" +
		"repositories:\n- repo: https://example.org/x/shop.git\n" +
		"- {repo: a/b, depth: 1}\nfiles:\n- {path: ~/.n, content: ''}\n- {path: n, content: x}\nsecrets:\n- name: A\n" +
		"setup:\n- {run: x, timeout: 90s}\n"))
	if err != nil {
		t.Fatal(err)
	}
	row, err := r.Row()
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"repositories":[{"repo":"https://example.org/x/shop.git","path":"shop"},` +
		`{"repo":"a/b","depth":1,"path":"b"}],` +
		`"files":[{"path":"~/.n","content":"","mode":"0600"},{"path":"n","content":"x","mode":"0644"}],` +
		`"setup":[{"run":"x","timeout":"1m30s"}]}`
	if string(row.Config) != want {
		t.Errorf("got  %s\nwant %s", row.Config, want)
	}
	if !r.Secrets[0].Required {
		t.Error("a secret is not required by default")
	}
}

// No document makes the parser panic, and what it takes is read back as the same recipe.
func FuzzParse(f *testing.F) {
	for _, tt := range wrong {
		f.Add([]byte(tt.doc))
	}
	paths, err := filepath.Glob("../../docs/examples/environment*.yaml")
	if err != nil || len(paths) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, path := range paths {
		doc, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(doc)
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		r, err := known.ParseHost(doc)
		if err != nil {
			return
		}
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		again, err := known.ParseHost(b)
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Errorf("%s\n%v\n%+v\nwant\n%+v", b, err, again, r)
		}
	})
}

// A row without a config is refused, as one with another that is no object.
func TestStoredNull(t *testing.T) {
	for _, config := range []string{"null", "[]", "3", ""} {
		row := rows.Recipe{Name: "x", Runtime: "local", Config: json.RawMessage(config)}
		if _, err := known.Stored(row); err == nil {
			t.Errorf("%q is taken", config)
		}
	}
}
