package faults_test

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/thread"
)

// execRows are a house's threads for commands, and an environment with a setup.
const execRows = `
	insert into environments (id, house_id, name, runtime, config)
		values ('env2', 'house1', 'set up', 'local', '{"setup": [{"run": "echo ready >ready"}]}');
	update houses set default_environment_id = 'env2' where id = 'house1'`

// execs counts the commands on a thread, and those without an end.
func (k *killing) execs(id string) (all, open int) {
	var f thread.Fold
	for _, e := range k.v.entries(k.t, id) {
		f.Add(e)
		if x, n, is := thread.ParseExecID(e.ID); is && n == 0 && x != "" {
			all++
		}
	}
	return all, len(f.OpenExecs())
}

// KILL of arbe exec at each step of making a box. Another process ends the command and deletes what was made; the next
// command makes one box.
func TestFullExecKills(t *testing.T) {
	t.Parallel()
	k := newKilling(t)
	k.r.exec(t, execRows)
	for _, tt := range []struct {
		name, place string
		execs       int // of the program that is killed: 1 if it is on the log
	}{
		{"before the log has the command", `.exec.0"`, 0},
		{"before the box has a row", "make", 1},
		{"before the row has the machine", "made", 1},
		{"after the setup", "signal.setup.command", 1},
		{"before the box is live", "live", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := k.of(t)
			id := "x" + strings.NewReplacer(`"`, "", ".", "").Replace(tt.place)
			k.r.exec(t, "insert into threads (id, house_id, stream_id) values ($1, 'house1', $1)", id)
			k.killedAt(k.command("exec", id, "--", "cat", "ready"), tt.place)
			k.settlesExecs(id, tt.execs)
			out, err := k.command("exec", id, "--", "cat", "ready").Output()
			if err != nil || string(out) != "ready\n" {
				t.Errorf("the next command: %v, %q\n%s", err, out, k.entries(id))
			}
			if all, open := k.execs(id); all != tt.execs+1 || open != 0 {
				t.Errorf("%d commands, %d open", all, open)
			}
			if got := k.state(id); !strings.HasSuffix(got, " 1 boxes, 0 holds, 1 machines") {
				t.Errorf("afterwards: %s", got)
			}
			k.removeBoxes()
		})
	}
	t.Run("the server that makes the box", func(t *testing.T) { k.of(t).serverKilled() })
}

// settlesExecs reconciles until the commands of a thread have ends, and nothing is left of its box.
func (k *killing) settlesExecs(id string, execs int) {
	k.t.Helper()
	until(k.t, "an end, and no box", func() bool {
		k.r.exec(k.t, "update sandboxes set pending_until = now() - interval '1 s' where status = 'pending'")
		_ = k.command("reconcile", "--all", "--orphan-after", "300ms").Run() // repeated if it fails
		all, open := k.execs(id)
		return all == execs && open == 0 && strings.HasSuffix(k.state(id), " 0 boxes, 0 holds, 0 machines")
	})
}

// serverKilled kills a server that makes the box for a command that came over HTTP. The next one is done.
func (k *killing) serverKilled() {
	const id = "xserver"
	k.r.exec(k.t, "insert into threads (id, house_id, stream_id) values ($1, 'house1', $1)", id)
	k.v.kill(k.t)
	k.v.args, k.v.env = append(k.v.args, "--local-boxes"), append(k.v.env, "PATH="+os.Getenv("PATH"))
	k.v.start(k.t)
	post := func(body string) {
		k.t.Helper()
		req, err := http.NewRequestWithContext(k.t.Context(), "POST",
			"http://"+k.v.addr+"/api/threads/"+id+"/commands", strings.NewReader(body))
		if err != nil {
			k.t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+k.v.mint(k.t, id))
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			k.t.Fatal(err)
		}
		b, err := io.ReadAll(answer.Body)
		if err := errors.Join(err, answer.Body.Close()); err != nil || answer.StatusCode != http.StatusCreated {
			k.t.Fatalf("got %d %s, %v", answer.StatusCode, b, err)
		}
	}
	release, there := k.atRow("made")
	post(`{"command":"cat ready","id":"c1"}`)
	until(k.t, "a server that makes the box", there)
	k.v.kill(k.t)
	release()
	k.v.start(k.t)
	k.settlesExecs(id, 1)
	post(`{"command":"cat ready","id":"c2"}`)
	until(k.t, "the next command's end", func() bool {
		all, open := k.execs(id)
		return all == 2 && open == 0
	})
	if all := k.entries(id); !strings.Contains(all, `"execId":"c2","exitCode":0`) {
		k.t.Errorf("the thread has %s", all)
	}
	k.removeBoxes()
}

// removeBoxes removes all boxes.
func (k *killing) removeBoxes() {
	k.t.Helper()
	out, err := k.command("sandbox", "list").Output()
	if err != nil {
		k.t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		ref, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if out, err := k.command("sandbox", "rm", ref).CombinedOutput(); err != nil {
			k.t.Fatalf("remove %s: %v\n%s", ref, err, out)
		}
	}
}
