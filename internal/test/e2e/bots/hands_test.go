package bots_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"arbe.0sk.ar/runner/internal/test/fakeagent"
	"arbe.0sk.ar/runner/internal/test/fakedaytona"
	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/internal/test/scene"
	"arbe.0sk.ar/runner/thread"
)

// environment makes an environment of local boxes.
func (h *house) environment(name, config string) {
	h.Helper()
	h.sql(fmt.Sprintf(`insert into environments (id, house_id, name, runtime, config)
		values ('%s', 'h1', '%[1]s', 'local', '%s')`, name, config))
}

// in makes a thread with an environment.
func (h *house) in(environment string) (id string) {
	h.Helper()
	id = h.thread()
	h.sql(fmt.Sprintf(`update threads set environment_id = '%s' where id = '%s'`, environment, id))
	return id
}

// killable starts a command that the test ends by signals. What is left of it at the end is killed.
func (h *house) killable(args ...string) (signal func(syscall.Signal)) {
	h.Helper()
	cmd, log := h.command(args...), &buffer{}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		h.Fatal(err)
	}
	end := sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // it was killed
	})
	h.Cleanup(func() {
		if end(); h.Failed() {
			h.Logf("arbe %v:\n%s", args, log)
		}
	})
	return func(s syscall.Signal) {
		if s == syscall.SIGKILL {
			end()
			return
		}
		if err := cmd.Process.Signal(s); err != nil {
			h.Error(err)
		}
	}
}

// calling is a reply that calls a tool, to a request with a text.
func calling(when, tool string, arguments map[string]any) model.Reply {
	return model.Reply{When: when, Tools: []model.Tool{{Name: tool, Arguments: arguments}}}
}

// payloads are those of a type on a thread.
func payloads[P any](h *house, id, typ string) (all []P) {
	h.Helper()
	for _, e := range h.entries(id) {
		if thread.TypeOf(e.Payload) == typ {
			all = append(all, scene.Payload[P](h.TB.(*testing.T), e))
		}
	}
	return all
}

// there waits for a file.
func (h *house) there(path string) {
	h.Helper()
	scene.Until(h, path, func() bool {
		_, err := os.Stat(path)
		return err == nil
	})
}

// touch makes a file.
func (h *house) touch(path string) {
	h.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		h.Fatal(err)
	}
}

// answered waits for the end of a thread's only reaction, which answers.
func (h *house) answered(id string) {
	h.Helper()
	var ends []thread.ReactionFinished
	scene.Until(h, "an answer", func() bool {
		ends = h.ends(id)
		return len(ends) > 0
	})
	if len(ends) != 1 || ends[0].Outcome != thread.ReactionAnswered {
		h.Errorf("%+v", ends)
	}
}

// A host dies while it makes the box of a command, while a command runs, and when one has ended and its result is not
// on the thread. Another host continues: each command has run once, and the model gets its result.
func TestFullCommandKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	const places = "making running ended"
	var replies []model.Reply
	for place := range strings.FieldsSeq(places) {
		replies = append(replies, calling("go "+place, "run_command", map[string]any{
			"command": fmt.Sprintf("echo line >>%s; until [ -e %s ]; do sleep 0.05; done; echo printed",
				at(place), at(place+".go")),
		}))
	}
	h := newHouse(t, append(replies, model.Reply{Text: "done", Times: -1})...)
	h.environment("quick", `{}`)
	h.environment("slow", fmt.Sprintf(`{"setup": [{"run": "touch %s; until [ -e %s ]; do sleep 0.05; done"}]}`,
		at("setup"), at("setup.go")))
	h.serve("--reconcile=false")
	dispatch := h.dispatching("dispatch", "--local-boxes")
	signal := h.killable(dispatch...)
	threads := map[string]string{}
	for place := range strings.FieldsSeq(places) {
		threads[place] = h.in(map[bool]string{true: "slow", false: "quick"}[place == "making"])
		h.say(threads[place], "@piet go "+place)
	}
	h.there(at("setup"))
	h.there(at("running"))
	h.there(at("ended"))
	signal(syscall.SIGSTOP)
	h.touch(at("ended.go"))
	scene.Until(t, "the end of a command", func() bool {
		return len(payloads[thread.ExecFinished](h, threads["ended"], thread.TypeExecFinished)) > 0
	})
	signal(syscall.SIGKILL)
	h.start(dispatch...)
	for _, name := range []string{"setup.go", "running.go", "making.go"} {
		h.touch(at(name))
	}
	for place, id := range threads {
		h.answered(id)
		if b, err := os.ReadFile(at(place)); err != nil || string(b) != "line\n" {
			t.Errorf("%s: it has run so: %q, %v", place, b, err)
		}
		ends := payloads[thread.ExecFinished](h, id, thread.TypeExecFinished)
		results := payloads[thread.CallResult](h, id, thread.TypeResult)
		if len(ends) != 1 || len(results) != 1 || results[0].IsError ||
			!strings.Contains(string(results[0].Message), ` s\nprinted\n`) {
			t.Errorf("%s: ends %+v, results %+v", place, ends, results)
		}
		if claims := payloads[thread.ReactionClaimed](h, id, thread.TypeReactionClaimed); len(claims) != 2 {
			t.Errorf("%s: %d claims", place, len(claims))
		}
	}
	if n := len(h.model.Requests()); n != 6 {
		t.Errorf("%d requests", n)
	}
}

