package faults_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"arbe.0sk.ar/runner/internal/test/fakeagent"
	"arbe.0sk.ar/runner/thread"
)

// taskStops lets a host wait before these commits, too.
const taskStops = `
	grant select on stops to public; -- members' requests have a role of their own
	create trigger stop_task before insert on threads for each row
		when (new.task is not null) execute function stop('task');
	create trigger stop_take before update on threads for each row
		when (new.launch_host is not null and old.launch_host is null) execute function stop('take');
	create trigger stop_launched before update on threads for each row
		when (new.launch_after is null and old.launch_after is not null) execute function stop('launched');`

// newTaskKilling is a host as newKilling's, whose house delegates tasks to local boxes.
func newTaskKilling(t *testing.T, plan string) *killing {
	k := newKilling(t)
	k.r.exec(t, taskStops)
	k.r.exec(t, `insert into environments (id, house_id, name, runtime, config)
		values ('tasks1', 'house1', 'tasks', 'local', '{"setup": [{"run": "echo ready >ready"}]}')`)
	if err := os.WriteFile(filepath.Join(k.v.dir, "plan"), []byte(plan), 0o600); err != nil {
		t.Fatal(err)
	}
	return k
}

// parent makes a chat that delegates.
func (k *killing) parent(id string) {
	k.t.Helper()
	k.r.exec(k.t, `insert into threads (id, stream_id, house_id, environment_id) values ($1, $1, 'house1', 'tasks1')`, id)
}

func (k *killing) delegate(parent string) *exec.Cmd {
	return k.command("delegate", parent, "--", "do it")
}

