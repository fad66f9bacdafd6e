package boxes_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/scene"

	"arbe.0sk.ar/runner/internal/test/fakedaytona"
	"arbe.0sk.ar/runner/thread"
)

// A launch that can't make its box by its environment ends with the cause on the thread, at the step that failed, and
// leaves no box: with both providers.
func TestFullFails(t *testing.T) {
	for _, tt := range []struct {
		name, doc      string
		steps          string // the kinds
		local, daytona string // the cause
	}{
		{
			"a required secret is missing", "secrets: [{name: NOT_THERE}]", "",
			"read the secrets: a required secret is missing: NOT_THERE",
			"read the secrets: a required secret is missing: NOT_THERE",
		},
		{
			"a wrong image", "image: none:1", "box", "image: a local box has none",
			"build_failed: pull access denied for none:1",
		},
		{
			"a volume that isn't there", "volumes: [{name: none, path: /v}]", "box", "volumes: a local box has none",
			"there is no volume none: make it at Daytona first",
		},
		{
			"a repository that can't be cloned", "repositories: [{repo: acme/widgets}, {repo: acme/none}]",
			"box repository repository", "repository acme/none: clone ", "repository acme/none: daytona: clone ",
		},
		{
			"a tag that isn't there", "repositories: [{repo: acme/widgets, tag: v9}]", "box repository",
			"couldn't find remote ref refs/tags/v9", "couldn't find remote ref refs/tags/v9",
		},
		{
			"a setup command that fails", `
repositories: [{repo: acme/widgets}]
files: [{path: ~/.npm-global/bin/pi, content: "#!/bin/sh", mode: "0755"}]
secrets: [{name: FOR_SETUP}]
setup:
  - run: test "$(git rev-parse --show-prefix)" = ""
  - run: echo "the key $FOR_SETUP is bad" >&2; exit 3
    secrets: [FOR_SETUP]
`, "box repository file file file command command",
			"exit status 3: the key [redacted:FOR_SETUP] is bad", "exit status 3: the key [redacted:FOR_SETUP] is bad",
		},
	} {
		for provider, cause := range map[string]string{"local": tt.local, "daytona": tt.daytona} {
			t.Run(tt.name+" "+provider, func(t *testing.T) {
				t.Parallel()
				h := scene.NewHost(t)
				scene.NewForge(t, h)
				d := fakedaytona.New(t)
				h.Env = append(h.Env, "FOR_SETUP=secret-value-0001", "DAYTONA_API_KEY="+d.Key, "DAYTONA_API_URL="+d.URL,
					"ARBE_BOX_STREAM_URL="+scene.Server)
				h.Thread = h.Arbe("thread", "new")
				file := scene.Write(t, filepath.Join(h.Dir, "env.yaml"), tt.doc)
				out, err := h.Try(h.With("launch", []string{
					"--sandbox", provider, "--environment-file", file, "--thread", h.Thread, "--", "do it",
				})...)
				if err == nil || strings.Contains(out, "exit status 78") {
					t.Errorf("launch: %v\n%s", err, out)
				}
				e := h.End()
				if e.Status != thread.StatusFailed || e.Cause.ErrorClass != "launch" ||
					!strings.Contains(e.Cause.Message, cause) {
					t.Errorf("the run is %+v, want %s", e, cause)
				}
				var kinds []string
				steps := h.Steps()
				for i, step := range steps {
					kind, _, _ := strings.Cut(step, " ")
					kinds = append(kinds, kind)
					if failed := strings.Contains(step, ": "); i < len(steps)-1 && kind != "command" && failed {
						t.Errorf("the step %s", step)
					}
				}
				if strings.Join(kinds, " ") != tt.steps {
					t.Errorf("steps %q, want %s", steps, tt.steps)
				}
				if n := len(steps); n > 0 && !strings.Contains(steps[n-1], ": ") {
					t.Errorf("the last step has no error: %q", steps)
				}
				if all := scene.TextOf(h.Entries()); strings.Contains(all, "secret-value-0001") {
					t.Errorf("the thread has the secret: %s", all)
				}
				boxes, err := filepath.Glob(filepath.Join(h.Data, "boxes", "*", "*"))
				if err != nil || len(boxes)+len(d.Boxes()) > 0 {
					t.Errorf("left behind: %v, %+v, %v", boxes, d.Boxes(), err)
				}
			})
		}
	}
}