// A member stops an answer: its command ends. Without an environment, and on a host without local boxes, the model
// reads why there is no command.
func TestFullCommandStopped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := map[string]any{"command": "touch " + filepath.Join(dir, "runs") + "; sleep 1000"}
	h := newHouse(t, calling("go on", "run_command", run), calling("go nowhere", "run_command", run),
		model.Reply{Text: "done", Times: -1})
	h.environment("quick", `{}`)
	h.serve(h.dispatching("--dispatch", "--local-boxes")...)
	id := h.in("quick")
	h.say(id, "@piet go on")
	h.there(filepath.Join(dir, "runs"))
	reaction := payloads[thread.ReactionClaimed](h, id, thread.TypeReactionClaimed)[0].Reaction
	stop := thread.ReactionCancel{Type: thread.TypeReactionCancel, Reaction: reaction}
	if _, err := h.client(id).Append(t.Context(), []thread.Entry{thread.NewEntry("stop", ann, stop)}); err != nil {
		t.Fatal(err)
	}
	scene.Until(t, "the end of the command", func() bool {
		ends := payloads[thread.ExecFinished](h, id, thread.TypeExecFinished)
		return len(ends) == 1 && ends[0].Cancelled
	})
	scene.Until(t, "the end of the answer", func() bool { return len(h.ends(id)) > 0 })
	if ends := h.ends(id); len(ends) != 1 || ends[0].Outcome != thread.ReactionCancelled {
		t.Errorf("%+v", ends)
	}

	id = h.thread()
	h.say(id, "@piet go nowhere")
	h.answered(id)
	results := payloads[thread.CallResult](h, id, thread.TypeResult)
	if len(results) != 1 || results[0].IsError || !strings.Contains(string(results[0].Message), "has no environment") {
		t.Errorf("%+v", results)
	}
}

// A bot delegates a task, which an agent works on in a box of its own. The result comes back to the thread, and wakes
// nobody. Local boxes are for bots only where they are for members.
func TestFullTask(t *testing.T) {
	t.Parallel()
	task := map[string]any{"task": "count the files"}
	h := newHouse(t, calling("refused", "delegate_task", task), calling("allowed", "delegate_task", task),
		model.Reply{Text: "it is under way", Times: -1})
	h.environment("quick", `{}`)
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, "pi")); err != nil {
		t.Fatal(err)
	}
	plan := scene.Write(t, filepath.Join(dir, "plan"), "prompt\nsay There are 7.\n")
	h.env = append(h.env, "PATH="+dir+":"+os.Getenv("PATH"), fakeagent.PlanVar+"="+plan)
	h.serve()
	id := h.in("quick")

	refusing := h.start(h.dispatching("dispatch")...)
	h.say(id, "@piet refused")
	h.answered(id)
	if all := scene.TextOf(h.entries(id)); !strings.Contains(all, "local boxes are not for tasks of members here") {
		t.Errorf("got %s", all)
	}
	refusing()

	h.start(h.dispatching("dispatch", "--local-boxes")...)
	h.start("provision", "--local-boxes", "--env", fakeagent.PlanVar)
	h.say(id, "@piet allowed")
	var results []thread.ChildFinished
	scene.Until(t, "the result of the task", func() bool {
		if out, err := h.command("reconcile", "--all").CombinedOutput(); err != nil {
			t.Fatalf("reconcile: %v\n%s", err, out)
		}
		results = payloads[thread.ChildFinished](h, id, thread.TypeChildFinished)
		return len(results) > 0
	})
	child := results[0].ChildThreadID
	if len(results) != 1 || results[0].Status != thread.StatusCompleted ||
		!strings.Contains(results[0].Text, "There are 7.") {
		t.Errorf("%+v", results)
	}
	spawned := payloads[thread.AgentSpawn](h, id, thread.TypeAgentSpawn)
	if len(spawned) != 1 || spawned[0].ChildThreadID != child || spawned[0].AgentID != piet {
		t.Errorf("%+v, want %s", spawned, child)
	}
	var asked []thread.CallResult
	for _, r := range payloads[thread.CallResult](h, id, thread.TypeResult) {
		if !r.IsError {
			asked = append(asked, r)
		}
	}
	if len(asked) != 1 || !strings.Contains(string(asked[0].Message), child) {
		t.Errorf("%+v, want %s", asked, child)
	}
	if text := scene.TextOf(h.entries(child)); !strings.Contains(text, "count the files") {
		t.Errorf("the task is %s", text)
	}
	outcomes := []string{}
	for _, e := range h.ends(id) {
		outcomes = append(outcomes, e.Outcome)
	}
	if !slices.Equal(outcomes, []string{thread.ReactionAnswered, thread.ReactionAnswered}) {
		t.Errorf("reactions %v", outcomes)
	}
}

