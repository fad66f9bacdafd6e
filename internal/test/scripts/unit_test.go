package scripts

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const unitFolder = "../../../deploy/systemd"

// unit has the settings of a unit or a drop-in: the values of each, in their order.
type unit map[string][]string

func readUnit(t *testing.T, name string) unit {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(unitFolder, name))
	if err != nil {
		t.Fatal(err)
	}
	u := unit{}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == '[' {
			continue
		}
		key, value, is := strings.Cut(line, "=")
		if !is {
			t.Errorf("%s: %q", name, line)
		}
		u[key] = append(u[key], value)
	}
	return u
}

// unitNames returns the units' file names.
func unitNames(t *testing.T) (names []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(unitFolder, "*.service"))
	if err != nil || len(paths) != 5 {
		t.Fatalf("%v, %v", paths, err)
	}
	for _, p := range paths {
		names = append(names, filepath.Base(p))
	}
	return names
}

// final are the exit statuses after which no unit is restarted.
func (u unit) final(t *testing.T) (statuses []int) {
	t.Helper()
	for _, field := range strings.Fields(strings.Join(u["RestartPreventExitStatus"], " ")) {
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Error(err)
		}
		statuses = append(statuses, n)
	}
	return statuses
}

// command returns a command line of a unit, with another program and folder.
func (u unit) command(t *testing.T, key, data string) *exec.Cmd {
	t.Helper()
	line := strings.TrimPrefix(u[key][0], "-")
	args := strings.Fields(strings.ReplaceAll(line, "%S", data))
	if args[0] != "/usr/local/bin/arbe" {
		t.Errorf("%s: %s", key, line)
	}
	return exec.Command(arbe, args[1:]...)
}

// The units call the program as it wants to be called, restart it for ever but after a wrong command line, file or
// configuration, and allow it equally little.
func TestUnits(t *testing.T) {
	ended := func(cmd *exec.Cmd, want int) {
		t.Helper()
		out, _ := cmd.CombinedOutput() // its status is compared
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%q: %d, want %d: %s", cmd.Args, got, want, out)
		}
	}
	serve := readUnit(t, "arbe-serve.service")
	ended(exec.Command(arbe, append(serve.command(t, "ExecStartPost", t.TempDir()).Args[1:], "--help")...), 0)
	for _, name := range unitNames(t) {
		u := readUnit(t, name)
		args := u.command(t, "ExecStart", t.TempDir()).Args[1:]
		ended(exec.Command(arbe, append(args, "--help")...), 0)
		if got := u.final(t); !slices.Equal(got, []int{64, 66, 78}) || u["Restart"][0] != "always" {
			t.Errorf("%s is not restarted after %v", name, got)
		}
		for key, want := range serve {
			hardens := strings.HasPrefix(key, "Protect") || strings.HasPrefix(key, "Restrict") && key[8] != 'P' ||
				strings.HasPrefix(key, "SystemCall") || strings.HasPrefix(key, "Private") || key == "NoNewPrivileges" ||
				key == "CapabilityBoundingSet" || key == "MemoryDenyWriteExecute"
			if hardens && !slices.Equal(u[key], want) {
				t.Errorf("%s: %s=%q, want %q", name, key, u[key], want)
			}
		}
	}
	ended(exec.Command(arbe, "serve", "--no-such-flag"), 64)
	ended(exec.Command(arbe, "serve", "--tls-cert", "no-such-file", "--tls-key", "no-such-file"), 66)
	ended(exec.Command(arbe, "--data", t.TempDir(), "provision"), 78) // there is no database
}

// Agents in local boxes are processes of the unit. The drop-in undoes what would end them with it, count them or break
// them.
func TestUnitsWithLocalBoxes(t *testing.T) {
	boxes := readUnit(t, "local-boxes.conf")
	for key, values := range map[string]string{
		"KillMode": "process", "OOMPolicy": "continue", "MemoryMax": "infinity", "TasksMax": "infinity",
		"OOMScoreAdjust": "0", "MemoryDenyWriteExecute": "no", "PrivateTmp": "no", "RemoveIPC": "no",
		"RestrictNamespaces": "no", "SystemCallFilter": "", "RestrictAddressFamilies": "AF_NETLINK",
	} {
		if got := boxes[key]; len(got) != 1 || got[0] != values {
			t.Errorf("%s=%q, want %q", key, got, values)
		}
	}
	// A unit with a user that lasts only as long as itself would give its id away while agents have it.
	for _, name := range unitNames(t) {
		u := readUnit(t, name)
		if name != "arbe-proxy.service" && (u["DynamicUser"] != nil || !slices.Equal(u["User"], []string{"arbe"}) ||
			!slices.Equal(u["StateDirectory"], []string{"arbe"})) {
			t.Errorf("%s has not the host's user and folder", name)
		}
	}
}

// systemd itself takes the units, with and without the drop-in, and finds each one's exposure low.
func TestFullUnitsAnalyzed(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("not analyzed: make shells could not install systemd")
		return
	}
	dropIn, err := os.ReadFile(filepath.Join(unitFolder, "local-boxes.conf"))
	if err != nil {
		t.Fatal(err)
	}
	plain, withBoxes := t.TempDir(), t.TempDir()
	for _, name := range unitNames(t) {
		text, err := os.ReadFile(filepath.Join(unitFolder, name))
		if err != nil {
			t.Fatal(err)
		}
		text = []byte(strings.ReplaceAll(string(text), "/usr/local/bin/arbe", arbe))
		files := map[string][]byte{
			filepath.Join(plain, name): text, filepath.Join(withBoxes, name): text,
			filepath.Join(withBoxes, name+".d", "local-boxes.conf"): dropIn,
		}
		for path, content := range files {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, content, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for path := range maps.Keys(files) {
			if filepath.Ext(path) == ".conf" {
				continue
			}
			out, err := exec.Command(analyze, "verify", "--man=no", path).CombinedOutput()
			if err != nil || len(out) > 0 {
				t.Errorf("verify %s: %v\n%s", path, err, out)
			}
		}
		out, err := exec.Command(analyze, "security", "--offline=true", "--no-pager", "--threshold=20",
			filepath.Join(plain, name)).CombinedOutput()
		if err != nil {
			t.Errorf("security of %s: %v\n%s", name, err, out)
		}
	}
}
