package live_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"arbe.0sk.ar/runner/internal/test/scene"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/thread"
)

// A claude-code that notes a leaf of its session, and is killed when later turns stand beside it, continues from the
// last turn, in the box, rebuilt, and rebuilt by hand without a runner.
func TestFullClaudeLeaf(t *testing.T) {
	for _, how := range []string{"continue", "hydrate"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			l := scene.NewLive(t, "claude-code", scene.Say("Hello."))
			l.Begin()
			l.Waits(1)
			l.Model.More(model.Reply{Status: 500, Message: "not now"}, scene.Slowly(10000))
			l.Say("chat-before-the-error")
			l.Until("the error", func() bool { return strings.Contains(scene.TextOf(l.Entries()), `"subtype":"api_error"`) })
			killAgent(l, "r1")
			note(l, lastError(l))

			l.Model.Drop()
			l.Model.More(scene.Fine)
			l.Without("ARBE_RUN_ID")
			l.Env = append(l.Env, "ARBE_RUN_ID=r2")
			l.Prompt = "the task of r2"
			l.Args = append(l.Args, "--resume")
			l.Begin()
			waitsIn(l, "r2", "r2.prompt")
			waitsIn(l, "r2", l.Say("chat-beside-the-error"))
			killAgent(l, "r2")

			told := []string{
				"the task that stands first", "chat-before-the-error", "the task of r2", "chat-beside-the-error",
			}
			l.Model.Drop()
			l.Args = append(slices.DeleteFunc(slices.Clone(l.Args), func(a string) bool { return a == "--resume" }),
				"--idle", "1s", "--resume")
			s := l.Scene
			if how == "hydrate" {
				continueByHand(l, told...)
				args := l.Args
				s = l.NextOf("claude-code", l.Agent.Version, "r3")
				s.Args = args
			}
			s.OnFrom("r3", how, told...)
			s.Model.More(scene.Say("This is said in r4."))
			s.OnFrom("r4", "continue", append(told, "go on with r3", "This is said in r3.")...)
		})
	}
}

// continueByHand rebuilds the session in another box, as a person does, and continues it there. The model must get each
// of these texts once.
func continueByHand(l *scene.Live, told ...string) {
	l.T.Helper()
	s := l.NextOf("claude-code", l.Agent.Version, "by-hand", scene.Say("This is said by hand."))
	id := l.Known("r1").SessionID
	file := filepath.Join(s.Dir, ".claude", "projects", "here", id+".jsonl")
	if out := s.Hydrate("--harness", "claude-code", "--out", file); !strings.Contains(out, "1 line added") {
		l.T.Errorf("the report lacks the added line:\n%s", out)
	}
	spec, err := harness.Lookup("claude-code")
	if err != nil {
		l.T.Fatal(err)
	}
	program, err := harness.Find(spec, filepath.Join(s.Agent.Bin(), "claude"), os.Getenv)
	if err != nil {
		l.T.Fatal(err)
	}
	cmd := exec.Command(program, "-p", "--resume", id, "go on by hand")
	cmd.Env, cmd.Dir = s.Agent.Env(s.Dir), filepath.Join(s.Dir, "work")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "This is said by hand.") {
		l.T.Errorf("%v: %s", err, out)
	}
	asked := s.Asked()
	for _, want := range append(told, "go on by hand") {
		if strings.Count(asked, want) != 1 {
			l.T.Errorf("by hand the model was told %q %d times", want, strings.Count(asked, want))
		}
	}
}

// killAgent kills the agent of a run, and waits for the run's end.
func killAgent(l *scene.Live, run string) {
	l.T.Helper()
	if err := syscall.Kill(l.Known(run).AgentPID, syscall.SIGKILL); err != nil {
		l.T.Fatal(err)
	}
	if got := l.Status(l.R); got == 0 {
		l.T.Error("the run of a killed agent exits with 0")
	}
}

// waitsIn waits for the end of a run's turn that has the chat.
func waitsIn(l *scene.Live, run, chat string) {
	l.T.Helper()
	l.Until("the end of the turn with "+l.Texts[chat], func() bool {
		return slices.ContainsFunc(l.Entries(), func(e thread.Entry) bool {
			w := scene.Payload[thread.Waiting](l.T, e)
			return w.Type == thread.TypeWaiting && w.RunID == run && slices.Contains(w.Chats, chat)
		})
	})
}

// lastError returns the id of the session's last line about an error of the API.
func lastError(l *scene.Live) (id string) {
	l.T.Helper()
	file, err := os.ReadFile(l.Known("r1").Session)
	if err != nil {
		l.T.Fatal(err)
	}
	for line := range bytes.Lines(file) {
		var row struct{ UUID, Subtype string }
		if json.Unmarshal(line, &row) == nil && row.Subtype == "api_error" {
			id = row.UUID
		}
	}
	return id
}

// note adds a line to the session that notes a leaf. claude itself writes it at times.
func note(l *scene.Live, leaf string) {
	l.T.Helper()
	k := l.Known("r1")
	line := fmt.Sprintf(`{"type":"last-prompt","lastPrompt":"go","leafUuid":"%s","sessionId":"%s"}`, leaf, k.SessionID)
	f, err := os.OpenFile(k.Session, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		l.T.Fatal(err)
	}
	_, err = f.WriteString(line + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		l.T.Fatal(err)
	}
}