// The box of a command dies with all in it while the bot waits. A reconciler ends the command, the model reads why, and
// the answer ends. So it is for the next command, which gets another box.
func TestFullCommandBoxDies(t *testing.T) {
	t.Parallel()
	h := newHouse(t, calling("go on", "run_command", map[string]any{"command": "echo begun; sleep 1000"}),
		calling("once more", "run_command", map[string]any{"command": "echo again"}),
		model.Reply{Text: "so it is", Times: -1})
	d := fakedaytona.New(t)
	h.env = append(h.env, "DAYTONA_API_KEY="+d.Key, "DAYTONA_API_URL="+d.URL)
	h.sql(`insert into environments (id, house_id, name, runtime, config)
		values ('cloud', 'h1', 'cloud', 'daytona', '{}')`)
	h.serve("--reconcile=false")
	address, err := os.ReadFile(filepath.Join(h.data, "address"))
	if err != nil {
		t.Fatal(err)
	}
	h.env = append(h.env, "ARBE_BOX_STREAM_URL="+strings.TrimSpace(string(address)))
	h.dispatch()
	id := h.in("cloud")
	h.say(id, "@piet go on")
	scene.Until(t, "output of the command", func() bool {
		out := payloads[thread.ExecOutput](h, id, thread.TypeExecOutput)
		return len(out) > 0 && strings.Contains(out[0].Text, "begun")
	})
	boxes := d.Boxes()
	if len(boxes) != 1 {
		t.Fatalf("boxes %+v", boxes)
	}
	d.Vanish(boxes[0].ID)
	scene.Until(t, "the end of the command", func() bool {
		h.arbe("", "reconcile", "--orphan-after", "1s", id)
		return len(payloads[thread.ExecFinished](h, id, thread.TypeExecFinished)) > 0
	})
	h.answered(id)
	ends := payloads[thread.ExecFinished](h, id, thread.TypeExecFinished)
	results := payloads[thread.CallResult](h, id, thread.TypeResult)
	const gone = "its sandbox is gone"
	if len(ends) != 1 || ends[0].Error != gone || len(results) != 1 || !results[0].IsError ||
		!strings.Contains(string(results[0].Message), gone) || !strings.Contains(string(results[0].Message), "begun") {
		t.Errorf("ends %+v, results %+v", ends, results)
	}
	asked := h.model.Requests()
	if n := len(asked); n != 2 || !strings.Contains(string(asked[1].Body), gone) {
		t.Errorf("%d requests", n)
	}

	h.say(id, "@piet once more")
	scene.Until(t, "the second answer", func() bool { return len(h.ends(id)) > 1 })
	results = payloads[thread.CallResult](h, id, thread.TypeResult)
	if last := results[len(results)-1]; len(results) != 2 || last.IsError ||
		!strings.Contains(string(last.Message), "again") || len(d.Boxes()) != 1 {
		t.Errorf("results %+v, boxes %+v", results, d.Boxes())
	}
}
