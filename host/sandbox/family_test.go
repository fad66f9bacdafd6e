package sandbox_test

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/sandbox"
)

// daemon notes its number in the file $1 and leaves the folder.
const daemon = "#!/bin/sh\necho $$ >\"$1\"; cd /; exec sleep 1000\n"

// begun waits for a daemon in the shell that has started it, whose group ends with it.
func begun(name string) string { return "; while [ ! -s " + name + " ]; do sleep 0.01; done" }

// TestDestroyEndsDaemons: whatever was started in a local box ends with it, and nothing else does.
func TestDestroyEndsDaemons(t *testing.T) {
	t.Parallel()
	h := localHouse(t)
	b, other := h.create(t, sandbox.Options{}), h.create(t, sandbox.Options{})
	// Each daemon has left its session, its parent and the box's folder, and holds no output.
	put := sandbox.File{Path: "daemon", Size: int64(len(daemon)), Mode: 0o755}
	for _, box := range []box{b, other} {
		put.Content = strings.NewReader(daemon)
		if err := box.Upload(t.Context(), put); err != nil {
			t.Fatal(err)
		}
		run(t, box, "(setsid ./daemon exec >/dev/null 2>&1 </dev/null &)"+begun("exec"))
	}
	run(t, b, "(setsid env -i /bin/sh -c 'echo $$ >bare; exec sleep 1000' >/dev/null 2>&1 </dev/null &)"+begun("bare"))
	if _, err := b.Detach(t.Context(), script(`(setsid ./daemon detached >/dev/null 2>&1 </dev/null &)
		env AGENT_BOX=another ./daemon renamed & sleep 1000`), "log"); err != nil {
		t.Fatal(err)
	}
	// Where the runner's process is gone, what it detached still bears the mark.
	if err := os.Remove(b.Home() + "/../detached"); err != nil {
		t.Fatal(err)
	}
	shell := exec.Command("sleep", "1000") // somebody looks around in the box
	shell.Dir, shell.Env = b.WorkDir(), []string{"PATH=" + os.Getenv("PATH")}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = shell.Process.Kill(), shell.Wait() })
	pids := map[string]string{}
	for _, name := range []string{"exec", "bare", "detached", "renamed"} {
		soon(t, name+" runs", func() bool { return read(b.WorkDir()+"/"+name) != "" })
		pids[name] = read(b.WorkDir() + "/" + name)
	}
	soon(t, "the other box's runs", func() bool { return read(other.WorkDir()+"/exec") != "" })
	stays := read(other.WorkDir() + "/exec")
	if err := h.Destroy(context.Background(), b.Ref().ID); err != nil {
		t.Fatal(err)
	}
	for name, pid := range pids {
		if living(t, pid) {
			t.Errorf("%s lives", name)
		}
	}
	if !living(t, strconv.Itoa(shell.Process.Pid)) {
		t.Error("a shell that stood in the box was killed")
	}
	if !living(t, stays) {
		t.Error("a process of another box was killed")
	}
}
