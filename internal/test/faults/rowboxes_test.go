package faults_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/sandbox/local"
	"arbe.0sk.ar/runner/internal/test/fakeagent"
	"arbe.0sk.ar/runner/thread"
)

// moves notes each thread that gets another box, and the transaction.
const moves = `
	create table moves (thread text, box text, transaction bigint);
	create function moved() returns trigger language plpgsql as $$
	begin
		insert into moves values (new.id, new.sandbox_id, txid_current());
		return new;
	end;
	$$;
	create trigger moved before update on threads for each row
		when (old.sandbox_id is not null and new.sandbox_id is distinct from old.sandbox_id) execute function moved();
	create trigger stop_noted before delete on sandbox_notices for each row execute function stop('noted');`

// plan sets the steps of the agents of later launches.
func (k *killing) plan(lines ...string) {
	k.t.Helper()
	if err := os.WriteFile(filepath.Join(k.v.dir, "plan"), []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		k.t.Fatal(err)
	}
}

// start is a launch on a thread that has a row, into a box that is kept.
func (k *killing) start(id string, flags ...string) *exec.Cmd {
	args := append([]string{"launch", "--thread", id, "--keep", "--env", fakeagent.PlanVar}, flags...)
	return k.command(append(args, "--", "do it")...)
}

// resume is a launch that continues the conversation of a thread.
func (k *killing) resume(id string) *exec.Cmd { return k.start(id, "--resume") }

// share launches runs on threads in one box, which no run's end releases.
func (k *killing) share(ids ...string) {
	k.t.Helper()
	k.all(k.start(ids[0], "--environment", "env1"))
	for _, id := range ids[1:] {
		k.r.thread(k.t, "house1", id)
		k.r.exec(k.t, `update threads set sandbox_id = (select sandbox_id from threads where id = $1) where id = $2`,
			ids[0], id)
		k.all(k.start(id))
	}
}

// machines are the boxes that the provider has.
func (k *killing) machines() (all []string) {
	k.t.Helper()
	found, err := local.New(filepath.Join(k.v.dir, "boxes")).List(k.t.Context(), nil)
	if err != nil {
		k.t.Fatal(err)
	}
	for _, b := range found {
		all = append(all, b.Ref.ID)
	}
	return all
}

// vanish takes all machines away, with what runs in them, and leaves the rows.
func (k *killing) vanish() {
	k.t.Helper()
	local := local.New(filepath.Join(k.v.dir, "boxes"))
	for _, id := range k.machines() {
		if err := local.Destroy(k.t.Context(), id); err != nil {
			k.t.Fatal(err)
		}
	}
}

// all runs programs at the same time, and returns their outputs. It fails the test unless each succeeds.
func (k *killing) all(cmds ...*exec.Cmd) (outputs []string) {
	k.t.Helper()
	outs, errs := make([]bytes.Buffer, len(cmds)), make([]bytes.Buffer, len(cmds))
	for i, cmd := range cmds {
		cmd.Stdout, cmd.Stderr = &outs[i], &errs[i]
		if err := cmd.Start(); err != nil {
			k.t.Fatal(err)
		}
	}
	failed := false
	for i, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			k.t.Errorf("%s: %v\n%s%s", cmd.Args[1], err, &outs[i], &errs[i])
			failed = true
		}
		outputs = append(outputs, outs[i].String())
	}
	if failed {
		k.t.FailNow()
	}
	return outputs
}

// fold is a thread's, and its entries.
func (k *killing) fold(id string) (f thread.Fold, entries []thread.Entry) {
	k.t.Helper()
	entries = k.v.entries(k.t, id)
	for _, e := range entries {
		f.Add(e)
	}
	return f, entries
}

// ends waits until the newest run of each thread has ended.
func (k *killing) ends(ids ...string) {
	k.t.Helper()
	for _, id := range ids {
		until(k.t, "the run's end on "+id, func() bool {
			f, _ := k.fold(id)
			return f.Status() != thread.StatusRunning
		})
	}
}

// resumed returns the boxes that the signals on a thread name, in their order. None may be there twice.
func (k *killing) resumed(id string) (boxes []string) {
	k.t.Helper()
	_, entries := k.fold(id)
	for _, e := range entries {
		if row, is := strings.CutSuffix(e.ID, ".resumed"); is {
			row = strings.TrimPrefix(row, "sandbox.")
			if slices.Contains(boxes, row) {
				k.t.Errorf("%s is on thread %s twice", e.ID, id)
			}
			boxes = append(boxes, row)
		}
	}
	return boxes
}

