package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// bom is a software bill of materials in the JSON of CycloneDX 1.5.
type bom struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"` // of this bill
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Ref     string `json:"bom-ref"`
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl"`
	Hashes  []hash `json:"hashes,omitempty"`
}

type hash struct {
	Alg     string `json:"alg"`
	Content string `json:"content"`
}

// newComponent describes a module; sum is that of go.sum, or "".
func newComponent(kind, path, version, sum string) component {
	purl := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	c := component{Ref: purl, Type: kind, Name: path, Version: version, PURL: purl}
	if digest, is := strings.CutPrefix(sum, "h1:"); is {
		if b, err := base64.StdEncoding.DecodeString(digest); err == nil {
			c.Hashes = []hash{{"SHA-256", hex.EncodeToString(b)}}
		}
	}
	return c
}

// newBOM returns the bill of a program: Go's library, and each module that is linked.
func newBOM(info *debug.BuildInfo, version string, at time.Time) bom {
	b := bom{
		Format: "CycloneDX", Spec: "1.5", Version: 1,
		Metadata:   metadata{at.Format(time.RFC3339), newComponent("application", info.Path, "v"+version, "")},
		Components: []component{newComponent("library", "std", strings.TrimPrefix(info.GoVersion, "go"), "")},
	}
	for _, m := range info.Deps {
		b.Components = append(b.Components, newComponent("library", m.Path, m.Version, m.Sum))
	}
	return b
}

// materials returns a bill of materials for each program among files, and the licences of all that these link.
func (r *release) materials(files []file) (docs []file, err error) {
	modules := map[string]bool{} // "path@version"
	for _, f := range files {
		program, is := strings.CutPrefix(f.name, "bin/")
		if !is {
			continue
		}
		info, err := buildinfo.ReadFile(f.from)
		if err != nil {
			return nil, err
		}
		for _, m := range info.Deps {
			modules[m.Path+"@"+m.Version] = true
		}
		text, err := json.MarshalIndent(newBOM(info, r.version, r.time), "", "  ")
		if err != nil {
			return nil, err
		}
		doc := file{"share/doc/arbe/" + program + ".cdx.json", f.from + ".cdx.json", 0o644}
		if err := os.WriteFile(doc.from, append(text, '\n'), 0o644); err != nil {
			return nil, err
		}
		docs = append(docs, doc)
	}
	text, err := licences(modules)
	if err != nil {
		return nil, err
	}
	doc := file{"share/doc/arbe/LICENSES.txt", filepath.Join(r.work, "LICENSES.txt"), 0o644}
	return append(docs, doc), os.WriteFile(doc.from, text, 0o644)
}

// licence is the name of a file with a licence, or with what its holders want to be named.
var licence = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)`)

// licences returns the licences of Go and of modules, which are in the cache of modules since they were linked.
func licences(modules map[string]bool) ([]byte, error) {
	args := []string{"list", "-m", "-f", "{{.Path}} {{.Version}}\t{{.Dir}}"}
	for m := range modules {
		args = append(args, m)
	}
	listed, err := exec.Command("go", args...).Output()
	if err != nil {
		return nil, fmt.Errorf("go list -m: %w", err)
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	all := strings.Split(strings.TrimSpace("Go's library\t"+string(root)+string(listed)), "\n")
	slices.Sort(all)
	var text bytes.Buffer
	for _, line := range all {
		name, dir, _ := strings.Cut(line, "\t")
		if err := licencesOf(&text, name, dir); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), nil
}

// licencesOf writes the licences in a folder. A module without one may not be shipped.
func licencesOf(text *bytes.Buffer, name, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("licence of %s: %w", name, err)
	}
	found := false
	for _, e := range entries {
		if !e.Type().IsRegular() || !licence.MatchString(e.Name()) {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		found = true
		fmt.Fprintf(text, "==== %s: %s\n\n%s\n", name, e.Name(), b)
	}
	if !found {
		return fmt.Errorf("%s has no licence", name)
	}
	return nil
}
