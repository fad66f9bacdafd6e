package rows_test

import (
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/scene"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/internal/test/fakedaytona"
	"arbe.0sk.ar/runner/thread"
)

// Commands at Daytona, without an agent: the first one makes the box by the thread's environment, several run in it at
// the same time. One whose box vanishes is ended, and the next one makes another box.
func TestFullDaytonaExec(t *testing.T) {
	t.Parallel()
	h := scene.NewHost(t)
	url := withRows(h)
	d := fakedaytona.New(t)
	h.Env = append(h.Env, "DAYTONA_API_KEY="+d.Key, "DAYTONA_API_URL="+d.URL, "ARBE_BOX_STREAM_URL="+scene.Server)
	h.Thread = h.Arbe("thread", "new")
	onDatabase(h, url, func(c *pgx.Conn) error {
		_, err := c.Exec(t.Context(), `insert into environments (id, house_id, name, runtime, config)
			values ('env2', 'house1', 'cloud', 'daytona', '{"setup": [{"run": "echo ready >made"}]}')`)
		if err == nil {
			_, err = c.Exec(t.Context(), `insert into threads (id, house_id, stream_id, environment_id)
				values ($1, 'house1', $1, 'env2')`, h.Thread)
		}
		return err
	})
	run := func(args ...string) string {
		t.Helper()
		out, err := h.Command(append([]string{"exec", h.Thread, "--"}, args...)...).Output()
		if err != nil {
			t.Errorf("arbe exec %q: %v\n%s", args, err, scene.TextOf(h.Entries()))
		}
		return string(out)
	}
	if got := run("cat", "made"); got != "ready\n" {
		t.Errorf("got %q", got)
	}
	if got := strings.Join(h.Steps(), ", "); got != "box making a daytona sandbox, command echo ready >made" {
		t.Errorf("steps %s", got)
	}
	boxes := d.Boxes()
	if len(boxes) != 1 || boxes[0].Labels["arbe.thread"] != h.Thread || boxes[0].Labels["arbe.house"] != "house1" ||
		boxes[0].Labels["arbe.environment"] != "env2" {
		t.Fatalf("boxes %+v", boxes)
	}

	one := h.Command("exec", h.Thread, "--", "sh", "-c", "until [ -f two ]; do sleep 0.1; done; echo first")
	var first strings.Builder
	one.Stdout = &first
	if err := one.Start(); err != nil {
		t.Fatal(err)
	}
	if got := run("sh", "-c", "touch two; echo second"); got != "second\n" {
		t.Errorf("got %q", got)
	}
	if err := one.Wait(); err != nil || first.String() != "first\n" {
		t.Errorf("got %q, %v", first.String(), err)
	}

	if out, err := h.Try("exec", "--detach", h.Thread, "--", "sh", "-c", "echo waiting; sleep 1000"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	scene.Until(t, "the command runs", func() bool { return strings.Contains(scene.TextOf(h.Entries()), `"text":"waiting\n"`) })
	d.Vanish(boxes[0].ID)
	scene.Until(t, "the command is given up", func() bool {
		if out, err := h.Try("reconcile", "--orphan-after", "1s", h.Thread); err != nil {
			t.Fatalf("reconcile: %v\n%s", err, out)
		}
		return strings.Contains(scene.TextOf(h.Entries()), `"error":"its sandbox is gone"`)
	})
	if got := run("cat", "made"); got != "ready\n" {
		t.Errorf("in another box: %q", got)
	}
	if all := scene.TextOf(h.Entries()); strings.Count(all, thread.TypeSandboxResumed) != 1 {
		t.Errorf("the thread has %s", all)
	}
	if left := d.Boxes(); len(left) != 1 || left[0].ID == boxes[0].ID {
		t.Errorf("boxes %+v", left)
	}
	for _, r := range d.Requests() {
		if strings.Contains(r.Path, "eyJ") {
			t.Errorf("a token is in the path of %s %s", r.Method, r.Path)
		}
	}
}