// delegated delegates a task, and returns its thread.
func (k *killing) delegated(parent string) string {
	k.t.Helper()
	out, err := k.delegate(parent).Output()
	if err != nil {
		k.t.Fatalf("arbe delegate: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// provision is a host that launches the tasks that wait.
func (k *killing) provision() *exec.Cmd {
	return k.command("provision", "--once", "--env", fakeagent.PlanVar)
}

// provisions has a host launch the tasks that wait, those of a host that has died included. A task whose row somebody
// has locked at that moment is left for the next time.
func (k *killing) provisions() {
	k.t.Helper()
	until(k.t, "a queue without tasks", func() bool {
		k.r.exec(k.t, "update threads set launch_after = now() - interval '1 s' where launch_after is not null")
		if out, err := k.provision().CombinedOutput(); err != nil {
			k.t.Fatalf("arbe provision: %v\n%s", err, out)
		}
		return k.r.text(k.t, "select count(*)::text from threads where launch_after is not null") == "0"
	})
}

// taskEnds waits for the end of the only run of a task.
func (k *killing) taskEnds(id string) {
	k.t.Helper()
	until(k.t, "the end of task "+id, func() bool { return strings.HasPrefix(k.wants(id), "completed ") })
}

// results lists a parent's entries about its tasks, in order: their kinds, with the status of each end.
func (k *killing) results(parent string) string {
	k.t.Helper()
	var all []string
	for _, e := range k.v.entries(k.t, parent) {
		f, err := thread.Scan(e.Payload)
		if err != nil {
			k.t.Fatal(err)
		}
		var p thread.ChildFinished
		if err := json.Unmarshal(e.Payload, &p); err != nil {
			k.t.Fatal(err)
		}
		_, kind, _ := strings.Cut(f.Type, "signal.thread.")
		if f.Type == thread.TypeChat {
			kind = "chat"
		}
		if p.Status != "" {
			kind += " " + p.Status
		}
		if p.Corrected {
			kind += " corrected"
		}
		all = append(all, kind)
	}
	return strings.Join(all, ", ")
}

// oneResult is the results of a parent whose only task has completed.
const oneResult = "agent_spawn, child_finished completed, chat"

// settledOnce checks a task that has ended: it had one run, its boxes are gone, and its parent got one result, however
// often it is settled.
func (k *killing) settledOnce(parent, child string) {
	k.t.Helper()
	k.settles(child)
	for range 2 {
		if out, err := k.command("reconcile", child).CombinedOutput(); err != nil {
			k.t.Errorf("arbe reconcile: %v\n%s", err, out)
		}
	}
	k.once(child, 1)
	if got := k.results(parent); got != oneResult {
		k.t.Errorf("the parent has %s", got)
	}
	if n := k.r.text(k.t, "select count(*)::text from threads where task is not null"); n != "1" {
		k.t.Errorf("%s tasks have rows", n)
	}
}

// KILL of arbe delegate before its row is there, and before the task is on its parent. Another host launches the task,
// which its parent has once, before the run.
func TestFullDelegateKills(t *testing.T) {
	t.Parallel()
	k := newTaskKilling(t, "prompt\nsay done")
	t.Run("before the row", func(t *testing.T) {
		k := k.of(t)
		k.parent("prow")
		k.killedAt(k.delegate("prow"), "task")
		k.provisions()
		if got := k.results("prow"); got != "" {
			t.Errorf("the parent has %s", got)
		}
		child := k.delegated("prow")
		k.provisions()
		k.taskEnds(child)
		k.settledOnce("prow", child)
	})
	t.Run("before it is on the parent", func(t *testing.T) {
		k := k.of(t)
		k.parent("pspawn")
		k.killedAt(k.delegate("pspawn"), `.spawn"`)
		if got := k.results("pspawn"); got != "" {
			t.Errorf("the parent has %s", got)
		}
		child := k.r.text(t, "select id from threads where task is not null")
		// The host that posts it for the dead one is killed before it launches.
		k.killedAt(k.provision(), `.running"`)
		if got := k.results("pspawn"); got != "agent_spawn" {
			t.Errorf("before the run the parent has %s", got)
		}
		k.provisions()
		k.taskEnds(child)
		k.settledOnce("pspawn", child)
	})
}

// KILL of the server while it makes the row of a member's task. The member repeats its request: there is one task,
// which its parent has once.
func TestFullDelegateKillsOfServer(t *testing.T) {
	t.Parallel()
	k := newTaskKilling(t, "prompt\nsay done")
	k.parent("parent")
	out, err := k.v.arbe("token", "mint", "--scope", "member", "--agent", person).Output()
	if err != nil {
		t.Fatal(err)
	}
	post := func() (status int, answer string) {
		url, body := "http://"+k.v.addr+"/api/threads/parent/tasks", `{"task":"do it","environment":"cloud1"}`
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(out)))
		req.Header.Set("Idempotency-Key", "k1")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err.Error()
		}
		b, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			return 0, err.Error()
		}
		return resp.StatusCode, string(b)
	}
	k.r.exec(t, `insert into environments (id, house_id, name, runtime) values ('cloud1', 'house1', 'cloud', 'daytona')`)
	release, there := k.atRow("task")
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		if status, answer := post(); status != 0 {
			t.Errorf("the server that is killed answers: %d %s", status, answer)
		}
	}()
	until(t, "a server that makes the row", func() bool {
		select {
		case <-lost:
			return true
		default:
			return there()
		}
	})
	k.v.kill(t)
	<-lost
	release()
	k.v.start(t)
	status, first := post()
	if status != http.StatusCreated {
		t.Errorf("the repeated request: %d %s", status, first)
	}
	if status, again := post(); status != http.StatusOK || again != first {
		t.Errorf("the third request: %d %s, and before %s", status, again, first)
	}
	if n := k.r.text(t, "select count(*)::text from threads where task is not null"); n != "1" {
		t.Errorf("%s tasks have rows", n)
	}
	if got := k.results("parent"); got != "agent_spawn" {
		t.Errorf("the parent has %s", got)
	}
}

// KILL of arbe provision at each of its steps, while another host looks for tasks, and of the arbe reconcile that
// notifies the parent. Another host continues: the task has one run, no box is left, and its parent gets one result.
func TestFullProvisionKills(t *testing.T) {
	t.Parallel()
	provisionKills(t, "take", `.spawn"`, `.running"`, "claim")
}

func TestFullProvisionKillsOfBoxes(t *testing.T) {
	t.Parallel()
	provisionKills(t, "make", "made", `.sandbox"`, "signal.setup.command")
}

func TestFullProvisionKillsOfRuns(t *testing.T) {
	t.Parallel()
	provisionKills(t, "live", "launched", `.finished"`)
}

func provisionKills(t *testing.T, places ...string) {
	k := newTaskKilling(t, "prompt\nsay done")
	for _, place := range places {
		t.Run(place, func(t *testing.T) {
			k := k.of(t)
			parent := "p" + strings.NewReplacer(`"`, "", ".", "").Replace(place)
			k.parent(parent)
			child := k.delegated(parent)
			killed := k.provision()
			if place == `.finished"` {
				k.provisions()
				k.taskEnds(child)
				killed = k.command("reconcile", child)
			}
			// A host that waits 5 s for a lock gives the box up, and another one is made: these are killed at once.
			if place != "made" && place != "live" {
				k.meanwhile = func() {
					if out, err := k.provision().CombinedOutput(); err != nil {
						t.Errorf("the other host: %v\n%s", err, out)
					}
				}
			}
			k.killedAt(killed, place)
			if place != `.finished"` {
				k.provisions()
				k.taskEnds(child)
			}
			k.settledOnce(parent, child)
		})
	}
}

