package resume_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/scene"

	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/internal/test/program"
)

// all are the harnesses, each with a version that it is proven with.
func all(t *testing.T) map[string]string {
	t.Helper()
	versions := scene.Others(t)
	versions["pi"] = scene.Pi078
	return versions
}

// By hand each agent's answer is on the runner's stdout, and nothing else; the log is on the terminal.
func TestFullAnswerByHand(t *testing.T) {
	for name, version := range all(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answerByHand(
				t,
				scene.NewOf(t, name, version, scene.Calling(name, "echo hi"), scene.Say(handAnswer)),
				version,
			)
		})
	}
}

// So it is in a live run, whose stdout is the conversation with the agent.
func TestFullAnswerByHandLive(t *testing.T) {
	versions := scene.Others(t)
	versions["pi"] = "0.87.1"
	for name, version := range versions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := scene.NewLive(t, name, scene.Calling(name, "echo hi"), scene.Say(handAnswer))
			l.Args = append(l.Args, "--idle", "1ms")
			answerByHand(t, l.Scene, version)
		})
	}
}

const handAnswer = "The first line.\nThe second line."

// answerByHand runs an agent that answers with handAnswer.
func answerByHand(t *testing.T, s *scene.Scene, version string) {
	t.Helper()
	args := append(append([]string{"run"}, s.Args...), "--", "do it")
	cmd, _, _, screen := s.ForTerminal(args...)
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v", err)
	}
	if got := stdout.String(); got != handAnswer+"\n" {
		t.Errorf("stdout has %q, want %q", got, handAnswer+"\n")
	}
	began := regexp.MustCompile(`▸ ` + s.Agent.Harness + ` ` + regexp.QuoteMeta(version) + ` · thread ` + s.Thread +
		` · pid \d+\x1b`)
	scene.Until(t, "the closing line", func() bool {
		return strings.Contains(screen.String(), "✔ completed · exit 0 · ")
	})
	if !began.MatchString(screen.String()) || strings.Contains(screen.String(), "level=") {
		t.Errorf("the terminal shows %q", screen)
	}
}

// The commonest failures name their cause and the next step, on the terminal and on the thread.
func TestFullFailuresByHand(t *testing.T) {
	type change = func(*testing.T, *scene.Scene)
	noKey := func(_ *testing.T, s *scene.Scene) { s.Without(s.Agent.KeyVar) }
	model404 := []model.Reply{{Status: 404, Message: "The model no-such-model does not exist", Times: -1}}
	wrongModel := func(_ *testing.T, s *scene.Scene) { s.Args = append(s.Args, "--model", "no-such-model") }
	away := func(t *testing.T, s *scene.Scene) {
		if err := s.Agent.Home(s.Dir, "http://127.0.0.1:1", 50); err != nil {
			t.Fatal(err)
		}
		s.Args = append(s.Args, "--unreachable-timeout", "1s")
	}
	const (
		key     = "next: set the provider's API key where the agent runs"
		other   = "next: name another model with --model"
		network = "next: check the network and the provider's address"
	)
	for _, tt := range []struct {
		name    string
		agent   string
		replies []model.Reply
		change  change
		message string // of the failed entry, a pattern
		next    string
	}{
		{
			"no key", "pi", nil, noKey,
			`^the agent ended with exit status 1: No API key found for (scripted|the selected model)\.$`, key,
		},
		{"no key", "codex", nil, noKey, "^Missing environment variable: `[A-Z_]+`", key},
		{"no key", "claude-code", nil, noKey, `^Not logged in · Please run /login`, key},
		{
			"wrong model", "pi", nil, wrongModel,
			`^the agent ended with exit status 1: Error: Model "no-such-model" not found\.`, other,
		},
		{"wrong model", "codex", model404, wrongModel, `no-such-model`, other},
		{"wrong model", "claude-code", model404, wrongModel, `no-such-model`, other},
		{"no network", "pi", nil, away, `^Connection error\.$`, network},
		{"no network", "codex", nil, away, `^the model's provider was out of reach: `, network},
		{"no network", "claude-code", nil, away, `(?i)connect`, network},
		{
			"old Node", "pi", nil, oldNode,
			`^the agent ended with exit status 1: it needs Node 22\.19\.0 or newer, and runs on Node ` +
				`\d+\.\d+\.\d+: \w*Error: .*[^0-9]$`, "next: put a newer Node first in PATH",
		},
		{
			"disk full", "pi",
			[]model.Reply{scene.Say(strings.Repeat("0123456789abcdef", 20_000))},
			func(*testing.T, *scene.Scene) {},
			`^the agent ended with (exit status 1|SIGXFSZ): no space left on its disk: `, "next: free space on the disk",
		},
	} {
		t.Run(tt.name+"/"+tt.agent, func(t *testing.T) {
			t.Parallel()
			s := scene.NewOf(t, tt.agent, all(t)[tt.agent], tt.replies...)
			s.Env = append(s.Env, "CLAUDE_CODE_MAX_RETRIES=0")
			tt.change(t, s)
			args := append(append([]string{"run"}, s.Args...), "--", "do it")
			cmd, _, _, screen := s.ForTerminal(args...)
			if tt.name == "disk full" { // the limit on a file's size stands for the disk's: 200 KiB in blocks of 512
				cmd.Path = "/bin/sh"
				cmd.Args = append([]string{"sh", "-c", `ulimit -f 400 && exec "$0" "$@"`}, cmd.Args...)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) {
				t.Errorf("the runner ended with %v", err)
			}
			e := s.End()
			if !regexp.MustCompile(tt.message).MatchString(e.Cause.Message) {
				t.Errorf("the failed entry has the message %q", e.Cause.Message)
			}
			if tt.name == "no network" && tt.agent == "codex" {
				const waits = "! the agent can't reach its provider and waits"
				scene.Until(t, "the warning", func() bool { return strings.Contains(screen.String(), waits) })
			}
			scene.Until(t, "the next step", func() bool { return strings.Contains(screen.String(), "  "+tt.next) })
			if line := "✘ failed: " + e.Cause.Message; !strings.Contains(screen.String(), line) {
				t.Errorf("no line %q on the terminal", line)
			}
		})
	}
}

// oldNode leaves the scene's pi to a Node that is too old for it: that of this machine, if it is, else one that does
// nothing but crash as such a Node does.
func oldNode(t *testing.T, s *scene.Scene) {
	dir := t.TempDir()
	pi, err := filepath.EvalSymlinks(filepath.Join(s.Agent.Bin(), "pi"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(pi, filepath.Join(dir, "pi")); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("node", "--version").Output()
	if err != nil || !regexp.MustCompile(`^v(1\d|20|21)\.`).Match(out) {
		const crash = "#!/bin/sh\nprintf '%s\\n' '/lib/x.js:20' '    at f' 'TypeError: x is not a function' '' " +
			"'Node.js v20.20.2' >&2\nexit 1\n"
		program.Write(t, filepath.Join(dir, "node"), []byte(crash))
	}
	s.Without("PATH")
	s.Env = append(s.Env, "PATH="+dir+":"+os.Getenv("PATH"))
}
