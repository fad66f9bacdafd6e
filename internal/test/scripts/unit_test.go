package scripts

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The systemd unit calls the program as it wants to be called.
func TestUnit(t *testing.T) {
	unit, err := os.ReadFile("../../../deploy/systemd/arbe-serve.service")
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(unit), "\nExecStart=")
	line, _, _ = strings.Cut(line, "\n")
	args := strings.Fields(strings.ReplaceAll(line, "%S", t.TempDir()))
	for _, tt := range []struct {
		more []string
		want int
	}{{[]string{"--help"}, 0}, {[]string{"--no-such-flag", "--help"}, 64}} {
		all := append(args[1:len(args):len(args)], tt.more...)
		cmd := exec.Command(arbe, all...)
		out, err := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != tt.want || len(args) < 5 {
			t.Errorf("%q: %d, want %d: %v: %s", all, got, tt.want, err, out)
		}
	}
}
