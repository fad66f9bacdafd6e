package skew_test

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/built"
)

// refVar names the variable with the commit to compare with.
const refVar = "ARBE_SKEW_REF"

// firstRef is the commit to compare with until there is a release.
const firstRef = "3a6042b"

// version is a version of both programs.
type version struct {
	name string // as it is printed
	bin  string // folder
	old  bool   // of the other commit
}

// arbe is the path of the host's program.
func (v version) arbe() string { return filepath.Join(v.bin, "arbe") }

// runner is the path of the box's program.
func (v version) runner() string { return filepath.Join(v.bin, "arbe-pi-runner") }

// commit is the commit of an older version.
func (v version) commit() string {
	name, _, _ := strings.Cut(filepath.Base(v.bin), "-")
	return name
}

// versions returns the version of the other commit and this one.
func versions(t *testing.T) (older, newer version) {
	t.Helper()
	ref := cmp.Or(os.Getenv(refVar), built.LastRelease(root), firstRef)
	commit, err := built.Commit(root, ref)
	if errors.Is(err, built.ErrNoCommit) {
		t.Skip(err)
	}
	bin, err := built.OfCommit(root, commit)
	if err != nil {
		t.Fatal(err)
	}
	older, newer = version{bin: bin, old: true}, version{bin: ours}
	for _, v := range []*version{&older, &newer} {
		out, err := exec.Command(v.arbe(), "version").Output()
		if err != nil {
			t.Fatal(err)
		}
		v.name = strings.Fields(string(out))[1]
	}
	return older, newer
}
