package faults_test

import (
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
			until(t, "an end, and no box", func() bool {
				k.r.exec(t, "update sandboxes set pending_until = now() - interval '1 s' where status = 'pending'")
				_ = k.command("reconcile", "--all", "--orphan-after", "300ms").Run() // repeated if it fails
				all, open := k.execs(id)
				return all == tt.execs && open == 0 && strings.HasSuffix(k.state(id), " 0 boxes, 0 holds, 0 machines")
			})
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
