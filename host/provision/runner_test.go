package provision_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/provision"
)

// A runner is the file that ARBE_RUNNER_BIN names, or stands beside arbe, or where a package puts it.
func TestRunners(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const arch = runtime.GOARCH
	beside, packaged := t.TempDir(), t.TempDir()
	places := provision.Runners{Beside: beside, Packaged: packaged}
	if _, err := places.For(arch); err == nil || !strings.Contains(err.Error(), packaged) {
		t.Errorf("without a runner: %v", err)
	}
	wrong := filepath.Join(beside, "arbe-pi-runner")
	if err := os.WriteFile(wrong, []byte("a script"), 0o755); err != nil {
		t.Fatal(err)
	}
	const name = "arbe-pi-runner-linux-" + arch
	// Each place outranks the one before.
	for _, want := range []string{filepath.Join(packaged, name), wrong, filepath.Join(beside, name)} {
		if err := os.RemoveAll(want); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(self, want); err != nil {
			t.Fatal(err)
		}
		if got, err := places.For(arch); got != want || err != nil {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
	set := filepath.Join(t.TempDir(), "named")
	if got, err := (provision.Runners{Set: set, Beside: beside, Packaged: packaged}).For(arch); err == nil {
		t.Errorf("%s, not %s, which is not there", got, set)
	}
}
