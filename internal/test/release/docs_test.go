package release_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// section returns a section of a document of this working tree.
func section(t *testing.T, name, heading string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../..", name))
	if err != nil {
		t.Fatal(err)
	}
	_, found, is := strings.Cut(string(text), "\n## "+heading+"\n")
	if !is {
		t.Fatalf("%s has no section %s", name, heading)
	}
	found, _, _ = strings.Cut(found, "\n## ")
	return found
}

// shown returns the commands of a section, in the blocks that they stand in there, with the names of the files of f.
func (f files) shown(text string) (blocks []string) {
	block := ""
	for line := range strings.Lines(text + "\n") {
		if command, is := strings.CutPrefix(line, "    "); is {
			block += command
		} else if command, is := strings.CutPrefix(line, "$ "); is {
			block += command
		} else if block != "" {
			blocks, block = append(blocks, block), ""
		}
	}
	for i, b := range blocks {
		for _, r := range []struct{ name, here string }{
			{`arbe_[\d.]+_amd64\.deb`, f.deb()}, {`arbe_[\d.]+_image_amd64\.tar`, f.image()}, {`arbe:[\d.]+`, "arbe:" + f.version},
		} {
			b = regexp.MustCompile(r.name).ReplaceAllString(b, r.here)
		}
		blocks[i] = b
	}
	return blocks
}

// sudo is for those who are root.
const sudo = "sudo() { \"$@\"; }\n"

// TestFullInstallAsShown types the commands of the README's section Install: those for the archive, the deb, the image
// and the clone, each where it belongs.
func TestFullInstallAsShown(t *testing.T) {
	t.Parallel()
	f := released(t)
	want := "arbe " + f.version + "+" + f.commit[:12] + " "
	holds := func(t *testing.T, got string) {
		t.Helper()
		if !strings.HasPrefix(got, want) {
			t.Errorf("arbe version prints %s, want %s…", got, want)
		}
	}
	inRoot := func(t *testing.T, script string) {
		r := newRoot(t, f.dir, "")
		r.run("cd /dist\n" + sudo + script)
		holds(t, r.run("arbe version"))
	}
	places := map[string]func(t *testing.T, script string){
		"sh install.sh": inRoot,
		"apt-get":       inRoot,
		"docker run":    func(t *testing.T, script string) { inEngine(t, f, script) },
		"make build":    func(t *testing.T, script string) { holds(t, inClone(t, f, script)) },
	}
	var left []string
	for _, script := range f.shown(section(t, "README.md", "Install")) {
		for word, place := range places {
			if strings.Contains(script, word) {
				delete(places, word)
				t.Run(strings.Fields(word)[0], func(t *testing.T) { place(t, script) })
				script = ""
				break
			}
		}
		if script != "" {
			left = append(left, script)
		}
	}
	if left != nil || len(places) > 0 {
		t.Errorf("not typed: %q, not shown: %v", left, places)
	}
}

// inEngine types commands of docker in the folder with the release.
func inEngine(t *testing.T, f files, script string) {
	e := newEngine(t, f)
	// The test's engine has no network of its own.
	const alone = "--network none --health-interval 1s --health-retries 60"
	isolated := strings.Replace(script, "-p 127.0.0.1:8787:8787", alone, 1)
	if isolated == script {
		t.Errorf("no port in %s", script)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", isolated)
	cmd.Dir, cmd.Env = f.dir, e.Command(t.Context()).Env
	run(t, cmd)
	e.healthy("arbe")
	e.docker("exec", "arbe", "arbe", "ls")
}

// inClone types commands in a clone, and returns what arbe version prints after them.
func inClone(t *testing.T, f files, script string) string {
	dir := filepath.Join(t.TempDir(), "arbe")
	output(t, "git", "clone", "-q", f.clone, dir)
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", script+"arbe version")
	cmd.Dir = dir
	printed := strings.Split(run(t, cmd), "\n")
	return printed[len(printed)-1]
}

// TestFullSignature checks the release as docs/RELEASE.md shows it: the signature is by this key, and for these sums
// alone.
func TestFullSignature(t *testing.T) {
	t.Parallel()
	f := released(t)
	var script string
	for _, block := range f.shown(section(t, "docs/RELEASE.md", "Check a release")) {
		script += block
	}
	sums, err := os.ReadFile(filepath.Join(f.dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	changed := []byte(string(sums))
	changed[0] ^= 1
	check := func(sums []byte, script string) (string, error) {
		dir := t.TempDir()
		for name, from := range map[string]string{
			"release.pub": f.key, "SHA256SUMS.sig": filepath.Join(f.dir, "SHA256SUMS.sig"),
			f.deb(): filepath.Join(f.dir, f.deb()),
		} {
			if err := os.Link(from, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "SHA256SUMS"), sums, 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", script)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := check(sums, script)
	if err != nil || !strings.Contains(out, `Good "arbe-release" signature for arbe`) {
		t.Errorf("%v, %s", err, out)
	}
	if _, got, _ := strings.Cut(out, "\n"); got != f.deb()+": OK\n" {
		t.Error(cmp.Diff(f.deb()+": OK\n", got))
	}
	for name, text := range map[string][]byte{
		"one byte": changed, "none": nil, "one added": append(sums[:len(sums):len(sums)], sums...),
	} {
		if out, err := check(text, script); err == nil || !strings.Contains(out, "incorrect signature") {
			t.Errorf("%s: %v, %s", name, err, out)
		}
	}
	if out, err := check(sums, strings.ReplaceAll(script, "arbe-release", "git")); err == nil {
		t.Errorf("for another purpose: %s", out)
	}
}