// A box dies under three threads that run in it. Two hosts end the runs. Then three hosts resume the threads at the
// same time: all land in one new box, their rows are changed in one transaction, each has one signal of it, and the
// conversations continue.
func TestFullBoxDiesUnderThree(t *testing.T) {
	t.Parallel()
	k := newKilling(t)
	k.r.exec(t, moves)
	ids := []string{"one", "two", "three"}
	k.plan("prompt", "call bash", "wait "+filepath.Join(k.v.dir, "never"))
	k.share(ids...)
	machine := k.machines()
	for _, id := range ids {
		until(t, "lines of the run on "+id, func() bool {
			_, entries := k.fold(id)
			return slices.ContainsFunc(entries, func(e thread.Entry) bool { return strings.HasSuffix(e.ID, ":m2") })
		})
		if f, _ := k.fold(id); len(machine) != 1 || f.Runs()[0].Sandbox.Ref != machine[0] {
			t.Fatalf("thread %s runs in %+v, and the boxes are %v", id, f.Runs()[0].Sandbox, machine)
		}
	}
	k.vanish()
	k.plan("prompt", "say done")
	for _, id := range ids {
		until(t, "an end of the run on "+id, func() bool {
			settle := func() *exec.Cmd { return k.command("reconcile", id, "--orphan-after", "300ms") }
			k.all(settle(), settle())
			f, _ := k.fold(id)
			return f.Status() == thread.StatusFailed
		})
	}
	var resumes []*exec.Cmd
	for _, id := range ids {
		resumes = append(resumes, k.resume(id))
	}
	k.all(resumes...)
	k.ends(ids...)
	if now := k.machines(); len(now) != 1 || now[0] == machine[0] {
		t.Errorf("the boxes are %v", now)
	}
	row := k.r.text(t, "select string_agg(distinct sandbox_id, ' ') from threads")
	for _, tt := range []struct{ what, sql, want string }{
		{"boxes", "select count(*)::text from sandboxes where status <> 'dead' or destroyed_at is null", "1"},
		{"moves", "select string_agg(thread, ' ' order by thread) from moves", "one three two"},
		{"transactions", "select count(distinct transaction)::text from moves", "1"},
		{"threads without the signal", "select count(*)::text from sandbox_notices", "0"},
	} {
		if got := k.r.text(t, tt.sql); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.what, got, tt.want)
		}
	}
	for _, id := range ids {
		f, entries := k.fold(id)
		runs := f.Runs()
		if len(runs) != 2 || runs[1].Status != thread.StatusCompleted || runs[1].Sandbox.Ref != k.machines()[0] {
			t.Errorf("%s: got %+v", id, runs)
		}
		if boxes := k.resumed(id); len(boxes) != 1 || boxes[0] != row {
			t.Errorf("%s: resumed %v, want %s", id, boxes, row)
		}
		// The agent numbers its messages on from those of the session that it finds.
		session, numbers := "", ""
		for _, e := range entries {
			if s, number, is := strings.Cut(strings.TrimPrefix(e.ID, "pi:"), ":m"); is {
				if numbers += number; session != "" && session != s {
					t.Errorf("%s: sessions %s and %s", id, session, s)
				}
				session = s
			}
		}
		if numbers != "1234" {
			t.Errorf("%s: messages %s\n%s", id, numbers, k.entries(id))
		}
	}
}

// settled lets two hosts reconcile all and one thread, at the same time, until a condition holds.
func (k *killing) settled(id, what string, is func() bool) {
	k.t.Helper()
	var outs [4]bytes.Buffer
	ok := false
	defer func() {
		if !ok {
			k.t.Logf("left: %s\nthe last reconciles:\n%s\n%s", k.left(), &outs[0], &outs[2])
		}
	}()
	until(k.t, what, func() bool {
		k.r.exec(k.t, "update sandboxes set pending_until = now() - interval '1 s' where status = 'pending'")
		k.r.exec(k.t, "update threads set claimed_at = now() - interval '1 h' where claimed_at is not null")
		k.r.exec(k.t, "update sandbox_holds set at = now() - interval '1 h'")
		var cmds [4]*exec.Cmd
		for i := range cmds {
			outs[i].Reset()
			cmds[i] = k.command("reconcile", "--orphan-after", "300ms", []string{"--all", id}[i/2])
			cmds[i].Stdout, cmds[i].Stderr = &outs[i], &outs[i]
			if err := cmds[i].Start(); err != nil {
				k.t.Fatal(err)
			}
		}
		for _, cmd := range cmds {
			_ = cmd.Wait() // what one fails to do is repeated
		}
		return is()
	})
	ok = true
}

