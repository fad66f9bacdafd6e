package docs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/scene"

	"arbe.0sk.ar/runner/internal/test/agents"
	"arbe.0sk.ar/runner/internal/test/model"
)

// TestFullDocs runs the commands of the documents' console blocks, as a user with pi installed would type them into one
// shell, and looks for the output that stands under them.
func TestFullDocs(t *testing.T) {
	t.Parallel()
	docs, err := filepath.Glob("../../../../*.md")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../../../../docs/*.md")
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
			t.Run(fmt.Sprintf("%s.%d", filepath.Base(path), i), func(t *testing.T) {
				t.Parallel()
				typed(t, block)
			})
		}
	}
	if blocks == 0 {
		t.Error("no console blocks in the documents")
	}
}

// scripted are the files that name the scripted model to pi in a box, in place of its own provider.
const scripted = " --file ~/.pi/agent/models.json:.pi/agent/models.json" +
	" --file ~/.pi/agent/settings.json:.pi/agent/settings.json"

// typed runs a block's commands.
func typed(t *testing.T, block string) {
	haiku := model.Tool{Name: "write", Arguments: map[string]any{"path": "haiku.txt", "content": "a haiku"}}
	version := scene.Pi078
	if strings.Contains(block, "--live") { // for which it is too old
		version = "0.87.1"
	}
	s := scene.New(t, version,
		model.Reply{Tools: []model.Tool{haiku}}, scene.Say("Done."), scene.Say("Another one."), scene.Say("The end."))
	for _, name := range []string{"ARBE_THREAD_ID", "ARBE_STREAM_URL", "ARBE_STREAM_TOKEN", "ARBE_RUN_ID"} {
		s.Without(name)
	}
	script := "set -e\ntrap 'kill $(jobs -p)' EXIT\n"
	var want []string
	for line := range strings.Lines(strings.ReplaceAll(block, "\\\n", "")) {
		line = strings.TrimSuffix(line, "\n")
		command, is := strings.CutPrefix(line, "$ ")
		if !is {
			want = append(want, line)
			continue
		}
		command = strings.ReplaceAll(command, "8787", "$PORT") // the default port may be taken here
		command = strings.ReplaceAll(command, "ANTHROPIC_API_KEY", agents.KeyVar)
		if !strings.Contains(command, "models.json") { // which names the scripted model
			command = strings.Replace(command, "--env "+agents.KeyVar, "--env "+agents.KeyVar+scripted, 1)
		}
		script += strings.Replace(command, "arbe serve &", "arbe serve --addr 127.0.0.1:0 2>>server.log &", 1) + "\n"
		if strings.Contains(command, "arbe serve") { // a person is not that fast
			script += "while [ ! -s $ARBE_DATA/address ]; do sleep 0.01; done\nPORT=$(sed 's/.*://' " +
				"$ARBE_DATA/address)\n"
		}
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir = filepath.Join(s.Dir, "work")
	cmd.Env = append(s.Env, "ARBE_DATA="+filepath.Join(s.Dir, "data"))
	for i, kv := range cmd.Env {
		if path, is := strings.CutPrefix(kv, "PATH="); is {
			cmd.Env[i] = "PATH=" + scene.Bin + ":" + path
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

// TestFullDemo runs what "make demo" runs, and holds the README's transcript of it: each line of it without a digit is
// printed, for times and ids differ.
func TestFullDemo(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "run", "-trimpath", "../../demo", scene.Bin)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp, "COLUMNS=80")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"pi 0.78.0 starts in", "› bash printf", "  Is it dead, or is it thinking?\n", "✔ completed · exit 0",
		"$ cat haiku.txt\nThe box is silent.",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("want %q in\n%s", want, out)
		}
	}
	readme, err := os.ReadFile("../../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, transcript, _ := strings.Cut(string(readme), "```text\n")
	transcript, _, found := strings.Cut(transcript, "```")
	if !found {
		t.Error("the README has no transcript")
	}
	for line := range strings.Lines(transcript) {
		if !strings.ContainsAny(line, "0123456789") && !strings.Contains(string(out), line) {
			t.Errorf("the README has %q, and the demo does not print it:\n%s", line, out)
		}
	}
	leavesNothing(t, temp)
}

// TestFullDemoHouse runs what "make demo-house" runs: the bot's run completes with the secret of its environment, the
// lists have it by its name, and it answers its owner.
func TestFullDemoHouse(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "run", "-trimpath", "../../demohouse", scene.Bin)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp, "COLUMNS=100")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"  Is it dead, or is it thinking?\n", "✔ completed · exit 0", "\ndefault environment  base\n",
		"\nPiet  member  bot    pi ", "local    default  " + agents.KeyVar, " Haiku #demo\n",
		" \"@Piet how long do the tests take?\"\nFour minutes: `make test`. The whole suite, `make test-full`, " +
			"takes 17.\n",
		"\nThe owner's page: http://127.0.0.1:",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("want %q in\n%s", want, out)
		}
	}
	if strings.Contains(string(out), "scripted-key-0001") {
		t.Errorf("the secret's value is in\n%s", out)
	}
	leavesNothing(t, temp)
}

// TestFullDemoBots runs what "make demo-bots" runs: the bots run a command, delegate a task to the real pi, and post to
// each other; the terminal shows all of it.
func TestFullDemoBots(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "run", "-trimpath", "../../demobots", scene.Bin)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp, "COLUMNS=100")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"› run_command echo '12 tests passed'\n", "› delegate_task ", "› post_to_thread",
		"12 tests pass, the haiku is being written, and Alma knows.\n3 calls · ", "\n@Alma 12 tests pass on Tests.\n",
		"\nThank you: I have noted the 12 tests in Planning.\n", " ended: completed\n",
		"\nDone: haiku.txt has three lines.\n",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("want %q in\n%s", want, out)
		}
	}
	leavesNothing(t, temp)
}

// leavesNothing looks for what a demo has left in its folder for temporary files, and for its processes.
func leavesNothing(t *testing.T, temp string) {
	t.Helper()
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
