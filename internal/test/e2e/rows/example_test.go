package rows_test

import (
	"io"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/scene"

	"arbe.0sk.ar/runner/internal/test/agents"
	"arbe.0sk.ar/runner/internal/test/fakedaytona"
	"arbe.0sk.ar/runner/thread"
)

// examples is the folder of the documents' examples.
const examples = "../../../../docs/examples"

// exampleRepositories serves the repositories that docs/examples/environment.yaml names, as GitHub does.
func exampleRepositories(t *testing.T, h *scene.Host) {
	t.Helper()
	git := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("git", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	for name, files := range map[string]map[string]string{
		"shop": {
			"package.json": `{"name":"shop","version":"1.0.0","scripts":{"build":` +
				`"echo built for $NODE_ENV with CI=$CI and NPM_TOKEN=$NPM_TOKEN >built"}}`,
			"package-lock.json": `{"name":"shop","version":"1.0.0","lockfileVersion":3,"packages":` +
				`{"":{"name":"shop","version":"1.0.0"}}}`,
		},
		"shop-docs": {"README": "the docs of 1.4\n"},
	} {
		repo := filepath.Join(h.Dir, name)
		for path, content := range files {
			scene.Write(t, filepath.Join(repo, path), content)
		}
		git("init", "-q", "-b", "main", repo)
		as := []string{"-C", repo, "-c", "user.name=n", "-c", "user.email=e@example.org"}
		git("-C", repo, "add", ".")
		git(append(as, "commit", "-q", "-m", "first")...)
		git("-C", repo, "tag", "v1.4.0")
		git(append(as, "commit", "-q", "--allow-empty", "-m", "later")...)
		git("clone", "-q", "--bare", repo, filepath.Join(h.Dir, "served", "example", name+".git"))
	}
	s := httptest.NewServer(&cgi.Handler{
		Path: filepath.Join(git("--exec-path"), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + filepath.Join(h.Dir, "served"), "GIT_HTTP_EXPORT_ALL=1"}, Stderr: io.Discard,
	})
	t.Cleanup(s.Close)
	h.Env = append(h.Env, "GITHUB_SERVER_URL="+s.URL)
}

// The documents' environment of a house, as it stands there, is applied, and the real pi works in a box of it at
// Daytona's double: with the repositories, the work of the setup, the file, the variables, the secrets and the volume.
func TestFullExampleEnvironment(t *testing.T) {
	tools := t.TempDir() // what the image has: the boxes of the double get the test's PATH
	cache, err := agents.Cache()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"node", "pi"} {
		program := filepath.Join(cache, "pi-"+scene.Pi078, "node_modules", ".bin", name)
		if err := os.Symlink(program, filepath.Join(tools, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", tools+":"+os.Getenv("PATH"))
	h := scene.NewHost(t,
		scene.Bash("cat built ~/.npmrc ../docs/README; git branch --show-current; git -C ../docs describe --tags; "+
			"echo token $NPM_TOKEN ${SENTRY_DSN-unset}"),
		scene.Say("Seen."))
	withRows(h)
	exampleRepositories(t, h)
	d := fakedaytona.New(t)
	d.Volumes = []fakedaytona.Volume{{ID: "v-1", Name: "npm-cache", State: "ready"}}
	h.Env = append(h.Env, "DAYTONA_API_KEY="+d.Key, "DAYTONA_API_URL="+d.URL, "ARBE_BOX_STREAM_URL="+scene.Server)
	for name, value := range map[string]string{
		"ANTHROPIC_API_KEY": "example-model-key-0001", "NPM_TOKEN": "example-npm-token-0001",
	} {
		set := h.Command("secret", "set", "--house", "house1", name)
		set.Stdin = strings.NewReader(value)
		if out, err := set.CombinedOutput(); err != nil {
			t.Fatalf("arbe secret set: %v\n%s", err, out)
		}
	}
	out, err := h.Try("env", "apply", filepath.Join(examples, "environment.yaml"), "--house", "house1")
	if err != nil || !strings.HasPrefix(out, "created\t") || !strings.HasSuffix(out, "\tweb\n") {
		t.Fatalf("arbe env apply: %v\n%s", err, out)
	}
	l, _ := h.Launch("--sandbox", "daytona", "--house", "house1", "--environment", "web",
		"--", "look")
	h.Ends(l.ThreadID)
	all := scene.TextOf(h.Entries())
	for _, want := range []string{
		"built for production with CI=1 and NPM_TOKEN=\\n", "fund=false", "the docs of 1.4", "main\\n", "v1.4.0",
		"token [redacted:NPM_TOKEN] unset",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("the agent did not see %q in %s", want, all)
		}
	}
	boxes := d.Boxes()
	if len(boxes) != 1 {
		t.Fatalf("boxes: %+v", boxes)
	}
	b := boxes[0]
	if b.Image != "node:22-bookworm" || b.CPU != 2 || b.Memory != 4 || b.Disk != 10 || b.Target != "us" ||
		len(b.Volumes) != 1 || b.Volumes[0] != (fakedaytona.Mount{VolumeID: "v-1", MountPath: "/home/daytona/.npm"}) {
		t.Errorf("the box is %+v", b)
	}
}

// The documents' environment of a launch, as it stands there, makes a local box: its folder is copied in, and comes
// back with the work of the setup.
func TestFullExampleEnvironmentLocal(t *testing.T) {
	t.Parallel()
	h := scene.NewHost(t, scene.Bash("pwd; cat prepared.txt NOTES.md; echo more >>NOTES.md"), scene.Say("Seen."))
	folder := filepath.Join(h.Dir, "examples")
	if err := os.CopyFS(folder, os.DirFS(examples)); err != nil {
		t.Fatal(err)
	}
	l, _ := h.Launch("--environment-file", filepath.Join(folder, "environment-local.yaml"), "--", "look")
	h.Ends(l.ThreadID)
	if got := h.Arbe("thread", "status", l.ThreadID); got != thread.StatusCompleted {
		t.Errorf("the run is %s: %s", got, scene.TextOf(h.Entries()))
	}
	if out, err := h.Try("reconcile", "--all"); err != nil {
		t.Errorf("reconcile: %v\n%s", err, out)
	}
	for name, want := range map[string]string{"prepared.txt": "prepared\n", "NOTES.md": "more\n"} {
		if b, err := os.ReadFile(filepath.Join(folder, name)); err != nil || string(b) != want {
			t.Errorf("%s is %q, %v, want %q", name, b, err, want)
		}
	}
}
