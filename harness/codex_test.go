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

// spec is the harness's Spec.
func spec(t *testing.T, name string) harness.Spec {
	t.Helper()
	s, err := harness.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// boxWith is a box in which the variables are set.
func boxWith(vars map[string]string) harness.Box {
	return harness.Box{Getenv: func(name string) string { return vars[name] }}
}

// write makes files, with their folders.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCodexCommand(t *testing.T) {
	home := t.TempDir()
	b := boxWith(map[string]string{"HOME": home})
	quiet := "-c check_for_update_on_startup=false -c analytics.enabled=false -c features.plugins=false -c " +
		"features.remote_plugin=false -c features.apps=false "
	flags := "--json --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox " + quiet
	resumed := harness.Session{Path: "p", ID: "id-1"}
	long := strings.Repeat("x", 1<<17)
	for _, tt := range []struct {
		name  string
		task  harness.Task
		args  string // split at spaces
		stdin string
	}{
		{"plain", harness.Task{Prompt: "go"}, "exec " + flags + "-- go", ""},
		{"model and more", harness.Task{Prompt: "go", Model: "m", Args: []string{"-i", "x.png"}}, "exec " + flags + "--model m -i x.png -- go", ""},
		{"resume", harness.Task{Session: resumed, Resume: true, Prompt: "go"}, "exec resume " + flags + "-- id-1 go", ""},
		{"a dash", harness.Task{Prompt: "-go"}, "exec " + flags + "-- -go", ""},
		{"nothing but a dash", harness.Task{Prompt: "-"}, "exec " + flags + "-- -", "-"},
		{"long", harness.Task{Prompt: long}, "exec " + flags + "-- -", long},
		{"long, resume", harness.Task{Session: resumed, Resume: true, Prompt: long}, "exec resume " + flags + "-- id-1 -", long},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := spec(t, "codex").Command(b, tt.task)
			if diff := cmp.Diff(strings.Split(tt.args, " "), got.Args); diff != "" || got.Stdin != tt.stdin {
				t.Errorf("stdin %.20q, -want +got:\n%.800s", got.Stdin, diff)
			}
		})
	}
	// The box's own configuration stays in force.
	write(
		t,
		home,
		map[string]string{
			".codex/config.toml": "# apps = true\ncheck_for_update_on_startup = true\n[features]\nplugins = true\n",
		},
	)
	args := strings.Join(spec(t, "codex").Command(b, harness.Task{Prompt: "go"}).Args, " ")
	for key, want := range map[string]bool{
		"check_for_update": false, "features.plugins": false, "features.apps": true,
		"features.remote_plugin": true, "analytics": true,
	} {
		if strings.Contains(args, key) != want {
			t.Errorf("%s: want %v in %s", key, want, args)
		}
	}
}

func TestCodexReport(t *testing.T) {
	for line, want := range map[string]harness.Report{
		`{"type":"thread.started","thread_id":"t1"}`:                                                                              {SessionID: "t1"},
		`{"type":"turn.failed","error":{"message":"no"}}`:                                                                         {Mark: session.Failure, StopReason: "error", Message: "no"},
		`{"type":"turn.failed","error":{"message":"Incomplete response returned, reason: max_output_tokens"}}`:                    {Mark: session.Failure, StopReason: "length", Message: "Incomplete response returned, reason: max_output_tokens"},
		`{"type":"turn.completed","usage":{}}`:                                                                                    {}, // the session has it
		`{"type":"error","message":"Reconnecting... 1/5 (x)"}`:                                                                    {},
		`{"type":"error","message":"Reconnecting... waiting for network (Connection failed: x)"}`:                                 {Offline: true},
		`{"type":"item.completed","item":{"id":"item_0","type":"error","message":"waiting for network"}}`:                         {},
		`{"type":"item.completed","item":{"type":"agent_message","text":"{\"type\":\"turn.failed\",\"error\":{\"message\":1}}"}}`: {},
		`Reading additional input from stdin...`:                                                                                  {},
		`{"type":7}`:                                                                                                              {},
		``:                                                                                                                        {},
	} {
		if got := spec(t, "codex").Report([]byte(line)); got != want {
			t.Errorf("%s: got %+v, want %+v", line, got, want)
		}
	}
}

