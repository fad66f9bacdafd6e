package e2e_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/agents"
	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/internal/test/port"
)

// TestDocs runs the commands of the documents' console blocks, as a user with pi installed would type them into one shell, and looks for the output
// that stands under them.
func TestDocs(t *testing.T) {
	t.Parallel()
	docs, err := filepath.Glob("../../../*.md")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := 0
	for _, path := range append(docs, more...) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range strings.Split(string(b), "```console\n")[1:] {
			blocks++
			block, _, _ = strings.Cut(block, "```")
			t.Run(fmt.Sprintf("%s.%d", filepath.Base(path), i), func(t *testing.T) { typed(t, block) })
		}
	}
	if blocks == 0 {
		t.Error("no console blocks in the documents")
	}
}

// typed runs a block's commands.
func typed(t *testing.T, block string) {
	s := newScene(t, pi078, model.Reply{Tools: []model.Tool{{Name: "write", Arguments: map[string]any{"path": "haiku.txt", "content": "a haiku"}}}}, say("Done."))
	for _, name := range []string{"ARBE_THREAD_ID", "ARBE_STREAM_URL", "ARBE_STREAM_TOKEN", "ARBE_RUN_ID"} {
		s.without(name)
	}
	// The block has the default port, which may be taken here.
	addr := port.Reserve(t)
	_, number, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	script := "set -e\ntrap 'kill $(jobs -p)' EXIT\n"
	var want []string
	for line := range strings.Lines(block) {
		line = strings.TrimSuffix(line, "\n")
		command, is := strings.CutPrefix(line, "$ ")
		if !is {
			want = append(want, line)
			continue
		}
		command = strings.ReplaceAll(command, "8787", number)
		command = strings.ReplaceAll(command, "ANTHROPIC_API_KEY", agents.KeyVar)
		script += strings.Replace(command, "arbe serve &", "arbe serve --addr "+addr+" 2>>server.log &", 1) + "\n"
		if strings.Contains(command, "arbe serve") { // a person is not that fast
			script += "while [ ! -s $ARBE_DATA/address ]; do sleep 0.01; done\n"
		}
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir = filepath.Join(s.dir, "work")
	cmd.Env = append(s.env, "ARBE_DATA="+filepath.Join(s.dir, "data"))
	for i, kv := range cmd.Env {
		if path, is := strings.CutPrefix(kv, "PATH="); is {
			cmd.Env[i] = "PATH=" + bin + ":" + path
		}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, line := range want {
		if !strings.Contains(string(out), line+"\n") {
			t.Errorf("want the line %q in\n%s", line, out)
		}
	}
}

// TestDemo runs what "make demo" runs.
func TestDemo(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "run", "../demo", bin)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"pi 0.78.0 starts in", "› bash printf", "  Is it dead, or is it thinking?\n", "✔ completed · exit 0", "$ cat haiku.txt\nThe box is silent."} {
		if !strings.Contains(string(out), want) {
			t.Errorf("want %q in\n%s", want, out)
		}
	}
	left, err := filepath.Glob(filepath.Join(temp, "arbe-*"))
	if err != nil || left != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
	procs, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		if dir, err := os.Readlink(p); err == nil && strings.HasPrefix(dir, temp) {
			t.Errorf("left running: %s in %s", p, dir)
		}
	}
}
