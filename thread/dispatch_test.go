package thread_test

import (
	"fmt"
	"testing"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// foldOf folds entries, each "id payload", received a minute after each other.
func foldOf(entries ...[2]string) thread.Run {
	var f thread.Fold
	for i, e := range entries {
		at := time.Date(2026, 6, 1, 12, i, 0, 0, time.UTC)
		f.Add(thread.Entry{ID: e[0], TS: thread.Stamp(at), At: thread.Stamp(at), Payload: []byte(e[1])})
	}
	run, _ := f.Latest()
	return run
}

func payloadOf(typ, more string) string {
	return fmt.Sprintf(`{"type":%q,"runId":"r1","harness":"pi"%s}`, typ, more)
}

// What a host posts of a run is folded, and only what the host posts before there is an agent names its box and parent.
func TestFoldHost(t *testing.T) {
	minute := func(n int) time.Time { return time.Date(2026, 6, 1, 12, n, 0, 0, time.UTC) }
	running := [2]string{
		"r1.running", payloadOf(thread.TypeStatus, `,"status":"running","parent":{"threadId":"p","authorId":"a"}`),
	}
	box := func(id, ref string) [2]string {
		return [2]string{id, payloadOf(thread.TypeSandbox, fmt.Sprintf(
			`,"sandbox":{"provider":"local","ref":%q,"ephemeral":true},"after":{"push":{"repo":"o/r","branch":"b","pr":true},"keep":false}`,
			ref,
		))}
	}
	r := foldOf(running,
		[2]string{"r1.setup.0", payloadOf(thread.SetupType(thread.StepAgent), `,"name":"pi","durationMs":5`)},
		box("r1.sandbox", "b1"), box("other", "b2"),
		[2]string{"other.running", payloadOf(thread.TypeStatus, `,"status":"running","parent":{"threadId":"q"}`)},
		[2]string{"pi:s:1", `{"type":"pi.assistant"}`},
		[2]string{"c1", `{"type":"chat","text":"hi"}`},
	)
	if r.Sandbox == nil || r.Sandbox.Ref != "b1" || !r.Ephemeral || r.After == nil || r.After.Push == nil ||
		r.After.Push.Branch != "b" {
		t.Errorf("box %+v, after %+v", r.Sandbox, r.After)
	}
	if r.Parent == nil || r.Parent.ThreadID != "p" || r.Setups != 1 {
		t.Errorf("parent %+v, %d steps", r.Parent, r.Setups)
	}
	if !r.LastEntry.Equal(minute(5)) || !r.LastSignal.Equal(minute(4)) || !r.Ended.IsZero() {
		t.Errorf("last entry %v, last signal %v, ended %v", r.LastEntry, r.LastSignal, r.Ended)
	}

	r = foldOf(
		running,
		box("r1.sandbox", "b1"),
		[2]string{"r1.orphan.0", payloadOf(thread.TypeOrphaned, `,"reason":"silent"`)},
		[2]string{"r1.end.0", payloadOf(thread.TypeStatus, `,"status":"completed"`)},
		[2]string{"r1.push.0", payloadOf(thread.TypePush, `,"pushed":false,"error":"no"`)},
		[2]string{"r1.push.1", payloadOf(thread.TypePush, `,"pushed":true,"prUrl":"u"`)},
		[2]string{"r1.sync.0", payloadOf(thread.TypeSync, `,"copied":2,"conflicts":["a"],"deleted":0`)},
		[2]string{
			"r1.kept.0",
			payloadOf(
				thread.TypeSandboxKept,
				`,"sandbox":{"provider":"local","ref":"b1"},"reason":"why","until":"u"`,
			),
		},
	)
	if r.Status != thread.StatusCompleted || r.Provisional || !r.Ended.Equal(minute(3)) ||
		!r.LastEntry.Equal(minute(3)) {
		t.Errorf("%s, provisional %v, ended %v, last entry %v", r.Status, r.Provisional, r.Ended, r.LastEntry)
	}
	if r.Push == nil || !r.Push.Pushed || r.Pushes != 2 || r.Sync == nil || len(r.Sync.Conflicts) != 1 ||
		r.Syncs != 1 ||
		r.Kept == nil ||
		r.Kept.Reason != "why" {
		t.Errorf("push %+v of %d, sync %+v of %d, kept %+v", r.Push, r.Pushes, r.Sync, r.Syncs, r.Kept)
	}
}