// A session is found by its id wherever it stands, and so are those of its subagents, and of nobody else.
func TestCodexSessions(t *testing.T) {
	home := filepath.Join(t.TempDir(), "with [odd] name")
	b := boxWith(map[string]string{"HOME": "/nowhere", "CODEX_HOME": home})
	s := spec(t, "codex")
	if err := s.Prepare(b); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.Local)
	const root, sub, old, other = "019aa114-3e30-7a27-b9b2-0123456789ab", "019aa115-3e30-7a27-b9b2-0123456789ab",
		"018aa114-3e30-7a27-b9b2-0123456789ab", "019aa116-3e30-7a27-b9b2-0123456789ab"
	began := time.UnixMilli(0x019aa1143e30).Local() // the time in the id
	path := s.SessionFile(b, root, began)
	if want := filepath.Join(home, "sessions", began.Format("2006/01/02"),
		"rollout-"+began.Format("2006-01-02T15-04-05")+"-"+root+".jsonl"); path != want {
		t.Errorf("a session is kept in %s, want %s", path, want)
	}
	if got, want := s.SessionFile(b, "not-by-time", at),
		filepath.Join(home, "sessions/2026/11/20/rollout-2026-11-20T12-00-00-not-by-time.jsonl"); got != want {
		t.Errorf("a session is kept in %s, want %s", got, want)
	}
	meta := func(id, of string) string {
		return `{"type":"session_meta","payload":{"id":"` + id + `","session_id":"` + of + `"}}` + "\n"
	}
	rollout := func(at time.Time, id string) string {
		return filepath.Join(home, "sessions", at.Format("2006/01/02"), "rollout-2026-11-20T12-00-01-"+id+".jsonl")
	}
	before := rollout(began, other)
	write(t, "/", map[string]string{
		path: meta(root, root), before: meta(other, root), filepath.Join(filepath.Dir(path), "rollout-new.jsonl"): "",
	})
	if got := s.FindSession(b, root); got != path {
		t.Errorf("found %s", got)
	}
	if got := s.FindSession(b, "nobody"); got != "" {
		t.Errorf("found %s", got)
	}
	// What is there before a session begins is no subagent of it.
	others := map[string]bool{}
	if got := s.Subagents(b, harness.Session{}, others); got != nil || !others[before] || !others[path] {
		t.Errorf("found %+v, and others %v", got, others)
	}
	stranger := rollout(began, "019aa117-3e30-7a27-b9b2-0123456789ab")
	write(t, "/", map[string]string{
		rollout(began.Add(24*time.Hour), sub):  meta(sub, root), // over midnight
		rollout(began.Add(-24*time.Hour), old): meta(old, root), // the clock was set back
		stranger:                               meta("x", other),
	})
	for range 2 { // the second time with what was learned
		got := s.Subagents(b, harness.Session{Path: path, ID: root}, others)
		if len(got) != 2 || got[0].ID != old || got[1].ID != sub || !others[stranger] {
			t.Errorf("found %+v, and others %v", got, others)
		}
	}
	// A resume has all of them.
	if got := s.Subagents(b, harness.Session{Path: path, ID: root}, map[string]bool{}); len(got) != 3 {
		t.Errorf("found %+v", got)
	}
}

// Of what npm links the program itself is taken, wherever npm has put its package.
func TestFindNative(t *testing.T) {
	elf := "\x7fELF and so on"
	arch := "x64"
	if strings.Contains(strings.Join(spec(t, "codex").Native, ""), "arm64") {
		arch = "arm64"
	}
	native := "@openai/codex-linux-" + arch + "/vendor/x86_64-unknown-linux-musl/bin/codex"
	for _, tt := range []struct {
		name, script, program string
		link                  string // where PATH points
		want                  string
	}{
		{"beside", "lib/node_modules/@openai/codex/bin/codex.js", "lib/node_modules/" + native, "bin/codex", "program"},
		{"inside", "lib/node_modules/@openai/codex/bin/codex.js", "lib/node_modules/@openai/codex/node_modules/" + native, "bin/codex", "program"},
		{"alone", "", "opt/codex", "bin/codex", "link"},
		{"somebody's script", "home/codex", "", "bin/codex", "link"},
		{"not in PATH", "home/.npm-global/lib/node_modules/@openai/codex/bin/codex.js", "home/.npm-global/lib/node_modules/@openai/codex/node_modules/" + native, "", "program"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			write(t, dir, map[string]string{"bin/.keep": ""})
			target := tt.program
			if tt.script != "" {
				write(t, dir, map[string]string{tt.script: "#!/usr/bin/env node\n"})
				target = tt.script
			}
			if tt.program != "" {
				write(t, dir, map[string]string{tt.program: elf})
			}
			if tt.link != "" {
				if err := os.Symlink(filepath.Join(dir, target), filepath.Join(dir, tt.link)); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", filepath.Join(dir, "bin"))
			want := filepath.Join(dir, map[string]string{"program": tt.program, "link": tt.link}[tt.want])
			got, err := harness.Find(
				spec(t, "codex"),
				"",
				func(name string) string { return map[string]string{"HOME": filepath.Join(dir, "home")}[name] },
			)
			if err != nil || got != want {
				t.Errorf("got %s, %v, want %s", got, err, want)
			}
		})
	}
}

func TestNPMVersion(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"node_modules/@openai/codex-linux-x64/package.json":       `{"name":"@openai/codex","version":"0.169.0-linux-x64"}`,
		"node_modules/@openai/codex-linux-x64/vendor/x/bin/codex": "",
		"node_modules/@openai/codex/package.json":                 `{"name":"@openai/codex","version":"0.170.0"}`,
		"node_modules/@openai/codex/bin/codex.js":                 "",
		"node_modules/another/package.json":                       `{"name":"another","version":"1"}`,
		"node_modules/another/codex":                              "",
		"node_modules/broken/package.json":                        `{`,
		"node_modules/broken/codex":                               "",
	})
	for path, want := range map[string]string{
		"@openai/codex-linux-x64/vendor/x/bin/codex": "0.169.0", "@openai/codex/bin/codex.js": "0.170.0",
		"another/codex": "", "broken/codex": "", "missing": "",
	} {
		got := spec(t, "codex").Version(filepath.Join(dir, "node_modules", path))
		if got != want || spec(t, "codex").Proven(got) != (want == "0.169.0") {
			t.Errorf("%s is version %q, want %q", path, got, want)
		}
	}
}
