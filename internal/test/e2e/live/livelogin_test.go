package live_test

import (
	"slices"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/scene"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/thread"
)

// An agent without a login asks no model, and the run fails: codex and claude-code take the chat into a turn that
// fails, pi refuses the chat. None stays pending.
func TestFullLiveNoLogin(t *testing.T) {
	classes := map[string]string{"pi": "pi_exit", "codex": "provider_error", "claude-code": "provider_error"}
	messages := map[string]string{
		"pi": "No API key", "codex": "Missing environment variable", "claude-code": "Not logged in",
	}
	for _, name := range harness.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := scene.NewLive(t, name, scene.Fine)
			l.Without(l.Agent.KeyVar)
			l.Args = append(l.Args, "--idle", "1s")
			l.Begin()
			exit, e := l.Status(l.R), l.End()
			if exit != 1 || e.Status != thread.StatusFailed || e.Cause.ErrorClass != classes[name] ||
				!strings.Contains(e.Cause.Message, messages[name]) {
				t.Errorf("exit status %d, the run is %s: %+v", exit, e.Status, e.Cause)
			}
			if n := len(l.Model.Requests()); n != 0 {
				t.Errorf("the model was asked %d times", n)
			}
			if left := l.PendingChats(); len(left) != 0 {
				t.Errorf("pending: %+v", left)
			}
			if name == "pi" {
				refused := func(e thread.Entry) bool {
					r := scene.Payload[thread.ChatRefused](t, e)
					return r.Type == thread.TypeRefused && r.Chat == "r1.prompt" &&
						strings.Contains(r.Reason, "No API key")
				}
				if entries := l.Entries(); !slices.ContainsFunc(entries, refused) {
					t.Errorf("the chat was not refused:\n%.3000s", scene.TextOf(entries))
				}
				return
			}
			if got := l.Named(); !slices.Equal(got, []string{"r1.prompt"}) {
				t.Errorf("delivered %q", got)
			}
		})
	}
}
