package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/surroundings"
)

func TestMain(m *testing.M) {
	surroundings.Enter()
	os.Exit(m.Run())
}

// A package is tested so often, a round that fails is counted and printed, and the others follow.
func TestRounds(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module m\n",
		"a_test.go": `package m

import ("os"; "testing")

func TestFirst(t *testing.T) {
	if f, err := os.OpenFile("seen", os.O_CREATE|os.O_EXCL, 0o600); err == nil {
		f.Close()
		t.Error("this is the first round")
	}
}

func TestFullLong(t *testing.T) { t.Error("this is not asked for") }
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	var out bytes.Buffer
	if status := run(t.Context(), []string{"3", "."}, &out); status != 1 {
		t.Errorf("status %d", status)
	}
	if all := out.String(); !strings.Contains(all, "m, round 1: ") || strings.Contains(all, "round 2") ||
		!strings.Contains(all, "this is the first round") || !strings.Contains(all, "\n| `m` | 3 | 1 | no | ") ||
		strings.Contains(all, "not asked for") {
		t.Errorf("it printed\n%s", all)
	}
	out.Reset()
	if status := run(t.Context(), []string{"-run", "TestFirst", "1", "."}, &out); status != 0 {
		t.Errorf("status %d\n%s", status, out.String())
	}
}
