package boxes_test

import (
	"encoding/json"
	"html"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/scene"

	"arbe.0sk.ar/runner/internal/test/oddsecrets"
)

// Secrets that are hard to find, printed by the setup, by the agent's tool, by the agent itself and by a command, as
// many tools would write them, are nowhere but in the agent's own files: not on a terminal, not in an entry, an error,
// an exported page or a file of the host.
func TestFullSecretPlaces(t *testing.T) {
	t.Parallel()
	const inFile, inRecipe, inBase = "of-a-file-8a7b6c5d", "of-a-recipe-4e3f2a1b", "of-a-base-7c6d5e4f"
	forms := oddsecrets.All() + "\n" + inFile + " " + inRecipe + " " + inBase + "\n"
	// The tool prints in pieces that end where they like.
	h := scene.NewHost(t, scene.Bash("cat forms; cat ~/creds conf ~/.base; "+
		"while IFS= read -r -n 7 -d '' part; do printf %s \"$part\"; done <forms"), scene.Say("So:\n"+forms))
	scene.Write(t, filepath.Join(h.Dir, "work", "forms"), forms)
	scene.Write(t, filepath.Join(h.Dir, "creds"), "[default]\nuser = me\npassword = "+inFile+"\n")
	scene.Write(t, filepath.Join(h.Dir, "env.yaml"), "files:\n"+
		"  - {path: conf, sensitive: true, content: \"# conf\\nlogin "+inRecipe+"\\n"+inRecipe+"\\n\"}\n"+
		"  - {path: ~/.base, sensitive: true, content: "+inBase+"}\n")
	var env, named []string
	for _, secret := range oddsecrets.Environ() {
		name, _, _ := strings.Cut(secret, "=")
		env, named = append(env, secret), append(named, "--env", name)
	}
	options := append(named, "--dir", filepath.Join(h.Dir, "work"), "--file", filepath.Join(h.Dir, "creds")+":creds")

	h.Thread = h.Arbe("thread", "new")
	places := map[string]string{}
	arbe := func(place string, fails bool, args ...string) {
		t.Helper()
		cmd := h.Command(args...)
		cmd.Env = append(cmd.Env, env...)
		out, err := cmd.CombinedOutput()
		if (err != nil) != fails {
			t.Fatalf("%s: arbe %v: %v\n%s", place, args, err, out)
		}
		places[place] = string(out)
	}
	arbe("a launch that fails", true, h.With("launch", append(options,
		"--environment-file", filepath.Join(h.Dir, "env.yaml"), "--thread", h.Thread,
		"--setup", "cat forms >&2; exit 3", "--", "print"))...)
	arbe("an attached run", false, h.With("run", append(options,
		"--environment-file", filepath.Join(h.Dir, "env.yaml"), "--thread", h.Thread, "--keep", "--full",
		"--setup", "cat forms conf ~/.base; "+
			"while IFS= read -r -n 7 -d '' part; do printf %s \"$part\"; done <forms", "--", "print"))...)
	arbe("a command", false, append(append([]string{"exec", h.Thread}, named...),
		"--", "sh", "-c", "cat forms; cat forms >&2; cat ~/creds; sleep 0; cat conf ~/.base")...)
	arbe("the tail", false, "thread", "tail", "--full", h.Thread)
	arbe("the export", false, "thread", "export", "--html", h.Thread)
	places["the export"] = html.UnescapeString(places["the export"])
	arbe("the status", false, "thread", "status", "--json", h.Thread)
	arbe("the list", false, "ls", "--json")
	var decoded strings.Builder
	for _, e := range h.Entries() {
		var v any
		if err := json.Unmarshal(e.Payload, &v); err != nil {
			t.Fatal(err)
		}
		addStrings(&decoded, v)
	}
	places["an entry"] = decoded.String()

	for place, text := range places {
		left := oddsecrets.Left(text)
		for _, value := range []string{inFile, inRecipe, inBase} {
			if strings.Contains(text, value) {
				left = append(left, value)
			}
		}
		if left != nil {
			t.Errorf("%s has %q", place, left)
		}
	}
	for place, marks := range map[string][]string{
		"a launch that fails": {"[redacted:PEM_KEY]"},
		"an attached run":     {"[redacted:PEM_KEY]", "[redacted:conf]", "[redacted:.base]"},
		"a command":           {"[redacted:PEM_KEY]", "[redacted:creds]", "[redacted:conf]", "[redacted:.base]"},
		"an entry":            {"[redacted:JSON_KEY]", "[redacted:creds]", "[redacted:conf]", "[redacted:.base]"},
	} {
		for _, mark := range marks {
			if !strings.Contains(places[place], mark) {
				t.Errorf("%s does not have %s:\n%.3000s", place, mark, places[place])
			}
		}
	}
	// The files of the runs: what the agent has printed and its session are its own.
	err := filepath.WalkDir(h.Data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.Contains(path, "/sessions/") ||
			strings.Contains(path, "/work/") || !strings.Contains(path, "/.arbe/") ||
			d.Name() == "stdout" || d.Name() == "stderr" {
			return err
		}
		b, err := os.ReadFile(path)
		if left := oddsecrets.Left(string(b)); left != nil {
			t.Errorf("%s has %q", path, left)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// addStrings adds the strings of a JSON value to a text, each on lines of its own.
func addStrings(b *strings.Builder, v any) {
	switch v := v.(type) {
	case string:
		b.WriteString(v + "\n")
	case []any:
		for _, e := range v {
			addStrings(b, e)
		}
	case map[string]any:
		for _, e := range v {
			addStrings(b, e)
		}
	}
}
