package launch_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/scene"

	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/thread"
)

// A launch returns at once, and nothing on the host has to live for the run to end well.
func TestLaunch(t *testing.T) {
	t.Parallel()
	// The agent waits for a file that is written after the launch has returned: a launch that waits for the run never
	// does.
	h := scene.NewHost(t, scene.Bash("until [ -e go ]; do sleep 0.01; done; echo in-the-box > made.txt; pwd"),
		scene.Say("Done in the box."))
	l, _ := h.Launch("--", "work in a box")
	if err := os.WriteFile(filepath.Join(l.WorkDir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if l.Sandbox.Provider != "local" || l.Sandbox.Ref == "" || l.Process.PID == 0 || l.Resume != "none" {
		t.Errorf("launched %+v", l)
	}
	h.Ends(l.ThreadID)
	if got := h.Arbe("thread", "status", l.ThreadID); got != thread.StatusCompleted {
		t.Errorf("the run is %s", got)
	}
	var order []string
	for _, e := range h.Entries() {
		if name, is := strings.CutPrefix(e.ID, l.RunID+"."); is && !strings.HasPrefix(name, "beat") &&
			!strings.HasPrefix(name, "setup") {
			order = append(order, name)
		}
	}
	if got := strings.Join(order, " "); got != "prompt running sandbox started end.0" {
		t.Errorf("the run's own entries are %s", got)
	}
	if b, err := os.ReadFile(filepath.Join(l.WorkDir, "made.txt")); err != nil || string(b) != "in-the-box\n" {
		t.Errorf("the box has %q, %v", b, err)
	}
	if all := scene.TextOf(h.Entries()); !strings.Contains(all, "Done in the box.") ||
		strings.Contains(all, "scripted-key-0001") {
		t.Errorf("the thread has %.2000s", all)
	}
	// The box is released when somebody looks, and only because it was for this run alone.
	for _, args := range [][]string{{"sandbox", "list"}, {"sandbox", "list", "--runtime", "local"}} {
		out, err := h.Try(args...)
		if err != nil || !strings.Contains(out, "local:"+l.Sandbox.Ref) ||
			!strings.Contains(out, "run "+l.RunID+" completed") {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
	if out, err := h.Try("reconcile", "--all"); err != nil || !strings.Contains(out, "reaped "+l.ThreadID) {
		t.Errorf("reconcile: %v\n%s", err, out)
	}
	if _, err := os.Stat(l.WorkDir); !os.IsNotExist(err) {
		t.Errorf("the box is still there: %v", err)
	}
	if out, err := h.Try("reconcile", "--all"); err != nil || out != "" {
		t.Errorf("reconcile again: %v\n%s", err, out)
	}
	if left, err := os.ReadDir(filepath.Join(h.Data, "launched")); err != nil || len(left) > 0 {
		t.Errorf("still noted as launched: %v, %v", left, err)
	}
}

// Of several launches on one thread at the same time one gets the run.
func TestFullLaunchesAtOnce(t *testing.T) {
	t.Parallel()
	h := scene.NewHost(t, scene.Say("Done."))
	h.Thread = h.Arbe("thread", "new")
	var cmds []*exec.Cmd
	for range 4 {
		cmd := h.Command(h.With("launch", []string{"--thread", h.Thread, "--", "do it"})...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds = append(cmds, cmd)
	}
	statuses := map[int]int{}
	for _, cmd := range cmds {
		_ = cmd.Wait() // its status is looked at
		statuses[cmd.ProcessState.ExitCode()]++
	}
	if statuses[0] != 1 || statuses[75] != 3 {
		t.Errorf("exit statuses, and how many had each: %v", statuses)
	}
	h.Ends(h.Thread)
	runs := 0
	for _, e := range h.Entries() {
		if strings.HasSuffix(e.ID, ".running") {
			runs++
		}
	}
	if runs != 1 {
		t.Errorf("%d runs", runs)
	}
	if out, err := h.Try("reconcile", "--all"); err != nil || !strings.Contains(out, "reaped "+h.Thread) {
		t.Errorf("reconcile: %v\n%s", err, out)
	}
}

// A thread continues in its box where that lives, and else in a fresh one.
func TestFullLaunchResume(t *testing.T) {
	t.Parallel()
	h := scene.NewHost(t, scene.Bash("echo the-tool-says-$((40+2))"), scene.Say("I have seen it."))
	first, _ := h.Launch("--keep", "--", "the first question")
	ended := func() {
		t.Helper()
		h.Ends(first.ThreadID)
		if got := h.Arbe("thread", "status", first.ThreadID); got != thread.StatusCompleted {
			t.Fatalf("the run is %s", got)
		}
	}
	ended()
	h.Model.More(scene.Say("Again."), scene.Say("And again."))
	second, _ := h.Launch("--keep", "--thread", first.ThreadID, "--resume", "--", "the second question")
	ended()
	if second.Sandbox != first.Sandbox || h.Started(second.RunID).Resume != "continue" {
		t.Errorf("the second run is %+v, resumed by %s", second, h.Started(second.RunID).Resume)
	}
	if out, err := h.Try("sandbox", "rm", "local:"+first.Sandbox.Ref); err != nil {
		t.Fatalf("sandbox rm: %v\n%s", err, out)
	}
	third, _ := h.Launch("--thread", first.ThreadID, "--resume", "--", "the third question")
	ended()
	if third.Sandbox == first.Sandbox || h.Started(third.RunID).Resume != "hydrate" {
		t.Errorf("the third run is %+v, resumed by %s", third, h.Started(third.RunID).Resume)
	}
	asked := h.Asked()
	for _, want := range []string{
		"the first question", "the-tool-says-42", "I have seen it.", "the second question",
		"Again.", "the third question",
	} {
		if strings.Count(asked, want) != 1 {
			t.Errorf("the model was told %q %d times", want, strings.Count(asked, want))
		}
	}
}

// An attached run shows what happens, and ends as the run does; it can be interrupted, and the run continues without
// it.
func TestFullAttachedRun(t *testing.T) {
	slow := model.Reply{Text: strings.Repeat("word ", 5000), Pace: model.Duration(50 * time.Millisecond)}
	for _, tt := range []struct {
		name    string
		replies []model.Reply
		sig     syscall.Signal
		status  int
		said    string
		verdict string
	}{
		{"completed", []model.Reply{scene.Bash("echo hi"), scene.Say("Done.")}, 0, 0, "✔ completed", "completed"},
		{"failed", []model.Reply{{Status: 400, Message: "no such thing"}}, 0, 1, "no such thing", "failed"},
		{"interrupted", []model.Reply{slow}, syscall.SIGINT, 143, "cancelled", "cancelled"},
		{"left", []model.Reply{slow}, syscall.SIGTERM, 1, "the run continues", "running"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := scene.NewHost(t, tt.replies...)
			cmd := h.Command(h.With("run", []string{"--", "do it"})...)
			var said strings.Builder
			cmd.Stdout, cmd.Stderr = &said, &said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if tt.sig != 0 {
				scene.Until(t, "the model is asked", func() bool { return len(h.Model.Requests()) > 0 })
				if err := cmd.Process.Signal(tt.sig); err != nil {
					t.Fatal(err)
				}
			}
			_ = cmd.Wait() // its status is looked at
			known, err := os.ReadDir(filepath.Join(h.Data, "launched"))
			if err != nil || len(known) != 1 {
				t.Fatalf("launched: %v, %v", known, err)
			}
			h.Thread = known[0].Name()
			want := tt.status
			if want == 143 {
				if signal := h.End().Totals.ExitSignal; signal != nil && *signal == "SIGKILL" {
					want = 137 // on a busy machine the agent may not end within the runner's grace
				}
			}
			if got := cmd.ProcessState.ExitCode(); got != want || !strings.Contains(said.String(), tt.said) {
				t.Errorf("exit status %d, and it said\n%s", got, said.String())
			}
			back := fmt.Sprintf("▸ thread %[1]s\n  arbe thread tail %[1]s   shows the run\n  arbe cancel %[1]s "+
				"       ends it\n· making a local sandbox\n", h.Thread)
			if !strings.HasPrefix(said.String(), back) {
				t.Errorf("it does not begin with\n%s", back)
			}
			resume := "\n  resume: arbe run --thread " + h.Thread + " --resume -- TASK\n"
			if got := strings.Contains(said.String(), resume); got != (tt.status > 0 && tt.verdict != "running") {
				t.Errorf("how to resume is printed: %v", got)
			}
			if got := h.Arbe("thread", "status", h.Thread); got != tt.verdict {
				t.Errorf("the thread is %s", got)
			}
			if tt.verdict == "running" {
				if out, err := h.Try("cancel", "--wait", h.Thread); err != nil || !strings.Contains(out, "cancelled") {
					t.Errorf("cancel: %v\n%s", err, out)
				}
			}
			look := []string{"reconcile", "--all"}
			if tt.name == "completed" {
				look = []string{"sandbox", "list", "--reconcile"}
			}
			if out, err := h.Try(look...); err != nil || !strings.Contains(out, "reaped "+h.Thread) {
				t.Errorf("%v: %v\n%s", look, err, out)
			}
		})
	}
}

// A folder of the host's is worked on in a box while its user works on it, too. What was made in the box comes back,
// what both changed stays with the box's version beside it, and what was deleted there stays.
func TestFullRunSync(t *testing.T) {
	t.Parallel()
	h := scene.NewHost(t)
	folder := filepath.Join(h.Dir, "folder")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"question", "both", "mine", "dropped", "skip.log"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("so?\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	user := "cd " + folder + "; echo mine | tee both mine new >/dev/null; rm dropped"
	h.Model.More(
		scene.Bash("cat question > answer; rm question; echo box > both; echo box > skip.log; ("+user+")"),
		scene.Say("Answered."),
	)
	out, err := h.Try(
		h.With("run", []string{"--keep", "--dir", folder, "--exclude", "*.log", "--sync", "--", "answer"})...)
	if err != nil || !strings.Contains(out, "both") ||
		!strings.Contains(out, "· "+folder+": 1 file copied back (1 KiB), 0 deleted, 1 conflict\n") {
		t.Fatalf("%v\n%s", err, out)
	}
	check := func(want map[string]string) {
		t.Helper()
		entries, err := os.ReadDir(folder)
		if err != nil || len(entries) != len(want) {
			t.Errorf("the folder has %v, %v", entries, err)
		}
		for name, content := range want {
			if b, err := os.ReadFile(filepath.Join(folder, name)); err != nil || string(b) != content+"\n" {
				t.Errorf("%s is %q, %v, want %q", name, b, err, content)
			}
		}
	}
	check(map[string]string{
		"answer": "so?", "question": "so?", "both": "mine", "both.box": "box", "mine": "mine", "new": "mine",
		"skip.log": "so?",
	})
	// Later the deletion is wanted, too.
	var box struct {
		Sandbox struct{ Provider, Ref string }
	}
	if list, err := h.Try("sandbox", "list", "--json"); err != nil || json.Unmarshal([]byte(list), &box) != nil {
		t.Fatalf("boxes %s, %v", list, err)
	}
	if out, err := h.Try("sandbox", "pull", "--delete", box.Sandbox.Provider+":"+box.Sandbox.Ref); err != nil ||
		!strings.Contains(out, "1 deleted") {
		t.Errorf("pull: %v\n%s", err, out)
	}
	check(map[string]string{
		"answer": "so?", "both": "mine", "both.box": "box", "mine": "mine", "new": "mine", "skip.log": "so?",
	})
}

// A repository is worked on in a box while its user works on it, too: the agent commits, and the user stages a file,
// which writes the index. The branch and the index follow the agent, and the user's next commit keeps both. Where the
// user has committed, all of the user's stays, and the agent's commit has a name.
func TestFullRunSyncRepository(t *testing.T) {
	for _, commits := range []bool{false, true} {
		t.Run(fmt.Sprint("the user commits: ", commits), func(t *testing.T) {
			t.Parallel()
			h := scene.NewHost(t)
			h.Thread = h.Arbe("thread", "new")
			folder := filepath.Join(h.Dir, "folder")
			git := func(args ...string) string {
				t.Helper()
				out, err := exec.Command("git", append([]string{
					"-C", folder, "-c", "user.name=n", "-c", "user.email=e@example.org",
				}, args...)...).CombinedOutput()
				if err != nil {
					t.Fatalf("git %v: %v\n%s", args, err, out)
				}
				return strings.TrimSpace(string(out))
			}
			scene.Write(t, filepath.Join(folder, "question"), "so?\n")
			git("init", "-q", "-b", "trunk")
			git("add", "-A")
			git("commit", "-qm", "one")
			user := "git -C " + folder + " add mine"
			if commits {
				user += "; git -C " + folder + " -c user.name=n -c user.email=e@example.org commit -qm mine"
			}
			h.Model.More(
				scene.Bash("echo so > question; git -c user.name=a -c user.email=a@example.org commit -qam answered; "+
					"echo mine > "+folder+"/mine; "+user),
				scene.Say("Answered."),
			)
			out, err := h.Try(
				h.With("run", []string{"--thread", h.Thread, "--dir", folder, "--sync", "--", "answer"})...)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			ref := "refs/arbe/" + h.Thread
			if !commits {
				if got := git("status", "--porcelain"); got != "A  mine" {
					t.Errorf("status\n%s", got)
				}
				git("commit", "-qm", "mine")
				if got := git("log", "--format=%s", "trunk"); got != "mine\nanswered\none" {
					t.Errorf("log\n%s", got)
				}
				if got := git("show", "trunk:question"); got != "so" {
					t.Errorf("the next commit has undone the agent's: %s", got)
				}
				if strings.Contains(scene.TextOf(h.Entries()), ref) {
					t.Error("the thread has a name of the commit")
				}
				return
			}
			commit := git("rev-parse", ref)
			want := "HEAD does not follow the box's commit " + commit[:12] + ": trunk has moved here; it is " + ref +
				": git merge " + ref + "\n"
			if !strings.Contains(out, want) {
				t.Errorf("%q is not in\n%s", want, out)
			}
			if got := git("log", "--format=%s", "trunk"); got != "mine\none" {
				t.Errorf("log\n%s", got)
			}
			entry := fmt.Sprintf(
				`"stored":[{"commit":%q,"of":"HEAD","reason":"trunk has moved here","ref":%q}]`,
				commit,
				ref,
			)
			if all := scene.TextOf(h.Entries()); !strings.Contains(all, entry) {
				t.Errorf("%s is not on the thread: %s", entry, all)
			}
			git("commit", "-qam", "with the agent's files")
			git("merge", "-q", "--no-edit", ref)
		})
	}
}

// The folder of an environment that is to be synced comes back with the run, as that of --sync does.
func TestFullRunSyncEnvironment(t *testing.T) {
	t.Parallel()
	h := scene.NewHost(t, scene.Bash("echo done > answer"), scene.Say("Answered."))
	share := filepath.Join(h.Dir, "share")
	scene.Write(t, filepath.Join(share, "question"), "so?\n")
	file := scene.Write(t, filepath.Join(h.Dir, "env.yaml"), "folders: [{host: share, path: shared, access: sync}]\n")
	out, err := h.Try(h.With("run", []string{"--environment-file", file, "--", "answer"})...)
	if err != nil || !strings.Contains(out, "· "+share+": 1 file copied back (1 KiB), 0 deleted, 0 conflicts\n") {
		t.Errorf("%v\n%s", err, out)
	}
	if b, err := os.ReadFile(filepath.Join(share, "answer")); err != nil || string(b) != "done\n" {
		t.Errorf("answer is %q, %v", b, err)
	}
}

// A launch that fails reports why, here and on the thread, and leaves no box.
func TestFullLaunchFails(t *testing.T) {
	for _, tt := range []struct {
		name   string
		args   []string
		change func(*scene.Host)
		said   string
	}{
		{
			"a setup command",
			[]string{"--setup", "echo so-it-is >&2; exit 3"},
			nil,
			`setup command "echo so-it-is >&2; exit 3": exit status 3: so-it-is`,
		},
		{
			"a setup command that tells a secret",
			[]string{"--setup-env", "FOR_SETUP", "--setup", "echo the key $FOR_SETUP is bad >&2; false"},
			func(h *scene.Host) {
				h.Env = append(h.Env, "FOR_SETUP=secret-value-0001")
			}, "the key [redacted:FOR_SETUP] is bad",
		},
		{"a folder that is no repository", []string{"--repo", "/"}, nil, "make a sandbox: "},
		{
			"no runner", nil, func(h *scene.Host) { h.Env = append(h.Env, "ARBE_RUNNER_BIN=/no/such/runner") },
			"no runner for ",
		},
		{"the agent can't be installed", []string{"--harness", "codex"}, func(h *scene.Host) {
			npm := filepath.Join(h.Dir, "npm")
			if err := os.WriteFile(npm, []byte("#!/bin/sh\necho the registry is away >&2\nexit 1\n"),
				0o700); err != nil {
				h.T.Fatal(err)
			}
			for i, kv := range h.Env {
				if path, is := strings.CutPrefix(kv, "PATH="); is {
					h.Env[i] = "PATH=" + h.Dir + ":" + path
				}
			}
		}, "install @openai/codex@0.169.0 in the sandbox: exit status 1: the registry is away"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := scene.NewHost(t)
			h.Thread = h.Arbe("thread", "new")
			if tt.change != nil {
				tt.change(h)
			}
			out, err := h.Try(h.With("launch", append(tt.args, "--thread", h.Thread, "--", "do it"))...)
			if err == nil || !strings.Contains(out, tt.said) && !strings.Contains(tt.said, "[redacted:") {
				t.Errorf("launch: %v\n%s", err, out)
			}
			e := h.End()
			if e.Status != thread.StatusFailed || e.Cause.ErrorClass != "launch" ||
				!strings.Contains(e.Cause.Message, tt.said) {
				t.Errorf("the run is %+v", e)
			}
			if boxes, err := filepath.Glob(filepath.Join(h.Data, "boxes", "*", "*")); err != nil || len(boxes) > 0 {
				t.Errorf("left behind: %v, %v", boxes, err)
			}
		})
	}
}

// What the user wants in the box is there before the agent: a repository on a branch or a folder, files, setup,
// variables.
func TestFullLaunchProvides(t *testing.T) {
	t.Parallel()
	h := scene.NewHost(
		t,
		scene.Bash(
			"git branch --show-current; ls -a; cat made-by-setup; echo so: $WANTED; cat ~/.note; stat -c %a ~/.note",
		),
		scene.Say("Seen."),
		scene.Bash("find . -type f; ls ../home"),
		scene.Say("Seen, too."),
	)
	repo := filepath.Join(h.Dir, "repo")
	for _, args := range [][]string{{"init", "-q", "-b", "trunk", repo}, {"-C", repo, "-c", "user.name=n", "-c", "user.email=e@example.org", "commit", "-q", "--allow-empty", "-m", "first"}} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	note := filepath.Join(h.Dir, "note")
	if err := os.WriteFile(note, []byte("a note\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	h.Env = append(h.Env, "WANTED=wanted-value-0001", "FOR_SETUP=only-for-setup")
	results := func(l scene.Launched) string {
		h.Ends(l.ThreadID)
		h.Thread = l.ThreadID
		all := ""
		for _, e := range h.Entries() {
			if p := scene.Payload[thread.Line](t, e); p.Type == "pi.tool_result" {
				all += string(p.Message)
			}
		}
		return all
	}
	l, _ := h.Launch(
		"--repo",
		repo,
		"--branch",
		"agent/one",
		"--env",
		"WANTED",
		"--setup-env",
		"FOR_SETUP",
		"--setup",
		"echo setup-had-$FOR_SETUP > made-by-setup",
		"--file",
		note+":.note",
		"--",
		"look",
	)
	got := results(l)
	for _, want := range []string{
		"agent/one", ".git", "setup-had-only-for-setup", "so: wanted-value-0001", "a note",
		"600",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the agent did not see %q in %s", want, got)
		}
	}
	folder := filepath.Join(h.Dir, "folder")
	for name, content := range map[string]string{
		"a/b.txt": "b", "a/skip.log": "x", "node_modules/m.js": "x",
		"run.sh": "#!/bin/sh\n",
	} {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	l, _ = h.Launch("--dir", folder, "--exclude", "*.log", "--exclude", "node_modules", "--", "look")
	got = results(l)
	if !strings.Contains(got, "./a/b.txt") || !strings.Contains(got, "./run.sh") || strings.Contains(got, "skip.log") ||
		strings.Contains(got, "m.js") {
		t.Errorf("the agent saw %s", got)
	}
	if st, err := os.Stat(filepath.Join(l.WorkDir, "run.sh")); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("run.sh is %v, %v", st, err)
	}
	// A thread with a run that is open takes no other.
	h.Model.More(model.Reply{Text: strings.Repeat("word ", 5000), Pace: model.Duration(50 * time.Millisecond)})
	l, _ = h.Launch("--", "slowly")
	if out, err := h.Try(h.With("launch", []string{"--thread", l.ThreadID, "--", "me, too"})...); err == nil ||
		!strings.Contains(out, "has a run that is still running") {
		t.Errorf("a second launch: %v\n%s", err, out)
	}
	if out, err := h.Try("cancel", "--wait", l.ThreadID); err != nil {
		t.Errorf("cancel: %v\n%s", err, out)
	}
}
