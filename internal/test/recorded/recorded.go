// Package recorded gives tests the recorded sessions of real agents that stand in testdata/sessions.
package recorded

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/session"
)

// Sessions returns the recorded session files under testdata, the path of that folder from the test's, by harness and
// case: "pi/tool-turn". The test fails where a dialect has none.
func Sessions(t testing.TB, testdata string) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(testdata, "sessions/*/*/session.jsonl"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no recorded sessions: %v", err)
	}
	all := map[string][]byte{}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Dir(p)
		all[filepath.Base(filepath.Dir(dir))+"/"+filepath.Base(dir)] = b
	}
	for _, d := range session.Harnesses() {
		found := false
		for name := range all {
			found = found || strings.HasPrefix(name, d.Prefix)
		}
		if !found {
			t.Fatalf("no recorded sessions of %s", d.Prefix)
		}
	}
	return all
}

// Dialect returns the dialect of a recording with this name.
func Dialect(t testing.TB, name string) session.Dialect {
	t.Helper()
	for _, d := range session.Harnesses() {
		if strings.HasPrefix(name, d.Prefix) {
			return d
		}
	}
	t.Fatalf("no dialect for %s", name)
	return session.Dialect{}
}