// KILL of arbe provision before the failure of a launch is on the log. Another host tries the launch again, and posts
// its failure, which the parent gets once.
func TestFullProvisionKillsOfFailures(t *testing.T) {
	t.Parallel()
	k := newTaskKilling(t, "prompt\nsay done")
	k.r.exec(t, `update environments set config = '{"setup": [{"run": "echo broken >&2; exit 3"}]}' where id = 'tasks1'`)
	k.parent("parent")
	child := k.delegated("parent")
	k.killedAt(k.provision(), `.orphan.0"`)
	k.provisions()
	k.settles(child)
	var f thread.Fold
	for _, e := range k.v.entries(t, child) {
		f.Add(e)
	}
	if runs := f.Runs(); len(runs) != 1 || runs[0].Cause == nil || !strings.Contains(runs[0].Cause.Message, "broken") {
		t.Errorf("the runs are %+v", runs)
	}
	notified := func() string {
		t.Helper()
		if out, err := k.command("reconcile", "--notify-after", "1ms", child).CombinedOutput(); err != nil {
			t.Fatalf("arbe reconcile: %v\n%s", err, out)
		}
		return k.results("parent")
	}
	const want = "agent_spawn, child_finished failed, chat"
	until(t, "a parent with the result", func() bool { return notified() == want })
	k.provisions()
	if got := notified(); got != want {
		t.Errorf("the parent has %s", got)
	}
}

// A host that can't see the box of a silent run ends the run for the time being, and notifies the parent. The run's own
// end replaces that, and the parent gets it once more, by one of two hosts.
func TestFullTaskCorrected(t *testing.T) {
	t.Parallel()
	gate := filepath.Join(t.TempDir(), "gate")
	k := newTaskKilling(t, "prompt\nwait "+gate+"\nsay done")
	k.parent("parent")
	child := k.delegated("parent")
	k.provisions()
	until(t, "a run that has begun", func() bool { return strings.Contains(k.entries(child), ".started ") })
	here := func() *exec.Cmd { return k.command("reconcile", "--notify-after", "1ms", child) }
	elsewhere := func() *exec.Cmd {
		cmd := k.command("reconcile", "--orphan-after", "300ms", "--notify-after", "1ms", child)
		cmd.Env = append(cmd.Env, "ARBE_DATA="+filepath.Join(k.v.dir, "elsewhere"))
		return cmd
	}
	both := func() string {
		t.Helper()
		var all sync.WaitGroup
		for _, cmd := range []*exec.Cmd{elsewhere(), here(), elsewhere(), here()} {
			all.Go(func() {
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("arbe reconcile: %v\n%s", err, out)
				}
			})
		}
		all.Wait()
		return k.results("parent")
	}
	const first = "agent_spawn, child_finished failed, chat"
	until(t, "a parent with the result", func() bool {
		out, err := elsewhere().CombinedOutput()
		if err != nil {
			t.Fatalf("arbe reconcile: %v\n%s", err, out)
		}
		return k.results("parent") == first
	})
	if got := both(); got != first {
		t.Errorf("the parent has of the provisional end: %s", got)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	k.taskEnds(child)
	const second = first + ", child_finished completed corrected, chat"
	for range 2 {
		if got := both(); got != second {
			t.Errorf("the parent has of the run's own end: %s", got)
		}
	}
	entries := k.v.entries(t, "parent")
	for i, want := range []string{
		child + ".spawn", ".finished", ".result", ".finished.corrected", ".result.corrected",
	} {
		if i < len(entries) && !strings.HasSuffix(entries[i].ID, want) {
			t.Errorf("entry %d is %s, want %s", i, entries[i].ID, want)
		}
	}
	if last := string(entries[len(entries)-1].Payload); !strings.Contains(last, "has completed after all") {
		t.Errorf("the last chat is %s", last)
	}
	k.settles(child)
	if got := k.results("parent"); got != second {
		t.Errorf("the parent has in the end: %s", got)
	}
}
