package bots_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/internal/test/scene"
	"arbe.0sk.ar/runner/thread"
)

// Postgres is killed while a bot's command runs, and is there again after the command has ended: the result, from which
// secrets are removed by the rows, is tried again. The command has run once, and its host has kept the answer.
func TestFullCommandPostgresKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	run := map[string]any{"command": fmt.Sprintf("echo line >>%s; until [ -e %s ]; do sleep 0.05; done; echo printed",
		at("lines"), at("go"))}
	h := newHouse(t, calling("go on", "run_command", run), model.Reply{Text: "done", Times: -1})
	h.environment("quick", `{}`)
	h.serve("--reconcile=false")
	var hosts []*buffer
	for range 2 {
		h.dispatch("--local-boxes")
		hosts = append(hosts, h.logs[len(h.logs)-1])
	}
	id := h.in("quick")
	h.say(id, "@piet go on")
	h.there(at("lines"))
	scene.Until(t, "the command is known to run", func() bool {
		return len(payloads[thread.ExecRunning](h, id, thread.TypeExecRunning)) > 0
	})
	if err := h.pg.Kill(); err != nil {
		t.Fatal(err)
	}
	h.touch(at("go"))
	scene.Until(t, "a host that can't have the result", func() bool {
		return strings.Contains(hosts[0].String()+hosts[1].String(), "a call can't be run, and is tried again")
	})
	if err := h.pg.Restart(); err != nil {
		t.Fatal(err)
	}
	h.answered(id)
	if b, err := os.ReadFile(at("lines")); err != nil || string(b) != "line\n" {
		t.Errorf("it has run so: %q, %v", b, err)
	}
	results := payloads[thread.CallResult](h, id, thread.TypeResult)
	if len(results) != 1 || results[0].IsError || !strings.Contains(string(results[0].Message), `printed`) {
		t.Errorf("results %+v", results)
	}
	if claims := payloads[thread.ReactionClaimed](h, id, thread.TypeReactionClaimed); len(claims) != 1 {
		t.Errorf("%d claims", len(claims))
	}
}