// left counts the leftovers besides logs: boxes that may have a machine, machines, holds, claims, threads without the
// signal of their box.
func (k *killing) left() string {
	k.t.Helper()
	return k.r.text(k.t, `select concat_ws(' ',
		(select count(*) from sandboxes where status <> 'dead' or destroyed_at is null), $1::int,
		(select count(*) from sandbox_holds), (select count(*) from threads where claimed_run is not null),
		(select count(*) from sandbox_notices))`, len(k.machines()))
}

// KILL of the launch that resumes a thread whose box has died, at each of its steps. Another host resumes a thread of
// the same box, and two hosts reconcile. Both threads are in one box then, each has one signal of it, no box is left,
// and the thread of the launch that was killed runs again.
func TestFullResumeKills(t *testing.T) {
	t.Parallel()
	k := newKilling(t)
	k.r.exec(t, moves)
	for _, place := range []string{"dead", "gone", "make", `.resumed"`, "noted", "made", `.sandbox"`, "live"} {
		t.Run("before "+place, func(t *testing.T) {
			k := k.of(t)
			name := strings.NewReplacer(`"`, "", ".", "").Replace(place)
			a, b := "a"+name, "b"+name
			k.share(a, b)
			k.ends(a, b)
			k.vanish()
			k.killedAt(k.resume(a), place)
			k.r.exec(t, "update sandboxes set pending_until = now() - interval '1 s' where status = 'pending'")
			k.all(k.resume(b))
			k.ends(b)
			k.settled(a, "one box, and no run that is open", func() bool {
				f, _ := k.fold(a)
				return f.Status() != thread.StatusRunning && k.left() == "1 1 0 0 0"
			})
			k.all(k.resume(a))
			k.ends(a)
			// The hosts that reconcile know of no launch: the rows lead them to what holds the box.
			if err := os.RemoveAll(filepath.Join(k.v.dir, "launched")); err != nil {
				t.Fatal(err)
			}
			k.settled(b, "one box", func() bool { return k.left() == "1 1 0 0 0" })
			row := k.r.text(t, "select string_agg(distinct sandbox_id, ' ') from threads")
			for _, id := range []string{a, b} {
				boxes := k.resumed(id)
				if len(boxes) == 0 || boxes[len(boxes)-1] != row {
					t.Errorf("%s is in %s, and has signals of %v", id, row, boxes)
				}
				for _, box := range boxes {
					if k.r.text(t, "select count(*)::text from moves where thread = $1 and box = $2", id, box) != "1" {
						t.Errorf("%s has a signal of %s, where it never was", id, box)
					}
				}
				f, _ := k.fold(id)
				if last, _ := f.Latest(); last.Status != thread.StatusCompleted {
					t.Errorf("the last run of %s is %s", id, last.Status)
				}
			}
			k.vanish()
		})
	}
}

// KILL of a reconciler at each step of what it does after a delegated run: the result on the parent, the release of the
// box. Two others settle the same thread at the same time: the parent has the result once, and no box is left.
func TestFullReapKills(t *testing.T) {
	t.Parallel()
	k := newKilling(t)
	for _, place := range []string{`.finished"`, "dead", "gone"} {
		t.Run("before "+place, func(t *testing.T) {
			k := k.of(t)
			name := strings.NewReplacer(`"`, "", ".", "").Replace(place)
			child, parent := "c"+name, "p"+name
			k.all(k.command("launch", "--thread", child, "--environment", "env1", "--parent", parent,
				"--env", fakeagent.PlanVar, "--", "do it"))
			k.ends(child)
			k.killedAt(k.command("reconcile", child), place)
			k.settled(child, "no box", func() bool { return k.left() == "0 0 0 0 0" })
			_, entries := k.fold(parent)
			count := map[string]int{}
			for _, e := range entries {
				for _, suffix := range []string{".finished", ".result"} {
					if strings.HasSuffix(e.ID, suffix) {
						count[suffix]++
					}
				}
			}
			if count[".finished"] != 1 || count[".result"] != 1 {
				t.Errorf("on the parent: %v\n%s", count, k.entries(parent))
			}
			k.once(child, 1)
		})
	}
}