// An agent finds what its environment names: repositories beside each other, files, variables, the work of the setup.
// The folder that is to be synced comes back, and a box with work in a second repository stays.
func TestFullEnvironment(t *testing.T) {
	t.Parallel()
	h := scene.NewHost(
		t,
		scene.Bash(
			"pwd; git describe --tags; ls ..; cat ../widgets-again/made ~/.note ../plain; echo so: $PLAIN $WANTED; "+
				"echo done > ../shared/answer; cd ../widgets-again; git branch --show-current; echo more > new",
		),
		scene.Say("Seen."),
	)
	f := scene.NewForge(t, h)
	f.Git("-C", f.Bare, "tag", "v1")
	h.Env = append(h.Env, "WANTED=wanted-value-0001", "FOR_SETUP=only-for-setup")
	scene.Write(t, filepath.Join(h.Dir, "share", "question"), "so?\n")
	scene.Write(t, filepath.Join(h.Dir, "share", "skip.log"), "x\n")
	scene.Write(t, filepath.Join(h.Dir, "note"), "a note\n")
	file := scene.Write(t, filepath.Join(h.Dir, "env.yaml"), `
runtime: daytona # --sandbox outranks it
repositories:
  - {repo: acme/widgets, tag: v1, depth: 1}
  - {repo: acme/widgets, branch: trunk, path: widgets-again}
folders: [{host: share, path: shared, access: sync, exclude: ["*.log"]}]
files:
  - {path: ~/.note, host: note}
  - {path: plain, content: "plain\n"}
setup:
  - run: echo "made with $FOR_SETUP $PLAIN" > ../widgets-again/made
    secrets: [FOR_SETUP]
env: {PLAIN: in-the-box}
secrets: [{name: WANTED}, {name: FOR_SETUP}, {name: NOT_THERE, required: false}]
limits: {run: 1h}
`)
	l, _ := h.Launch("--environment-file", file, "--", "look")
	h.Ends(l.ThreadID)
	all := scene.TextOf(h.Entries())
	for _, want := range []string{
		"/work/widgets", "v1", "plain", "shared", "widgets-again", "a note", "trunk",
		"made with [redacted:FOR_SETUP] in-the-box", "so: in-the-box [redacted:WANTED]",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("the agent did not see %q in %s", want, all)
		}
	}
	if got := strings.Join(h.Steps(), "\n"); got != strings.Join([]string{
		"box making a local sandbox", "repository acme/widgets", "repository acme/widgets",
		"folder " + filepath.Join(h.Dir, "share"), "file plain", "file ~/.note",
		"file .pi/agent/models.json", "file .pi/agent/settings.json",
		`command echo "made with $FOR_SETUP $PLAIN" > ../widgets-again/made`,
	}, "\n") {
		t.Errorf("the steps are\n%s", got)
	}
	out, err := h.Try("reconcile", "--all")
	answer, rerr := os.ReadFile(filepath.Join(h.Dir, "share", "answer"))
	if err != nil || rerr != nil || string(answer) != "done\n" {
		t.Errorf("reconcile: %v, %v\n%s", err, rerr, out)
	}
	kept := "kept " + l.ThreadID
	if !strings.Contains(out, kept) ||
		!strings.Contains(scene.TextOf(h.Entries()), "widgets-again: its repository has") {
		t.Errorf("the box with work is not kept: %s", out)
	}
}
