package boxes_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/scene"

	"arbe.0sk.ar/runner/internal/test/agents"
	"arbe.0sk.ar/runner/internal/test/fakedaytona"
	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/thread"
)

// A whole launch at Daytona, with the real pi: nothing of the host lives while it works, no secret stands in a command
// line, and the box goes when the run has ended. One whose box vanishes is given up. In
// TestFullDaytonaInstall npm installs pi into the box.
func TestFullDaytonaLaunch(t *testing.T) { daytonaLaunch(t, true) }

func TestFullDaytonaInstall(t *testing.T) { daytonaLaunch(t, false) }

// daytonaLaunch launches pi into a box that has it, or into one where it is to be installed.
func daytonaLaunch(t *testing.T, installed bool) {
	h := scene.NewHost(t, scene.Bash("echo in-the-box > made.txt; pwd"), scene.Say("Done in the box."))
	// What a box of Daytona's has: Node and npm.
	tools := filepath.Join(t.TempDir(), "tools")
	if err := os.Mkdir(tools, 0o700); err != nil {
		t.Fatal(err)
	}
	cache, err := agents.Cache()
	if err != nil {
		t.Fatal(err)
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Fatal(err)
	}
	give := func(name, target string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(tools, name)); err != nil {
			t.Fatal(err)
		}
	}
	agent := filepath.Join(cache, "pi-"+scene.Pi078, "node_modules", ".bin")
	give("node", filepath.Join(agent, "node"))
	give("npm", npm)
	if installed {
		give("pi", filepath.Join(agent, "pi"))
	}
	t.Setenv("PATH", tools+":"+os.Getenv("PATH"))
	// npm asks where and as this machine's does, and takes what "make agents" has fetched.
	stored, err := exec.Command(npm, "config", "get", "cache").Output()
	if err != nil {
		t.Fatal(err)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	npmrc, err := os.ReadFile(filepath.Join(home, ".npmrc"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if ca := os.Getenv("NODE_EXTRA_CA_CERTS"); ca != "" {
		npmrc = append(npmrc, "\ncafile="+ca+"\n"...)
	}
	npmrc = append(npmrc, "\nprefer-offline=true\ncache="+strings.TrimSpace(string(stored))+"\n"...)
	rc := filepath.Join(h.Dir, "npmrc")
	if err := os.WriteFile(rc, npmrc, 0o600); err != nil {
		t.Fatal(err)
	}
	d := fakedaytona.New(t)
	h.Env = append(h.Env, "DAYTONA_API_KEY="+d.Key, "DAYTONA_API_URL="+d.URL, "ARBE_BOX_STREAM_URL="+scene.Server)

	began := time.Now()
	l, _ := h.Launch("--sandbox", "daytona", "--file", rc+":.npmrc", "--", "work in a box")
	t.Logf("launched in %v", time.Since(began))
	h.Ends(l.ThreadID)
	if got := h.Arbe("thread", "status", l.ThreadID); got != thread.StatusCompleted {
		t.Errorf("the run is %s: %s", got, scene.TextOf(h.Entries()))
	}
	boxes := d.Boxes()
	if len(boxes) != 1 || boxes[0].ID != l.Sandbox.Ref || boxes[0].Labels["arbe.thread"] != l.ThreadID ||
		boxes[0].AutoDelete != 0 ||
		boxes[0].AutoStop < 72*60 {
		t.Fatalf("boxes: %+v", boxes)
	}
	if b, err := os.ReadFile(filepath.Join(l.WorkDir, "made.txt")); err != nil || string(b) != "in-the-box\n" {
		t.Errorf("the box has %q, %v", b, err)
	}
	if started := h.Started(l.RunID); started.AgentVersion != scene.Pi078 || started.Sandbox.Provider != "daytona" {
		t.Errorf("it started with %+v", started)
	}
	for _, r := range d.Requests() {
		var body struct{ Command string }
		_ = json.Unmarshal(r.Body, &body) // not all have one
		for _, secret := range []string{"scripted-key-0001", "eyJ"} {
			if strings.Contains(body.Command, secret) || strings.Contains(r.Path, secret) {
				t.Errorf("a secret stands in %s %s %s", r.Method, r.Path, body.Command)
			}
		}
	}
	if out, err := h.Try("reconcile", "--all"); err != nil || !strings.Contains(out, "reaped "+l.ThreadID) {
		t.Errorf("reconcile: %v\n%s", err, out)
	}
	if left := d.Boxes(); len(left) > 0 && left[0].State != "destroyed" && left[0].State != "destroying" {
		t.Errorf("the box is left: %+v", left)
	}

	// The next one has the agent already, and vanishes in mid-run.
	if !installed {
		give("pi", filepath.Join(agent, "pi"))
	}
	h.Model.More(model.Reply{Text: strings.Repeat("word ", 5000), Pace: model.Duration(50 * time.Millisecond)})
	n := len(h.Model.Requests())
	l, _ = h.Launch("--sandbox", "daytona", "--file", rc+":.npmrc", "--", "work in a box that vanishes")
	scene.Until(t, "the model is asked", func() bool { return len(h.Model.Requests()) > n })
	if out, err := h.Try("reconcile", l.ThreadID); err != nil || out != "" {
		t.Errorf("a live run is left alone: %v\n%s", err, out)
	}
	d.Vanish(l.Sandbox.Ref)
	out := ""
	scene.Until(t, "the run is given up", func() bool {
		var err error
		if out, err = h.Try("reconcile", "--orphan-after", "1s", l.ThreadID); err != nil {
			t.Fatalf("reconcile: %v\n%s", err, out)
		}
		return out != ""
	})
	if !strings.Contains(out, "orphaned "+l.ThreadID+" box_gone") {
		t.Errorf("reconcile: %s", out)
	}
	if got := h.Arbe("thread", "status", l.ThreadID); got != thread.StatusFailed {
		t.Errorf("the run is %s", got)
	}
}
