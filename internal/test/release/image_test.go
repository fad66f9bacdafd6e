package release_test

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/agents"
	"arbe.0sk.ar/runner/internal/test/dockerd"
	"arbe.0sk.ar/runner/internal/test/model"
)

// engine is a Docker engine with the image of the release.
type engine struct {
	*dockerd.Engine
	t     *testing.T
	image string
}

func newEngine(t *testing.T, f files) engine {
	t.Helper()
	d, err := dockerd.Start()
	var missing *dockerd.MissingError
	if errors.As(err, &missing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	e := engine{d, t, "arbe:" + f.version}
	if got := e.docker("load", "-i", filepath.Join(f.dir, f.image())); !strings.Contains(got, e.image) {
		t.Fatalf("loaded %s, want %s", got, e.image)
	}
	return e
}

// docker runs a command of docker and returns what it printed.
func (e engine) docker(args ...string) string {
	e.t.Helper()
	out, err := e.Command(e.t.Context(), args...).CombinedOutput()
	if err != nil {
		e.t.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// healthy waits until the engine finds a container healthy.
func (e engine) healthy(name string) {
	e.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		state := e.docker("inspect", "--format", "{{.State.Status}} {{.State.Health.Status}}", name)
		switch state {
		case "running healthy":
			return
		case "running starting":
		default:
			e.t.Fatalf("%s is %s: %s\n%s", name, state, e.docker("logs", name), e.docker("inspect", name))
		}
		select {
		case <-tick.C:
		case <-e.t.Context().Done():
			e.t.Fatal("still starting")
		}
	}
}

// The image runs as it stands, for no user of the machine, and keeps its threads in its volume.
func TestFullImage(t *testing.T) {
	t.Parallel()
	f := released(t)
	e := newEngine(t, f)
	const format = `{{.Config.User}} {{.Config.Volumes}} {{.Os}}/{{.Architecture}} ` +
		`{{index .Config.Labels "org.opencontainers.image.version"}} ` +
		`{{index .Config.Labels "org.opencontainers.image.revision"}}`
	if got, want := e.docker("inspect", "--format", format, e.image),
		"65532:65532 map[/data:{}] "+target+" "+f.version+" "+f.commit; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if got := e.docker("inspect", "--format", "{{.Id}}", e.image); got != configOf(t, f) {
		t.Errorf("docker's image is %s, the layout has %s", got, configOf(t, f))
	}
	// It listens to other machines, so it wants a secret.
	out, err := e.Command(t.Context(), "run", "--rm", "--network", "none", e.image).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 78 || !strings.Contains(string(out), "DURABLE_STREAMS_SECRET") {
		t.Errorf("without a secret: %v, %s", err, out)
	}
	run := func(name string) {
		t.Helper()
		e.docker("run", "-d", "--name", name, "--network", "none", "-v", "threads:/data", "--read-only",
			"-e", "DURABLE_STREAMS_SECRET="+strings.Repeat("s", 32), "--health-interval", "1s",
			"--health-retries", "60", e.image)
		e.healthy(name)
	}
	run("first")
	thread := e.docker("exec", "first", "/usr/bin/arbe", "thread", "new")
	e.docker("exec", "first", "/usr/bin/arbe", "thread", "post", thread, "kept")
	e.docker("stop", "-t", "300", "first")
	if got := e.docker("inspect", "--format", "{{.State.ExitCode}}", "first"); got != "0" {
		t.Errorf("stopped with %s", got)
	}
	run("second")
	if got := e.docker("exec", "second", "/usr/bin/arbe", "thread", "read", thread); !strings.Contains(got, `"kept"`) {
		t.Errorf("the thread has %s", got)
	}
}

// The agent of make demo runs against a server in a container.
func TestFullImageServesAgent(t *testing.T) {
	t.Parallel()
	f := released(t)
	e := newEngine(t, f)
	e.docker("run", "-d", "--name", "arbe", "--network", "host", "--health-interval", "1s", "--health-retries", "60",
		e.image, "serve", "--addr", "127.0.0.1:0")
	e.healthy("arbe")
	_, url, _ := strings.Cut(e.docker("exec", "arbe", "/usr/bin/arbe", "serve", "health"), " ")
	thread := e.docker("exec", "arbe", "/usr/bin/arbe", "thread", "new")
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), filepath.Join(unpacked(t, f), "bin/arbe-pi-runner"), "run", "--",
		"Write a haiku about silence into haiku.txt")
	cmd.Dir = dir
	cmd.Env = append(demoAgent(t, dir), "ARBE_STATE_DIR="+filepath.Join(dir, "state"), "ARBE_THREAD_ID="+thread,
		"ARBE_STREAM_URL="+url,
		"ARBE_STREAM_TOKEN="+e.docker("exec", "arbe", "/usr/bin/arbe", "token", "mint", "--thread", thread))
	run(t, cmd)
	if got := e.docker("exec", "arbe", "/usr/bin/arbe", "thread", "status", thread); got != "completed" {
		t.Errorf("the thread is %s", got)
	}
	if haiku, err := os.ReadFile(filepath.Join(dir, "haiku.txt")); err != nil || len(haiku) == 0 {
		t.Errorf("the agent has written %q, %v", haiku, err)
	}
}

// demoAgent returns the environment in which the pi of make demo is installed, with its scripted model.
func demoAgent(t *testing.T, home string) []string {
	t.Helper()
	script, err := os.ReadFile("../demo/stage/script.json")
	if err != nil {
		t.Fatal(err)
	}
	replies, err := model.Parse(script)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(&model.Server{Script: replies})
	t.Cleanup(server.Close)
	pi, err := agents.FindPi("0.78.0")
	if err != nil {
		t.Fatal(err)
	}
	if err := pi.Home(home, server.URL, 2000); err != nil {
		t.Fatal(err)
	}
	return pi.Env(home)
}

// configOf returns the digest of the configuration of this processor's image in the layout of OCI.
func configOf(t *testing.T, f files) string {
	t.Helper()
	type descriptor struct {
		Digest   string
		Platform struct{ Architecture string }
	}
	type blob struct {
		Manifests []descriptor
		Config    descriptor
	}
	layout := filesOf(t, filepath.Join(f.dir, "arbe_"+f.version+"_image.tar"))
	if got := string(layout["oci-layout"]); !strings.Contains(got, `"1.0.0"`) {
		t.Errorf("oci-layout is %s", got)
	}
	read := func(name string) (b blob) {
		t.Helper()
		if err := json.Unmarshal(layout[name], &b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return b
	}
	at := func(d descriptor) string { return "blobs/" + strings.Replace(d.Digest, ":", "/", 1) }
	index := read("index.json")
	for _, m := range read(at(index.Manifests[0])).Manifests {
		if m.Platform.Architecture == runtime.GOARCH {
			return read(at(m)).Config.Digest
		}
	}
	t.Fatalf("no image for %s in %s", runtime.GOARCH, layout["index.json"])
	return ""
}

// filesOf returns the files of a tar.
func filesOf(t *testing.T, path string) map[string][]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if all[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return all
}
