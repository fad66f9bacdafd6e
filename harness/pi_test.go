package harness_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/session"
)

func pi(t *testing.T) harness.Spec {
	t.Helper()
	s, err := harness.Lookup("pi")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPiCommand(t *testing.T) {
	long := strings.Repeat("x", 1<<17)
	for _, tt := range []struct {
		name  string
		task  harness.Task
		args  []string
		stdin string
	}{
		{"plain", harness.Task{Session: harness.Session{Path: "s"}, Prompt: "do it"}, []string{"--session", "s", "-p", "do it"}, ""},
		{"model and more", harness.Task{Session: harness.Session{Path: "s"}, Model: "p/m", Args: []string{"--thinking", "high"}, Prompt: "do it"}, []string{"--session", "s", "--model", "p/m", "--thinking", "high", "-p", "do it"}, ""},
		{"white space", harness.Task{Session: harness.Session{Path: "s"}, Prompt: " a \n"}, []string{"--session", "s", "-p", " a \n"}, ""},
		{"a dash", harness.Task{Session: harness.Session{Path: "s"}, Prompt: "-a"}, []string{"--session", "s", "-p"}, "-a"},
		{"a dash and white space", harness.Task{Session: harness.Session{Path: "s"}, Prompt: "-a \u00a0\n"}, []string{"--session", "s", "-p", " \u00a0\n"}, "-a"},
		{"an at", harness.Task{Session: harness.Session{Path: "s"}, Prompt: "@a"}, []string{"--session", "s", "-p"}, "@a"},
		{"a NUL", harness.Task{Session: harness.Session{Path: "s"}, Prompt: "a\x00b"}, []string{"--session", "s", "-p"}, "a\x00b"},
		{"long", harness.Task{Session: harness.Session{Path: "s"}, Prompt: long + "\n"}, []string{"--session", "s", "-p", "\n"}, long},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := pi(t).Command(harness.Box{}, tt.task)
			if diff := cmp.Diff(tt.args, got.Args); diff != "" || got.Stdin != tt.stdin {
				t.Errorf("stdin %.20q, -want +got:\n%.500s", got.Stdin, diff)
			}
		})
	}
}

func TestPiVersion(t *testing.T) {
	dir := t.TempDir()
	pkg := filepath.Join(dir, "lib", "node_modules", "@earendil-works", "pi-coding-agent")
	for path, content := range map[string]string{
		filepath.Join(pkg, "package.json"):   `{"name":"@earendil-works/pi-coding-agent","version":"0.78.0"}`,
		filepath.Join(pkg, "dist", "cli.js"): "",
		filepath.Join(dir, "package.json"):   `{"name":"something-else","version":"9"}`,
		filepath.Join(dir, "other"):          "",

		filepath.Join(dir, "wrapper", "package.json"): `{"name":"@me/pi-coding-agent-wrapper","version":"0.1.0"}`,
		filepath.Join(dir, "wrapper", "pi"):           "",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(pkg, "dist", "cli.js"), filepath.Join(dir, "pi")); err != nil {
		t.Fatal(err)
	}
	for binary, want := range map[string]string{"pi": "0.78.0", "other": "", "wrapper/pi": "", "missing": ""} {
		if got := pi(t).Version(filepath.Join(dir, binary)); got != want {
			t.Errorf("%s is version %q, want %q", binary, got, want)
		}
	}
}

func TestPiSessionFile(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 16, 27, 768e6, time.UTC)
	if got, want := pi(t).SessionFile(harness.Box{Dir: "/d"}, "id-1", at),
		"/d/2026-11-20T12-16-27-768Z_id-1.jsonl"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	e := pi(t).Dialect.Decode(pi(t).Create("id-1", `/a "b"`, at))
	if e.Kind != session.Header || e.SessionID != "id-1" || e.Cwd != `/a "b"` || !e.Time.Equal(at) {
		t.Errorf("got %+v", e)
	}
}
